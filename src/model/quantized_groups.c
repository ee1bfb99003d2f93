/* Integers of 4 or 8 bits with a scale and a zero for each group of a row: reading, and what the layouts share.
 *
 * A piece of a row is read in three steps: its integers, then the zero and the scale of each integer, then the result.
 * The first step reads one word in each row of the file when the file holds the matrix as [in, out]. The words of a
 * piece then lie far apart, but the next rows of a panel find them in the caches. The last step is a loop of fixed
 * length, which becomes vector instructions. */
#include "model/quantized.h"

enum { PIECE = 256, STEP = 16 };

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

/* A part of a row. */
typedef struct piece {
    uint8_t q[PIECE];
    float zero[PIECE], scale[PIECE], value[PIECE];
} piece;

static uint32_t word_at(const void *words, int64_t i) {
    uint32_t w;
    memcpy(&w, (const char *)words + (size_t)i * sizeof w, sizeof w);
    return w;
}

/* A row, and what all of its groups have in common. */
typedef struct line {
    const um_groups *g;
    int64_t row, words; /* words: index of the words of consecutive rows that hold this one */
    int shift;          /* place of this row in them */
    uint32_t mask;
} line;

static line line_of(const um_groups *g, int64_t row) {
    const int per_word = 32 / g->bits, at = (int)(row % per_word);
    return (line){g, row, row / per_word, g->bits * (g->order ? g->order[at] : at), (1u << g->bits) - 1};
}

/* Reads n integers of a row from column k on, the first of a word. */
static void read_along(const um_groups *g, const void *words, int64_t row, int64_t k, int64_t n, uint8_t q[PIECE]) {
    const int per_word = 32 / g->bits, n_words = (int)UM_CEIL_DIV(n, per_word);
    const int64_t first = row * g->word_row + k / per_word * g->word_col;
    uint32_t word[PIECE / 4];
    uint8_t byte[PIECE];
    for (int i = 0; i < n_words; i++) word[i] = word_at(words, first + i * g->word_col);
    if (g->bits == 8) {
        memcpy(q, word, (size_t)n_words * sizeof *word);
        return;
    }
    memset(word + n_words, 0, (PIECE / 8 - (size_t)n_words) * sizeof *word);
    memcpy(byte, word, PIECE / 2);
    for (int i = 0; i < PIECE / 2; i++) {
        q[2 * i] = byte[i] & 15;
        q[2 * i + 1] = byte[i] >> 4;
    }
}

/* Reads n integers of a row where each is in another word. */
static void read_across(const line *l, const void *words, int64_t k, int64_t n, uint8_t q[PIECE]) {
    const um_groups *g = l->g;
    const int64_t first = l->words * g->word_row + k * g->word_col;
    for (int64_t i = 0; i < n; i++) q[i] = (uint8_t)(word_at(words, first + i * g->word_col) >> l->shift & l->mask);
}

static float scale_of(const line *l, int64_t group) {
    const um_groups *g = l->g;
    return um_quantized_number(g->scale_type, g->scales, (size_t)(l->row * g->scale_row + group * g->scale_group));
}

static float zero_of(const line *l, int64_t group) {
    const um_groups *g = l->g;
    if (!g->zeros) return (float)g->zero;
    const uint32_t word = word_at(g->zeros, l->words * g->zero_row + group * g->zero_group);
    return (float)((int32_t)(word >> l->shift & l->mask) + g->zero);
}

/* Finds the zeros and scales of n columns from k on whose groups follow each other. */
static void find_groups(const line *l, int64_t k, int64_t n, piece *p) {
    for (int64_t i = 0; i < n;) {
        const int64_t group = (k + i) / l->g->group, end = UM_MIN(n, (group + 1) * l->g->group - k);
        um_quantized_fill(p->zero + i, end - i, zero_of(l, group));
        um_quantized_fill(p->scale + i, end - i, scale_of(l, group));
        i = end;
    }
}

/* Finds the zeros and scales of n <= PIECE columns from k on, each in any group. Converts those of all groups first
 * when these are few. */
static void find_listed_groups(const line *l, int64_t k, int64_t n, piece *p) {
    float zero[PIECE], scale[PIECE];
    const bool are_few = l->g->n_groups <= n;
    for (int64_t group = 0; are_few && group < l->g->n_groups; group++) {
        zero[group] = zero_of(l, group);
        scale[group] = scale_of(l, group);
    }
    for (int64_t i = 0; i < n; i++) {
        const uint32_t group = word_at(l->g->group_of, k + i);
        p->zero[i] = are_few ? zero[group] : zero_of(l, group);
        p->scale[i] = are_few ? scale[group] : scale_of(l, group);
    }
}

/* Computes n elements, and up to STEP - 1 more. */
static void compute(piece *p, int64_t n) {
    for (int64_t i = n; i % STEP; i++) {
        p->q[i] = 0;
        p->zero[i] = p->scale[i] = 0;
    }
    for (int64_t i = 0; i < n; i += STEP)
        for (int64_t k = i; k < i + STEP; k++) p->value[k] = ((float)p->q[k] - p->zero[k]) * p->scale[k];
}

void um_groups_read(const um_tensor *t, int64_t row, int64_t k, int64_t n, float *out) {
    const um_groups *g = t->extra;
    const int64_t unit = g->along_rows ? 1 : 32 / g->bits;
    const line l = line_of(g, row);
    piece p;
    for (int64_t at = 0, part; at < n; at += part) {
        const int64_t skipped = (k + at) % unit, first = k + at - skipped;
        part = UM_MIN(n - at, PIECE - skipped);
        if (g->along_rows) read_across(&l, t->data, first, part, p.q);
        else read_along(g, t->data, row, first, skipped + part, p.q);
        if (g->group_of) find_listed_groups(&l, first, skipped + part, &p);
        else find_groups(&l, first, skipped + part, &p);
        compute(&p, skipped + part);
        memcpy(out + at, p.value + skipped, (size_t)part * sizeof *out);
    }
}

/* ---- Joining ----------------------------------------------------------------------------------------------------- */

int64_t um_groups_count(const um_quantized *q, int64_t in) { return q->group ? UM_CEIL_DIV(in, q->group) : 1; }

um_status um_groups_set_list(um_groups *g, const um_joining *j, const um_tensor *t, int64_t in, um_err *err) {
    bool is_listed = false;
    um_status s = um_joining_check(j, t, "I32", in, 0, err);
    for (int64_t k = 0; k < in && !s; k++) {
        const uint32_t group = word_at(t->data, k);
        if (group >= (uint64_t)g->n_groups)
            s = um_fail(err, UM_EMODEL, "tensor %s in %s: column %lld has group %d, but there are %lld groups", t->name,
                        um_store_file(j->s, t), (long long)k, (int)group, (long long)g->n_groups);
        is_listed |= group != k / g->group;
    }
    if (is_listed) g->group_of = t->data;
    return s;
}

void um_groups_put(um_tensor *to, const um_joining *j, const um_format *format, const um_groups *g, int64_t out,
                   int64_t in) {
    um_groups *kept = um_arena_alloc(um_store_arena(j->s), sizeof *kept);
    *kept = *g;
    *to = (um_tensor){
        .type = UM_DTYPE_OTHER, .n_dims = 2, .dim = {out, in}, .data = j->main->data, .format = format, .extra = kept};
}
