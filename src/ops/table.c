/* The one list of backends. */
#include "ops/cpu/cpu.h"
#include "ops/ops.h"
#include "ops/ref/ref.h"

const um_ops *const um_ops_all[] = {&um_ops_cpu, &um_ops_ref, NULL};

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
    return um_fail(err, UM_EUNSUPPORTED, "expected a device of %s, found \"%s\"", known, name ? name : "");
}
