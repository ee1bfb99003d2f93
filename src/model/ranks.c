/* Models that a group of ranks computes (tensor parallelism): which numbers of ranks divide them, and their memory. */
#include "model/model.h"

/* Returns whether n ranks divide the heads. With fewer KV heads than ranks, some ranks have the same KV head; the query
 * heads of a rank must then all read this one. */
static bool divides_heads(const um_arch_kind *k, int32_t n) {
    return k->n_heads % n == 0 && (k->n_kv_heads % n == 0 || n % k->n_kv_heads == 0);
}

/* Returns whether n ranks divide a width: evenly, or in groups of UM_QUANT_GROUP. */
static bool divides_width(int32_t width, int32_t n) { return width % n == 0 || um_cut_unit(width, n, 1) > 1; }

/* Returns the widest part of a width. */
static int32_t widest_part(int32_t width, int32_t n) {
    const int32_t unit = um_cut_unit(width, n, 1);
    return UM_CEIL_DIV(width / unit, n) * unit;
}

/* Returns whether n ranks divide the experts: each has a part of every expert or, with `whole`, some of them. */
static bool divides_experts(const um_arch *a, const um_arch_kind *k, int32_t n, bool whole) {
    return whole ? a->route.n_experts % n == 0 : divides_width(k->expert_ff, n);
}

/* Returns whether n ranks divide the architecture. */
static bool divides(const um_arch *a, int32_t n, bool whole) {
    bool all = divides_width(a->conditioning_ff, n) && a->vocab >= n * UM_HEAD_UNIT;
    for (int32_t i = 0; i < a->n_kinds; i++) {
        const um_arch_kind *k = &a->kind[i];
        all &= divides_heads(k, n) && divides_width(k->n_ff, n) && divides_experts(a, k, n, whole) &&
               divides_width(k->shared_ff, n);
    }
    return all;
}

/* Writes what n ranks do not divide, "28 query heads with 4 KV heads". */
static void print_obstacle(const um_arch *a, int32_t n, bool whole, um_buf *out) {
    for (int32_t i = 0; i < a->n_kinds; i++) {
        const um_arch_kind *k = &a->kind[i];
        const struct {
            int32_t n;
            const char *what;
        } width[] = {{k->n_ff, "a feed-forward layer"},
                     {whole ? 0 : k->expert_ff, "an expert"},
                     {k->shared_ff, "a shared expert"}};
        if (!divides_heads(k, n)) {
            um_buf_printf(out, "%d query heads with %d KV heads", k->n_heads, k->n_kv_heads);
            return;
        }
        for (size_t w = 0; w < UM_LEN(width); w++)
            if (!divides_width(width[w].n, n)) {
                um_buf_printf(out, "the width %d of %s", width[w].n, width[w].what);
                return;
            }
    }
    if (whole && a->route.n_experts % n)
        um_buf_printf(out, "%d experts (--enable-expert-parallel)", a->route.n_experts);
    else if (!divides_width(a->conditioning_ff, n))
        um_buf_printf(out, "the width %d of the conditioning", a->conditioning_ff);
    else um_buf_printf(out, "a vocabulary of %d ids", a->vocab);
}

um_status um_arch_check_ranks(const um_arch *a, int32_t n, bool expert_parallel, um_err *err) {
    if (expert_parallel && !a->route.n_experts)
        return um_fail_param(err, UM_EUNSUPPORTED, "enable_expert_parallel",
                             "models of the family %s have no experts to divide among ranks", a->family->name);
    if (n <= 1 || divides(a, n, expert_parallel)) return UM_OK;
    um_buf obstacle = {0}, working = {0};
    print_obstacle(a, n, expert_parallel, &obstacle);
    for (int32_t i = 1; i <= UM_RANKS_MAX; i++)
        if (divides(a, i, expert_parallel)) um_buf_printf(&working, "%s%d", working.len ? ", " : "", i);
    um_status s = um_fail_param(err, UM_EUNSUPPORTED, "tensor_parallel_size",
                                "%d ranks can't divide %s among them; numbers that work for this model: %s", n,
                                obstacle.data, working.data);
    um_buf_free(&obstacle);
    um_buf_free(&working);
    return s;
}

um_arch um_arch_with_ranks(const um_arch *a, int32_t n) {
    um_arch all = *a;
    for (int32_t i = 0; i < all.n_kinds; i++) all.kind[i].n_kv_heads = UM_MAX(all.kind[i].n_kv_heads, n);
    return all;
}

um_arch um_arch_of_rank(const um_arch *a, int32_t n, bool expert_parallel) {
    um_arch own = *a;
    for (int32_t i = 0; i < own.n_kinds; i++) {
        um_arch_kind *k = &own.kind[i];
        k->n_heads /= n;
        k->n_kv_heads = UM_MAX(k->n_kv_heads / n, 1);
        k->n_ff = widest_part(k->n_ff, n);
        if (!expert_parallel) k->expert_ff = widest_part(k->expert_ff, n);
        k->shared_ff = widest_part(k->shared_ff, n);
    }
    own.conditioning_ff = widest_part(own.conditioning_ff, n);
    return own;
}

int64_t um_arch_rank_params(const um_arch *a, int32_t n, bool expert_parallel) {
    const um_arch own = um_arch_of_rank(a, n, expert_parallel);
    const int64_t table = (int64_t)a->vocab * a->hidden, head = n > 1 || !a->tied ? table / n : 0;
    int64_t params = um_arch_params(&own) - um_arch_embedding_params(&own) + table + head;
    for (int32_t i = 0; i < a->n_layers && expert_parallel; i++)
        params -=
            (int64_t)(a->route.n_experts - a->route.n_experts / n) * 3 * a->hidden * um_arch_kind_of(a, i)->expert_ff;
    return params;
}

int64_t um_model_extra_params(const um_model *m) {
    const int64_t table = (int64_t)m->arch.vocab * m->arch.hidden, copies = m->n_ranks - 1;
    if (m->n_ranks <= 1) return 0;
    return (um_backend_is_host(m->backend) ? 0 : table * copies) + (m->arch.tied ? table : 0);
}
