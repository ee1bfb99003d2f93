/* The forward pass of every family, on every backend in fp32, against results computed from its formulas in float64.
 * tools/reference/README.md describes the folders of build/data/reference. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "forward_fixture.h"
#include "ops/expert_route.h"

#define TOLERANCE       1e-4f /* of a logit: absolute below 1, relative above */
#define MODES_TOLERANCE 5e-4f /* scores of attention are not scaled, and make differences larger */
#define SEQUENCES       3     /* sequences of a batch */
#define PAGES_EACH      (PAGES / SEQUENCES)

/* A checkpoint and its expected results, which may be those of another folder. */
typedef struct folder {
    const char *name;
    um_map map;
    um_store *expected;
} folder;

/* A batch: consecutive sequences, each on pages of its own. */
typedef struct pass {
    int32_t n, n_spans, id[TOKENS], pos[TOKENS], slot[TOKENS], end[TOKENS], page[SEQUENCES][PAGES_EACH];
    um_span span[SEQUENCES];
    um_batch batch;
} pass;

typedef struct difference {
    float worst; /* largest difference, as a share of the tolerance */
    float got, want;
    char at[64];
} difference;

/* ---- Expected results -------------------------------------------------------------------------------------------- */

static void open_folder(folder *f, const char *name, const char *expected) {
    char path[256];
    um_err err = {0};
    *f = (folder){.name = name};
    snprintf(path, sizeof path, "build/data/reference/%s/expected.safetensors", expected);
    if (um_map_open(&f->map, path, &err)) fail_msg("%s", err.msg);
    f->expected = um_store_new();
    if (um_safetensors_parse(f->expected, f->map.data, f->map.size, path, NULL, &err)) fail_msg("%s", err.msg);
}

static void close_folder(folder *f) {
    um_store_close(f->expected);
    um_map_close(&f->map);
}

/* Returns an expected tensor, "single.ids" or "batch0.1.router", or NULL if there is none. */
static const um_tensor *expected(const folder *f, const char *sequence, const char *what) {
    char name[64];
    snprintf(name, sizeof name, "%s.%s", sequence, what);
    return um_store_find(f->expected, name);
}

static float float_at(const um_tensor *t, size_t i) {
    float v;
    memcpy(&v, (const char *)t->data + i * sizeof v, sizeof v);
    return v;
}

static int32_t length(const folder *f, const char *sequence) {
    const um_tensor *id = expected(f, sequence, "ids");
    assert_non_null(id);
    return (int32_t)id->dim[0];
}

/* ---- Running ----------------------------------------------------------------------------------------------------- */

static void open_reference(fixture *f, const char *name, const char *device) {
    char path[256];
    snprintf(path, sizeof path, "build/data/reference/%s", name);
    open_fixture(f, path, device);
}

static void begin_pass(pass *p) {
    *p = (pass){0};
    for (int32_t s = 0; s < SEQUENCES; s++) /* pages are in no order, and those of the sequences are interleaved */
        for (int32_t i = 0; i < PAGES_EACH; i++) p->page[s][i] = (PAGES_EACH - 1 - i) * SEQUENCES + s;
}

/* Appends the tokens [from, to) of a sequence. The keys of earlier positions are in its pages. */
static void add_sequence(pass *p, const fixture *f, const folder *d, const char *sequence, int32_t from, int32_t to) {
    const um_arch *a = &f->model->arch;
    const um_tensor *id = expected(d, sequence, "ids"), *pos = expected(d, sequence, "pos");
    const um_visibility rule = {.see = a->see, .block = a->block};
    const int32_t *page = p->page[p->n_spans];
    p->span[p->n_spans++] = (um_span){.first = p->n, .n = to - from, .page = page, .keys = {0, to}};
    for (int32_t k = from; k < to; k++) {
        int32_t i = p->n++;
        assert_in_range(i, 0, TOKENS - 1);
        p->id[i] = int_at(id, k);
        p->pos[i] = int_at(pos, k);
        p->slot[i] = page[k / PAGE] * PAGE + k % PAGE;
        p->end[i] = um_visible_end(rule, k);
    }
}

static void run_pass(fixture *f, pass *p) {
    p->batch = (um_batch){.n_tokens = p->n,
                          .n_spans = p->n_spans,
                          .id = p->id,
                          .pos = p->pos,
                          .slot = p->slot,
                          .seen_end = p->end,
                          .span = p->span};
    run_whole(f, &p->batch);
    compute_logits(f, p->n);
}

