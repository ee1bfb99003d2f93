/* Times what a constraint costs a pass of one request, without a model: fill_bench MODEL [PASSES]
 *
 * MODEL is a folder with a tokenizer; its weights are not read. Blocks are filled with random tokens that the
 * constraint allows, a quarter of a block in each pass. The time of a pass covers the sets of states, the bitmap of
 * every masked row, and the check of each token; drawing the tokens is not measured. With filling best the search over
 * the 16 likeliest tokens of each row is measured, too. The first round, which makes the states, is not counted. */
#include <stdlib.h>

#include "bench.h"
#include "decode/best_filling.h"
#include "decode/fill.h"
#include "model/languages.h"

enum { PROPERTIES = 20, ANSWER = 1024, BLOCK_MAX = 32, ROUNDS = 9 };

typedef struct run {
    um_req r;
    um_traits traits;
    um_model *m;
    um_shared_language *l;
    um_best_filling *best; /* NULL: filling each */
    int32_t block;
    int32_t token[ANSWER], written[ANSWER];
    um_top top[BLOCK_MAX][UM_FILLING_TOKENS];
    um_answer answer[BLOCK_MAX];
    int32_t position[BLOCK_MAX], at_token[BLOCK_MAX];
    double *us; /* [n_max] times of the passes */
    int32_t n, n_max;
} run;

static uint64_t draws;
static int32_t draw(int32_t below) { return (int32_t)(um_rng_u64(7, draws++) % (uint64_t)below); }

/* ---- One pass ---------------------------------------------------------------------------------------------------- */

/* Fills the list of a row with random tokens of its bitmap, less and less likely ones. */
static void predict(run *b, int32_t row, const uint32_t *allowed) {
    const int32_t vocab = b->m->net.vocab;
    float p = 0.5F;
    for (int32_t t = 0; t < UM_FILLING_TOKENS; t++, p *= 0.5F) {
        int32_t id = draw(vocab), left = vocab;
        while (left > 0 && !(allowed[id / 32] >> id % 32 & 1)) {
            id = (id + 1) % vocab;
            left--;
        }
        b->top[row][t] = (um_top){.id = id, .p = p, .q = p};
    }
    b->answer[row] = (um_answer){.sample = b->top[row][0].id, .p_sample = 0.5F, .top = b->top[row]};
}

/* Lists the masks before `end`. Returns their number. */
static int32_t find_masks(run *b, int32_t end) {
    int32_t n = 0;
    for (int32_t p = b->r.filled; p < end; p++)
        if (um_req_masked(&b->r, p)) b->position[n++] = p;
    return n;
}

static void write(run *b, int32_t row) {
    const int32_t p = b->position[row], id = b->answer[row].sample;
    if (!um_req_masked(&b->r, p) || !um_req_accepts(&b->r, p, id)) return;
    b->token[p] = id;
    b->written[p] = 1;
}

/* Returns the seconds of a pass over the block that ends at `end`. */
static double pass(run *b, int32_t end) {
    const int32_t n = find_masks(b, end);
    const uint32_t *allowed[BLOCK_MAX];
    uint64_t id;
    const double planned = um_now();
    um_req_prepare_rows(&b->r, b->r.filled, end);
    for (int32_t i = 0; i < n; i++) allowed[i] = um_req_allowed(&b->r, b->position[i], &id);
    double s = um_now() - planned;
    for (int32_t i = 0; i < n; i++) predict(b, i, allowed[i]);
    const double answered = um_now();
    if (b->best) {
        const um_sampler_input c = {.n = n, .position = b->position, .token = b->at_token};
        memcpy(b->answer, um_best_filling_find(b->best, &b->r, &c, 0, b->answer), (size_t)n * sizeof *b->answer);
    }
    for (int32_t i = 0; i < UM_MAX(1, b->block / 4); i++) write(b, draw(n));
    um_req_write_forced(&b->r, b->r.filled, end);
    while (b->r.filled < end && b->written[b->r.filled] >= 0) b->r.filled++;
    b->r.finish = um_req_check_constraint(&b->r);
    s += um_now() - answered;
    return s;
}

/* ---- Answers ----------------------------------------------------------------------------------------------------- */

