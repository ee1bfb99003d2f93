/* The table of strategies. */
#include "decode/decode.h"

const um_strategy *const um_strategies[] = {&um_strategy_multi_bd,     &um_strategy_d2f,    &um_strategy_dmax,
                                            &um_strategy_fast_dllm_v2, &um_strategy_full,   &um_strategy_prefix_cache,
                                            &um_strategy_dual_cache,   &um_strategy_sparse, NULL};

bool um_name_in(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *p = list; p && *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == n && strncmp(p, name, n) == 0) return true;
    return false;
}

um_status um_strategy_find(const um_strategy **out, const char *name, um_err *err) {
    um_buf names = {0};
    for (const um_strategy *const *s = um_strategies; *s; s++) {
        if (um_streq((*s)->name, name) || um_name_in((*s)->aliases, name)) {
            *out = *s;
            um_buf_free(&names);
            return UM_OK;
        }
        um_buf_printf(&names, "%s%s", names.len ? ", " : "", (*s)->name);
    }
    um_status st = um_fail(err, UM_EINVAL, "decoding_strategy: no strategy named %s; there are: %s", name, names.data);
    um_buf_free(&names);
    return st;
}
