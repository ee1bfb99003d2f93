/* Credit decoding as in dInfer: ids that are likeliest in several passes gather credit, which raises their logits.
 *
 * Each masked position keeps a credit E per id, zero at first. A pass multiplies all credits by decay_beta, then adds
 * p^boost_gamma to the credit of the likeliest id of the plain distribution (the distribution without credit), where p
 * is the probability of that id there. The sampler decides by the logits z[v] + credit_alpha ln(1 + E[v]) and accepts
 * tokens as `dynamic` does.
 *
 * Credit of earlier passes is added to the logits as edits, so temperature, filters and draws take it into account. The
 * credit that a pass itself adds can't be an edit, because it depends on that pass. It raises the logit of one id v of
 * known probability, so its effect can be computed from the answer: if exp(z[v]) grows by the factor r, p[v] becomes
 * p[v] r / (1 + p[v] (r - 1)), and every other p[u] is divided by 1 + p[v] (r - 1). The sampled id is the one with the
 * largest ln q + Gumbel noise, so it either stays the same or becomes v.
 *
 * A position keeps at most MAX credits; a new one replaces the smallest. When the plain distribution is restored, ids
 * outside the UM_TOP_MAX likeliest ones count as having no probability. */
#include <math.h>

#include "decode/samplers/samplers.h"

enum { MAX = 64 };

typedef struct credits {
    int32_t n;
    struct {
        int32_t id;
        float value;
    } of[MAX];
} credits;

static const um_option params[] = {
    {"credit_alpha", NULL, UM_OPT_FLOAT, UM_FIELD(um_decoding, credit_alpha), 0, 100, NULL, "0.7", NULL, "X",
     "Decoding (samplers)", "sampler credit: weight of ln(1 + credit), which is added to a token's logit"},
    {"boost_gamma", NULL, UM_OPT_FLOAT, UM_FIELD(um_decoding, boost_gamma), 0, 100, NULL, "0.2", NULL, "X",
     "Decoding (samplers)",
     "sampler credit: exponent; each pass adds the probability of the most likely token, raised to this power, to "
     "the token's credit"},
    {"decay_beta", NULL, UM_OPT_FLOAT, UM_FIELD(um_decoding, decay_beta), 0, 1, NULL, "0.8", NULL, "X",
     "Decoding (samplers)", "sampler credit: factor by which each pass multiplies all credit so far"},
};

/* ---- Credit ------------------------------------------------------------------------------------------------------ */

/* Consecutive positions have different remainders, so no two positions of the block share an entry. */
static credits *credits_of(const um_sampler_input *c, int32_t i) {
    return (credits *)c->memory + c->position[i] % c->block_len;
}

static int32_t find(const credits *e, int32_t id) {
    for (int32_t k = 0; k < e->n; k++)
        if (e->of[k].id == id) return k;
    return -1;
}

static float credit_for(const credits *e, int32_t id) {
    int32_t k = find(e, id);
    return k < 0 ? 0 : e->of[k].value;
}

static void decay(const um_sampler_input *c) {
    credits *e = (credits *)c->memory;
    for (int32_t i = 0; i < c->block_len; i++)
        for (int32_t k = 0; k < e[i].n; k++) e[i].of[k].value *= c->how->decay_beta;
}

static void add_credit(credits *e, int32_t id, float value) {
    int32_t k = find(e, id);
    if (k < 0 && e->n < MAX) {
        k = e->n++;
        e->of[k].id = id;
        e->of[k].value = 0;
    } else if (k < 0) {
        k = 0;
        for (int32_t j = 1; j < MAX; j++)
            if (e->of[j].value < e->of[k].value) k = j;
        if (e->of[k].value >= value) return;
        e->of[k].id = id;
        e->of[k].value = 0;
    }
    e->of[k].value += value;
}

static int32_t credit_edits_max(const um_req *r) {
    (void)r;
    return MAX;
}

static int32_t credit_edit(const um_sampler_input *c, int32_t i, um_edit *out) {
    const credits *e = credits_of(c, i);
    for (int32_t k = 0; k < e->n; k++) {
        float credit = c->how->decay_beta * e->of[k].value;
        out[k] = (um_edit){.id = e->of[k].id, .add = c->how->credit_alpha * log1pf(credit)};
    }
    return e->n;
}

/* ---- Decision ---------------------------------------------------------------------------------------------------- */

