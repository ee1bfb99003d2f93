/* adapter_config.json: which modules an adapter is for, and the rank and scale of each. Names, lists and regular
 * expressions mean what PEFT makes of them; what unmask does not compute is refused by name. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "model/lora.h"

#define ALPHA_MAX 1e6
enum { MATCH_STEPS_MAX = 100000, PATTERNS_MAX = 4096 };

/* A regular expression over whole paths. */
typedef struct regex {
    pcre2_code *code; /* NULL: there is none */
    pcre2_match_data *match;
    const char *field, *text;
} regex;

/* A field that names modules: words or one regular expression. */
typedef struct module_set {
    const char **word; /* [n] "q_proj", "self_attn.q_proj" */
    bool *fitted;      /* [n] some module was meant */
    size_t n;
    regex whole;
    bool whole_fitted;
} module_set;

/* rank_pattern and alpha_pattern. */
typedef struct overrides {
    regex *module; /* [n] */
    double *value;
    size_t n;
} overrides;

struct um_lora_config {
    json_t *root;
    const char *where;
    um_arena arena;
    int32_t rank;
    double alpha;
    bool rslora, all_linear;
    module_set target, exclude, saved;
    overrides ranks, alphas;
    const json_t *layers;         /* a number or numbers, NULL: all */
    const json_t *layers_pattern; /* a word or words, NULL: any */
    const char *base;
    pcre2_general_context *memory;
    pcre2_match_context *limits;
};

/* ---- Regular expressions ----------------------------------------------------------------------------------------- */

static void *regex_alloc(size_t n, void *unused) {
    (void)unused;
    return um_alloc(n);
}

static void regex_free(void *p, void *unused) {
    (void)unused;
    um_free(p);
}

/* Fits a path from end to end, as Python's re.fullmatch. */
static um_status compile(um_lora_config *c, regex *r, const char *field, const char *text, um_err *err) {
    pcre2_compile_context *context = pcre2_compile_context_create(c->memory);
    const uint32_t options = PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_NEVER_BACKSLASH_C;
    int code = 0;
    PCRE2_SIZE at = 0;
    pcre2_set_parens_nest_limit(context, 100);
    *r = (regex){.field = field, .text = text};
    r->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, options, &code, &at, context);
    if (r->code) r->match = pcre2_match_data_create(1, c->memory);
    pcre2_compile_context_free(context);
    if (r->code) return UM_OK;
    PCRE2_UCHAR why[128] = {0};
    pcre2_get_error_message(code, why, sizeof why);
    return um_fail(err, UM_EPARSE, "%s: \"%s\": \"%.100s\" is no regular expression, at byte %zu: %s", c->where, field,
                   text, (size_t)at, (const char *)why);
}

static um_status fits(const um_lora_config *c, const regex *r, const char *path, bool *yes, um_err *err) {
    int n = pcre2_match(r->code, (PCRE2_SPTR)path, PCRE2_ZERO_TERMINATED, 0, 0, r->match, c->limits);
    *yes = n >= 0;
    if (n >= 0 || n == PCRE2_ERROR_NOMATCH) return UM_OK;
    return um_fail(err, UM_ELIMIT, "%s: \"%s\": the regular expression \"%.100s\" takes too long on %s", c->where,
                   r->field, r->text, path);
}

static void free_regex(regex *r) {
    pcre2_match_data_free(r->match);
    pcre2_code_free(r->code);
}

/* ---- Sets of modules --------------------------------------------------------------------------------------------- */

static bool is_given(const json_t *v) { return v && !json_is_null(v); }

/* A string without U+0000. */
static const char *word_of(const json_t *v) {
    const char *s = json_string_value(v);
    return s && *s && strlen(s) == json_string_length(v) ? s : NULL;
}

