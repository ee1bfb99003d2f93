/* Weights: matrices as panels, packed from the tensors of a checkpoint or borrowed from a file.
 *
 * The system places a page of memory on the node of the thread that writes it first. So panels are packed by the thread
 * that multiplies them later. */
#include "ops/cpu/dev.h"
#include "ops/panels.h"
#include "ops/quantize.h"

/* ---- Slabs ------------------------------------------------------------------------------------------------------- */

enum { SLAB_BYTES = 32 << 20, SLAB_LEAST = 512 << 10, SLAB_MOST = 8 << 20 };

static void slab_free(um_slab *s) {
    if (!s) return;
    um_free(s->data);
    um_free(s);
}

/* Takes memory from the device's slab. Starts a new one when it is full; the old one is freed with its last weight. */
static um_status slab_take(um_dev *dev, um_weight *w, size_t bytes, const char *what, um_err *err) {
    um_slab *s = dev->slab;
    if (!s || s->used + bytes > SLAB_BYTES) {
        void *data = NULL;
        um_status status = um_try_alloc_unset(&data, SLAB_BYTES, 64, what, err);
        if (status) return status;
        if (s && s->n_weights == 0) slab_free(s);
        s = dev->slab = UM_NEW(um_slab);
        s->data = (unsigned char *)data;
    }
    w->slab = s;
    w->panel = s->data + s->used;
    s->used += UM_CEIL_DIV(bytes, 64) * 64;
    s->n_weights++;
    return UM_OK;
}

static void slab_release(um_dev *dev, um_slab *s) {
    if (--s->n_weights > 0) return;
    if (s == dev->slab) s->used = 0;
    else slab_free(s);
}

void um_cpu_slab_close(um_dev *dev) { slab_free(dev->slab); }

/* ---- Weights ----------------------------------------------------------------------------------------------------- */

/* Allocates the panels of a weight. */
static um_status new_panels(um_dev *dev, um_weight *w, size_t bytes, const char *what, um_err *err) {
    void *panels = NULL;
    if (bytes >= SLAB_LEAST && bytes <= SLAB_MOST) return slab_take(dev, w, bytes, what, err);
    um_status s = um_try_alloc_unset(&panels, bytes, 64, what, err);
    w->panel = (unsigned char *)panels;
    return s;
}

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
    w.panel = (unsigned char *)(uintptr_t)um_packing_in_place(p);
    w.is_borrowed = w.panel != NULL;
    w.panel_bytes = um_panel_bytes(w.type, w.in);
    um_status s = UM_OK;
    if (!w.is_borrowed) s = new_panels(dev, &w, um_mul(w.panel_bytes, (size_t)um_packing_panels(p)), part[0].name, err);
    if (s) return s;
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
    if (w && w->slab) slab_release(dev, w->slab);
    else if (w && !w->is_borrowed) um_free(w->panel);
    um_free(w);
}

bool um_cpu_weight_is_mapped(const um_weight *w) { return w->is_borrowed; }

size_t um_cpu_weight_bytes(const um_weight *w) { return w->panel_bytes * (size_t)UM_CEIL_DIV(w->rows, UM_PANEL); }
