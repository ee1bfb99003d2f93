/* Backends by the name of a device. */
#include "ops/backend.h"

/* Returns the length of the name before a colon, and stores the number behind it. -1: there is no number behind the
 * colon. */
static int name_length(const char *device, int32_t *number) {
    const char *colon = strchr(device, ':');
    *number = 0;
    if (!colon) return (int)strlen(device);
    int used = 0;
    const int n = sscanf(colon + 1, "%4d%n", number, &used);
    return n == 1 && *number >= 0 && !colon[1 + used] ? (int)(colon - device) : -1;
}

um_status um_backend_find(const um_backend **out, int32_t *number, const char *device, um_err *err) {
    char known[128] = "";
    size_t at = 0;
    const int n = name_length(device, number);
    for (const um_backend *const *b = um_backends_all; *b; b++) {
        if (n == (int)strlen((*b)->name) && !strncmp((*b)->name, device, (size_t)n)) {
            *out = *b;
            return (*b)->load ? (*b)->load(out, err) : UM_OK;
        }
        const int used = snprintf(known + at, sizeof known - at, "%s\"%s\"", at ? ", " : "", (*b)->name);
        at = UM_MIN(at + (size_t)used, sizeof known - 1);
    }
    return um_fail(err, UM_EUNSUPPORTED, "unknown device \"%s\"; expected one of %s", device, known);
}
