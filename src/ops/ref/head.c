/* Computes the answers of rows: z = scale * W (w0 row0 + w1 row1), then the edits; p = softmax(z);
 * q = softmax(z / temperature) over the ids that the filters keep. The filters are applied in the order top-p, top-k,
 * min-p. Each keeps a prefix of the ids sorted by descending logit, the highest id first among equals; the likeliest
 * ids have the same order. The sampled id is the kept id with the largest z / temperature + Gumbel noise. */
#include <math.h>

#include "ops/ref/ref.h"

/* Returns the hidden row with index src: a row of the batch or a saved row. */
static const float *source_row(const um_head *a, int32_t src) {
    int64_t k = src >= 0 ? src : -1 - (int64_t)src;
    return (src >= 0 ? a->hidden : a->saved) + (size_t)k * (size_t)a->hidden_size;
}

static void apply_edits(const um_edit *edit, int32_t n_edit, float *z, int32_t n) {
    for (int32_t i = 0; i < n_edit; i++) {
        const um_edit *e = &edit[i];
        if (e->id < 0 || e->id >= n) continue;
        float *l = &z[e->id];
        if (e->scale > 0) *l = *l > 0 ? *l / e->scale : *l * e->scale;
        *l = e->ban ? -INFINITY : *l + e->add;
    }
}

/* Computes the row's logits z [vocab]. Ids that the edits or `allow` exclude get minus infinity. */
static void compute_logits(um_dev *dev, const um_head *a, const um_row *r, float *z) {
    const float *x0 = source_row(a, r->src[0]), *x1 = r->w[1] != 0 ? source_row(a, r->src[1]) : NULL;
    const float *given = a->logits ? a->logits + (size_t)(r - a->row) * (size_t)a->vocab : NULL;
    for (int32_t i = 0; i < a->hidden_size; i++) {
        float x = r->w[0] * x0[i] + (x1 ? r->w[1] * x1[i] : 0);
        dev->operand[i] = um_ref_round(dev, x);
    }
    for (int32_t v = 0; v < a->vocab; v++) {
        const float *w = given ? NULL : a->w->data + (size_t)v * (size_t)a->hidden_size;
        z[v] = a->scale * (given ? given[v] : um_ref_dot(w, dev->operand, a->hidden_size));
        if (a->cap > 0) z[v] = a->cap * tanhf(z[v] / a->cap);
    }
    for (int32_t e = 1; e < r->n_edit; e++) assert(r->edit[e - 1].id <= r->edit[e].id);
    apply_edits(r->edit, r->n_edit, z, a->vocab);
    apply_edits(r->own, r->n_own, z, a->vocab);
    for (int32_t v = 0; r->allow && v < a->vocab; v++)
        if (!(r->allow[v / 32] >> (v % 32) & 1)) z[v] = -INFINITY;
}

static bool comes_before(const float *z, int32_t a, int32_t b) { return z[a] > z[b] || (z[a] == z[b] && a > b); }

/* Returns the likeliest id after `previous` in the order of likelihood, or the likeliest of all when previous is -1.
 * Returns -1 when no id is left above minus infinity. */
static int32_t next_best(const float *z, int32_t n, int32_t previous) {
    int32_t best = -1;
    for (int32_t v = 0; v < n; v++) {
        if (z[v] == -INFINITY || (previous >= 0 && !comes_before(z, previous, v))) continue;
        if (best < 0 || comes_before(z, v, best)) best = v;
    }
    return best;
}

/* Returns the logarithm of the sum of exp(z[v]). */
/* Returns the logarithm of the sum of exp(z) over the ids whose logit is at least `least`. */
static double log_sum_from(const float *z, int32_t n, double max, float least) {
    double sum = 0;
    for (int32_t v = 0; v < n; v++) sum += z[v] >= least ? exp((double)z[v] - max) : 0;
    return max + log(sum);
}

static double log_sum_exp(const float *z, int32_t n, double max) { return log_sum_from(z, n, max, -INFINITY); }

/* Moves order[i] down in a heap of n entries whose root is the least likely id. */
static void sift_down(int32_t *order, int32_t n, int32_t i, const float *z) {
    for (int32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && comes_before(z, order[child], order[child + 1])) child++;
        if (comes_before(z, order[child], order[i])) return;
        int32_t id = order[i];
        order[i] = order[child];
        order[child] = id;
    }
}

/* Sorts the ids [0, n), the likeliest first. Heap sort needs no memory and no recursion. */
static void sort_ids(int32_t *order, int32_t n, const float *z) {
    for (int32_t v = 0; v < n; v++) order[v] = v;
    for (int32_t i = n / 2; i-- > 0;) sift_down(order, n, i, z);
    for (int32_t end = n; end-- > 1;) {
        int32_t last = order[0];
        order[0] = order[end];
        order[end] = last;
        sift_down(order, end, 0, z);
    }
}

static bool has_filter(const um_sampling *how) { return how->top_p < 1 || how->top_k > 0 || how->min_p > 0; }

/* Sets the logits of the ids that top-p, top-k and min-p drop to minus infinity. Never drops the likeliest id. */
static void apply_filters(const um_sampling *how, float *z, int32_t *order, int32_t n) {
    if (!has_filter(how)) return;
    sort_ids(order, n, z);
    const float kth = how->top_k > 0 && how->top_k < n ? z[order[how->top_k - 1]] : -INFINITY;
    double max = z[order[0]], before = 0, lse = log_sum_from(z, n, max, how->filters_first ? kth : -INFINITY);
    for (int32_t i = 0; i < n; i++) {
        float *l = &z[order[i]];
        double mass = exp((double)*l - lse);
        bool drop = (how->top_p < 1 && before > how->top_p) || *l < kth || exp((double)*l - max) < how->min_p;
        if (drop && i > 0) *l = -INFINITY;
        before += mass;
    }
}

