/* Weights: matrices as panels, packed from the tensors of a checkpoint or borrowed from a file.
 *
 * The system places a page of memory on the node of the thread that writes it first. So panels are packed by the thread
 * that multiplies them later. */
#include "ops/cpu/dev.h"
#include "ops/panels.h"
#include "ops/quantize.h"

typedef struct pack_job {
    um_packing packing;
    um_weight *w;
    int half; /* panels of the gate when the matrix is a gate and an up projection, else 0 */
} pack_job;

/* Of a gate and an up projection a thread multiplies the same panels, so these are packed in turn. */
static void pack_panel(void *arg, int task, int thread) {
    (void)thread;
    const pack_job *j = (const pack_job *)arg;
    const int panel = j->half ? task % 2 * j->half + task / 2 : task;
    um_packing_write(&j->packing, panel, j->w->panel + (size_t)panel * j->w->panel_bytes);
}

um_status um_cpu_weight(um_dev *dev, um_weight **out, const um_tensor *part, int n_parts, um_dtype type, um_err *err) {
    assert(type == UM_F32 || um_is_quantized(type) || type == dev->config.dtype);
    pack_job j = {.packing = um_packing_of(part, n_parts, type)};
    const um_packing *p = &j.packing;
    um_weight w = {.rows = (int32_t)p->rows, .in = (int32_t)p->in, .type = p->type, .exact = type == UM_F32};
    void *panels = (void *)(uintptr_t)um_packing_in_place(p);
    w.is_borrowed = panels != NULL;
    w.panel_bytes = um_panel_bytes(w.type, w.in);
    um_status s = UM_OK;
    if (!panels)
        s = um_try_alloc_unset(&panels, um_mul(w.panel_bytes, (size_t)um_packing_panels(p)), 64, part[0].name, err);
    if (s) return s;
    w.panel = (unsigned char *)panels;
    *out = UM_NEW(um_weight);
    **out = w;
    j.w = *out;
    if (n_parts == 2 && part[0].dim[0] == part[1].dim[0] && part[0].dim[0] % UM_PANEL == 0)
        j.half = um_packing_panels(p) / 2;
    if (w.is_borrowed) return UM_OK;
    if (dev->cpu) um_pool_run_fixed(dev->pool, pack_panel, &j, um_packing_panels(p));
    else um_cpu_run(dev, pack_panel, &j, um_packing_panels(p), (double)p->rows * (double)p->in);
    return UM_OK;
}

void um_cpu_weight_free(um_dev *dev, um_weight *w) {
    (void)dev;
    if (w && !w->is_borrowed) um_free(w->panel);
    um_free(w);
}

bool um_cpu_weight_is_mapped(const um_weight *w) { return w->is_borrowed; }

size_t um_cpu_weight_bytes(const um_weight *w) { return w->panel_bytes * (size_t)UM_CEIL_DIV(w->rows, UM_PANEL); }
