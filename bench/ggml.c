/* Products with ggml, the library of llama.cpp, on its processor backend. x is fp32, as in llama.cpp; ggml rounds it to
 * the type that it multiplies. Weights lie in the layout that ggml prefers: q4_0 is repacked. */
#include "bench.h"

#if __has_include(<ggml-cpu.h>)
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>

struct um_ggml {
    ggml_backend_t backend;
    struct ggml_context *weights, *inputs;
    ggml_backend_buffer_t weight_buffer, input_buffer;
    struct ggml_tensor **w, *x;
    struct ggml_context **work; /* [copies] one graph for each copy of the weights */
    struct ggml_cgraph **graph;
    ggml_gallocr_t *memory;
    int copies;
};

bool um_bench_has_ggml(void) { return true; }

static void say_nothing(enum ggml_log_level level, const char *text, void *arg) { (void)level, (void)text, (void)arg; }

static struct ggml_context *context(size_t tensors) {
    return ggml_init((struct ggml_init_params){.mem_size = tensors * ggml_tensor_overhead() + ggml_graph_overhead(),
                                               .no_alloc = true});
}

/* Returns the kind of memory in which ggml stores q4_0 weights in an order of its own, or the plain one. */
static ggml_backend_buffer_type_t place_of(ggml_backend_t backend, enum ggml_type type) {
    ggml_backend_dev_t dev = ggml_backend_get_device(backend);
    void *found =
        ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(dev), "ggml_backend_dev_get_extra_bufts");
    ggml_backend_dev_get_extra_bufts_t list;
    memcpy(&list, &found, sizeof list);
    for (ggml_backend_buffer_type_t *b = found && type == GGML_TYPE_Q4_0 ? list(dev) : NULL; b && *b; b++)
        if (strstr(ggml_backend_buft_name(*b), "REPACK")) return *b;
    return ggml_backend_cpu_buffer_type();
}

/* Fills all copies of the weights with the same random numbers. */
static void fill(um_ggml *p, enum ggml_type type, const float *random, int in, int out) {
    const size_t bytes = ggml_row_size(type, in) * (size_t)out;
    void *stored = um_alloc(bytes);
    if (type == GGML_TYPE_BF16) ggml_fp32_to_bf16_row(random, (ggml_bf16_t *)stored, (int64_t)in * out);
    else ggml_quantize_chunk(type, random, stored, 0, out, in, NULL);
    for (int i = 0; i < p->copies; i++) ggml_backend_tensor_set(p->w[i], stored, 0, bytes);
    um_free(stored);
}

static void make_graph(um_ggml *p, int i) {
    p->work[i] = context(8);
    p->graph[i] = ggml_new_graph(p->work[i]);
    ggml_build_forward_expand(p->graph[i], ggml_mul_mat(p->work[i], p->w[i], p->x));
    p->memory[i] = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    ggml_gallocr_alloc_graph(p->memory[i], p->graph[i]);
}

um_ggml *um_ggml_new(um_dtype type, int threads, int n_tokens, int in, int out, const float *random, int copies) {
    const enum ggml_type stored = type == UM_BF16 ? GGML_TYPE_BF16 : type == UM_Q8 ? GGML_TYPE_Q8_0 : GGML_TYPE_Q4_0;
    if (type != UM_BF16 && type != UM_Q8 && type != UM_Q4) return NULL;
    um_ggml *p = UM_NEW(um_ggml);
    p->copies = copies;
    ggml_log_set(say_nothing, NULL); /* it names every tensor that it repacks */
    p->backend = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(p->backend, threads);
    p->weights = context((size_t)copies);
    p->w = UM_NEW_ARRAY(struct ggml_tensor *, (size_t)copies);
    for (int i = 0; i < copies; i++) p->w[i] = ggml_new_tensor_2d(p->weights, stored, in, out);
    p->weight_buffer = ggml_backend_alloc_ctx_tensors_from_buft(p->weights, place_of(p->backend, stored));
    fill(p, stored, random, in, out);
    p->inputs = context(1);
    p->x = ggml_new_tensor_2d(p->inputs, GGML_TYPE_F32, in, n_tokens);
    p->input_buffer = ggml_backend_alloc_ctx_tensors(p->inputs, p->backend);
    ggml_backend_tensor_set(p->x, random, 0, (size_t)in * (size_t)n_tokens * sizeof *random);
    p->work = UM_NEW_ARRAY(struct ggml_context *, (size_t)copies);
    p->graph = UM_NEW_ARRAY(struct ggml_cgraph *, (size_t)copies);
    p->memory = UM_NEW_ARRAY(ggml_gallocr_t, (size_t)copies);
    for (int i = 0; i < copies; i++) make_graph(p, i);
    return p;
}

void um_ggml_free(um_ggml *p) {
    if (!p) return;
    for (int i = 0; i < p->copies; i++) {
        ggml_gallocr_free(p->memory[i]);
        ggml_free(p->work[i]);
    }
    ggml_backend_buffer_free(p->weight_buffer);
    ggml_backend_buffer_free(p->input_buffer);
    ggml_free(p->weights);
    ggml_free(p->inputs);
    ggml_backend_free(p->backend);
    um_free(p->memory);
    um_free(p->graph);
    um_free(p->work);
    um_free(p->w);
    um_free(p);
}

void um_ggml_run(void *arg, int round) {
    um_ggml *p = (um_ggml *)arg;
    ggml_backend_graph_compute(p->backend, p->graph[round % p->copies]);
}

#else

bool um_bench_has_ggml(void) { return false; }

um_ggml *um_ggml_new(um_dtype type, int threads, int n_tokens, int in, int out, const float *random, int copies) {
    (void)type, (void)threads, (void)n_tokens, (void)in, (void)out, (void)random, (void)copies;
    return NULL;
}

void um_ggml_free(um_ggml *p) { (void)p; }

void um_ggml_run(void *arg, int round) { (void)arg, (void)round; }
#endif
