/* Times of the operations of a pass: events on the stream, read when the pass has ended. */
#include "cuda/pass.cuh"

static void free_marks(um_forward *f) {
    if (!f->marks) return;
    for (int i = 0; i < UM_CU_MARKS_MAX; i++)
        if (f->marks->event[i]) cudaEventDestroy(f->marks->event[i]);
    um_free(f->marks);
    f->marks = NULL;
}

void um_cu_profile(um_forward *f, um_profile *p) {
    cudaSetDevice(f->d->number);
    free_marks(f);
    f->profile = p;
    if (!p) return;
    f->marks = UM_NEW(um_cu_marks);
    for (int i = 0; i < UM_CU_MARKS_MAX; i++)
        if (cudaEventCreate(&f->marks->event[i]) != cudaSuccess) f->marks->event[i] = NULL;
}

void um_cu_mark(um_forward *f, const char *name, int32_t size) {
    um_cu_marks *m = f->marks;
    if (!m) return;
    if (!name) {
        m->n = 0;
        m->start = um_now();
    }
    if (m->n == UM_CU_MARKS_MAX || !m->event[m->n]) return; /* later operations of the pass are not reported */
    m->name[m->n] = name;
    m->size[m->n] = size;
    cudaEventRecord(m->event[m->n++], f->d->stream);
}

void um_cu_report(um_forward *f) {
    um_cu_marks *m = f->marks;
    if (!m || m->n == 0 || cudaEventSynchronize(m->event[m->n - 1]) != cudaSuccess) return;
    double at = m->start;
    for (int i = 1; i < m->n; i++) {
        float ms = 0;
        if (cudaEventElapsedTime(&ms, m->event[i - 1], m->event[i]) != cudaSuccess) return;
        um_profile_add(f->profile, m->name[i], at, at + ms / 1000, m->size[i]);
        at += ms / 1000;
    }
    m->n = 0;
}