static int32_t draw(const um_sampling *how, const float *z, int32_t n) {
    int32_t best = -1;
    float best_score = 0;
    for (int32_t v = 0; v < n; v++) {
        if (z[v] == -INFINITY) continue;
        float score = z[v] + um_rng_gumbel(how->key, (uint64_t)v);
        if (best < 0 || score >= best_score) {
            best = v;
            best_score = score;
        }
    }
    return best;
}

static double entropy(const float *z, int32_t n, double lse) {
    double sum = 0;
    for (int32_t v = 0; v < n; v++) {
        double log_q = (double)z[v] - lse;
        if (z[v] > -INFINITY) sum -= exp(log_q) * log_q;
    }
    return sum;
}

static float prob(const float *z, int32_t id, double lse) { return id < 0 ? 0 : (float)exp((double)z[id] - lse); }

/* Fills in the answer of a row. z [n] are its logits, q [n] the logits after temperature and filters. */
static void answer_row(const um_row *r, const float *z, const float *q, int32_t n, um_answer *out) {
    int32_t best = next_best(z, n, -1), second = next_best(z, n, best);
    double lse = log_sum_exp(z, n, z[best]), lse_q = log_sum_exp(q, n, q[best]);
    out->logsumexp = (float)lse;
    if (r->want & UM_WANT_BEST) out->best = best;
    if (r->want & UM_WANT_SECOND) out->second = second;
    if (r->want & UM_WANT_SAMPLE) out->sample = r->how.temperature > 0 ? draw(&r->how, q, n) : best;
    if (r->want & UM_WANT_ENTROPY) out->entropy = (float)entropy(q, n, lse_q);
    if (r->want & UM_WANT_PLAIN_ENTROPY) out->entropy = (float)entropy(z, n, lse);
    if (r->want & UM_WANT_PROB_OF && r->id >= 0 && r->id < n) {
        out->p_id = prob(z, r->id, lse);
        out->log_p_id = (float)((double)z[r->id] - lse);
    }
    out->p_best = prob(z, out->best, lse);
    out->q_best = prob(q, out->best, lse_q);
    out->p_second = prob(z, out->second, lse);
    out->q_second = prob(q, out->second, lse_q);
    out->p_sample = prob(z, out->sample, lse);
    out->q_sample = prob(q, out->sample, lse_q);
    for (int32_t i = 0, id = best; i < r->n_top && id >= 0; i++, id = next_best(z, n, id))
        r->top[i] = (um_top){id, prob(z, id, lse), prob(q, id, lse_q)};
}

/* Computes the blend of all embeddings, each with its probability after the temperature. */
static void blend_row(const um_dev *dev, const um_head *a, int32_t blend, const float *z) {
    const size_t H = (size_t)a->hidden_size;
    const double lse = log_sum_exp(z, a->vocab, z[next_best(z, a->vocab, -1)]);
    float *x = a->blend + (size_t)blend * H;
    memset(x, 0, H * sizeof *x);
    for (int32_t v = 0; v < a->vocab; v++) {
        const float p = um_ref_round(dev, prob(z, v, lse)), *row = a->embed->data + (size_t)v * H;
        for (size_t i = 0; i < H; i++) x[i] += p * row[i];
    }
    for (size_t i = 0; i < H; i++) x[i] *= a->embed_scale;
}

/* Divides the logits by the temperature, unless it is 0. out may be z. */
static void scale(const float *z, const um_sampling *how, int32_t vocab, float *out) {
    for (int32_t v = 0; v < vocab; v++) out[v] = how->temperature > 0 ? z[v] / how->temperature : z[v];
}

void um_ref_head(um_dev *dev, const um_head *a) {
    assert(a->vocab <= dev->config.max_vocab && a->hidden_size == a->w->in);
    assert(a->logits || a->vocab <= a->w->rows);
    for (int32_t i = 0; i < a->n_rows; i++) {
        const um_row *r = &a->row[i];
        compute_logits(dev, a, r, dev->logit);
        a->answer[i] = (um_answer){.best = -1, .second = -1, .sample = -1, .logsumexp = -INFINITY};
        assert(r->n_top >= 0 && r->n_top <= UM_TOP_MAX);
        for (int32_t k = 0; k < r->n_top; k++) r->top[k] = (um_top){.id = -1};
        if (next_best(dev->logit, a->vocab, -1) < 0) continue; /* no id is allowed */
        if (r->blend) {
            scale(dev->logit, &r->how, a->vocab, dev->scaled);
            blend_row(dev, a, r->blend - 1, dev->scaled); /* filters do not change a blend */
        }
        if (r->how.filters_first) {
            memcpy(dev->scaled, dev->logit, (size_t)a->vocab * sizeof(float));
            apply_filters(&r->how, dev->scaled, dev->order, a->vocab);
            scale(dev->scaled, &r->how, a->vocab, dev->scaled);
        } else {
            scale(dev->logit, &r->how, a->vocab, dev->scaled);
            apply_filters(&r->how, dev->scaled, dev->order, a->vocab);
        }
        answer_row(r, dev->logit, dev->scaled, a->vocab, &a->answer[i]);
    }
}
