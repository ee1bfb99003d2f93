/* Fills answers under constraints as the strategies do, with random numbers in place of a model:
 *
 *     trials CONSTRAINTS TRIALS [SEED]
 *
 * CONSTRAINTS has a constraint on each line (tests/data/README.md). A trial draws one of them, a budget, the
 * blocks, the predictions, the order in which they are accepted, and the tokens that are replaced or become masks
 * again. Prints a line {"constraint": INDEX, "text": TEXT} for each answer. Exits with status 1 at the first answer
 * that is stuck, cut off or too long, or that needs too many passes; the message has the number of the trial. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#include "decode/fill.h"
#include "model/languages.h"

enum { PROMPT = 2, ROOM_MAX = 28, BLOCK_MAX = 32, FLIGHT_MAX = 4, LONGEST = 2048 };

typedef enum { PLAIN, REMASKS, EDITS } change_kind;
typedef enum { ORDER_RANDOM, ORDER_LEFT, ORDER_RIGHT } order_kind;

typedef struct bench {
    um_model *model;
    um_shared_language **language; /* [n] */
    um_constraint *constraint;     /* [n] */
    int32_t n;
    int64_t n_renewed, n_passes, n_tokens;
    uint64_t key, counter; /* of the draws */
} bench;

typedef struct trial {
    bench *b;
    int64_t number;
    int32_t which; /* the constraint */
    um_req r;
    um_traits traits;
    um_sampler sampler;
    um_compat compat;
    int32_t token[LONGEST], written[LONGEST];
    int32_t start, block_len, n_blocks; /* the blocks in flight */
    change_kind change;
    order_kind order;
    int32_t most;                        /* candidates that a pass tries to accept */
    int32_t favourite;                   /* id that the predictions lie near; -1: another one for each row */
    int32_t end_share;                   /* of 100: how often the end is predicted where it is allowed */
    int32_t at[LONGEST], id[LONGEST], n; /* candidates of the pass, with their predictions */
} trial;

static void die(const trial *t, const char *what) {
    const um_req *r = &t->r;
    fprintf(stderr, "trials: trial %" PRId64 ", constraint %d: %s; %d of %d positions are filled after %d passes\n",
            t->number, t->which, what, r->filled - r->n_prompt, r->limit - r->n_prompt, r->nfe);
    exit(1);
}

static int32_t draw(bench *b, int32_t below) { return (int32_t)(um_rng_u64(b->key, b->counter++) % (uint64_t)below); }

/* ---- Constraints ------------------------------------------------------------------------------------------------- */

static void must(um_status s, const char *what, const um_err *err) {
    if (!s) return;
    fprintf(stderr, "trials: %s: %s\n", what, err->msg);
    exit(1);
}

/* Reads a line into a constraint, which owns its text. */
static void read_constraint(const json_t *line, um_constraint *c) {
    static const struct {
        const char *key;
        int32_t kind;
    } kinds[] = {{"schema", UM_CONSTRAINT_SCHEMA},
                 {"regex", UM_CONSTRAINT_REGEX},
                 {"gbnf", UM_CONSTRAINT_GRAMMAR},
                 {"choice", UM_CONSTRAINT_CHOICE}};
    *c = (um_constraint){.kind = UM_CONSTRAINT_JSON, .depth = 3};
    c->style.space_max = (int32_t)json_integer_value(json_object_get(line, "space"));
    if (json_object_get(line, "depth")) c->depth = (int32_t)json_integer_value(json_object_get(line, "depth"));
    for (size_t i = 0; i < UM_LEN(kinds); i++) {
        const json_t *v = json_object_get(line, kinds[i].key);
        if (!v) continue;
        c->kind = kinds[i].kind;
        c->text = json_is_string(v) ? um_strdup(json_string_value(v)) : json_dumps(v, JSON_ENCODE_ANY);
    }
}

static void compile(bench *b, int32_t i) {
    um_err err;
    char name[32];
    snprintf(name, sizeof name, "constraint %d", i);
    must(um_model_get_language(b->model, &b->constraint[i], &b->language[i], &err), name, &err);
}

static void open_bench(bench *b, const char *path) {
    um_config config;
    um_lines lines;
    um_str text;
    um_err err;
    um_config_init(&config);
    config.model = "models/tiny-block";
    must(um_model_open_text(&b->model, &config, &err), "model", &err);
    must(um_lines_open(&lines, path, &err), "constraints", &err);
    while (um_lines_next(&lines, true, &text, &err) == UM_LINES_LINE) {
        const size_t n = (size_t)++b->n;
        json_t *line = NULL;
        must(um_json_parse(&line, text.p, text.n, path, &err), "constraints", &err);
        b->constraint = (um_constraint *)um_realloc(b->constraint, n * sizeof *b->constraint);
        b->language = (um_shared_language **)um_realloc((void *)b->language, n * sizeof *b->language);
        read_constraint(line, &b->constraint[n - 1]);
        compile(b, b->n - 1);
        json_decref(line);
    }
    um_lines_close(&lines);
}

