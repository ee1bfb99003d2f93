/* Reservations of memory for parsed bodies. */
#include "server/body/held.h"

#include <malloc.h>

/* malloc keeps freed memory for later. After a text that held this much, it is asked to return what it can. */
#define TRIM_BYTES ((size_t)4 << 20)

struct um_held {
    um_held_limit *limit;
    size_t bytes;
    int32_t n_refs; /* changed atomically */
};

/* Adds n to the used bytes unless they would exceed the limit. */
static bool reserve(um_held_limit *l, size_t n) {
    size_t used = __atomic_load_n(&l->used, __ATOMIC_RELAXED);
    do {
        if (n > l->all || used > l->all - n) return false;
    } while (!__atomic_compare_exchange_n(&l->used, &used, used + n, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return true;
}

um_status um_held_new(um_held **out, um_held_limit *limit, um_str json, um_err *err) {
    size_t n = um_json_memory(json);
    *out = NULL;
    if (n > limit->one)
        return um_fail(err, UM_ELIMIT,
                       "the JSON values of the body would take %.1f MiB of memory; the limit is %.1f MiB "
                       "(--max-body-memory)",
                       (double)n / (1 << 20), (double)limit->one / (1 << 20));
    if (!reserve(limit, n))
        return um_fail(err, UM_ENOMEM,
                       "the bodies of other requests take the memory that bodies may take (--max-bodies-memory); "
                       "retry later");
    um_held *h = UM_NEW(um_held);
    *h = (um_held){limit, n, 1};
    *out = h;
    return UM_OK;
}

um_held *um_held_ref(um_held *h) {
    if (h) __atomic_add_fetch(&h->n_refs, 1, __ATOMIC_RELAXED);
    return h;
}

void um_held_unref(um_held *h) {
    if (!h || __atomic_sub_fetch(&h->n_refs, 1, __ATOMIC_ACQ_REL)) return;
    if (h->bytes >= TRIM_BYTES) malloc_trim(0);
    __atomic_sub_fetch(&h->limit->used, h->bytes, __ATOMIC_RELAXED);
    um_free(h);
}
