/* Credit decoding against its definition, which keeps a credit for every id and adds it before anything is decided. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "decode/decode.h"

enum { VOCAB = 96, POSITION = 21, SEED = 5 };

/* One masked position. */
typedef struct mask {
    um_req req;
    um_compat compat;
    um_sampler_input c;
    um_answer answer;
    um_top top[UM_TOP_MAX];
    int32_t position[1], token[1];
    float score[1];
    int32_t vocab;
    double credit[VOCAB]; /* of the definition */
} mask;

static void set_up(mask *m, int32_t vocab, float temperature) {
    *m = (mask){.position = {POSITION}, .token = {UM_MASKED}, .vocab = vocab};
    m->req.how = (um_decoding){.credit_alpha = .7F, .boost_gamma = .2F, .decay_beta = .8F};
    m->c = (um_sampler_input){.answer = &m->answer,
                              .position = m->position,
                              .token = m->token,
                              .n = 1,
                              .n_masks = 1,
                              .previous = UM_MASKED,
                              .block_len = 4,
                              .how = &m->req.how,
                              .compat = &m->compat,
                              .seed = SEED,
                              .temperature = temperature,
                              .mask_id = 500,
                              .score = m->score,
                              .memory = um_zalloc(um_sampler_credit.memory(&m->req, 4))};
}

static void tear_down(mask *m) { um_free(m->c.memory); }

static double noise(const mask *m, int32_t v) {
    uint64_t key = um_rng_key(SEED, POSITION, (uint64_t)m->c.count, UM_USE_SAMPLE);
    return m->c.temperature > 0 ? (double)um_rng_gumbel(key, (uint64_t)v) : 0;
}

static void softmax(const double *z, int32_t n, double scale, double *p) {
    double sum = 0, max = -INFINITY;
    for (int32_t v = 0; v < n; v++) max = fmax(max, z[v]);
    for (int32_t v = 0; v < n; v++) sum += p[v] = exp((z[v] - max) * scale);
    for (int32_t v = 0; v < n; v++) p[v] /= sum;
}

/* Returns the id with the largest ln p + noise, the highest id among equals. */
static int32_t draw(const mask *m, const double *p) {
    int32_t best = 0;
    for (int32_t v = 1; v < m->vocab; v++)
        if (log(p[v]) + noise(m, v) >= log(p[best]) + noise(m, best)) best = v;
    return best;
}

static double inverse_temperature(const mask *m) { return m->c.temperature > 0 ? 1 / (double)m->c.temperature : 1; }

/* Answers the row as a model with these logits would, under the sampler's edits. */
static void forward(mask *m, const double *z) {
    um_edit edit[UM_TOP_MAX];
    double edited[VOCAB], p[VOCAB], q[VOCAB];
    bool used[VOCAB] = {0};
    memcpy(edited, z, (size_t)m->vocab * sizeof *z);
    assert_in_range(um_sampler_credit.edits_max(&m->req), 0, UM_LEN(edit));
    for (int32_t n = um_sampler_credit.edit(&m->c, 0, edit), k = 0; k < n; k++) edited[edit[k].id] += edit[k].add;
    softmax(edited, m->vocab, 1, p);
    softmax(edited, m->vocab, inverse_temperature(m), q);
    for (int32_t k = 0; k < UM_TOP_MAX; k++) {
        int32_t best = -1;
        for (int32_t v = 0; v < m->vocab; v++)
            if (!used[v] && (best < 0 || p[v] >= p[best])) best = v;
        m->top[k] = (um_top){.id = best};
        if (best < 0) break;
        used[best] = true;
        m->top[k] = (um_top){.id = best, .p = (float)p[best], .q = (float)q[best]};
    }
    int32_t id = draw(m, q);
    m->answer = (um_answer){.sample = id, .p_sample = (float)p[id], .q_sample = (float)q[id], .top = m->top};
}

/* The definition of credit decoding. Returns the token and sets *prob to its probability. */
static int32_t defined(mask *m, const double *z, double *prob) {
    double p[VOCAB], raised[VOCAB];
    int32_t best = 0;
    softmax(z, m->vocab, 1, p);
    for (int32_t v = 0; v < m->vocab; v++) {
        m->credit[v] *= .8;
        if (p[v] >= p[best]) best = v;
    }
    m->credit[best] += pow(p[best], .2);
    for (int32_t v = 0; v < m->vocab; v++) raised[v] = z[v] + .7 * log(1 + m->credit[v]);
    softmax(raised, m->vocab, inverse_temperature(m), p);
    int32_t id = draw(m, p);
    *prob = p[id];
    return id;
}

/* Lets the sampler decide at this threshold. Returns the token or UM_MASKED. */
static int32_t decide(mask *m, float threshold, bool forced) {
    int32_t at[1], id[1];
    um_decision d = {.at = at, .id = id};
    m->req.how.accept_threshold = threshold;
    m->c.forced = forced;
    um_sampler_credit.accept(&m->c, &d);
    return d.n ? id[0] : UM_MASKED;
}

/* Runs one pass and expects the token and the probability of the definition. */
static double expect_defined(mask *m, const double *z) {
    double prob;
    size_t size = um_sampler_credit.memory(&m->req, 4);
    void *before = um_zalloc(size);
    int32_t want = defined(m, z, &prob);
    forward(m, z);
    memcpy(before, m->c.memory, size);
    assert_int_equal(decide(m, (float)prob + 1e-4F, false), UM_MASKED);
    memcpy(m->c.memory, before, size);
    assert_int_equal(decide(m, (float)prob - 1e-4F, false), want);
    um_free(before);
    m->c.count++;
    return prob;
}