static um_status read_set(um_lora_config *c, module_set *s, const char *field, um_err *err) {
    const json_t *v = json_object_get(c->root, field), *word;
    size_t i;
    if (!is_given(v)) return UM_OK;
    if (word_of(v)) return compile(c, &s->whole, field, word_of(v), err);
    if (!json_is_array(v))
        return um_fail(err, UM_EPARSE, "%s: \"%s\": expected a list of modules or a regular expression", c->where,
                       field);
    if (json_array_size(v) > PATTERNS_MAX)
        return um_fail(err, UM_ELIMIT, "%s: \"%s\" has %zu entries, %d are allowed", c->where, field,
                       json_array_size(v), PATTERNS_MAX);
    s->word = um_arena_alloc(&c->arena, json_array_size(v) * sizeof *s->word);
    s->fitted = um_arena_alloc(&c->arena, json_array_size(v));
    json_array_foreach(v, i, word) {
        s->word[i] = word_of(word);
        if (!s->word[i])
            return um_fail(err, UM_EPARSE, "%s: \"%s\": entry %zu is no name of a module", c->where, field, i);
    }
    s->n = json_array_size(v);
    return UM_OK;
}

/* The word is the path, or what stands behind one of its dots. */
static bool ends_with(const char *path, const char *word) {
    size_t n = strlen(path), k = strlen(word);
    return n >= k && !strcmp(path + n - k, word) && (n == k || path[n - k - 1] == '.');
}

/* A word of the set ends the path. */
static bool any_word_ends(module_set *s, const char *path) {
    bool yes = false;
    for (size_t i = 0; i < s->n; i++) {
        if (!ends_with(path, s->word[i])) continue;
        s->fitted[i] = true;
        yes = true;
    }
    return yes;
}

/* A word of the set, between dots, is part of the path: it is one of the set's modules, or inside of one. fit: that
 * counts as a use of the word. */
static bool is_inside(const module_set *s, const char *path, bool fit) {
    bool yes = false;
    for (size_t i = 0; i < s->n; i++) {
        const size_t n = strlen(s->word[i]);
        for (const char *p = path; (p = strstr(p, s->word[i])); p++) {
            if ((p > path && p[-1] != '.') || (p[n] && p[n] != '.')) continue;
            s->fitted[i] |= fit;
            yes = true;
        }
    }
    return yes;
}

static um_status in_set(const um_lora_config *c, module_set *s, const char *path, bool *yes, um_err *err) {
    *yes = any_word_ends(s, path);
    if (!s->whole.code) return UM_OK;
    um_status st = fits(c, &s->whole, path, yes, err);
    s->whole_fitted |= *yes;
    return st;
}

/* A word that no module was found for, or NULL. */
static const char *unfitted(const module_set *s) {
    for (size_t i = 0; i < s->n; i++)
        if (!s->fitted[i]) return s->word[i];
    return s->whole.code && !s->whole_fitted ? s->whole.text : NULL;
}

/* ---- Layers ------------------------------------------------------------------------------------------------------ */

/* `v` is the word, or a list that holds it; NULL: any word is fine. */
static bool holds_word(const json_t *v, const char *word, size_t n) {
    const char *s = json_string_value(v);
    if (!v) return true;
    if (s) return strlen(s) == n && !strncmp(s, word, n);
    for (size_t i = 0; i < json_array_size(v); i++)
        if (holds_word(json_array_get(v, i), word, n)) return true;
    return false;
}

static bool holds_number(const json_t *v, int64_t number) {
    if (json_is_integer(v)) return json_integer_value(v) == number;
    for (size_t i = 0; i < json_array_size(v); i++)
        if (json_integer_value(json_array_get(v, i)) == number) return true;
    return false;
}

/* Number of the first "word.NUMBER." of a path whose word is one of layers_pattern, or -1. */
static int64_t layer_of(const um_lora_config *c, const char *path) {
    for (const char *dot = strchr(path, '.'); dot; dot = strchr(dot + 1, '.')) {
        const char *word = dot + 1, *end = strchr(word, '.');
        char *behind = NULL;
        if (!end || end[1] < '0' || end[1] > '9') continue;
        long number = strtol(end + 1, &behind, 10);
        if (*behind == '.' && holds_word(c->layers_pattern, word, (size_t)(end - word))) return number;
    }
    return -1;
}

