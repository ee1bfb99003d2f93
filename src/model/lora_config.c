/* adapter_config.json: the modules that an adapter changes, and the rank and scale of each. Names, lists and regular
 * expressions have the same meaning as in PEFT. Settings that unmask does not support are refused by name. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "model/lora.h"

#define ALPHA_MAX 1e6
enum { MATCH_STEPS_MAX = 100000, PATTERNS_MAX = 4096 };

/* A regular expression that is matched against complete paths. */
typedef struct lora_regex {
    pcre2_code *code; /* NULL: no expression is given */
    pcre2_match_data *match;
    const char *field, *text;
} lora_regex;

/* The value of a field that names modules: a list of words, or one regular expression. */
typedef struct module_set {
    const char **word; /* [n] "q_proj", "self_attn.q_proj" */
    bool *matched;     /* [n] the word has matched a module */
    size_t n;
    lora_regex regex;
    bool regex_matched;
} module_set;

/* The value of rank_pattern or alpha_pattern: regular expressions for modules, and the value for each. */
typedef struct overrides {
    lora_regex *module; /* [n] */
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

/* Compiles an expression that must match a complete path, like Python's re.fullmatch. */
static um_status compile(um_lora_config *c, lora_regex *r, const char *field, const char *text, um_err *err) {
    pcre2_compile_context *context = pcre2_compile_context_create(c->memory);
    const uint32_t options = PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_NEVER_BACKSLASH_C;
    int code = 0;
    PCRE2_SIZE at = 0;
    pcre2_set_parens_nest_limit(context, 100);
    *r = (lora_regex){.field = field, .text = text};
    r->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, options, &code, &at, context);
    if (r->code) r->match = pcre2_match_data_create(1, c->memory);
    pcre2_compile_context_free(context);
    if (r->code) return UM_OK;
    PCRE2_UCHAR why[128] = {0};
    pcre2_get_error_message(code, why, sizeof why);
    return um_fail(err, UM_EPARSE, "%s: \"%s\": \"%.100s\" is not a regular expression, at byte %zu: %s", c->where,
                   field, text, (size_t)at, (const char *)why);
}

static um_status matches(const um_lora_config *c, const lora_regex *r, const char *path, bool *yes, um_err *err) {
    int n = pcre2_match(r->code, (PCRE2_SPTR)path, PCRE2_ZERO_TERMINATED, 0, 0, r->match, c->limits);
    *yes = n >= 0;
    if (n >= 0 || n == PCRE2_ERROR_NOMATCH) return UM_OK;
    return um_fail(err, UM_ELIMIT, "%s: \"%s\": the regular expression \"%.100s\" takes too long on %s", c->where,
                   r->field, r->text, path);
}

static void free_regex(lora_regex *r) {
    pcre2_match_data_free(r->match);
    pcre2_code_free(r->code);
}

/* ---- Sets of modules --------------------------------------------------------------------------------------------- */

static bool is_given(const json_t *v) { return v && !json_is_null(v); }

/* Returns the string if it is not empty and has no U+0000, else NULL. */
static const char *word_of(const json_t *v) {
    const char *s = json_string_value(v);
    return s && *s && strlen(s) == json_string_length(v) ? s : NULL;
}

static um_status read_set(um_lora_config *c, module_set *s, const char *field, um_err *err) {
    const json_t *v = json_object_get(c->root, field), *word;
    size_t i;
    if (!is_given(v)) return UM_OK;
    if (word_of(v)) return compile(c, &s->regex, field, word_of(v), err);
    if (!json_is_array(v))
        return um_fail(err, UM_EPARSE, "%s: \"%s\": expected a list of modules or a regular expression", c->where,
                       field);
    if (json_array_size(v) > PATTERNS_MAX)
        return um_fail(err, UM_ELIMIT, "%s: \"%s\" has %zu entries; at most %d are allowed", c->where, field,
                       json_array_size(v), PATTERNS_MAX);
    s->word = um_arena_alloc(&c->arena, json_array_size(v) * sizeof *s->word);
    s->matched = um_arena_alloc(&c->arena, json_array_size(v));
    json_array_foreach(v, i, word) {
        s->word[i] = word_of(word);
        if (!s->word[i])
            return um_fail(err, UM_EPARSE, "%s: \"%s\": entry %zu is not the name of a module", c->where, field, i);
    }
    s->n = json_array_size(v);
    return UM_OK;
}