/* Two ids, of which the same one is likeliest in all passes, with .60, .65 and .70. */
static void credit_runs_the_example(void **state) {
    (void)state;
    static const double p[] = {.6, .65, .7}, credit[] = {.903, 1.640, 2.243}, boost[] = {.450, .680, .824};
    mask m;
    um_edit edit[UM_TOP_MAX];
    set_up(&m, 2, 0);
    assert_int_equal(um_sampler_credit.edit(&m.c, 0, edit), 0);
    for (int i = 0; i < 3; i++) {
        double prob = expect_defined(&m, (double[]){log(p[i]), log(1 - p[i])});
        assert_true(i > 0 || fabs(prob - .702) < 5e-4);
        assert_true(fabs(m.credit[0] - credit[i]) < 1e-3);
        assert_true(fabs(log(prob / (1 - prob)) - log(p[i] / (1 - p[i])) - boost[i]) < 1e-3);
        assert_int_equal(um_sampler_credit.edit(&m.c, 0, edit), 1);
        assert_int_equal(edit[0].id, 0);
        assert_true(fabs((double)edit[0].add - .7 * log(1 + .8 * credit[i])) < 1e-3);
    }
    tear_down(&m);
}

/* With changing logits the likeliest id changes, and often the credit of the same pass decides. */
static void credit_follows_its_definition(void **state) {
    (void)state;
    static const float temperature[] = {0, .5F, 1, 2};
    for (uint64_t seed = 0; seed < 60; seed++) {
        mask m;
        double z[8];
        set_up(&m, 8, temperature[seed % 4]);
        for (uint64_t pass = 0; pass < 12; pass++) {
            for (uint64_t v = 0; v < 8; v++) z[v] = 2 * um_rng_uniform(um_rng_key(seed, pass, v, 9), 0);
            expect_defined(&m, z);
        }
        tear_down(&m);
    }
}

static void credit_keeps_as_many_ids_as_it_may_edit(void **state) {
    (void)state;
    mask m;
    um_edit edit[UM_TOP_MAX];
    set_up(&m, VOCAB, 0);
    for (int32_t winner = 0; winner < VOCAB; winner++) {
        double z[VOCAB] = {0};
        z[winner] = 9;
        forward(&m, z);
        decide(&m, 2, false);
    }
    int32_t n = um_sampler_credit.edit(&m.c, 0, edit);
    assert_int_equal(n, um_sampler_credit.edits_max(&m.req));
    for (int32_t k = 0; k < n; k++) assert_in_range(edit[k].id, VOCAB - n, VOCAB - 1); /* the oldest were replaced */
    tear_down(&m);
}

static void credit_belongs_to_a_position(void **state) {
    (void)state;
    mask m;
    um_edit edit[UM_TOP_MAX];
    set_up(&m, 2, 0);
    expect_defined(&m, (double[]){0, 1});
    assert_int_equal(um_sampler_credit.edit(&m.c, 0, edit), 1);
    m.position[0]++;
    assert_int_equal(um_sampler_credit.edit(&m.c, 0, edit), 0);
    tear_down(&m);
}

static void credit_forces_the_surest_and_passes_equality(void **state) {
    (void)state;
    mask m;
    set_up(&m, 2, 0);
    m.req.how.credit_alpha = 0;
    forward(&m, (double[]){0, 0});
    assert_int_equal(decide(&m, .5F, false), 1);
    assert_int_equal(decide(&m, .51F, false), UM_MASKED);
    assert_int_equal(decide(&m, .51F, true), 1);
    tear_down(&m);
}

/* Writes the decided token and returns its reported probability. */
static double written_probability(mask *m, int32_t id) {
    um_traits traits = {.mask_id = 500};
    int32_t token[POSITION + 1], written[POSITION + 1];
    float logprob[POSITION + 1] = {0};
    um_req r = {.traits = &traits,
                .n_prompt = POSITION,
                .cap = POSITION + 1,
                .n_top_asked = UM_TOP_MAX,
                .token = token,
                .written = written,
                .logprob = logprob,
                .filled = POSITION,
                .settled = INT32_MAX};
    written[POSITION] = -1;
    um_req_write(&r, POSITION, id, &m->answer);
    assert_int_equal(token[POSITION], id);
    return exp((double)logprob[POSITION]);
}

/* The row samples one id, but the credit of the pass makes another one win. The latter's probability is reported. */
static void the_token_that_credit_prefers_has_its_own_probability(void **state) {
    (void)state;
    int32_t moved = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        mask m;
        double z[8];
        set_up(&m, 8, 1);
        m.c.count = (int32_t)seed; /* to get different draws */
        for (uint64_t v = 0; v < 8; v++) z[v] = 2 * um_rng_uniform(um_rng_key(seed, 0, v, 9), 0);
        forward(&m, z);
        int32_t id = decide(&m, 0, true);
        double plain = 0;
        for (int32_t k = 0; k < 8; k++)
            if (m.top[k].id == id) plain = (double)m.top[k].p;
        assert_true(fabs(written_probability(&m, id) - plain) < 1e-6);
        moved += id != m.answer.sample;
        tear_down(&m);
    }
    assert_true(moved > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(credit_runs_the_example),
        cmocka_unit_test(credit_follows_its_definition),
        cmocka_unit_test(credit_keeps_as_many_ids_as_it_may_edit),
        cmocka_unit_test(credit_belongs_to_a_position),
        cmocka_unit_test(the_token_that_credit_prefers_has_its_own_probability),
        cmocka_unit_test(credit_forces_the_surest_and_passes_equality),
    };
    return cmocka_run_group_tests_name("credit decoding", tests, NULL, NULL);
}
