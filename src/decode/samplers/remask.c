/* Remasking: filled positions whose token has become improbable become masks again. */
#include "decode/decode.h"

/* Returns the candidate below the threshold that follows candidate `last` in ascending order of probability, from the
 * left among equals, or -1 if there is none. With `last` == -1, returns the first candidate in that order. */
static int32_t next_doubted(const um_sampler_input *filled, int32_t last) {
    const um_answer *a = filled->answer;
    int32_t next = -1;
    for (int32_t i = filled->n_fixed; i < filled->n; i++) {
        if (!(a[i].p_id < filled->how->remask_threshold)) continue; /* NAN: off */
        if (last >= 0 && (a[i].p_id < a[last].p_id || (a[i].p_id == a[last].p_id && i <= last))) continue;
        if (next < 0 || a[i].p_id < a[next].p_id) next = i;
    }
    return next;
}

void um_remask(const um_sampler_input *filled, int32_t most, um_decision *d) {
    int32_t i = -1;
    for (; most > 0 && (i = next_doubted(filled, i)) >= 0; most--) {
        d->at[d->n] = i;
        d->id[d->n++] = UM_MASKED;
    }
}