/* Returns whether the word is the path, or the part of it after one of its dots. */
static bool ends_with(const char *path, const char *word) {
    size_t n = strlen(path), k = strlen(word);
    return n >= k && !strcmp(path + n - k, word) && (n == k || path[n - k - 1] == '.');
}

/* Returns whether a word of the set ends the path, and marks the matching words. */
static bool any_word_ends(module_set *s, const char *path) {
    bool yes = false;
    for (size_t i = 0; i < s->n; i++) {
        if (!ends_with(path, s->word[i])) continue;
        s->matched[i] = true;
        yes = true;
    }
    return yes;
}

/* Returns whether a word of the set is one of the parts of the path: whether the path is a module of the set or lies
 * inside one. With `count`, marks the matching words. */
static bool is_inside_module(const module_set *s, const char *path, bool count) {
    bool yes = false;
    for (size_t i = 0; i < s->n; i++) {
        const size_t n = strlen(s->word[i]);
        for (const char *p = path; (p = strstr(p, s->word[i])); p++) {
            if ((p > path && p[-1] != '.') || (p[n] && p[n] != '.')) continue;
            s->matched[i] |= count;
            yes = true;
        }
    }
    return yes;
}

static um_status in_set(const um_lora_config *c, module_set *s, const char *path, bool *yes, um_err *err) {
    *yes = any_word_ends(s, path);
    if (!s->regex.code) return UM_OK;
    um_status st = matches(c, &s->regex, path, yes, err);
    s->regex_matched |= *yes;
    return st;
}

/* Returns the first word, or the expression, that has matched no module; NULL when all have. */
static const char *first_unmatched(const module_set *s) {
    for (size_t i = 0; i < s->n; i++)
        if (!s->matched[i]) return s->word[i];
    return s->regex.code && !s->regex_matched ? s->regex.text : NULL;
}

/* ---- Layers ------------------------------------------------------------------------------------------------------ */

/* Returns whether `v` is the word or a list that contains it. NULL contains every word. */
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

/* Returns the number of the first "word.NUMBER." in a path whose word is one of layers_pattern; -1 when there is none.
 */
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

/* Returns whether layers_to_transform includes the module. A target that is named by its complete path is always
 * included. */
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

/* Accepts "" and [], which mean no words. */
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
    if (c->layers && c->target.regex.code)
        return um_fail(err, UM_EMODEL,
                       "%s: \"layers_to_transform\" goes with a list of \"target_modules\", not with a regular "
                       "expression",
                       c->where);
    if (c->layers_pattern && !is_given(layers))
        return um_fail(err, UM_EMODEL, "%s: \"layers_pattern\" needs \"layers_to_transform\"", c->where);
    return UM_OK;
}

/* ---- Overrides --------------------------------------------------------------------------------------------------- */

/* Returns whether `v` can be a value of lora_alpha: a number of a reasonable size. */
static bool is_scale(const json_t *v) { return json_is_number(v) && fabs(json_number_value(v)) <= ALPHA_MAX; }

/* Reads rank_pattern (is_rank) or alpha_pattern. Its keys are regular expressions that match the end of a path after
 * one of its dots, or the complete path. */