static void start(run *b, int32_t length) {
    const um_arch *a = &b->m->arch;
    b->traits = (um_traits){.mask_id = a->mask_id, .stop = a->stop, .n_stop = a->n_stop, .pad = a->pad_id};
    b->r = (um_req){.traits = &b->traits,
                    .settled = INT32_MAX,
                    .cap = length,
                    .limit = length,
                    .token = b->token,
                    .written = b->written};
    for (int32_t i = 0; i < ANSWER; i++) b->written[i] = -1;
    b->r.fill = um_fill_new(&b->r, b->l->language, b->block + 1, b->m->net.vocab, length);
}

static void answer(run *b, bool counts) {
    const int32_t needed = um_language_rest(b->l->language, um_language_start(b->l->language));
    const int32_t length = UM_MIN(ANSWER, needed + 200);
    start(b, length);
    for (int32_t end = 0; end < length && !b->r.finish;) {
        end = UM_MIN(end + b->block, length);
        while (!b->r.finish && find_masks(b, end) > 0) {
            const double s = pass(b, end);
            if (counts && b->n < b->n_max) b->us[b->n++] = s * 1e6;
        }
    }
    um_fill_free(b->r.fill);
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(run *b, const char *name, const um_constraint *k) {
    um_err err;
    if (um_model_get_language(b->m, k, &b->l, &err)) {
        fprintf(stderr, "fill_bench: %s\n", err.msg);
        exit(1);
    }
    b->n = 0;
    for (int32_t i = 0; i < ROUNDS; i++) answer(b, i > 0);
    qsort(b->us, (size_t)b->n, sizeof *b->us, ascending);
    printf("| %s | %d | %s | %.0f | %.0f | %.0f | %d |\n", name, b->block, b->best ? "best" : "each", b->us[b->n / 2],
           b->us[b->n * 99 / 100], b->us[b->n - 1], b->n);
    um_model_release_language(b->m, b->l);
}

static void write_schema(um_buf *out) {
    static const char *const kinds[] = {"\"type\": \"string\", \"maxLength\": 20", "\"type\": \"integer\"",
                                        "\"type\": \"boolean\""};
    um_buf_puts(out, "{\"type\": \"object\", \"additionalProperties\": false, \"properties\": {");
    for (int i = 0; i < PROPERTIES; i++) um_buf_printf(out, "%s\"property_%d\": {%s}", i ? ", " : "", i, kinds[i % 3]);
    um_buf_puts(out, "}, \"required\": [");
    for (int i = 0; i < PROPERTIES; i++) um_buf_printf(out, "%s\"property_%d\"", i ? ", " : "", i);
    um_buf_puts(out, "]}");
}

int main(int argc, char **argv) {
    static run b;
    um_config config;
    um_buf schema = {0};
    um_err err;
    um_config_init(&config);
    config.model = argc > 1 ? argv[1] : "models/tiny-block";
    if (um_model_open_text(&b.m, &config, &err)) {
        fprintf(stderr, "fill_bench: %s\n", err.msg);
        return 1;
    }
    b.n_max = 1 << 16;
    b.us = UM_NEW_ARRAY(double, (size_t)b.n_max);
    for (int32_t i = 0; i < BLOCK_MAX; i++) b.at_token[i] = UM_MASKED;
    write_schema(&schema);
    const um_constraint kinds[] = {
        {.kind = UM_CONSTRAINT_SCHEMA, .text = schema.data, .depth = 8, .style = {.space_max = 1}},
        {.kind = UM_CONSTRAINT_JSON, .depth = 8, .style = {.space_max = 1}}};
    printf("%s, %d ids\n\n| constraint | block | filling | median us | 99 %% | worst | passes |\n"
           "| --- | --- | --- | --- | --- | --- | --- |\n",
           um_bench_machine(), b.m->net.vocab);
    for (size_t k = 0; k < UM_LEN(kinds); k++)
        for (int best = 0; best < 2; best++)
            for (b.block = 4; b.block <= BLOCK_MAX; b.block *= 8) {
                b.best = best ? um_best_filling_new(b.block) : NULL;
                measure(&b, k ? "any JSON" : "schema of 20 properties", &kinds[k]);
                um_best_filling_free(b.best);
            }
    um_buf_free(&schema);
    um_free(b.us);
    um_model_close(b.m);
    return 0;
}
