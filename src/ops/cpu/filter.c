/* Applies top-p, top-k and min-p to a row of logits without sorting it.
 *
 * Each filter keeps a prefix of the ids in descending order of their logits, the highest id first among equals. So each
 * filter is a cut: a logit, and an id among the ids that have this logit. The cut of top-p is where the running mass
 * passes a limit, the cut of top-k where the running number does.
 *
 * Nearly always a few hundred ids near the largest logit pass the limit. They are collected first, with vector code:
 * all ids within a distance of the largest logit. The distance grows until their weight passes the limit. Four passes
 * over these candidates then find the cut. Each pass sorts them into bins by the next 8 bits of their logits, goes
 * through the bins from the top to the one where the limit is passed, and keeps only the candidates of that bin. */
#include <float.h>
#include <math.h>

#include "ops/cpu/dev.h"

enum { BIN_BITS = 8, N_BINS = 1 << BIN_BITS };

struct um_bins {
    float mass[UM_HEAD_TILE]; /* exponentials of a tile */
    double weight[N_BINS];
    int32_t count[N_BINS];
};

size_t um_bins_bytes(void) { return sizeof(struct um_bins); }

/* A search for the id where the running weight exceeds the limit. */
typedef struct search {
    const um_dev *dev;
    struct um_bins *bins;
    const float *z;
    int32_t n;
    float max, rate;
    bool by_mass; /* the weight of an id is exp((z - max) * rate) if set, and 1 otherwise */
    double limit;
    float *candidate; /* [n_candidates] logits that may be at the cut, in order of their ids */
    int32_t n_candidates;
} search;

/* Maps floats to unsigned integers of the same order. Both zeros have the same key. */
static uint32_t key_of(float z) {
    uint32_t bits;
    z += 0.0f;
    memcpy(&bits, &z, sizeof bits);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

static float value_of(uint32_t key) {
    uint32_t bits = key >> 31 ? key & 0x7fffffffu : ~key;
    float z;
    memcpy(&z, &bits, sizeof z);
    return z;
}

/* Returns the weights of UM_HEAD_TILE candidates from `first` on. Callers ignore entries after the last candidate. */
static const float *weigh_candidates(const search *s, int32_t first) {
    s->dev->k->exps(s->candidate + first, UM_HEAD_TILE, s->max, s->rate, s->bins->mass);
    return s->bins->mass;
}

/* Collects the ids whose logits are at least `from`. Returns their weight. */
static double collect(search *s, float from) {
    double sum = 0;
    s->n_candidates = s->dev->k->select(s->z, s->n, from, s->candidate);
    if (!s->by_mass) return s->n_candidates;
    for (int32_t i = s->n_candidates; i % UM_HEAD_TILE; i++) s->candidate[i] = -INFINITY;
    for (int32_t tile = 0; tile < s->n_candidates; tile += UM_HEAD_TILE) {
        const float *mass = weigh_candidates(s, tile);
        for (int32_t i = 0; i < UM_MIN(UM_HEAD_TILE, s->n_candidates - tile); i++) sum += (double)mass[i];
    }
    return sum;
}

/* Collects candidates whose weight exceeds the limit in any order of summation, or all ids. */
static void find_candidates(search *s) {
    const double enough = s->limit * (1 + 1e-9);
    for (float distance = 2; distance < 40; distance *= 1.5f)
        if (collect(s, UM_MAX(s->max - distance / s->rate, -FLT_MAX)) > enough) return;
    collect(s, -FLT_MAX);
}

/* Sorts the candidates into bins by BIN_BITS bits of their keys from `shift` up. */
static void fill_bins(const search *s, int shift) {
    memset(s->bins->weight, 0, sizeof s->bins->weight);
    memset(s->bins->count, 0, sizeof s->bins->count);
    for (int32_t tile = 0; tile < s->n_candidates; tile += UM_HEAD_TILE) {
        const float *mass = s->by_mass ? weigh_candidates(s, tile) : NULL;
        for (int32_t i = 0; i < UM_MIN(UM_HEAD_TILE, s->n_candidates - tile); i++) {
            uint32_t bin = key_of(s->candidate[tile + i]) >> shift & (N_BINS - 1);
            s->bins->weight[bin] += mass ? (double)mass[i] : 1;
            s->bins->count[bin]++;
        }
    }
}

/* Keeps only the candidates whose keys, shifted right by `shift`, equal `prefix`. */
static void keep_bin(search *s, uint32_t prefix, int shift) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_candidates; i++)
        if (key_of(s->candidate[i]) >> shift == prefix) s->candidate[n++] = s->candidate[i];
    s->n_candidates = n;
}

