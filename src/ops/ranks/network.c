/* Makes the networks of the ranks: those parts of a network's sizes and handles that each rank has. */
#include "ops/ranks/group.h"

static um_weight *weight_of(const um_weight *w, int32_t r) { return w ? w->member[r] : NULL; }
static um_vector *vector_of(const um_vector *v, int32_t r) { return v ? v->member[r] : NULL; }

/* Returns the size of rank r's part of n. Each unit is one element. */
static int32_t part_of(int32_t n, const um_rank *at) {
    const um_cut_range own = um_cut_range_of((um_cut_part){n, 1}, at->index, at->n);
    return n ? (int32_t)(own.end - own.start) : 0;
}

/* Returns the size of rank r's part of a width, which may be divided in larger units. */
static int32_t width_of(int32_t n, const um_rank *at, int32_t grid) {
    const um_cut_range own = um_cut_range_of((um_cut_part){n, um_cut_unit(n, at->n, grid)}, at->index, at->n);
    return n ? (int32_t)(own.end - own.start) : 0;
}

static um_layer_kind kind_of(const um_network *n, int32_t kind, const um_rank *at) {
    const int32_t grid = n->cut_grid;
    um_layer_kind k = n->kind[kind];
    k.n_heads = part_of(k.n_heads, at);
    k.kv_copies = at->n / k.n_kv_heads;
    k.n_kv_heads = part_of(k.n_kv_heads, at);
    k.n_ff = width_of(k.n_ff, at, grid);
    if (!n->expert_parallel) k.expert_ff = width_of(k.expert_ff, at, grid);
    k.shared_ff = width_of(k.shared_ff, at, grid);
    return k;
}

static um_weight **experts_of(um_weight *const *whole, int32_t n, int32_t r) {
    if (!whole) return NULL;
    um_weight **out = UM_NEW_ARRAY(um_weight *, (size_t)n);
    for (int32_t e = 0; e < n; e++) out[e] = weight_of(whole[e], r);
    return out;
}

/* The linear layers of a layer, as a list. */
enum { LINEARS = 7, VECTORS = 16 };
static void list_linears(um_layer *y, um_linear *out[LINEARS]) {
    um_linear *const all[LINEARS] = {&y->qkv,        &y->o, &y->gate_up, &y->down, &y->router, &y->shared_gate_up,
                                     &y->shared_down};
    memcpy(out, all, sizeof all);
}

static void list_vectors(um_layer *y, um_vector **out[VECTORS]) {
    um_vector **const all[VECTORS] = {&y->attn_norm,       &y->ffn_norm,      &y->q_norm,           &y->k_norm,
                                      &y->attn_norm_bias,  &y->ffn_norm_bias, &y->attn_post_norm,   &y->ffn_post_norm,
                                      &y->dense_post_norm, &y->expert_norm,   &y->expert_post_norm, &y->router_norm,
                                      &y->expert_scale,    &y->scale[0],      &y->scale[1],         &y->router_bias};
    memcpy(out, all, sizeof all);
}

/* Sets the handles of a linear layer. The space for its adapters stays, because they may be loaded later. */
static void set_linear(um_linear *to, const um_linear *whole, int32_t n_adapters, int32_t r) {
    to->w = weight_of(whole->w, r);
    to->bias = vector_of(whole->bias, r);
    to->low_rank = n_adapters ? UM_NEW_ARRAY(um_low_rank, (size_t)n_adapters) : NULL;
}

static void set_layer(um_layer *to, um_layer *whole, const um_network *n, int32_t r) {
    um_linear *own[LINEARS], *linear[LINEARS];
    um_vector **own_vector[VECTORS], **vector[VECTORS];
    *to = *whole;
    list_linears(to, own);
    list_linears(whole, linear);
    list_vectors(to, own_vector);
    list_vectors(whole, vector);
    for (int i = 0; i < LINEARS; i++) set_linear(own[i], linear[i], n->n_adapters, r);
    for (int i = 0; i < VECTORS; i++) *own_vector[i] = vector_of(*vector[i], r);
    to->expert_gate_up = experts_of(whole->expert_gate_up, n->route.n_experts, r);
    to->expert_down = experts_of(whole->expert_down, n->route.n_experts, r);
}

