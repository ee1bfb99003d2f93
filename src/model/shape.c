/* The text of a shape. */
#include "model/model.h"

enum { DIMS_MAX = UM_LEN(((um_tensor *)0)->dim) };

void um_shape_print(char out[UM_SHAPE_TEXT], const int64_t *dim, int32_t n) {
    const size_t size = UM_SHAPE_TEXT;
    size_t at = (size_t)snprintf(out, size, "[");
    assert(n >= 0 && n <= DIMS_MAX);
    for (int32_t i = 0; i < n; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%lld", i ? ", " : "", (long long)dim[i]);
    snprintf(out + at, size - at, "]");
}
