/* Answers of rows from tiles of logits: computes the partial answer of a tile, merges partial answers, and computes the
 * final answer. */
#include <float.h>
#include <math.h>

#include "ops/cpu/dev.h"

um_partial um_partial_none(void) {
    return (um_partial){-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -1, -1, -1, 0, 0, 0, 0};
}

static void apply_edit(const um_edit *e, float *l) {
    if (e->scale > 0) *l = *l > 0 ? *l / e->scale : *l * e->scale;
    *l = e->ban ? -INFINITY : *l + e->add;
}

/* Returns the index of the first edit whose id is at least `id`, or n_edit. Edits are sorted by id. */
static int32_t first_edit(const um_row *r, int32_t id) {
    int32_t low = 0, high = r->n_edit;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (r->edit[middle].id < id) low = middle + 1;
        else high = middle;
    }
    return low;
}

void um_logits_edit(const um_row *r, int32_t first, int32_t n, float *z) {
    for (int32_t e = first_edit(r, first); e < r->n_edit && r->edit[e].id < first + n; e++)
        apply_edit(&r->edit[e], &z[r->edit[e].id - first]);
    for (int32_t e = 0; e < r->n_own; e++)
        if (r->own[e].id >= first && r->own[e].id < first + n) apply_edit(&r->own[e], &z[r->own[e].id - first]);
    for (int32_t i = 0; r->allow && i < n; i++)
        if (!(r->allow[(first + i) / 32] >> ((first + i) % 32) & 1)) z[i] = -INFINITY;
}

static float rate_of(const um_sampling *how) { return how->temperature > 0 ? 1 / how->temperature : 1; }

/* Returns whether the filters keep an id with logit z. */
static bool keeps(um_kept_ids cut, float z, int32_t id) { return z > cut.value || (z == cut.value && id >= cut.id); }

/* Finds the best id of a tile, the highest of equals, and the second best when it is wanted. */
static void find_best(um_partial *p, const um_kernels *k, const um_row *r, int32_t first, const float *z) {
    int32_t best = k->last_from(z, UM_HEAD_TILE, p->max), second = -1;
    p->best = best < 0 ? -1 : first + best;
    if (!(r->want & UM_WANT_SECOND)) return;
    for (int32_t i = 0; i < UM_HEAD_TILE; i++) {
        if (i == best || z[i] == -INFINITY || !(z[i] >= p->second_z)) continue;
        second = i;
        p->second_z = z[i];
    }
    p->second = second < 0 ? -1 : first + second;
}

/* Makes the id the sampled one if its score is the largest so far. Of equal scores the highest id wins. */
static void try_draw(um_partial *p, const um_row *r, int32_t id, float z) {
    float score = z / r->how.temperature + um_rng_gumbel(r->how.key, (uint64_t)id);
    if (!(score > p->draw_score || (score == p->draw_score && id > p->draw))) return;
    p->draw_score = score;
    p->draw_z = z;
    p->draw = id;
}

/* Finds the kept id of a tile with the largest score z / temperature + noise.
 *
 * Computing noise takes two logarithms, so most ids are excluded by a bound of their noise. The id with the largest
 * bound is tried first, because it usually wins. Then few others can have a larger score. */
static void find_draw(um_partial *p, const um_kernels *k, const um_row *r, um_kept_ids cut, int32_t first,
                      const float *z) {
    float bound[UM_HEAD_TILE];
    k->noise_bounds(z, UM_HEAD_TILE, r->how.temperature, r->how.key, (uint64_t)first, bound);
    const int32_t likely = k->last_from(bound, UM_HEAD_TILE, k->max(bound, UM_HEAD_TILE));
    if (keeps(cut, p->max, p->best)) try_draw(p, r, p->best, p->max);
    if (likely >= 0 && keeps(cut, z[likely], first + likely)) try_draw(p, r, first + likely, z[likely]);
    for (int32_t run = 0; run < UM_HEAD_TILE; run += UM_PANEL) {
        /* The margin covers the rounding of scores and bounds. */
        uint32_t mask = k->mask_from(bound + run, p->draw_score - 1e-3f - 1e-6f * fabsf(p->draw_score));
        for (; mask; mask &= mask - 1) {
            const int32_t i = run + __builtin_ctz(mask), id = first + i;
            if (z[i] != -INFINITY && keeps(cut, z[i], id)) try_draw(p, r, id, z[i]);
        }
    }
}

um_partial um_partial_of(const um_dev *dev, um_thread *t, const um_row *r, um_kept_ids cut, int32_t first,
                         const float *z) {
    um_partial p = um_partial_none();
    p.max = dev->k->max(z, UM_HEAD_TILE);
    if (p.max == -INFINITY) return p;
    find_best(&p, dev->k, r, first, z);
    if (r->id >= first && r->id < first + UM_HEAD_TILE) p.id_z = z[r->id - first];
    bool keeps_any = p.max >= cut.value;
    if (r->want & UM_WANT_SAMPLE && r->how.temperature > 0 && keeps_any) find_draw(&p, dev->k, r, cut, first, z);
    float rate = rate_of(&r->how), sum, kept, moment;
    dev->k->exp_sums(z, UM_HEAD_TILE, p.max, 1, &sum, &moment);
    p.sum = sum;
    p.plain_moment = moment;
    if (!keeps_any) return p;
    kept = sum;
    if (cut.value > -INFINITY) {
        dev->k->cut_below(z, UM_HEAD_TILE, cut.value, t->z_cut);
        for (int32_t i = 0; i < UM_MIN(cut.id - first, UM_HEAD_TILE); i++)
            if (z[i] == cut.value) t->z_cut[i] = -INFINITY;
        z = t->z_cut;
    }
    if (cut.value > -INFINITY || rate != 1) dev->k->exp_sums(z, UM_HEAD_TILE, p.max, rate, &kept, &moment);
    p.kept = kept;
    p.moment = moment;
    return p;
}

