/* Models with random weights, without a checkpoint.
 *
 * A tensor may have more than a gigabyte, and all tensors together may have 32. So only 64 MiB of values are made, in
 * a file in memory that is mapped again and again, one mapping behind the other. Every tensor begins at another place
 * of this range. */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/config.h"
#include "model/languages.h"
#include "model/lora.h"

/* A prime number of pages of 4 KiB, about 64 MiB. With a power of two, the rows of a matrix would repeat after a few
 * thousand. */
#define PERIOD    ((size_t)16381 * 4096)
#define STEP      ((size_t)64) /* tensors begin at multiples of this */
#define DEVIATION 0.02f        /* what most models are initialised with */
/* The mean of the norms of queries and keys. A head then reads a few keys only, as in a trained model. With a mean of 1
 * it reads nearly the mean of all values, the same for every mask, and the masks of a block choose the same experts:
 * with 32 tokens of LLaDA2.0-mini in 4 layers 59 experts of 256, but 136 with a mean of 3 and 163 by chance. */
#define HEAD_NORM 3

typedef struct source {
    um_arena names;
    um_tensor *tensor; /* [n] */
    size_t n, cap;
    size_t largest; /* bytes of the largest tensor */
    char *values;   /* [mapped] bytes of random values */
    size_t mapped;
    uint16_t *norms;     /* [longest] values near 1 */
    size_t longest;      /* elements of the longest norm */
    uint16_t *head_norm; /* [widest head] values near HEAD_NORM */
    const um_arch *arch;
} source;

/* ---- The list ---------------------------------------------------------------------------------------------------- */

static bool is_norm(const um_tensor *t) {
    const char *end = strrchr(t->name, '.');
    return t->n_dims == 1 && end && um_streq(end, ".weight");
}

