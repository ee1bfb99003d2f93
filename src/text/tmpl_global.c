/* The built-in functions of templates. */
#include <time.h>

#include "text/template.h"
#include "text/tok.h"

#define GLOBAL(name) static um_val name(um_render *r, const um_arg_values *args)

GLOBAL(g_namespace) {
    um_val v = um_dict_new(r);
    v.kind = UM_V_NAMESPACE;
    if (args->n > 1 || (args->n == 1 && args->pos[0].kind != UM_V_DICT)) um_render_fail(r, "namespace takes one dict");
    if (args->n == 1)
        for (size_t i = 0; i < args->pos[0].dict->n; i++)
            um_dict_set(r, v.dict, args->pos[0].dict->key[i], args->pos[0].dict->val[i]);
    for (size_t i = 0; i < args->n_kw; i++) um_dict_set(r, v.dict, um_val_str(args->kw_name[i]), args->kw[i]);
    return v;
}

GLOBAL(g_dict) {
    um_val v = g_namespace(r, args);
    v.kind = UM_V_DICT;
    return v;
}

GLOBAL(g_range) {
    if (args->n < 1 || args->n > 3 || args->n_kw) um_render_fail(r, "range takes 1 to 3 numbers");
    int64_t start = args->n > 1 ? um_as_int(r, args->pos[0], "range: start") : 0;
    int64_t stop = um_as_int(r, args->pos[args->n > 1 ? 1 : 0], "range: stop");
    int64_t step = args->n > 2 ? um_as_int(r, args->pos[2], "range: step") : 1;
    if (step == 0) um_render_fail(r, "range: step can't be 0");
    __int128 span = step > 0 ? (__int128)stop - start : (__int128)start - stop, by = step > 0 ? step : -(__int128)step;
    __int128 n = span > 0 ? (span + by - 1) / by : 0;
    if (n > UM_TMPL_RANGE_MAX) um_render_fail(r, "range: more than %d elements", UM_TMPL_RANGE_MAX);
    um_val v = um_val_of(UM_V_RANGE);
    v.range = (um_int_range *)um_render_alloc(r, sizeof *v.range);
    *v.range = (um_int_range){start, step, (int64_t)n};
    return v;
}

GLOBAL(g_raise) {
    um_str text = args->n ? um_text(r, args->pos[0]) : UM_STR("");
    um_render_fail(r, "%.*s", (int)UM_MIN(text.n, UM_ERR_MAX), text.n ? text.p : "");
}

GLOBAL(g_strftime) {
    if (args->n != 1 || args->n_kw) um_render_fail(r, "strftime_now takes one format");
    um_str f = um_as_str(r, args->pos[0], "strftime_now: the format");
    char format[256], text[1024];
    if (f.n >= sizeof format - 1 || (f.n && memchr(f.p, 0, f.n)))
        um_render_fail(r, "strftime_now: the format is too long");
    memcpy(format, f.p, f.n);
    memcpy(format + f.n, ".", 2); /* tells an empty result from one that did not fit */
    time_t now = (time_t)r->now;
    struct tm tm;
    localtime_r(&now, &tm);
    size_t n = strftime(text, sizeof text, format, &tm);
    if (n == 0) um_render_fail(r, "strftime_now: the result is too long");
    return um_val_str(um_render_copy(r, (um_str){text, n - 1}));
}

GLOBAL(g_joiner) {
    um_val v = um_val_of(UM_V_JOINER);
    v.joiner = (um_joiner *)um_render_alloc(r, sizeof *v.joiner);
    v.joiner->sep = args->n ? um_text(r, args->pos[0]) : UM_STR(", ");
    return v;
}

GLOBAL(g_cycler) {
    if (args->n == 0) um_render_fail(r, "cycler takes at least one value");
    um_val v = um_val_list(r, UM_V_CYCLER, args->n);
    for (size_t i = 0; i < args->n; i++) um_list_push(r, v.list, args->pos[i]);
    return v;
}

static const struct {
    const char *name;
    um_val (*fn)(um_render *, const um_arg_values *);
} globals[] = {
    {"namespace", g_namespace},   {"dict", g_dict},     {"range", g_range},   {"raise_exception", g_raise},
    {"strftime_now", g_strftime}, {"joiner", g_joiner}, {"cycler", g_cycler},
};

int um_global_find(um_str name) {
    for (size_t i = 0; i < UM_LEN(globals); i++)
        if (um_str_eq(name, um_str_of(globals[i].name))) return (int)i;
    return -1;
}

um_val um_global_call(um_render *r, int index, const um_arg_values *args) { return globals[index].fn(r, args); }