static um_status read_overrides(um_lora_config *c, overrides *o, const char *field, bool is_rank, um_err *err) {
    json_t *map = json_object_get(c->root, field), *v;
    const char *key;
    if (!is_given(map)) return UM_OK;
    if (!json_is_object(map) || json_object_size(map) > PATTERNS_MAX)
        return um_fail(err, UM_EPARSE, "%s: \"%s\": expected an object with a number for each module", c->where, field);
    o->module = um_arena_alloc(&c->arena, json_object_size(map) * sizeof *o->module);
    o->value = um_arena_alloc(&c->arena, json_object_size(map) * sizeof *o->value);
    json_object_foreach(map, key, v) {
        um_buf text = {0};
        double value = json_number_value(v);
        if (is_rank ? !json_is_integer(v) || value < 1 || value > UM_LORA_RANK_MAX : !is_scale(v))
            return um_fail(err, UM_EPARSE, "%s: \"%s\": \"%.100s\" needs %s %.0f..%.0f", c->where, field, key,
                           is_rank ? "an integer" : "a number", is_rank ? 1 : -ALPHA_MAX,
                           is_rank ? (double)UM_LORA_RANK_MAX : ALPHA_MAX);
        um_buf_printf(&text, "(?:.*\\.)?(?:%s)", key);
        o->value[o->n] = value;
        um_status s = compile(c, &o->module[o->n++], field, um_arena_strndup(&c->arena, text.data, text.len), err);
        um_buf_free(&text);
        if (s) return s;
    }
    return UM_OK;
}

/* Sets *value to that of the first key that matches the path. Leaves it unchanged when no key does. */
static um_status apply_override(const um_lora_config *c, const overrides *o, const char *path, double *value,
                                um_err *err) {
    for (size_t i = 0; i < o->n; i++) {
        bool yes;
        um_status s = matches(c, &o->module[i], path, &yes, err);
        if (s) return s;
        if (!yes) continue;
        *value = o->value[i];
        break;
    }
    return UM_OK;
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

/* Returns whether `v` is missing, null, false or empty. */
static bool is_off(const json_t *v) {
    return !is_given(v) || json_is_false(v) || (json_is_array(v) && !json_array_size(v)) ||
           (json_is_object(v) && !json_object_size(v));
}

/* Refuses the variants of LoRA that compute something else. */
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
            return um_fail(err, UM_EUNSUPPORTED, "%s: \"%s\" is set; unmask supports plain LoRA only", c->where,
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
    if (!s && !c->all_linear && !c->target.n && !c->target.regex.code)
        s = um_fail(err, UM_EMODEL, "%s: \"target_modules\" names no module", c->where);
    if (!s) s = read_set(c, &c->exclude, "exclude_modules", err);
    if (!s) s = read_set(c, &c->saved, "modules_to_save", err);
    if (!s && c->saved.regex.code)
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
    free_regex(&c->target.regex);
    free_regex(&c->exclude.regex);
    free_regex(&c->saved.regex);
    free_overrides(&c->ranks);
    free_overrides(&c->alphas);
    pcre2_match_context_free(c->limits);
    pcre2_general_context_free(c->memory);
    json_decref(c->root);
    um_arena_free(&c->arena);
    um_free(c);
}

/* ---- Looking up -------------------------------------------------------------------------------------------------- */

um_status um_lora_config_find(um_lora_config *c, const char *module, um_lora_terms *out, um_err *err) {
    bool target = c->all_linear, excluded = false;
    double rank = c->rank, alpha = c->alpha;
    um_status s = target ? UM_OK : in_set(c, &c->target, module, &target, err);
    if (!s) s = in_set(c, &c->exclude, module, &excluded, err);
    excluded |= is_inside_module(&c->saved, module, false);
    if (!s) s = apply_override(c, &c->ranks, module, &rank, err);
    if (!s) s = apply_override(c, &c->alphas, module, &alpha, err);
    *out = (um_lora_terms){.is_target = target && !excluded && in_layers(c, module),
                           .rank = (int32_t)rank,
                           .scale = (float)(alpha / (c->rslora ? sqrt(rank) : rank))};
    return s;
}

bool um_lora_config_saves(um_lora_config *c, const char *module) { return is_inside_module(&c->saved, module, true); }

const char *um_lora_config_no_target(const um_lora_config *c) { return first_unmatched(&c->target); }
const char *um_lora_config_not_saved(const um_lora_config *c) { return first_unmatched(&c->saved); }
int32_t um_lora_config_rank(const um_lora_config *c) { return c->rank; }
const char *um_lora_config_base(const um_lora_config *c) { return c->base; }
