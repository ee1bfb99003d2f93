/* The random draws of renoising: the tokens that a canvas starts with, those that replace positions that are not
 * accepted, and those that are drawn from the predictions. Their numbers are compared with the exact probabilities by
 * chi-square tests over many seeds. The seeds are fixed, so the results are the same in every run. */
#include "decode_script.h"
#include "ops/ops.h"

enum { SEEDS = 2000, CANVAS = 8, STEPS = 4, IDS_MAX = 8 };

static const int32_t prompt[] = {1, 2, 3};
static const float logit[IDS_MAX] = {0.2F, -0.3F, 0.5F, 0.0F, 0.35F, -0.5F, 0.25F, -0.1F};

/* What the passes of a request were fed and asked. */
typedef struct run {
    int32_t fed[STEPS][CANVAS];
    um_row row[STEPS][CANVAS];
} run;

/* Only the first position of a canvas is accepted: the entropy of each is above the bound. */
static um_answer uncertain(const bench *b, const um_row *row, int32_t pos, uint64_t seen) {
    (void)b;
    (void)row;
    (void)seen;
    um_answer a = answer_with(0, 0.1F);
    a.entropy = pos == (int32_t)UM_LEN(prompt) ? 1 : 2;
    return a;
}

static void run_canvas(run *out, uint64_t seed) {
    bench b;
    set_up(&b, &um_strategy_renoising, prompt, (int32_t)UM_LEN(prompt), CANVAS, 1);
    b.traits.see = UM_SEE_CAUSAL;
    b.traits.block = b.traits.canvas = CANVAS;
    b.traits.vocab = IDS_MAX;
    b.how.canvas_steps = STEPS;
    b.how.canvas_entropy_bound = 0.5F;
    b.how.t_min = 0.7F;
    b.how.t_max = 1.6F;
    b.how.confidence_threshold = 0;
    b.how.stability_threshold = -1;
    b.sampling.max_tokens = CANVAS;
    b.sampling.ignore_eos = true;
    b.seed = seed;
    b.model = uncertain;
    choose_sampler(&b, "auto");
    start(&b);
    step(&b); /* the prompt */
    for (int32_t i = 0; i < STEPS; i++) {
        step(&b);
        assert_int_equal(b.pass.n_rows, CANVAS);
        memcpy(out->fed[i], b.seg[0].id, sizeof out->fed[i]);
        memcpy(out->row[i], b.row, sizeof out->row[i]);
    }
    end(&b);
}

static run runs[SEEDS];

static int run_all(void **state) {
    (void)state;
    for (int32_t i = 0; i < SEEDS; i++) run_canvas(&runs[i], (uint64_t)i + 1);
    return 0;
}

/* Fails unless counts [n] are those of draws with the probabilities p. The statistic has n - 1 degrees of freedom, and
 * is normal enough to bound it by five standard deviations and a half: 1 in 10 million. */
static void check_counts(const char *what, const int64_t *count, const double *p, int32_t n) {
    double all = 0, chi2 = 0;
    const double bound = n - 1 + 5.5 * sqrt(2.0 * (n - 1)) + 16; /* the distribution has a longer tail above */
    for (int32_t i = 0; i < n; i++) all += (double)count[i];
    for (int32_t i = 0; i < n; i++) {
        const double expected = all * p[i];
        assert_true(expected > 20);
        chi2 += ((double)count[i] - expected) * ((double)count[i] - expected) / expected;
    }
    if (chi2 > bound) fail_msg("%s: chi-square %g of %d counts, at most %g is expected", what, chi2, n, bound);
}

/* Compares pairs of ids with the product of their probabilities. */
static void check_pairs(const char *what, const int64_t count[IDS_MAX][IDS_MAX], const double *p, const double *q) {
    double both[IDS_MAX * IDS_MAX];
    for (int32_t i = 0; i < IDS_MAX * IDS_MAX; i++) both[i] = p[i / IDS_MAX] * q[i % IDS_MAX];
    check_counts(what, &count[0][0], both, IDS_MAX * IDS_MAX);
}

static const double *uniform(void) {
    static double p[IDS_MAX];
    for (int32_t i = 0; i < IDS_MAX; i++) p[i] = 1.0 / IDS_MAX;
    return p;
}

/* ---- Tests ------------------------------------------------------------------------------------------------------- */

static void a_canvas_starts_with_any_tokens(void **state) {
    (void)state;
    int64_t one[IDS_MAX] = {0}, neighbours[IDS_MAX][IDS_MAX] = {{0}};
    for (int32_t s = 0; s < SEEDS; s++)
        for (int32_t i = 0; i < CANVAS; i++) {
            const int32_t id = runs[s].fed[0][i];
            assert_in_range(id, 0, IDS_MAX - 1);
            one[id]++;
            if (i) neighbours[runs[s].fed[0][i - 1]][id]++;
        }
    check_counts("starts", one, uniform(), IDS_MAX);
    check_pairs("neighbours", (const int64_t(*)[IDS_MAX])neighbours, uniform(), uniform());
}

