/* Counts the values of a tensor that are NaN or infinite. All bits of their exponent are set.
 *
 * The scan reads memory that loading reads anyway. It takes the largest exponent of each chunk of fixed length and
 * looks at single values only in chunks where this exponent has all bits set. The compiler turns the loop over a chunk
 * into vector instructions, and the threads of a pool share the chunks, so the scan runs at the speed of memory. */
#include "model/loader.h"

enum { CHUNK = 1024 };
#define TASK_ELEMENTS ((size_t)1 << 20) /* at most in a task */

/* ---- Elements in memory ------------------------------------------------------------------------------------------ */

static bool has_bad_16(const uint8_t *p, uint16_t exponent) {
    uint16_t v[CHUNK], largest = 0;
    memcpy(v, p, sizeof v); /* the data of a file may be unaligned */
    for (int i = 0; i < CHUNK; i++) {
        uint16_t e = v[i] & exponent;
        largest = e > largest ? e : largest;
    }
    return largest == exponent;
}

static bool has_bad_32(const uint8_t *p, uint32_t exponent) {
    uint32_t v[CHUNK], largest = 0;
    memcpy(v, p, sizeof v);
    for (int i = 0; i < CHUNK; i++) {
        uint32_t e = v[i] & exponent;
        largest = e > largest ? e : largest;
    }
    return largest == exponent;
}

static bool is_bad(const uint8_t *p, size_t item, uint32_t exponent) {
    uint32_t wide = 0;
    uint16_t half = 0;
    if (item == 4) memcpy(&wide, p, 4);
    else memcpy(&half, p, 2);
    return ((item == 4 ? wide : half) & exponent) == exponent;
}

/* Counts in n elements of a plain type. If there are any, *first is the index of the first. */
static size_t count_numbers(um_dtype type, const uint8_t *p, size_t n, size_t *first) {
    const uint32_t exponent = type == UM_F32 ? 0x7f800000 : type == UM_BF16 ? 0x7f80 : 0x7c00;
    const size_t item = um_dtype_size(type);
    size_t found = 0;
    for (size_t at = 0; at < n; at += CHUNK) {
        const size_t end = UM_MIN(n, at + CHUNK);
        const uint8_t *from = p + at * item;
        if (end == at + CHUNK && !(item == 4 ? has_bad_32(from, exponent) : has_bad_16(from, (uint16_t)exponent)))
            continue;
        for (size_t i = at; i < end; i++) {
            if (!is_bad(p + i * item, item, exponent)) continue;
            if (!found++) *first = i;
        }
    }
    return found;
}

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

typedef struct result {
    size_t n, first;
} result;

/* A tensor, and the rows or, with plain numbers, the elements of each task. */
typedef struct scan {
    const um_tensor *t;
    size_t n, per_task;
    result *of_task;
} scan;

/* Counts in one row of a tensor in any format. *first gets the index in the row. */
static size_t count_row(const um_tensor *t, size_t row, size_t *first) {
    const int64_t in = um_tensor_in(t);
    float x[CHUNK];
    size_t found = 0;
    for (int64_t k = 0; k < in; k += CHUNK) {
        size_t at = 0;
        const int64_t n = UM_MIN(in - k, CHUNK);
        um_tensor_read(t, (int64_t)row, k, n, x);
        const size_t more = count_numbers(UM_F32, (const uint8_t *)x, (size_t)n, &at);
        if (more && !found) *first = (size_t)k + at;
        found += more;
    }
    return found;
}

static void scan_task(void *arg, int task, int thread) {
    (void)thread;
    const scan *s = (const scan *)arg;
    const um_tensor *t = s->t;
    const size_t begin = (size_t)task * s->per_task, end = UM_MIN(s->n, begin + s->per_task);
    result *r = &s->of_task[task];
    if (t->type != UM_DTYPE_OTHER) {
        const uint8_t *p = (const uint8_t *)t->data + begin * um_dtype_size(t->type);
        r->n = count_numbers(t->type, p, end - begin, &r->first);
        r->first += begin;
        return;
    }
    for (size_t row = begin; row < end; row++) {
        size_t at = 0;
        const size_t more = count_row(t, row, &at);
        if (more && !r->n) r->first = row * (size_t)um_tensor_in(t) + at;
        r->n += more;
    }
}

size_t um_count_not_finite(um_pool *pool, const um_tensor *t, size_t *first) {
    const size_t n = um_tensor_elements(t), in = (size_t)um_tensor_in(t);
    scan s = {.t = t, .n = n, .per_task = TASK_ELEMENTS};
    if (!n) return 0;
    if (t->type == UM_DTYPE_OTHER) {
        s.n = n / in;
        s.per_task = UM_CEIL_DIV(TASK_ELEMENTS, in);
    }
    const int n_tasks = (int)UM_CEIL_DIV(s.n, s.per_task);
    s.of_task = UM_NEW_ARRAY(result, (size_t)n_tasks);
    if (pool) um_pool_run(pool, scan_task, &s, n_tasks);
    else
        for (int i = 0; i < n_tasks; i++) scan_task(&s, i, 0);
    size_t found = 0;
    for (int i = 0; i < n_tasks; i++) {
        if (s.of_task[i].n && !found) *first = s.of_task[i].first;
        found += s.of_task[i].n;
    }
    um_free(s.of_task);
    return found;
}
