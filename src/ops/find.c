/* Backends by name. */
#include "ops/ops.h"

um_status um_ops_find(const um_ops **out, const char *name, um_err *err) {
    char known[128] = "";
    size_t len = 0;
    for (const um_ops *const *ops = um_ops_all; *ops; ops++) {
        if (um_streq((*ops)->name, name)) {
            *out = *ops;
            return UM_OK;
        }
        int n = snprintf(known + len, sizeof known - len, "%s\"%s\"", len ? ", " : "", (*ops)->name);
        len = UM_MIN(len + (size_t)n, sizeof known - 1);
    }
    return um_fail(err, UM_EUNSUPPORTED, "unknown device \"%s\"; expected one of %s", name ? name : "", known);
}
