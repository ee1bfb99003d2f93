/* The released shapes: configurations and facts of tests/data/released, found by name. */
#include <ctype.h>
#include <jansson.h>

#include "checkpoint.h"

static const char text[] = {
#include "released.inc"
};

/* All files of tests/data/released: {"sdar_8b": {...}, ..., "releases": {...}}. Lives as long as the program. */
static const json_t *released(void) {
    static json_t *all;
    if (!all) all = json_loadb(text, sizeof text, 0, NULL);
    assert(all);
    return all;
}

static const json_t *release_list(void) { return json_object_get(json_object_get(released(), "releases"), "releases"); }

static const char *config_name(const json_t *release) { return json_string_value(json_object_get(release, "config")); }

const char *um_release_name(size_t i) {
    const json_t *release = json_array_get(release_list(), i);
    return release ? config_name(release) : NULL;
}

/* ---- Names ------------------------------------------------------------------------------------------------------- */

/* Letters and digits are the same, whatever their case and what stands between them. */
static bool same_name(const char *a, const char *b) {
    for (;; a++, b++) {
        while (*a && !isalnum((unsigned char)*a)) a++;
        while (*b && !isalnum((unsigned char)*b)) b++;
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) return false;
        if (!*a) return true;
    }
}

static bool has_name(const json_t *release, const char *name) {
    const json_t *names = json_object_get(release, "names");
    if (same_name(config_name(release), name)) return true;
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *full = json_string_value(json_array_get(names, i)), *slash = strchr(full, '/');
        if (same_name(full, name) || same_name(slash + 1, name)) return true;
    }
    return false;
}

static um_status fail_unknown(const char *name, um_err *err) {
    const char *names[64];
    size_t n = 0;
    while (n < UM_LEN(names) && (names[n] = um_release_name(n))) n++;
    const char *near = um_nearest(name, names, n);
    return um_fail(err, UM_EINVAL, "unknown shape \"%.80s\"%s%s%s; --list shows all", name,
                   near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
}

/* ---- One release ------------------------------------------------------------------------------------------------- */

/* Cuts the configuration after n layers, its lists of kinds of layers too. */
static um_status keep_layers(um_release *r, int32_t n, um_err *err) {
    static const char *const numbers[] = {"num_hidden_layers", "n_layers"}, *const lists[] = {"moe_layer_freq",
                                                                                              "layer_types"};
    json_t *text_config = json_object_get(r->config, "text_config"), *config = text_config ? text_config : r->config;
    if (n > r->arch.n_layers)
        return um_fail(err, UM_EINVAL, "%s has %d layers, --layers asks for %d", r->name, r->arch.n_layers, n);
    for (size_t i = 0; i < UM_LEN(numbers); i++)
        if (json_object_get(config, numbers[i])) json_object_set_new(config, numbers[i], json_integer(n));
    for (size_t i = 0; i < UM_LEN(lists); i++) {
        json_t *kinds = json_object_get(config, lists[i]);
        while (json_array_size(kinds) > (size_t)n) json_array_remove(kinds, json_array_size(kinds) - 1);
    }
    return um_arch_parse(&r->arch, r->config, r->name, NULL, err);
}

static um_status read_release(um_release *r, const json_t *facts, int32_t n_layers, um_err *err) {
    *r = (um_release){.name = config_name(facts), .facts = facts};
    r->config = json_deep_copy(json_object_get(released(), r->name));
    json_object_update(r->config, json_object_get(facts, "change"));
    um_status s = um_arch_parse(&r->arch, r->config, r->name, NULL, err);
    if (!s && n_layers) s = keep_layers(r, n_layers, err);
    if (s) um_release_free(r);
    return s;
}

um_status um_release_find(um_release *out, const char *name, int32_t n_layers, um_err *err) {
    const json_t *release;
    size_t i;
    json_array_foreach(release_list(), i, release) {
        if (has_name(release, name)) return read_release(out, release, n_layers, err);
    }
    return fail_unknown(name, err);
}

void um_release_free(um_release *r) {
    json_decref(r->config);
    r->config = NULL;
}

const char *um_release_tokenizer(const um_release *r) {
    const char *tokens = json_string_value(json_object_get(r->facts, "tokens"));
    const json_t *tokenizers = json_object_get(json_object_get(released(), "releases"), "tokenizers");
    return json_string_value(json_object_get(tokenizers, tokens));
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

/* The names of all releases with this configuration. */
static void put_names(const char *config, um_buf *out) {
    const json_t *release, *name;
    const char *separator = "";
    size_t i, k;
    json_array_foreach(release_list(), i, release) {
        if (!um_streq(config_name(release), config)) continue;
        json_array_foreach(json_object_get(release, "names"), k, name) {
            um_buf_printf(out, "%s%s", separator, json_string_value(name));
            separator = ", ";
        }
    }
}

static bool is_first_of_its_config(const json_t *release, size_t i) {
    for (size_t k = 0; k < i; k++)
        if (um_streq(um_release_name(k), config_name(release))) return false;
    return true;
}

void um_releases_print(um_buf *out) {
    const json_t *release;
    size_t i;
    um_buf_printf(out, "%-20s %-16s %15s %10s  %s\n", "shape", "family", "parameters", "bf16", "released as");
    json_array_foreach(release_list(), i, release) {
        um_release r;
        if (!is_first_of_its_config(release, i) || read_release(&r, release, 0, NULL)) continue;
        const int64_t n = um_arch_params(&r.arch);
        um_buf_printf(out, "%-20s %-16s %15lld %7.2f GB  ", r.name, r.arch.family->name, (long long)n,
                      2e-9 * (double)n);
        put_names(r.name, out);
        um_buf_putc(out, '\n');
        um_release_free(&r);
    }
}
