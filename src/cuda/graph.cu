/* CUDA graphs: one for each padded size of a pass. */
#include "cuda/pass.cuh"

um_message_capacity um_cu_room(const um_forward *f, const um_cu_sizes *sizes) {
    return {.n_tokens = sizes->n_tokens,
            .n_spans = f->c.max_spans,
            .n_tiles = sizes->n_tiles,
            .n_rows = sizes->n_rows,
            .tile_tokens = f->limits.tile_tokens,
            .route_block = f->net->route.capacity ? f->net->route_block : 0,
            .vocab = f->net->vocab,
            .page_size = f->c.page_size};
}

bool um_cu_same_sizes(const um_cu_sizes *a, const um_cu_sizes *b) {
    return a->n_tokens == b->n_tokens && a->n_tiles == b->n_tiles && a->n_rows == b->n_rows &&
           a->n_pieces == b->n_pieces && a->adapts == b->adapts && a->canvas == b->canvas;
}

/* Records a graph and copies it to the device, so that its first launch needs no memory any more. */
static um_status record(um_forward *f, const um_message_capacity *capacity, const um_cu_sizes *sizes,
                        cudaGraphExec_t *out, um_err *err) {
    cudaGraph_t graph = NULL;
    *out = NULL;
    UM_CU_TRY(cudaStreamBeginCapture(f->d->stream, cudaStreamCaptureModeThreadLocal), err);
    um_status s = um_cu_record(f, capacity, sizes, err);
    cudaError_t e = cudaStreamEndCapture(f->d->stream, &graph);
    if (!s) s = um_cu_check(e, "recording a graph", err);
    if (!s) s = um_cu_check(cudaGraphInstantiate(out, graph, 0), "cudaGraphInstantiate", err);
    if (graph) cudaGraphDestroy(graph);
    if (s) return s;
    s = um_cu_check(cudaGraphUpload(*out, f->d->stream), "cudaGraphUpload", err);
    if (s) cudaGraphExecDestroy(*out);
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

/* Lets passes of new sizes run kernel by kernel, because the device has no memory for their graphs. */
static um_status stop_recording(um_forward *f) {
    cudaGetLastError(); /* clears the error */
    um_warn("no memory for a CUDA graph beside %d others; passes of new sizes run kernel by kernel", f->n_graphs);
    f->full = true;
    return UM_OK;
}

um_status um_cu_graph_for(um_forward *f, const um_message_capacity *capacity, const um_cu_sizes *sizes,
                          cudaGraphExec_t *out, um_err *err) {
    for (int i = 0; i < f->n_graphs; i++) {
        um_cu_graph *g = &f->graph[i];
        if (!um_cu_same_sizes(&g->sizes, sizes)) continue;
        g->used = (int64_t)f->n_submitted;
        *out = g->exec;
        return UM_OK;
    }
    cudaGraphExec_t exec = NULL;
    *out = NULL;
    if (f->full) return UM_OK;
    um_err why = {};
    um_status s = record(f, capacity, sizes, &exec, &why);
    if (s == UM_ENOMEM) return stop_recording(f); /* no error: *err stays as it is */
    if (s) return um_fail(err, s, "%s", why.msg);
    um_cu_graph *g = place_for(f);
    *g = {*sizes, exec, (int64_t)f->n_submitted};
    *out = exec;
    return UM_OK;
}

/* Records the graph of an expected pass, if it has one. Models with conditioning denoise canvases. */
static um_status warm_one(um_forward *f, const um_pass_size *p, um_err *err) {
    if (p->n_tokens > UM_CU_GRAPH_TOKENS) return UM_OK;
    const um_cu_sizes needed = {p->n_tokens, um_cu_tiles_of(p->n_tokens, p->n_spans, f->limits.tile_tokens),
                                p->n_rows,   um_cu_pieces(p->keys),
                                p->adapts,   f->net->conditioning.n_ff > 0};
    const um_cu_sizes sizes = um_cu_pad(&f->limits, &needed);
    const um_message_capacity capacity = um_cu_room(f, &sizes);
    cudaGraphExec_t exec;
    return um_cu_graph_for(f, &capacity, &sizes, &exec, err);
}

um_status um_cu_warm(um_forward *f, const um_pass_size *size, int32_t n, um_err *err) {
    const double start = um_now();
    size_t before, after, all;
    if (f->eager) return UM_OK;
    um_status s = um_cu_use(f->d, err);
    if (!s) s = um_cu_check(cudaMemGetInfo(&before, &all), "cudaMemGetInfo", err);
    for (int32_t i = 0; i < n && !s && !f->full && f->n_graphs < UM_CU_WARM_MAX; i++) s = warm_one(f, &size[i], err);
    if (!s) s = um_cu_check(cudaStreamSynchronize(f->d->stream), "copying graphs to the device", err);
    if (!s) s = um_cu_check(cudaMemGetInfo(&after, &all), "cudaMemGetInfo", err);
    if (s) return s;
    f->stats.warm_seconds = um_now() - start;
    f->stats.warm_bytes = before > after ? before - after : 0;
    return UM_OK;
}

void um_cu_graphs_free(um_forward *f) {
    for (int i = 0; i < f->n_graphs; i++) cudaGraphExecDestroy(f->graph[i].exec);
    f->n_graphs = 0;
}
