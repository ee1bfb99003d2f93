/* dInfer's credit decoding: ids that win pass after pass gather credit, which raises their logits.
 *
 * Each masked position keeps a credit E per id, zero at first. A pass multiplies all of it by decay_beta, then adds
 * p^boost_gamma for the likeliest id of the plain distribution, p being its probability there; what decides is
 *     z[v] + credit_alpha ln(1 + E[v])
 * Positions are taken as `dynamic` takes them.
 *
 * Credit of earlier passes goes into the logits as edits, so that temperature, filters and draws see it. The credit
 * that a pass itself adds can't: it depends on that pass. It moves one id v of known probability, so its effect follows
 * from the answer: with r the factor by which exp(z[v]) grows, p[v] becomes p r / (1 + p (r - 1)) and every other p[u]
 * is divided by 1 + p[v] (r - 1). The draw is the largest of ln q + Gumbel noise, so it either stays or moves to v.
 *
 * A position keeps at most MAX credits, the smallest gives way. An id that fell out of the UM_TOP_MAX likeliest ones
 * counts as having no probability when the plain distribution is restored. */
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
     "Decoding (samplers)", "credit: weight of the credit's logarithm in a logit"},
    {"boost_gamma", NULL, UM_OPT_FLOAT, UM_FIELD(um_decoding, boost_gamma), 0, 100, NULL, "0.2", NULL, "X",
     "Decoding (samplers)", "credit: power of the probability that a pass adds"},
    {"decay_beta", NULL, UM_OPT_FLOAT, UM_FIELD(um_decoding, decay_beta), 0, 1, NULL, "0.8", NULL, "X",
     "Decoding (samplers)", "credit: share of it that a pass leaves"},
};

/* ---- Credit ------------------------------------------------------------------------------------------------------ */

/* A block's positions follow each other, so this numbers them without a hole wherever the block starts. */
static credits *credits_of(const um_choice *c, int32_t i) {
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

static void decay(const um_choice *c) {
    credits *e = (credits *)c->memory;
    for (int32_t i = 0; i < c->block_len; i++)
        for (int32_t k = 0; k < e[i].n; k++) e[i].of[k].value *= c->how->decay_beta;
}

static void give(credits *e, int32_t id, float value) {
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

static int32_t credit_edit(const um_choice *c, int32_t i, um_edit *out) {
    const credits *e = credits_of(c, i);
    for (int32_t k = 0; k < e->n; k++) {
        float credit = c->how->decay_beta * e->of[k].value;
        out[k] = (um_edit){.id = e->of[k].id, .add = c->how->credit_alpha * log1pf(credit)};
    }
    return e->n;
}

/* ---- Decision ---------------------------------------------------------------------------------------------------- */

/* The likeliest id of the plain distribution: its place in the list of likeliest ids, and its probability there. */
static int32_t plain_best(const um_choice *c, int32_t i, const credits *e, float *p) {
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

/* The draw with id v's logit raised by ln r: the larger of ln q + noise. Greedy: the larger p, then the highest id. */
static bool moves_to(const um_choice *c, int32_t i, const um_top *v, float r) {
    const um_answer *a = &c->answer[i];
    if (v->id == a->sample) return true;
    if (c->temperature == 0) return v->p * r > a->p_sample || (v->p * r == a->p_sample && v->id > a->sample);
    uint64_t key = um_rng_key(c->seed, (uint64_t)c->position[i], (uint64_t)c->count, UM_USE_SAMPLE);
    float raised = logf(v->q) + logf(r) / c->temperature + um_rng_gumbel(key, (uint64_t)v->id);
    return raised > logf(a->q_sample) + um_rng_gumbel(key, (uint64_t)a->sample);
}

/* Gives candidate i its credit of this pass; returns the id it is to become, *q is that one's probability. */
static int32_t give_credit(const um_choice *c, int32_t i, float *q) {
    credits *e = credits_of(c, i);
    float p;
    const um_top *v = &c->answer[i].top[plain_best(c, i, e, &p)];
    const float before = 1 + credit_for(e, v->id);
    give(e, v->id, powf(p, c->how->boost_gamma));
    const float r = powf((1 + credit_for(e, v->id)) / before, c->how->credit_alpha);
    const float r_q = c->temperature > 0 ? powf(r, 1 / c->temperature) : r;
    const float total = 1 + v->q * (r_q - 1);
    bool moves = moves_to(c, i, v, r);
    *q = (moves ? v->q * r_q : c->answer[i].q_sample) / total;
    return moves ? v->id : c->answer[i].sample;
}

/* The forced choice ranks by the raised probability, or by another score of the answer. */
static int32_t surest(const um_choice *c) {
    if (c->how->confidence != UM_CONFIDENCE_PROBABILITY) return um_best_score(c);
    int32_t best = 0;
    for (int32_t i = 1; i < c->n; i++)
        if (c->score[i] > c->score[best]) best = i;
    return best;
}

static void credit_accept(const um_choice *c, um_decision *d) {
    decay(c);
    for (int32_t i = 0; i < c->n; i++) d->id[i] = give_credit(c, i, &c->score[i]);
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
    .summary = "ids that win pass after pass gather credit in their logits; then as dynamic",
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