static void close_bench(bench *b) {
    for (int32_t i = 0; i < b->n; i++) {
        um_model_release_language(b->model, b->language[i]);
        free((void *)(uintptr_t)b->constraint[i].text);
    }
    um_free((void *)b->language);
    um_free(b->constraint);
    um_model_close(b->model);
}

/* ---- A request --------------------------------------------------------------------------------------------------- */

static int32_t shortest(um_language *l) {
    um_language_lock(l);
    const int32_t rest = um_language_rest(l, um_language_start(l));
    um_language_unlock(l);
    return rest;
}

/* Draws what a request and its options decide. */
static void draw_request(trial *t, int32_t budget) {
    bench *b = t->b;
    static const int32_t shares[] = {0, 5, 50, 100};
    const bool whole = draw(b, 4) == 0;
    t->change = (change_kind)draw(b, 3);
    t->order = (order_kind)UM_MAX(0, draw(b, 5) - 2);
    t->block_len = whole ? budget : 1 + draw(b, BLOCK_MAX);
    t->n_blocks = whole ? 1 : 1 + draw(b, FLIGHT_MAX);
    t->most = 1 + (draw(b, 3) ? draw(b, t->block_len) : draw(b, 2));
    t->favourite = draw(b, 2) ? -1 : draw(b, b->model->arch.vocab);
    t->end_share = shares[draw(b, (int32_t)UM_LEN(shares))];
    t->sampler.edits = t->change == EDITS;
    t->r.how.remask_threshold = t->change == REMASKS ? 0.5f : 0;
}

static void open_trial(trial *t, int32_t which) {
    bench *b = t->b;
    const um_arch *a = &b->model->arch;
    um_language *l = b->language[which]->language;
    const int32_t least = shortest(l), budget = least + (draw(b, 4) ? draw(b, ROOM_MAX) : draw(b, 3));
    t->which = which;
    t->traits = (um_traits){.mask_id = a->mask_id, .stop = a->stop, .n_stop = a->n_stop, .pad = a->pad_id};
    t->r = (um_req){.traits = &t->traits,
                    .sampler = &t->sampler,
                    .compat = &t->compat,
                    .n_prompt = PROMPT,
                    .filled = PROMPT,
                    .limit = PROMPT + budget,
                    .max_len = LONGEST,
                    .cap = PROMPT + budget,
                    .stop_id = -1,
                    .settled = INT32_MAX, /* written tokens never change */
                    .token = t->token,
                    .written = t->written};
    draw_request(t, UM_MAX(budget, 1));
    if (t->change != PLAIN) t->r.settled = PROMPT;
    if (t->r.cap > LONGEST) die(t, "the shortest answer is too long for this test");
    for (int32_t i = 0; i < t->r.cap; i++) t->written[i] = i < PROMPT ? 0 : -1;
    t->start = PROMPT;
    t->r.fill = um_fill_new(&t->r, l, t->block_len * t->n_blocks, a->vocab, t->r.limit);
}

/* ---- Passes ------------------------------------------------------------------------------------------------------ */

/* Returns the first allowed id from `from` on, or from 0 on behind the last one. */
static int32_t next_allowed(const uint32_t *bitmap, int32_t from, int32_t n) {
    const int32_t n_words = UM_CEIL_DIV(n, 32);
    for (int32_t k = 0; k <= n_words; k++) {
        const int32_t w = (from / 32 + k) % n_words;
        uint32_t bits = bitmap[w];
        if (k == 0) bits &= ~UINT32_C(0) << from % 32;
        if (bits) return w * 32 + __builtin_ctz(bits);
    }
    return -1;
}

static int32_t predict(trial *t, int32_t pos) {
    bench *b = t->b;
    const um_traits *m = &t->traits;
    const int32_t vocab = b->model->arch.vocab;
    uint64_t allow_id;
    const uint32_t *allowed = um_req_allowed(&t->r, pos, &allow_id);
    const bool ends = draw(b, 100) < t->end_share;
    for (int32_t i = 0; i < m->n_stop && ends; i++)
        if (allowed[m->stop[i] / 32] >> m->stop[i] % 32 & 1) return m->stop[i];
    const int32_t near = t->favourite >= 0 && draw(b, 8) ? t->favourite : draw(b, vocab);
    const int32_t id = next_allowed(allowed, near, vocab);
    if (id < 0 && !um_fill_is_stuck(t->r.fill)) die(t, "a position may have no token");
    return id;
}

/* Predicts the masks of the blocks in flight, and for samplers that edit all their positions. A bitmap has the token
 * that its position has. */
static void plan(trial *t, int32_t end) {
    um_req *r = &t->r;
    t->n = 0;
    um_req_prepare_rows(r, t->start, end);
    for (int32_t p = t->start; p < end; p++) {
        if (!um_req_masked(r, p) && t->change != EDITS) continue;
        t->at[t->n] = p;
        t->id[t->n++] = predict(t, p);
    }
}

static void swap(trial *t, int32_t i, int32_t k) {
    const int32_t at = t->at[i], id = t->id[i];
    t->at[i] = t->at[k];
    t->id[i] = t->id[k];
    t->at[k] = at;
    t->id[k] = id;
}