/* Compares the rows of a sequence. Its first fed position is `from`, in row `first` of the pass. */
static void compare(const fixture *f, const folder *d, const char *sequence, int32_t first, int32_t from,
                    difference *diff) {
    const um_tensor *row = expected(d, sequence, "rows"), *logits = expected(d, sequence, "logits");
    const size_t V = (size_t)f->model->arch.vocab;
    const float scale = f->model->arch.logit_scale;
    assert_int_equal(logits->dim[1], V);
    int32_t compared = 0;
    for (int32_t r = 0; r < row->dim[0]; r++) {
        const int32_t at = int_at(row, r);
        if (at < from) continue;
        const float *got = f->logits + (size_t)(first + at - from) * V;
        for (size_t v = 0; v < V; v++) {
            float want = float_at(logits, (size_t)r * V + v), is = got[v] * scale;
            float share = isnan(is) ? INFINITY : fabsf(is - want) / (TOLERANCE * fmaxf(1, fabsf(want)));
            if (share <= diff->worst) continue;
            *diff = (difference){share, is, want, ""};
            snprintf(diff->at, sizeof diff->at, "%s position %d id %zu", sequence, at, v);
        }
        compared++;
    }
    assert_true(compared > 0);
}

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

static void check_alone(fixture *f, const folder *d, const char *sequence, difference *diff) {
    pass p;
    begin_pass(&p);
    add_sequence(&p, f, d, sequence, 0, length(d, sequence));
    run_pass(f, &p);
    compare(f, d, sequence, 0, 0, diff);
}

static void check_batch(fixture *f, const folder *d, difference *diff) {
    static const char *const names[SEQUENCES] = {"batch0", "batch1", "batch2"};
    pass p;
    begin_pass(&p);
    for (int32_t s = 0; s < SEQUENCES; s++) add_sequence(&p, f, d, names[s], 0, length(d, names[s]));
    run_pass(f, &p);
    for (int32_t s = 0; s < SEQUENCES; s++) compare(f, d, names[s], p.span[s].first, 0, diff);
}

/* Runs the last block on the stored keys and values of the blocks before it. Causal models may be cut anywhere. */
static void check_in_parts(fixture *f, const folder *d, const char *sequence, difference *diff) {
    const int32_t n = length(d, sequence), block = f->model->arch.block, last = (n - 1) / block * block;
    assert_true(last > 0);
    pass p;
    begin_pass(&p);
    add_sequence(&p, f, d, sequence, 0, last);
    run_pass(f, &p);
    begin_pass(&p);
    add_sequence(&p, f, d, sequence, last, n);
    run_pass(f, &p);
    compare(f, d, sequence, 0, last, diff);
}

static void check_logits(const folder *d, const char *device) {
    fixture f;
    difference diff = {.at = "nowhere"};
    open_reference(&f, d->name, device);
    if (expected(d, "single", "ids")) check_alone(&f, d, "single", &diff);
    check_alone(&f, d, "long", &diff);
    check_batch(&f, d, &diff);
    if (f.model->arch.see != UM_SEE_FULL) check_in_parts(&f, d, "long", &diff);
    print_message("%s on %s: largest difference %.2g (%s)\n", d->name, device, (double)fabsf(diff.got - diff.want),
                  diff.at);
    if (!(diff.worst <= 1))
        fail_msg("%s on %s: %s is %.7g, expected %.7g", d->name, device, diff.at, (double)diff.got, (double)diff.want);
    close_fixture(&f);
}

/* ---- Routing ----------------------------------------------------------------------------------------------------- */

static const um_tensor *of_layer(const folder *d, const char *sequence, int32_t layer, const char *what) {
    char name[48];
    snprintf(name, sizeof name, "%d.%s", layer, what);
    return expected(d, sequence, name);
}

static float *floats_of(const um_tensor *t) {
    size_t n = (size_t)t->dim[0] * (t->n_dims > 1 ? (size_t)t->dim[1] : 1);
    float *x = UM_NEW_ARRAY(float, n);
    memcpy(x, t->data, n * sizeof *x);
    return x;
}