/* Sets the network of member r, whose place in the group is `at`. */
static void set_network(um_network *to, const um_network *whole, const um_rank *at, int32_t r) {
    *to = *whole;
    to->rank = at;
    for (int32_t i = 0; i < whole->n_kinds; i++) to->kind[i] = kind_of(whole, i, at);
    for (int32_t i = 0; i < whole->n_rotary; i++)
        to->rotary[i] = (um_rotary){vector_of(whole->rotary[i].cos, r), vector_of(whole->rotary[i].sin, r),
                                    vector_of(whole->rotary[i].query, r)};
    to->layer = UM_NEW_ARRAY(um_layer, (size_t)whole->n_layers);
    for (int32_t i = 0; whole->layer && i < whole->n_layers; i++) set_layer(&to->layer[i], &whole->layer[i], whole, r);
    to->embed = weight_of(whole->embed, r);
    to->head = weight_of(whole->head, r);
    to->final_norm = vector_of(whole->final_norm, r);
    to->final_norm_bias = vector_of(whole->final_norm_bias, r);
    to->ones = vector_of(whole->ones, r);
    to->conditioning.norm = vector_of(whole->conditioning.norm, r);
    set_linear(&to->conditioning.gate_up, &whole->conditioning.gate_up, 0, r);
    set_linear(&to->conditioning.down, &whole->conditioning.down, 0, r);
    to->conditioning.n_ff = width_of(whole->conditioning.n_ff, at, whole->cut_grid);
}

void um_group_networks_make(um_group_networks *g, const um_network *whole, const um_device *d, um_ranks *shared) {
    *g = (um_group_networks){.whole = whole, .rank = UM_NEW_ARRAY(um_network, (size_t)d->n), .n = d->n};
    for (int32_t r = 0; r < d->n; r++) {
        g->place[r] = (um_rank){d->first + r, d->all, shared};
        set_network(&g->rank[r], whole, &g->place[r], r);
    }
    um_group_networks_refresh(g);
}

static void refresh_linear(um_linear *to, const um_linear *whole, int32_t n_adapters, int32_t r) {
    for (int32_t i = 0; i < n_adapters; i++) {
        const um_low_rank *from = whole->low_rank ? &whole->low_rank[i] : NULL;
        to->low_rank[i] = (um_low_rank){0};
        if (!from || !from->a) continue;
        to->low_rank[i] = (um_low_rank){.a = from->a->member[r],
                                        .b = from->b->member[r],
                                        .in = from->a->in[r],
                                        .rank = from->rank,
                                        .out = from->b->rows[r]};
    }
}

void um_group_networks_refresh(um_group_networks *g) {
    const um_network *whole = g->whole;
    if (!whole->n_adapters || !whole->layer) return;
    for (int32_t r = 0; r < g->n; r++)
        for (int32_t i = 0; i < whole->n_layers; i++) {
            um_linear *own[LINEARS], *linear[LINEARS];
            list_linears(&g->rank[r].layer[i], own);
            list_linears(&whole->layer[i], linear);
            for (int k = 0; k < LINEARS; k++) refresh_linear(own[k], linear[k], whole->n_adapters, r);
        }
}

static void free_layer(um_layer *y) {
    um_linear *linear[LINEARS];
    list_linears(y, linear);
    for (int k = 0; k < LINEARS; k++) um_free(linear[k]->low_rank);
    um_free(y->expert_gate_up);
    um_free(y->expert_down);
}

void um_group_networks_free(um_group_networks *g) {
    for (int32_t r = 0; r < g->n; r++) {
        for (int32_t i = 0; i < g->rank[r].n_layers; i++) free_layer(&g->rank[r].layer[i]);
        um_free(g->rank[r].layer);
    }
    um_free(g->rank);
    *g = (um_group_networks){0};
}