static void shuffle(trial *t) {
    if (t->order == ORDER_RIGHT)
        for (int32_t i = 0; i < t->n / 2; i++) swap(t, i, t->n - 1 - i);
    for (int32_t i = t->n - 1; i > 0 && t->order == ORDER_RANDOM; i--) swap(t, i, draw(t->b, i + 1));
}

/* Turns tokens of the blocks in flight back into masks: at most as many as the pass has written, less one. */
static void erase(trial *t, int32_t end, int32_t most) {
    um_req *r = &t->r;
    for (; most > 0; most--) {
        const int32_t p = t->start + draw(t->b, end - t->start);
        if (!um_req_masked(r, p)) um_req_erase(r, p);
    }
}

/* Passes over the blocks that are complete. A sampler that edits keeps a block for a while. */
static void advance(trial *t) {
    um_req *r = &t->r;
    while (t->start < r->limit) {
        const int32_t end = UM_MIN(t->start + t->block_len, r->limit);
        for (int32_t p = t->start; p < end; p++)
            if (um_req_masked(r, p)) return;
        if (t->change == EDITS && draw(t->b, 2)) return;
        t->start = end;
        if (t->change != PLAIN) r->settled = end;
    }
}

static void apply(trial *t, int32_t end) {
    um_req *r = &t->r;
    static const um_answer answer = {.p_best = 1, .p_sample = 1};
    int32_t n_new = 0, n_masks = 0;
    bool changed = false;
    const int32_t first = t->n ? t->at[0] : 0, last = t->n ? t->at[t->n - 1] : -1;
    shuffle(t);
    for (int32_t i = 0; i < t->n && n_masks < t->most; i++) {
        const int32_t p = t->at[i];
        const bool masked = um_req_masked(r, p);
        if (t->id[i] < 0 || (!masked && draw(t->b, 4))) continue;
        if (um_req_accepts(r, p, t->id[i])) {
            um_req_write(r, p, t->id[i], &answer);
            n_new += masked;
            changed = true;
        } else if (!changed && !um_fill_is_stuck(r->fill)) {
            die(t, "a token is refused that nothing contradicts");
        }
        n_masks += masked;
    }
    if (t->change != PLAIN && n_new > 1) erase(t, end, draw(t->b, n_new));
    if (t->n) um_req_write_forced(r, first, last + 1);
    advance(t);
    um_req_check_stop(r);
}

static void run_trial(trial *t) {
    um_req *r = &t->r;
    const int32_t most = 200 + 20 * (r->limit - r->n_prompt);
    while (!r->finish) {
        const int32_t end = UM_MIN(r->limit, t->start + t->block_len * t->n_blocks);
        plan(t, end);
        apply(t, end);
        if (r->nfe > most) die(t, "it needs too many passes");
    }
    if (r->n_answer > r->limit - r->n_prompt) die(t, "the answer is longer than the budget");
    t->b->n_passes += r->nfe;
    t->b->n_tokens += r->n_answer;
}

/* ---- Answers ----------------------------------------------------------------------------------------------------- */

static void print_answer(const trial *t) {
    um_buf text = {0};
    for (int32_t i = 0; i < t->r.n_answer; i++) {
        const um_str bytes = um_tok_bytes(t->b->model->tok, t->token[PROMPT + i]);
        um_buf_append(&text, bytes.p, bytes.n);
    }
    json_t *line = json_object(), *value = json_stringn(text.len ? text.data : "", text.len);
    if (!value) die(t, "the answer is not UTF-8");
    json_object_set_new(line, "constraint", json_integer(t->which));
    json_object_set_new(line, "text", value);
    json_dumpf(line, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(line);
    um_buf_free(&text);
}

/* Compiles a language anew that has no room for more states. Engines do the same for later requests. */
static bool renew(bench *b, int32_t which) {
    um_language *l = b->language[which]->language;
    if (!um_language_is_full(l)) return false;
    um_model_release_language(b->model, b->language[which]);
    compile(b, which);
    b->n_renewed++;
    return true;
}

static void run_number(bench *b, int64_t number, uint64_t seed) {
    static trial t;
    b->key = um_rng_key(seed, (uint64_t)number, 0, 0);
    b->counter = 0;
    t.b = b;
    t.number = number;
    open_trial(&t, draw(b, b->n));
    run_trial(&t);
    const bool full = renew(b, t.which);
    if (t.r.finish == UM_FINISH_EOS) print_answer(&t);
    else if (!full) die(&t, "the answer was cut off");
    um_fill_free(t.r.fill);
}

int main(int argc, char **argv) {
    bench b = {.n = 0};
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: trials CONSTRAINTS TRIALS [SEED]\n");
        return 2;
    }
    const int64_t n = strtoll(argv[2], NULL, 10);
    const uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    open_bench(&b, argv[1]);
    for (int64_t i = 0; i < n; i++) run_number(&b, i, seed);
    fprintf(stderr, "%" PRId64 " trials, %" PRId64 " passes, %" PRId64 " tokens, %" PRId64 " languages renewed\n", n,
            b.n_passes, b.n_tokens, b.n_renewed);
    close_bench(&b);
    return 0;
}