/* Checks that the recorded router products of a layer give the recorded experts and weights. */
static void check_layer_routes(const folder *d, const um_arch *a, const char *sequence, int32_t layer) {
    const um_tensor *router = of_layer(d, sequence, layer, "router"),
                    *bias = of_layer(d, "layer", layer, "expert_bias");
    const um_tensor *experts = of_layer(d, sequence, layer, "experts"),
                    *weights = of_layer(d, sequence, layer, "weights");
    const size_t T = (size_t)router->dim[0], K = (size_t)experts->dim[1];
    assert_int_equal(a->route.n_experts, router->dim[1]);
    assert_int_equal(a->route.top_k, K);
    assert_int_equal(a->route.bias != UM_BIAS_NONE, bias != NULL);
    float *logits = floats_of(router), *added = bias ? floats_of(bias) : NULL, *weight = UM_NEW_ARRAY(float, T *K);
    float *scratch = UM_NEW_ARRAY(float, um_expert_route_scratch(a->route.n_experts));
    int32_t *expert = UM_NEW_ARRAY(int32_t, T * K), *block = UM_NEW_ARRAY(int32_t, T);
    for (size_t t = 0; t < T; t++) block[t] = (int32_t)t / UM_MAX(a->route_block, 1);
    um_expert_route_tokens(&a->route, logits, added, NULL, block, (int32_t)T, scratch, expert, weight);
    for (size_t i = 0; i < T * K; i++) {
        assert_int_equal(expert[i], int_at(experts, (int32_t)i));
        assert_float_equal(weight[i], float_at(weights, i), 1e-5);
    }
    um_free(logits);
    um_free(added);
    um_free(weight);
    um_free(scratch);
    um_free(expert);
    um_free(block);
}

static void check_routes(const folder *d) {
    static const char *const names[] = {"single", "batch0", "batch1", "batch2", "long"};
    fixture f;
    open_reference(&f, d->name, "ref");
    int32_t layers = 0;
    for (int32_t layer = 0; layer < f.model->arch.n_layers; layer++) {
        bool recorded = of_layer(d, "long", layer, "router") != NULL;
        assert_int_equal(recorded, um_arch_is_moe(&f.model->arch, layer));
        for (size_t i = 0; recorded && i < UM_LEN(names); i++)
            if (of_layer(d, names[i], layer, "router")) check_layer_routes(d, &f.model->arch, names[i], layer);
        layers += recorded;
    }
    assert_true((layers > 0) == (f.model->arch.route.n_experts > 0));
    close_fixture(&f);
}

/* ---- Two modes --------------------------------------------------------------------------------------------------- */

/* Runs a pass over recorded tokens behind the first `stored` positions, as a canvas or not, and compares its logits.
 * With a temperature, another pass then makes the blends of the next canvas. */
static void check_mode(fixture *f, const folder *d, const char *name, int32_t stored, bool canvas, int32_t blend,
                       float tau, difference *diff) {
    const um_tensor *id = expected(d, name, "ids"), *logits = expected(d, name, "logits");
    const int32_t n = length(d, name), V = f->model->arch.vocab;
    const float cap = f->model->arch.logit_cap;
    pass p;
    begin_pass(&p);
    p.span[p.n_spans++] = (um_span){.n = n,
                                    .page = p.page[0],
                                    .keys = {0, stored + n},
                                    .adapter = -1,
                                    .canvas = canvas,
                                    .start = stored,
                                    .blend = blend};
    for (int32_t i = 0; i < n; i++, p.n++) {
        const int32_t pos = stored + i;
        p.id[i] = int_at(id, i);
        p.pos[i] = pos;
        p.slot[i] = p.page[0][pos / PAGE] * PAGE + pos % PAGE;
        p.end[i] = canvas ? stored + n : pos + 1;
    }
    run_pass(f, &p);
    for (int32_t i = 0; i < n * V; i++) {
        const float want = float_at(logits, (size_t)i), is = cap * tanhf(f->logits[i] / cap);
        const float share = isnan(is) ? INFINITY : fabsf(is - want) / MODES_TOLERANCE;
        if (share <= diff->worst) continue;
        *diff = (difference){share, is, want, ""};
        snprintf(diff->at, sizeof diff->at, "%s row %d id %d", name, i / V, i % V);
    }
    if (!(tau > 0)) return;
    um_row row[TOKENS];
    um_answer answer[TOKENS];
    for (int32_t i = 0; i < n; i++)
        row[i] = (um_row){.src = {i}, .w = {1}, .how = {.temperature = tau, .top_p = 1}, .blend = 1 + i};
    p.batch.row = row;
    p.batch.answer = answer;
    p.batch.n_rows = n;
    run(f, &p.batch);
}