/* Returns the first bin from the top where *before, the running weight, exceeds the limit. If rounding prevents that,
 * returns the last bin in use, or -1 when no bin is in use. *before becomes the weight above that bin. */
static int32_t walk_bins(const search *s, double *before, bool *passed) {
    int32_t last = -1;
    double above_last = *before;
    for (int32_t bin = N_BINS; bin-- > 0;) {
        if (s->bins->count[bin] == 0) continue;
        last = bin;
        above_last = *before;
        if (*before + s->bins->weight[bin] > s->limit) {
            *passed = true;
            return bin;
        }
        *before += s->bins->weight[bin];
    }
    *before = above_last;
    *passed = false;
    return last;
}

/* Returns the nth id with this logit, counted from the highest id. */
static int32_t nth_id(const search *s, float value, int32_t nth) {
    for (int32_t id = s->n; id-- > 0;)
        if (s->z[id] == value && --nth == 0) return id;
    return 0;
}

/* Finds the last id that is kept: the id with which the weight exceeds the limit. */
static um_kept_ids find_cut(search *s) {
    uint32_t prefix = 0;
    double before = 0;
    int32_t bin = 0;
    find_candidates(s);
    for (int shift = 32 - BIN_BITS; shift >= 0; shift -= BIN_BITS) {
        bool passed, first = shift == 32 - BIN_BITS;
        fill_bins(s, shift);
        bin = walk_bins(s, &before, &passed);
        if (bin < 0 || (first && !passed)) return UM_KEPT_ALL;
        prefix = prefix << BIN_BITS | (uint32_t)bin;
        keep_bin(s, prefix, shift);
    }
    um_kept_ids cut = {value_of(prefix), 0};
    if (!s->by_mass) return cut; /* top-k keeps all ids whose logit equals the k-th */
    int32_t count = s->bins->count[bin];
    double each = s->bins->weight[bin] / count, more = each > 0 ? floor((s->limit - before) / each) + 1 : count;
    cut.id = nth_id(s, cut.value, (int32_t)UM_MIN(UM_MAX(more, 1), count));
    return cut;
}

static um_kept_ids stricter(um_kept_ids a, um_kept_ids b) {
    if (a.value == b.value) return a.id > b.id ? a : b;
    return a.value > b.value ? a : b;
}

/* Returns the mass of the ids whose logit is at least `least`. */
static double mass_from(const search *s, um_thread *t, float least) {
    double total = 0;
    for (int32_t tile = 0; tile < s->n; tile += UM_HEAD_TILE) {
        const float *z = s->z + tile;
        float sum, moment;
        if (least > -INFINITY) {
            s->dev->k->cut_below(z, UM_HEAD_TILE, least, t->z_cut);
            z = t->z_cut;
        }
        s->dev->k->exp_sums(z, UM_HEAD_TILE, s->max, s->rate, &sum, &moment);
        total += sum;
    }
    return total;
}

um_kept_ids um_filter(const um_dev *dev, um_thread *t, const um_sampling *how, const float *z, int32_t n, float max) {
    const float temperature = how->temperature > 0 && !how->filters_first ? how->temperature : 1;
    search s = {
        .dev = dev, .bins = t->bins, .z = z, .n = n, .max = max, .rate = 1 / temperature, .candidate = t->candidate};
    um_kept_ids cut = UM_KEPT_ALL;
    if (how->top_k > 0) {
        s.by_mass = false;
        s.limit = how->top_k - 0.5;
        cut = find_cut(&s);
    }
    if (how->top_p < 1) {
        s.by_mass = true;
        s.limit = how->top_p * mass_from(&s, t, how->filters_first ? cut.value : -INFINITY);
        cut = stricter(cut, find_cut(&s));
    }
    if (how->min_p > 0) {
        float lowest = max + temperature * logf(how->min_p);
        cut = stricter(cut, (um_kept_ids){UM_MIN(lowest, max), 0});
    }
    return cut;
}