static um_status add_tensor(void *arg, const um_tensor *t, um_err *err) {
    source *s = (source *)arg;
    (void)err;
    if (s->n == s->cap) {
        s->cap = UM_MAX(2 * s->cap, 256);
        s->tensor = um_realloc(s->tensor, um_mul(s->cap, sizeof *s->tensor));
    }
    um_tensor *own = &s->tensor[s->n++];
    const size_t elements = um_tensor_elements(t);
    *own = *t;
    own->name = um_arena_strndup(&s->names, t->name, strlen(t->name));
    own->type = UM_BF16;
    if (is_norm(t)) s->longest = UM_MAX(s->longest, elements);
    else s->largest = UM_MAX(s->largest, um_mul(elements, sizeof(uint16_t)));
    return UM_OK;
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

/* Returns a value whose distribution is close to normal, with mean 0 and deviation 1: the sum of four uniform ones. */
static float near_normal(uint64_t key, uint64_t i) {
    const uint64_t bits = um_rng_u64(key, i);
    const int64_t sum = (int64_t)((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48));
    return (float)(sum - 2 * 0xffff) / 37837.0f; /* 65536 / sqrt(3) */
}

static void fill(uint16_t *out, size_t n, float mean, uint64_t key) {
    for (size_t i = 0; i < n; i++) out[i] = um_f32_to_bf16(mean + DEVIATION * near_normal(key, i));
}

static uint16_t *make_norm(size_t n, float mean, uint64_t seed) {
    uint16_t *out = UM_NEW_ARRAY(uint16_t, n + 1);
    fill(out, n, mean, um_rng_key(seed, 0, 0, 0));
    return out;
}

typedef struct filling {
    uint16_t *out;
    size_t n;
} filling;

enum { FILL_TASKS = 64 };

static void fill_task(void *arg, int task, int thread) {
    const filling *f = (const filling *)arg;
    const size_t from = f->n * (size_t)task / FILL_TASKS, to = f->n * ((size_t)task + 1) / FILL_TASKS;
    (void)thread;
    fill(f->out + from, to - from, 0, um_rng_key(1, (uint64_t)task, 0, 0));
}

static um_status fail_map(const char *what, um_err *err) {
    return um_fail(err, UM_ENOMEM, "random weights: %s: %s", what, strerror(errno));
}

/* Maps the file once for every period of the range. */
static um_status map_periods(source *s, int fd, um_err *err) {
    const int shared = MAP_SHARED | MAP_FIXED;
    void *range = mmap(NULL, s->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) return fail_map("can't reserve addresses", err);
    s->values = (char *)range;
    for (size_t at = 0; at < s->mapped; at += PERIOD)
        if (mmap(s->values + at, PERIOD, PROT_READ | PROT_WRITE, shared, fd, 0) == MAP_FAILED)
            return fail_map("can't map memory", err);
    return UM_OK;
}

static um_status make_values(source *s, um_err *err) {
    um_pool *pool = NULL;
    s->mapped = UM_CEIL_DIV(s->largest + PERIOD, PERIOD) * PERIOD;
    const int fd = memfd_create("unmask-random-weights", MFD_CLOEXEC);
    if (fd < 0) return fail_map("can't create a file in memory", err);
    um_status st = ftruncate(fd, (off_t)PERIOD) ? fail_map("can't size a file in memory", err) : UM_OK;
    if (!st) st = map_periods(s, fd, err);
    close(fd); /* the mappings stay */
    if (!st) st = um_pool_new(&pool, 0, err);
    if (st) return st;
    filling f = {(uint16_t *)(void *)s->values, PERIOD / sizeof(uint16_t)};
    um_pool_run(pool, fill_task, &f, FILL_TASKS);
    um_pool_free(pool);
    s->norms = make_norm(s->longest, 1, 2);
    s->head_norm = make_norm((size_t)um_arch_sizes(s->arch).max_head_dim, HEAD_NORM, 3);
    return UM_OK;
}

/* Returns whether a norm is that of queries or keys. */
static bool is_head_norm(const source *s, const um_tensor *t) {
    for (int32_t i = 0; i < s->arch->n_kinds; i++)
        if (t->dim[0] == s->arch->kind[i].head_dim) return true;
    return false;
}

static void place_tensors(source *s) {
    for (size_t i = 0; i < s->n; i++) {
        um_tensor *t = &s->tensor[i];
        const size_t at = (size_t)(um_rng_u64(um_rng_key(4, 0, 0, 0), i) % (PERIOD / STEP)) * STEP;
        t->data = !is_norm(t) ? (const void *)(s->values + at) : is_head_norm(s, t) ? s->head_norm : s->norms;
    }
}

static um_status open_source(source *s, const um_arch *a, um_err *err) {
    um_arena_init(&s->names, 0);
    s->arch = a;
    um_status st = um_arch_tensors(a, add_tensor, s, err);
    if (!st) st = make_values(s, err);
    if (!st) place_tensors(s);
    return st;
}

static void close_source(source *s) {
    if (s->values) munmap(s->values, s->mapped);
    um_free(s->norms);
    um_free(s->head_norm);
    um_free(s->tensor);
    um_arena_free(&s->names);
}

/* ---- The model --------------------------------------------------------------------------------------------------- */

um_status um_model_open_random_weights(um_model *m, const um_config *c, um_err *err) {
    um_config mine = *c;
    source s = {0};
    um_store *list = NULL;
    mine.check_weights = UM_CHECK_OFF;
    um_status st = open_source(&s, &m->arch, err);
    if (!st) st = um_store_list(&list, s.tensor, s.n, "random weights", err);
    if (!st) st = um_model_open_weights(m, &mine, list, err);
    um_store_close(list);
    close_source(&s); /* the backend has copied the weights */
    return st;
}

um_status um_model_take_shape(um_model *m, const um_released *r, int32_t n_layers, const um_config *c, um_err *err) {
    m->path = um_strdup(r->name);
    um_status s = um_released_arch(&m->arch, r, n_layers, err);
    m->arch.max_position = UM_MIN(m->arch.max_position, UM_POSITIONS_MAX);
    if (!s) s = um_tok_numbered(&m->tok, m->arch.vocab, err);
    if (!s) s = um_adapters_open(m, c->lora, c->lora_merge, err);
    if (!s) um_model_describe(m);
    return s;
}

um_status um_model_open_random(um_model **out, const um_config *c, const um_released *r, int32_t n_layers,
                               um_err *err) {
    *out = NULL;
    um_status s = um_config_check(c, err);
    if (s) return s;
    um_model *m = UM_NEW(um_model);
    m->languages = um_languages_new();
    const double start = um_now();
    s = um_model_take_shape(m, r, n_layers, c, err);
    if (!s) s = um_model_open_random_weights(m, c, err);
    m->load_seconds = um_now() - start;
    if (s) {
        um_model_close(m);
        m = NULL;
    }
    *out = m;
    return s;
}