/* Rescales the sums of p to a maximum that is at least its own. */
static void raise_max(um_partial *p, float max, float rate) {
    if (p->max == max || p->max == -INFINITY) return;
    double by = (double)p->max - max, factor = exp(by * rate), plain = rate == 1 ? factor : exp(by);
    p->plain_moment = plain * (p->plain_moment + p->sum * by);
    p->sum *= plain;
    p->moment = factor * (p->moment + p->kept * by * rate);
    p->kept *= factor;
}

um_partial um_partial_merge(um_partial a, um_partial b, float temperature) {
    if (b.max == -INFINITY) return a; /* no id of b is allowed */
    float max = UM_MAX(a.max, b.max), rate = temperature > 0 ? 1 / temperature : 1;
    raise_max(&a, max, rate);
    raise_max(&b, max, rate);
    um_partial p = {.max = max,
                    .sum = a.sum + b.sum,
                    .plain_moment = a.plain_moment + b.plain_moment,
                    .kept = a.kept + b.kept,
                    .moment = a.moment + b.moment};
    p.id_z = UM_MAX(a.id_z, b.id_z); /* at most one of the two has the id */
    /* Ids of b are higher, so b wins among equals. */
    bool from_b = b.max >= a.max, runner_b = from_b ? b.second_z >= a.max : b.max >= a.second_z;
    p.best = from_b ? b.best : a.best;
    p.second = runner_b ? (from_b ? b.second : b.best) : (from_b ? a.best : a.second);
    p.second_z = runner_b ? (from_b ? b.second_z : b.max) : (from_b ? a.max : a.second_z);
    bool draw_b = b.draw_score >= a.draw_score;
    p.draw = draw_b ? b.draw : a.draw;
    p.draw_z = draw_b ? b.draw_z : a.draw_z;
    p.draw_score = draw_b ? b.draw_score : a.draw_score;
    return p;
}

/* Returns the probability of an id with logit z before temperature and filters. */
static float prob(const um_partial *p, float z) { return (float)(exp((double)z - p->max) / p->sum); }

/* Returns the probability of an id with logit z after temperature and filters. */
static float kept_prob(const um_partial *p, const um_row *r, um_kept_ids cut, float z, int32_t id) {
    if (!keeps(cut, z, id)) return 0;
    return (float)(exp(((double)z - p->max) * rate_of(&r->how)) / p->kept);
}

um_answer um_partial_answer(const um_row *r, um_kept_ids cut, const um_partial *p) {
    um_answer a = {.best = -1, .second = -1, .sample = -1, .logsumexp = -INFINITY};
    if (p->best < 0) return a;
    bool draws = r->how.temperature > 0;
    a.logsumexp = (float)(p->max + log(p->sum));
    if (r->want & UM_WANT_BEST) {
        a.best = p->best;
        a.p_best = prob(p, p->max);
        a.q_best = kept_prob(p, r, cut, p->max, p->best);
    }
    if (r->want & UM_WANT_SECOND && p->second >= 0) {
        a.second = p->second;
        a.p_second = prob(p, p->second_z);
        a.q_second = kept_prob(p, r, cut, p->second_z, p->second);
    }
    if (r->want & UM_WANT_SAMPLE) {
        float z = draws ? p->draw_z : p->max;
        a.sample = draws ? p->draw : p->best;
        a.p_sample = prob(p, z);
        a.q_sample = kept_prob(p, r, cut, z, a.sample);
    }
    if (r->want & UM_WANT_ENTROPY) a.entropy = (float)(log(p->kept) - p->moment / p->kept);
    if (r->want & UM_WANT_PLAIN_ENTROPY) a.entropy = (float)(log(p->sum) - p->plain_moment / p->sum);
    if (r->want & UM_WANT_PROB_OF) {
        a.p_id = prob(p, p->id_z);
        a.log_p_id = (float)((double)p->id_z - p->max - log(p->sum));
    }
    return a;
}

typedef struct ranked {
    float z;
    int32_t id;
} ranked;

/* Inserts an id into the list of the n likeliest so far, which keeps at most n_max. Returns the new length. Ids come in
 * ascending order, so an id is inserted before its equals. */
static int32_t rank(ranked *list, int32_t n, int32_t n_max, ranked one) {
    int32_t at = n < n_max ? n++ : n_max - 1;
    for (; at > 0 && list[at - 1].z <= one.z; at--) list[at] = list[at - 1];
    list[at] = one;
    return n;
}

void um_find_top(const um_kernels *k, const um_row *r, um_kept_ids cut, const um_partial *p, const float *z,
                 int32_t n) {
    ranked list[UM_TOP_MAX];
    int32_t found = 0;
    float least = -FLT_MAX; /* smaller logits can't enter the list any more */
    for (int32_t run = 0; run < n; run += UM_PANEL) {
        if (k->max(z + run, UM_PANEL) < least) continue;
        for (int32_t id = run; id < run + UM_PANEL; id++) {
            if (z[id] < least) continue;
            found = rank(list, found, r->n_top, (ranked){z[id], id});
            if (found == r->n_top) least = list[found - 1].z;
        }
    }
    for (int32_t i = 0; i < r->n_top; i++) {
        if (i >= found) r->top[i] = (um_top){.id = -1};
        else r->top[i] = (um_top){list[i].id, prob(p, list[i].z), kept_prob(p, r, cut, list[i].z, list[i].id)};
    }
}
