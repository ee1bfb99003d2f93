/* Products with oneDNN's C interface, version 2, the fastest open library for this product on x86-64. It gets the best
 * conditions: x already has the required type, and the weights are reordered to its packed format before the
 * measurement. */
#include "bench.h"

#if __has_include(<dnnl.h>)
#include <dnnl.h>

struct um_onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t product;
    dnnl_memory_t x, y, *w;
    int copies;
};

const char *um_bench_onednn_version(void) {
    static char text[32];
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, sizeof text, "%d.%d.%d", v->major, v->minor, v->patch);
    return text;
}

/* Returns the memory descriptor of a matrix [rows, columns] of this type. */
static dnnl_memory_desc_t describe(um_dtype type, int rows, int columns, dnnl_format_tag_t tag) {
    dnnl_memory_desc_t d;
    const dnnl_dims_t dims = {rows, columns};
    const dnnl_data_type_t stored = type == UM_BF16 ? dnnl_bf16 : type == UM_Q8 ? dnnl_s8 : dnnl_f32;
    dnnl_memory_desc_init_by_tag(&d, 2, dims, stored, tag);
    return d;
}

static dnnl_memory_t memory(const um_onednn *p, const dnnl_memory_desc_t *d, void *data) {
    dnnl_memory_t m = NULL;
    dnnl_memory_create(&m, d, p->engine, data ? data : DNNL_MEMORY_ALLOCATE);
    return m;
}

/* Creates the descriptor of either primitive. x and y have plain formats; oneDNN chooses the format of the weights. */
static dnnl_status_t describe_product(const um_onednn *p, um_onednn_kind kind, const dnnl_memory_desc_t *x,
                                      const dnnl_memory_desc_t *w, const dnnl_memory_desc_t *y,
                                      dnnl_primitive_desc_t *out) {
    dnnl_matmul_desc_t m;
    dnnl_inner_product_desc_t i;
    dnnl_status_t s = kind == UM_ONEDNN_MATMUL
                          ? dnnl_matmul_desc_init(&m, x, w, NULL, y)
                          : dnnl_inner_product_forward_desc_init(&i, dnnl_forward_inference, x, w, NULL, y);
    if (s != dnnl_success) return s;
    return dnnl_primitive_desc_create(out, kind == UM_ONEDNN_MATMUL ? (void *)&m : (void *)&i, NULL, p->engine, NULL);
}

/* Returns a copy of the plain weights in the format that the product requires. */
static dnnl_memory_t reorder(const um_onednn *p, const dnnl_memory_desc_t *plain, dnnl_memory_t from,
                             const dnnl_memory_desc_t *packed) {
    dnnl_memory_t to = memory(p, packed, NULL);
    dnnl_primitive_desc_t d = NULL;
    dnnl_primitive_t run = NULL;
    const dnnl_exec_arg_t arg[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    if (dnnl_reorder_primitive_desc_create(&d, plain, p->engine, packed, p->engine, NULL) == dnnl_success &&
        dnnl_primitive_create(&run, d) == dnnl_success) {
        dnnl_primitive_execute(run, p->stream, 2, arg);
        dnnl_stream_wait(p->stream);
    }
    dnnl_primitive_destroy(run);
    dnnl_primitive_desc_destroy(d);
    return to;
}

um_onednn *um_onednn_new(um_onednn_kind kind, um_dtype type, int n_tokens, int in, int out, const void *w, int copies) {
    bool is_matmul = kind == UM_ONEDNN_MATMUL; /* matmul takes the weights as [in, out] */
    if (type == UM_Q4) return NULL;
    um_onednn *p = UM_NEW(um_onednn);
    dnnl_primitive_desc_t d = NULL;
    dnnl_memory_desc_t x = describe(type, n_tokens, in, dnnl_ab), y = describe(UM_F32, n_tokens, out, dnnl_ab);
    dnnl_memory_desc_t any = describe(type, is_matmul ? in : out, is_matmul ? out : in, dnnl_format_tag_any);
    dnnl_memory_desc_t plain =
        describe(type, is_matmul ? in : out, is_matmul ? out : in, is_matmul ? dnnl_ba : dnnl_ab);
    if (dnnl_engine_create(&p->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags) != dnnl_success ||
        describe_product(p, kind, &x, &any, &y, &d) != dnnl_success ||
        dnnl_primitive_create(&p->product, d) != dnnl_success) {
        um_onednn_free(p);
        return NULL;
    }
    const dnnl_memory_desc_t *packed = dnnl_primitive_desc_query_md(d, dnnl_query_weights_md, 0);
    dnnl_memory_t from = memory(p, &plain, (void *)w);
    void *data;
    p->x = memory(p, &x, NULL);
    p->y = memory(p, &y, NULL);
    p->copies = copies;
    p->w = UM_NEW_ARRAY(dnnl_memory_t, (size_t)copies);
    for (int i = 0; i < copies; i++) p->w[i] = reorder(p, &plain, from, packed);
    dnnl_memory_get_data_handle(p->x, &data);
    memcpy(data, w, UM_MIN(dnnl_memory_desc_get_size(&x), dnnl_memory_desc_get_size(&plain)));
    dnnl_memory_destroy(from);
    dnnl_primitive_desc_destroy(d);
    return p;
}

void um_onednn_free(um_onednn *p) {
    if (!p) return;
    for (int i = 0; i < p->copies; i++) dnnl_memory_destroy(p->w[i]);
    um_free(p->w);
    dnnl_memory_destroy(p->x);
    dnnl_memory_destroy(p->y);
    dnnl_primitive_destroy(p->product);
    dnnl_stream_destroy(p->stream);
    dnnl_engine_destroy(p->engine);
    um_free(p);
}

void um_onednn_run(void *arg, int round) {
    um_onednn *p = (um_onednn *)arg;
    const dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, p->x}, {DNNL_ARG_WEIGHTS, p->w[round % p->copies]}, {DNNL_ARG_DST, p->y}};
    dnnl_primitive_execute(p->product, p->stream, UM_LEN(args), args);
    dnnl_stream_wait(p->stream);
}

#else

const char *um_bench_onednn_version(void) { return NULL; }

um_onednn *um_onednn_new(um_onednn_kind kind, um_dtype type, int n_tokens, int in, int out, const void *w, int copies) {
    (void)kind, (void)type, (void)n_tokens, (void)in, (void)out, (void)w, (void)copies;
    return NULL;
}

void um_onednn_free(um_onednn *p) { (void)p; }

void um_onednn_run(void *arg, int round) { (void)arg, (void)round; }
#endif