/* A target that is named by its whole path is one whatever its layer. */
static bool in_layers(const um_lora_config *c, const char *path) {
    if (!c->layers) return true;
    for (size_t i = 0; i < c->target.n; i++)
        if (!strcmp(c->target.word[i], path)) return true;
    int64_t layer = layer_of(c, path);
    return layer >= 0 && holds_number(c->layers, layer);
}

static bool is_numbers(const json_t *v) {
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!json_is_integer(json_array_get(v, i)) || json_integer_value(json_array_get(v, i)) < 0) return false;
    return json_is_array(v) || (json_is_integer(v) && json_integer_value(v) >= 0);
}

/* "" and [] stand for none. */
static bool is_words(const json_t *v) {
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!word_of(json_array_get(v, i))) return false;
    return json_is_array(v) || word_of(v) || (json_is_string(v) && !json_string_length(v));
}

static um_status read_layers(um_lora_config *c, um_err *err) {
    const json_t *layers = json_object_get(c->root, "layers_to_transform");
    const json_t *pattern = json_object_get(c->root, "layers_pattern");
    if (is_given(layers) && !is_numbers(layers))
        return um_fail(err, UM_EPARSE, "%s: \"layers_to_transform\": expected the number of a layer or a list of them",
                       c->where);
    if (is_given(pattern) && !is_words(pattern))
        return um_fail(err, UM_EPARSE, "%s: \"layers_pattern\": expected a word or a list of words", c->where);
    if (json_is_integer(layers) || json_array_size(layers)) c->layers = layers;
    if (word_of(pattern) || json_array_size(pattern)) c->layers_pattern = pattern;
    if (c->layers && c->target.whole.code)
        return um_fail(err, UM_EMODEL,
                       "%s: \"layers_to_transform\" goes with a list of \"target_modules\", not with a regular "
                       "expression",
                       c->where);
    if (c->layers_pattern && !is_given(layers))
        return um_fail(err, UM_EMODEL, "%s: \"layers_pattern\" is there without \"layers_to_transform\"", c->where);
    return UM_OK;
}

/* ---- Overrides --------------------------------------------------------------------------------------------------- */

/* lora_alpha: a number of a size that makes sense. */
static bool is_scale(const json_t *v) { return json_is_number(v) && fabs(json_number_value(v)) <= ALPHA_MAX; }

/* Keys are regular expressions for the end of a path, from one of its dots on. */
static um_status read_overrides(um_lora_config *c, overrides *o, const char *field, bool whole, um_err *err) {
    json_t *map = json_object_get(c->root, field), *v;
    const char *key;
    if (!is_given(map)) return UM_OK;
    if (!json_is_object(map) || json_object_size(map) > PATTERNS_MAX)
        return um_fail(err, UM_EPARSE, "%s: \"%s\": expected an object of module to number", c->where, field);
    o->module = um_arena_alloc(&c->arena, json_object_size(map) * sizeof *o->module);
    o->value = um_arena_alloc(&c->arena, json_object_size(map) * sizeof *o->value);
    json_object_foreach(map, key, v) {
        um_buf text = {0};
        double value = json_number_value(v);
        if (whole ? !json_is_integer(v) || value < 1 || value > UM_LORA_RANK_MAX : !is_scale(v))
            return um_fail(err, UM_EPARSE, "%s: \"%s\": \"%.100s\" needs %s %.0f..%.0f", c->where, field, key,
                           whole ? "an integer" : "a number", whole ? 1 : -ALPHA_MAX,
                           whole ? (double)UM_LORA_RANK_MAX : ALPHA_MAX);
        um_buf_printf(&text, "(?:.*\\.)?(?:%s)", key);
        o->value[o->n] = value;
        um_status s = compile(c, &o->module[o->n++], field, um_arena_strndup(&c->arena, text.data, text.len), err);
        um_buf_free(&text);
        if (s) return s;
    }
    return UM_OK;
}