/* The first position is accepted. The others get a new token in each pass, whatever they had before. */
static void other_positions_get_any_tokens(void **state) {
    (void)state;
    int64_t again[STEPS][IDS_MAX][IDS_MAX] = {{{0}}}, neighbours[IDS_MAX][IDS_MAX] = {{0}};
    for (int32_t s = 0; s < SEEDS; s++)
        for (int32_t k = 1; k < STEPS; k++) {
            assert_int_equal(runs[s].fed[k][0], 0);
            for (int32_t i = 1; i < CANVAS; i++) {
                again[k][runs[s].fed[k - 1][i]][runs[s].fed[k][i]]++;
                if (i > 1) neighbours[runs[s].fed[k][i - 1]][runs[s].fed[k][i]]++;
            }
        }
    for (int32_t k = 1; k < STEPS; k++)
        check_pairs("a position and its next token", (const int64_t(*)[IDS_MAX])again[k], uniform(), uniform());
    check_pairs("neighbours", (const int64_t(*)[IDS_MAX])neighbours, uniform(), uniform());
}

/* Draws a token for each row of a pass of all runs, with a table of operations. */
static void draw(const um_ops *ops, int32_t pass, int32_t (*out)[CANVAS]) {
    const um_dev_config c = {
        .threads = 1, .max_tokens = 1, .max_rows = CANVAS, .max_in = 8, .max_hidden = 8, .max_vocab = IDS_MAX};
    float data[IDS_MAX][8] = {{0}}, hidden[8] = {1};
    const um_tensor t = {.name = "head", .type = UM_F32, .n_dims = 2, .dim = {IDS_MAX, 8}, .data = data};
    um_dev *dev;
    um_weight *w;
    um_err err;
    for (int32_t i = 0; i < IDS_MAX; i++) data[i][0] = logit[i];
    if (ops->open(&dev, &c, &err) || ops->weight(dev, &w, &t, 1, UM_F32, &err)) fail_msg("%s", err.msg);
    for (int32_t s = 0; s < SEEDS; s++) {
        um_answer answer[CANVAS];
        um_row row[CANVAS];
        memcpy(row, runs[s].row[pass], sizeof row);
        for (int32_t i = 0; i < CANVAS; i++) {
            row[i].src[0] = 0;
            row[i].blend = 0;
            row[i].edit = row[i].own = NULL;
            row[i].n_edit = row[i].n_own = 0;
        }
        const um_head h = {.w = w,
                           .hidden = hidden,
                           .hidden_size = 8,
                           .vocab = IDS_MAX,
                           .scale = 1,
                           .row = row,
                           .n_rows = CANVAS,
                           .answer = answer};
        ops->head(dev, &h);
        for (int32_t i = 0; i < CANVAS; i++) out[s][i] = answer[i].sample;
    }
    ops->weight_free(dev, w);
    ops->close(dev);
}

/* The temperature falls from t_max in the first pass. */
static void exact(int32_t pass, double *p) {
    const double tau = 0.7 + (1.6 - 0.7) * (STEPS - pass) / STEPS;
    double sum = 0;
    for (int32_t i = 0; i < IDS_MAX; i++) sum += p[i] = exp((double)logit[i] / tau);
    for (int32_t i = 0; i < IDS_MAX; i++) p[i] /= sum;
}

static void check_draws(const um_ops *ops) {
    static int32_t id[STEPS][SEEDS][CANVAS];
    for (int32_t k = 0; k < STEPS; k++) {
        int64_t one[IDS_MAX] = {0}, neighbours[IDS_MAX][IDS_MAX] = {{0}}, passes[IDS_MAX][IDS_MAX] = {{0}},
                noise[IDS_MAX][IDS_MAX] = {{0}};
        double p[IDS_MAX], before[IDS_MAX];
        draw(ops, k, id[k]);
        exact(k, p);
        for (int32_t s = 0; s < SEEDS; s++)
            for (int32_t i = 0; i < CANVAS; i++) {
                one[id[k][s][i]]++;
                if (i) neighbours[id[k][s][i - 1]][id[k][s][i]]++;
                if (k) passes[id[k - 1][s][i]][id[k][s][i]]++;
                if (i && k + 1 < STEPS) noise[id[k][s][i]][runs[s].fed[k + 1][i]]++;
            }
        check_counts("drawn tokens", one, p, IDS_MAX);
        check_pairs("drawn tokens of neighbours", (const int64_t(*)[IDS_MAX])neighbours, p, p);
        if (k + 1 < STEPS) check_pairs("a draw and the noise", (const int64_t(*)[IDS_MAX])noise, p, uniform());
        if (!k) continue;
        exact(k - 1, before);
        check_pairs("draws of two passes", (const int64_t(*)[IDS_MAX])passes, before, p);
    }
}

static void tokens_are_drawn_by_their_probabilities(void **state) {
    (void)state;
    for (size_t i = 0; um_ops_all[i]; i++) check_draws(um_ops_all[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_canvas_starts_with_any_tokens),
        cmocka_unit_test(other_positions_get_any_tokens),
        cmocka_unit_test(tokens_are_drawn_by_their_probabilities),
    };
    return cmocka_run_group_tests_name("draws of renoising", tests, run_all, NULL);
}