/* Finds the likeliest id of the plain distribution. Returns its index in the list of likeliest ids and sets *p to its
 * plain probability. */
static int32_t plain_best(const um_sampler_input *c, int32_t i, const credits *e, float *p) {
    const um_top *top = c->answer[i].top;
    float left = 1, most = -1;
    int32_t best = 0;
    for (int32_t k = 0; k < UM_TOP_MAX && top[k].id >= 0; k++) {
        float plain = top[k].p * powf(1 + credit_for(e, top[k].id), -c->how->credit_alpha);
        left -= top[k].p - plain;
        if (!(plain > most)) continue;
        most = plain;
        best = k;
    }
    *p = UM_MIN(most / left, 1);
    return best;
}

/* Tells whether v is sampled once its logit is raised by ln r. A draw takes the larger ln q + noise; greedy decoding
 * takes the larger p, then the highest id. */
static bool becomes_sample(const um_sampler_input *c, int32_t i, const um_top *v, float r) {
    const um_answer *a = &c->answer[i];
    if (v->id == a->sample) return true;
    if (c->temperature == 0) return v->p * r > a->p_sample || (v->p * r == a->p_sample && v->id > a->sample);
    uint64_t key = um_rng_key(c->seed, (uint64_t)c->position[i], (uint64_t)c->count, UM_USE_SAMPLE);
    float raised = logf(v->q) + logf(r) / c->temperature + um_rng_gumbel(key, (uint64_t)v->id);
    return raised > logf(a->q_sample) + um_rng_gumbel(key, (uint64_t)a->sample);
}

/* Adds the credit of this pass to candidate i. Returns the id that the candidate samples with that credit, and sets *q
 * to its probability. */
static int32_t sample_with_credit(const um_sampler_input *c, int32_t i, float *q) {
    credits *e = credits_of(c, i);
    float p;
    const um_top *v = &c->answer[i].top[plain_best(c, i, e, &p)];
    const float before = 1 + credit_for(e, v->id);
    add_credit(e, v->id, powf(p, c->how->boost_gamma));
    const float r = powf((1 + credit_for(e, v->id)) / before, c->how->credit_alpha);
    const float r_q = c->temperature > 0 ? powf(r, 1 / c->temperature) : r;
    const float total = 1 + v->q * (r_q - 1);
    bool raised = becomes_sample(c, i, v, r);
    *q = (raised ? v->q * r_q : c->answer[i].q_sample) / total;
    return raised ? v->id : c->answer[i].sample;
}

/* Returns the forced choice: by the raised probability, or by another score of the answer. */
static int32_t surest(const um_sampler_input *c) {
    if (c->how->confidence != UM_CONFIDENCE_PROBABILITY) return um_best_score(c);
    int32_t best = 0;
    for (int32_t i = 1; i < c->n; i++)
        if (c->score[i] > c->score[best]) best = i;
    return best;
}

static void credit_accept(const um_sampler_input *c, um_decision *d) {
    decay(c);
    for (int32_t i = 0; i < c->n; i++) d->id[i] = sample_with_credit(c, i, &c->score[i]);
    const int32_t best = c->forced && c->n > 0 ? surest(c) : -1;
    for (int32_t i = 0; i < c->n; i++) {
        if (i != best && !(c->score[i] >= c->how->accept_threshold)) continue;
        d->at[d->n] = i;
        d->id[d->n++] = d->id[i];
    }
}

static int32_t credit_n_top(const um_req *r) {
    (void)r;
    return UM_TOP_MAX;
}

static size_t credit_memory(const um_req *r, int32_t n) {
    (void)r;
    return um_mul((size_t)n, sizeof(credits));
}

const um_sampler um_sampler_credit = {
    .name = "credit",
    .summary = "like dynamic, but raises the logits of ids that were likeliest in earlier passes",
    .source = "CreditDecoding, arXiv 2510.06133; dInfer credit decoder",
    .params = {{um_threshold_options, UM_LEN(um_threshold_options)},
               {um_score_options, UM_LEN(um_score_options)},
               {params, UM_LEN(params)}},
    .schedule = UM_SCHEDULE_NONE,
    .want = um_want_score,
    .n_top = credit_n_top,
    .memory = credit_memory,
    .edits_max = credit_edits_max,
    .edit = credit_edit,
    .accept = credit_accept,
};