/* A text is stored, a canvas behind it is denoised twice, and its last tokens are stored. */
static void check_modes(void **state) {
    folder d;
    (void)state;
    open_folder(&d, "diffusion_gemma", "diffusion_gemma");
    const float tau = float_at(um_store_find(d.expected, "tau"), 0);
    for (const um_ops *const *ops = um_ops_all; *ops; ops++) {
        fixture f;
        difference diff = {.at = "nowhere"};
        open_reference(&f, d.name, (*ops)->name);
        const int32_t stored = length(&d, "text");
        check_mode(&f, &d, "text", 0, false, 0, 0, &diff);
        check_mode(&f, &d, "first", stored, true, 0, tau, &diff);
        check_mode(&f, &d, "second", stored, true, 1, 0, &diff);
        check_mode(&f, &d, "stored", stored, false, 0, 0, &diff);
        print_message("%s on %s: largest difference %.2g (%s)\n", d.name, (*ops)->name,
                      (double)fabsf(diff.got - diff.want), diff.at);
        if (!(diff.worst <= 1))
            fail_msg("%s on %s: %s is %.7g, expected %.7g", d.name, (*ops)->name, diff.at, (double)diff.got,
                     (double)diff.want);
        close_fixture(&f);
    }
    close_folder(&d);
}

/* ---- Cases ------------------------------------------------------------------------------------------------------- */

typedef struct pair {
    const char *folder, *expected;
} pair;

static void check(void **state) {
    const pair *p = *state;
    folder d;
    open_folder(&d, p->folder, p->expected);
    for (const um_ops *const *ops = um_ops_all; *ops; ops++) check_logits(&d, (*ops)->name);
    check_routes(&d);
    close_folder(&d);
}

#define CASE(claim, folder, expected)                                                                                  \
    {                                                                                                                  \
        claim, check, NULL, NULL, (void *)&(pair) { folder, expected }                                                 \
    }

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE("llada_with_biases_scaling_tying_and_grouped_heads", "llada_b", "llada_b"),
        CASE("illada", "illada", "illada"),
        CASE("illada_with_layer_norm_and_biases", "illada_b", "illada_b"),
        CASE("llada_moe_ignores_norm_topk_prob", "llada_moe", "llada_moe"),
        CASE("llada_moe_in_fused_layout", "llada_moe_fused", "llada_moe"),
        CASE("llada_moe_with_dense_layer_shared_expert_clamp_and_bias", "llada_moe_b", "llada_moe_b"),
        CASE("dream", "dream", "dream"),
        CASE("dream_reasoner", "dream_reasoner", "dream_reasoner"),
        CASE("dream_reasoner_with_wide_heads_and_biases", "dream_reasoner_b", "dream_reasoner_b"),
        CASE("llada2_with_groups_of_experts", "llada2", "llada2"),
        CASE("llada2_with_merged_experts", "llada2_merged", "llada2"),
        CASE("llada2_in_fused_layout", "llada2_fused", "llada2"),
        CASE("llada2_2_with_a_pool_of_experts_per_block", "llada2_2", "llada2_2"),
        CASE("llada2_2_breaks_ties_by_index", "llada2_2_tie", "llada2_2_tie"),
        CASE("sdar_with_tied_head", "sdar_b", "sdar_b"),
        CASE("sdar_moe_with_a_dense_layer", "sdar_moe", "sdar_moe"),
        CASE("sdar_moe_without_renormalisation", "sdar_moe_b", "sdar_moe_b"),
        CASE("rnd1", "rnd1", "rnd1"),
        CASE("rnd1_without_renormalisation", "rnd1_b", "rnd1_b"),
        CASE("fast_dllm_v2_with_tied_head", "fast_dllm_v2_tied", "fast_dllm_v2_tied"),
        CASE("stable_diffcoder_with_biases", "stable_diffcoder_b", "stable_diffcoder_b"),
        CASE("wedlm_in_reordered_sequences", "wedlm", "wedlm"),
        CASE("wedlm_with_biases", "wedlm_7b", "wedlm_7b"),
        {"diffusion_gemma_in_two_modes", check_modes, NULL, NULL, NULL},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
