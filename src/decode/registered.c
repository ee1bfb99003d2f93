/* Samplers that a program registers, and their option rows. */
#include <ctype.h>
#include <dlfcn.h>
#include <stdlib.h>

#include "decode/decode.h"

#define SAMPLERS_MAX 64

typedef struct registered {
    um_sampler sampler;
    um_sampler_def def; /* a copy */
} registered;

/* The process has one table, because names of options and samplers hold for all engines. Registration comes first, so
 * the table never changes while engines run. */
static registered *table[SAMPLERS_MAX];
static size_t n_table;
static um_option rows[UM_SAMPLER_PARAMS_MAX];
static int32_t n_rows;

static size_t count_built_in(void) {
    size_t n = 0;
    while (um_samplers[n]) n++;
    return n;
}

const um_sampler *um_sampler_at(size_t i) {
    const size_t n = count_built_in();
    if (i < n) return um_samplers[i];
    return i - n < n_table ? &table[i - n]->sampler : NULL;
}

um_params um_registered_params(void) { return (um_params){rows, (size_t)n_rows}; }

static uint32_t want(const um_req *r) {
    const uint32_t reads = r->sampler->def->reads;
    uint32_t bits = UM_WANT_SAMPLE;
    if (reads & UM_READ_MARGIN) bits |= UM_WANT_BEST | UM_WANT_SECOND;
    if (reads & UM_READ_ENTROPY) bits |= UM_WANT_ENTROPY;
    return bits;
}

static int32_t n_top(const um_req *r) { return r->sampler->def->n_top; }

static size_t memory(const um_req *r, int32_t n) {
    (void)n;
    return r->sampler->def->memory;
}

/* A constraint that chooses the best filling of a block replaces predictions before the sampler sees them. */
static um_status init(um_req *r, um_err *err) {
    if (!r->fills_best) return UM_OK;
    return um_fail_param(err, UM_EUNSUPPORTED, "filling", "best is not for registered samplers (%s); set it to each",
                         r->how.sampler);
}

/* ---- Registration ------------------------------------------------------------------------------------------------ */

static bool is_word(const char *name) {
    if (!name || !*name) return false;
    for (const char *p = name; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '_') return false;
    return true;
}

static bool is_option(const char *name) {
    um_decoding d;
    um_sampling_params s;
    um_option_set sets[UM_DECODE_SETS_MAX];
    const size_t n = um_decode_option_sets(sets, &d, &s);
    for (size_t i = 0; i < n; i++)
        if (um_options_find(sets[i].rows, sets[i].n, name)) return true;
    return false;
}

static um_status check_param(const um_sampler_def *def, int32_t i, um_err *err) {
    const um_sampler_param *p = &def->params[i];
    if (!is_word(p->name))
        return um_fail(err, UM_EINVAL, "sampler %s: parameter %d: expected a name of letters, digits and '_'",
                       def->name, i);
    for (int32_t k = 0; k < i; k++)
        if (um_streq(def->params[k].name, p->name))
            return um_fail(err, UM_EINVAL, "sampler %s: two parameters are named %s", def->name, p->name);
    if (!(p->min <= p->usual && p->usual <= p->max))
        return um_fail(err, UM_EINVAL, "sampler %s: parameter %s: the default %g is outside %g..%g", def->name, p->name,
                       (double)p->usual, (double)p->min, (double)p->max);
    return UM_OK;
}

um_status um_sampler_def_check(const um_sampler_def *def, um_err *err) {
    if (def->version != UM_SAMPLER_VERSION)
        return um_fail(err, UM_EUNSUPPORTED, "a sampler of version %d; this library knows version %d", def->version,
                       UM_SAMPLER_VERSION);
    if (!is_word(def->name)) return um_fail(err, UM_EINVAL, "a sampler needs a name of letters, digits and '_'");
    if (!def->accept) return um_fail(err, UM_EINVAL, "sampler %s: accept is missing", def->name);
    if (def->n_top < 0 || def->n_top > UM_TOP_MAX)
        return um_fail(err, UM_EINVAL, "sampler %s: n_top %d is outside 0..%d", def->name, def->n_top, UM_TOP_MAX);
    if (def->memory > 1 << 20)
        return um_fail(err, UM_EINVAL, "sampler %s: memory of %zu bytes; at most 1048576 are possible", def->name,
                       def->memory);
    if (def->n_params < 0 || def->n_params > UM_SAMPLER_PARAMS_MAX)
        return um_fail(err, UM_ELIMIT, "sampler %s: %d parameters; at most %d are possible", def->name, def->n_params,
                       UM_SAMPLER_PARAMS_MAX);
    for (int32_t i = 0; i < def->n_params; i++) {
        um_status st = check_param(def, i, err);
        if (st) return st;
    }
    return UM_OK;
}

