/* CUDA graphs: one for each padded size of a pass. */
#include "cuda/pass.cuh"

/* Returns n, rounded up to one of two sizes per power of two, at least 8: 8, 12, 16, 24, 32, 48 ... */
static int32_t padded(int32_t n, int32_t most) {
    int32_t step = 8;
    if (n == 0) return 0;
    while (n > 2 * step) step *= 2;
    const int32_t size = n <= step ? step : n <= step + step / 2 ? step + step / 2 : 2 * step;
    return UM_MIN(size, most);
}

static int32_t power_of_two(int32_t n) {
    int32_t size = 1;
    while (size < n) size *= 2;
    return size;
}

um_cu_sizes um_cu_pad(const um_forward *f, const um_cu_sizes *needed) {
    return {padded(needed->n_tokens, f->c.max_tokens), padded(needed->n_tiles, f->max_tiles),
            padded(needed->n_rows, f->c.max_rows), power_of_two(needed->n_pieces)};
}

um_message_room um_cu_room(const um_forward *f, const um_cu_sizes *sizes) {
    return {.n_tokens = sizes->n_tokens,
            .n_spans = f->c.max_spans,
            .n_tiles = sizes->n_tiles,
            .n_rows = sizes->n_rows,
            .tile_tokens = f->tile_tokens,
            .route_block = f->net->route.capacity ? f->net->route_block : 0,
            .vocab = f->net->vocab,
            .page_size = f->c.page_size};
}

static bool same_sizes(const um_cu_sizes *a, const um_cu_sizes *b) {
    return a->n_tokens == b->n_tokens && a->n_tiles == b->n_tiles && a->n_rows == b->n_rows &&
           a->n_pieces == b->n_pieces;
}

static um_status record(um_forward *f, const um_message_room *room, const um_cu_sizes *sizes, cudaGraphExec_t *out,
                        um_err *err) {
    cudaGraph_t graph = NULL;
    UM_CU_TRY(cudaStreamBeginCapture(f->d->stream, cudaStreamCaptureModeThreadLocal), err);
    um_status s = um_cu_record(f, room, sizes, err);
    cudaError_t e = cudaStreamEndCapture(f->d->stream, &graph);
    if (!s) s = um_cu_check(e, "recording a graph", err);
    if (!s) s = um_cu_check(cudaGraphInstantiate(out, graph, 0), "cudaGraphInstantiate", err);
    if (graph) cudaGraphDestroy(graph);
    return s;
}

/* Returns the place for a new graph. */
static um_cu_graph *place_for(um_forward *f) {
    if (f->n_graphs < UM_CU_GRAPHS_MAX) return &f->graph[f->n_graphs++];
    um_cu_graph *oldest = &f->graph[0];
    for (int i = 1; i < f->n_graphs; i++)
        if (f->graph[i].used < oldest->used) oldest = &f->graph[i];
    cudaGraphExecDestroy(oldest->exec);
    return oldest;
}

um_status um_cu_graph_for(um_forward *f, const um_message_room *room, const um_cu_sizes *sizes, cudaGraphExec_t *out,
                          um_err *err) {
    for (int i = 0; i < f->n_graphs; i++) {
        um_cu_graph *g = &f->graph[i];
        if (!same_sizes(&g->sizes, sizes)) continue;
        g->used = (int64_t)f->n_submitted;
        *out = g->exec;
        return UM_OK;
    }
    cudaGraphExec_t exec = NULL;
    um_status s = record(f, room, sizes, &exec, err);
    if (s) return s;
    um_cu_graph *g = place_for(f);
    *g = {*sizes, exec, (int64_t)f->n_submitted};
    *out = exec;
    return UM_OK;
}

void um_cu_graphs_free(um_forward *f) {
    for (int i = 0; i < f->n_graphs; i++) cudaGraphExecDestroy(f->graph[i].exec);
    f->n_graphs = 0;
}