/* The value of the first key that fits; else *value is left alone. */
static um_status overridden(const um_lora_config *c, const overrides *o, const char *path, double *value, um_err *err) {
    for (size_t i = 0; i < o->n; i++) {
        bool yes;
        um_status s = fits(c, &o->module[i], path, &yes, err);
        if (s) return s;
        if (!yes) continue;
        *value = o->value[i];
        break;
    }
    return UM_OK;
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

/* null, false and what is empty. */
static bool is_off(const json_t *v) {
    return !is_given(v) || json_is_false(v) || (json_is_array(v) && !json_array_size(v)) ||
           (json_is_object(v) && !json_object_size(v));
}

/* Kinds of LoRA that compute something else. */
static um_status refuse_variants(const um_lora_config *c, um_err *err) {
    static const char *const off[] = {"use_dora",
                                      "fan_in_fan_out",
                                      "lora_bias",
                                      "use_qalora",
                                      "layer_replication",
                                      "target_parameters",
                                      "use_bdlora",
                                      "trainable_token_indices",
                                      "alora_invocation_tokens",
                                      "megatron_config",
                                      "arrow_config",
                                      "kasa_config",
                                      "monteclora_config"};
    const json_t *type = json_object_get(c->root, "peft_type"), *bias = json_object_get(c->root, "bias");
    um_str unused;
    const char *init = json_string_value(json_object_get(c->root, "init_lora_weights"));
    if (is_given(type) && !um_streq(json_string_value(type), "LORA"))
        return um_fail(err, UM_EUNSUPPORTED, "%s: \"peft_type\" is %.60s; unmask reads adapters of type LORA", c->where,
                       json_is_string(type) ? json_string_value(type) : "no string");
    if (is_given(bias) && !um_streq(json_string_value(bias), "none"))
        return um_fail(err, UM_EUNSUPPORTED, "%s: \"bias\" is %.60s; unmask reads adapters with \"none\"", c->where,
                       json_is_string(bias) ? json_string_value(bias) : "no string");
    for (size_t i = 0; i < UM_LEN(off); i++)
        if (!is_off(json_object_get(c->root, off[i])))
            return um_fail(err, UM_EUNSUPPORTED, "%s: \"%s\" is set; unmask computes plain LoRA only", c->where,
                           off[i]);
    if (init && um_word_index("gaussian|eva|orthogonal", '|', init, &unused) < 0)
        return um_fail(err, UM_EUNSUPPORTED,
                       "%s: \"init_lora_weights\" is %.60s, which changes the base model too; save the adapter "
                       "converted to plain LoRA",
                       c->where, init);
    return UM_OK;
}

static um_status read_numbers(um_lora_config *c, um_err *err) {
    const json_t *alpha = json_object_get(c->root, "lora_alpha");
    um_status s = um_json_get_int32(c->root, "r", c->where, 1, UM_LORA_RANK_MAX, &c->rank, err);
    if (!s) s = um_json_get_bool(c->root, "use_rslora", c->where, &c->rslora, err);
    if (!s) s = um_json_get_str(c->root, "base_model_name_or_path", c->where, &c->base, err);
    if (s) return s;
    if (!c->rank || !is_given(alpha))
        return um_fail(err, UM_EMODEL, "%s: \"%s\" is missing; it scales the adapter and has no safe default", c->where,
                       c->rank ? "lora_alpha" : "r");
    if (!is_scale(alpha))
        return um_fail(err, UM_EPARSE, "%s: \"lora_alpha\" needs a number %.0f..%.0f", c->where, -ALPHA_MAX, ALPHA_MAX);
    c->alpha = json_number_value(alpha);
    return UM_OK;
}

static um_status read_targets(um_lora_config *c, um_err *err) {
    const json_t *target = json_object_get(c->root, "target_modules");
    c->all_linear = um_streq(json_string_value(target), "all-linear");
    um_status s = c->all_linear ? UM_OK : read_set(c, &c->target, "target_modules", err);
    if (!s && !c->all_linear && !c->target.n && !c->target.whole.code)
        s = um_fail(err, UM_EMODEL, "%s: \"target_modules\" names no module", c->where);
    if (!s) s = read_set(c, &c->exclude, "exclude_modules", err);
    if (!s) s = read_set(c, &c->saved, "modules_to_save", err);
    if (!s && c->saved.whole.code)
        s = um_fail(err, UM_EPARSE, "%s: \"modules_to_save\": expected a list of modules", c->where);
    return s;
}

um_status um_lora_config_parse(um_lora_config **out, json_t *root, const char *where, um_err *err) {
    *out = NULL;
    if (!json_is_object(root)) return um_fail(err, UM_EPARSE, "%s: expected a JSON object", where);
    um_lora_config *c = UM_NEW(um_lora_config);
    um_arena_init(&c->arena, 0);
    c->root = json_incref(root);
    c->where = um_arena_strndup(&c->arena, where, strlen(where));
    c->memory = pcre2_general_context_create(regex_alloc, regex_free, NULL);
    c->limits = pcre2_match_context_create(c->memory);
    pcre2_set_match_limit(c->limits, MATCH_STEPS_MAX);
    um_status s = refuse_variants(c, err);
    if (!s) s = read_numbers(c, err);
    if (!s) s = read_targets(c, err);
    if (!s) s = read_layers(c, err);
    if (!s) s = read_overrides(c, &c->ranks, "rank_pattern", true, err);
    if (!s) s = read_overrides(c, &c->alphas, "alpha_pattern", false, err);
    if (s) um_lora_config_free(c);
    else *out = c;
    return s;
}

static void free_overrides(overrides *o) {
    for (size_t i = 0; i < o->n; i++) free_regex(&o->module[i]);
}

void um_lora_config_free(um_lora_config *c) {
    if (!c) return;
    free_regex(&c->target.whole);
    free_regex(&c->exclude.whole);
    free_regex(&c->saved.whole);
    free_overrides(&c->ranks);
    free_overrides(&c->alphas);
    pcre2_match_context_free(c->limits);
    pcre2_general_context_free(c->memory);
    json_decref(c->root);
    um_arena_free(&c->arena);
    um_free(c);
}

/* ---- Questions --------------------------------------------------------------------------------------------------- */

um_status um_lora_config_ask(um_lora_config *c, const char *module, um_lora_terms *out, um_err *err) {
    bool target = c->all_linear, excluded = false;
    double rank = c->rank, alpha = c->alpha;
    um_status s = target ? UM_OK : in_set(c, &c->target, module, &target, err);
    if (!s) s = in_set(c, &c->exclude, module, &excluded, err);
    excluded |= is_inside(&c->saved, module, false);
    if (!s) s = overridden(c, &c->ranks, module, &rank, err);
    if (!s) s = overridden(c, &c->alphas, module, &alpha, err);
    *out = (um_lora_terms){.is_target = target && !excluded && in_layers(c, module),
                           .rank = (int32_t)rank,
                           .scale = (float)(alpha / (c->rslora ? sqrt(rank) : rank))};
    return s;
}

bool um_lora_config_saves(um_lora_config *c, const char *module) { return is_inside(&c->saved, module, true); }

const char *um_lora_config_no_target(const um_lora_config *c) { return unfitted(&c->target); }
const char *um_lora_config_not_saved(const um_lora_config *c) { return unfitted(&c->saved); }
int32_t um_lora_config_rank(const um_lora_config *c) { return c->rank; }
const char *um_lora_config_base(const um_lora_config *c) { return c->base; }