/* Returns whether names and room are free for a sampler that is right in itself. */
static um_status check_room(const um_sampler_def *def, um_err *err) {
    const um_sampler *same;
    if (um_streq(def->name, "auto") || um_sampler_find(&same, def->name, NULL) == UM_OK)
        return um_fail(err, UM_EINVAL, "sampler %s: the name is taken", def->name);
    for (int32_t i = 0; i < def->n_params; i++)
        if (is_option(def->params[i].name))
            return um_fail(err, UM_EINVAL, "sampler %s: parameter %s: an option has this name", def->name,
                           def->params[i].name);
    if (def->n_params > UM_SAMPLER_PARAMS_MAX - n_rows || n_table == SAMPLERS_MAX)
        return um_fail(err, UM_ELIMIT, "sampler %s: there may be %d registered samplers, with %d parameters together",
                       def->name, SAMPLERS_MAX, UM_SAMPLER_PARAMS_MAX);
    return UM_OK;
}

/* Returns the shortest text that stands for the number. */
static char *number_text(float value) {
    um_buf b = {0};
    for (int digits = 6; digits <= 9; digits++) {
        um_buf_clear(&b);
        um_buf_printf(&b, "%.*g", digits, (double)value);
        if (strtof(b.data, NULL) == value) break;
    }
    return b.data;
}

static void add_row(const um_sampler_param *p) {
    const size_t offset = offsetof(um_decoding, registered) + sizeof(float) * (size_t)n_rows;
    rows[n_rows++] = (um_option){.name = um_strdup(p->name),
                                 .type = UM_OPT_FLOAT,
                                 .offset = offset,
                                 .size = sizeof(float),
                                 .min = (double)p->min,
                                 .max = (double)p->max,
                                 .def = number_text(p->usual),
                                 .metavar = "X",
                                 .group = "Decoding (samplers)",
                                 .help = um_strdup(p->help ? p->help : "a parameter of a registered sampler")};
}

um_status um_register_sampler(const um_sampler_def *def, um_err *err) {
    um_status st = um_sampler_def_check(def, err);
    if (!st) st = check_room(def, err);
    if (st) return st;
    registered *r = UM_NEW(registered);
    r->def = *def;
    r->def.name = um_strdup(def->name);
    r->sampler = (um_sampler){.name = r->def.name,
                              .summary = um_strdup(def->summary ? def->summary : ""),
                              .source = um_strdup(def->source ? def->source : "registered by the program"),
                              .schedule = UM_SCHEDULE_NONE,
                              .init = init,
                              .want = want,
                              .n_top = n_top,
                              .memory = memory,
                              .def = &r->def,
                              .first_param = n_rows};
    if (def->n_params) r->sampler.params[0] = (um_params){rows + n_rows, (size_t)def->n_params};
    for (int32_t i = 0; i < def->n_params; i++) add_row(&def->params[i]);
    table[n_table++] = r;
    return UM_OK;
}

um_status um_load_plugin(const char *path, um_err *err) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return um_fail(err, UM_ENOENT, "the plugin can't be loaded: %s", dlerror());
    const um_sampler_def *const *def = dlsym(library, "um_plugin_samplers");
    if (!def) return um_fail(err, UM_EINVAL, "%s: a plugin defines the array um_plugin_samplers", path);
    for (; *def; def++) {
        um_status st = um_register_sampler(*def, err);
        if (st) return st;
    }
    return UM_OK;
}
