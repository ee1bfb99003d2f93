/* Reads the fields that constrain an answer: OpenAI's response_format, and the fields of vLLM, SGLang and llama.cpp.
 * All of them set the same two members of the request, so a request has one of them. */
#include <jansson.h>
#include <math.h>

#include "engine/options.h"
#include "server/body/body.h"

/* Returns JSON as text, in the arena. Integers keep all their digits. */
static const char *exact_text(um_body *b, const json_t *v) {
    um_buf out = {0};
    um_json_put_exact(v, &out);
    const char *text = um_arena_strndup(&b->arena, out.data, out.len);
    um_buf_free(&out);
    return text;
}

um_status um_body_constrain(um_body *b, const char *field, int32_t kind, const char *text, um_err *err) {
    if (b->constraint_field)
        return um_fail_param(err, UM_EINVAL, field, "the answer is constrained by \"%s\" already; give one of the two",
                             b->constraint_field);
    b->constraint_field = field;
    b->generate.constraint = kind;
    b->generate.constraint_text = um_str_of(text);
    return UM_OK;
}

um_status um_body_constrain_json(um_body *b, const char *field, const json_t *schema, um_err *err) {
    const char *text = NULL;
    um_status st = UM_OK;
    if (json_is_string(schema)) st = um_json_take_text(schema, field, &text, err);
    else if (json_is_object(schema) || json_is_boolean(schema)) text = exact_text(b, schema);
    else
        st = um_fail(err, UM_EINVAL, "\"%s\": expected a JSON schema, found %s", field,
                     schema ? um_json_kind(schema) : "none");
    return st ? st : um_body_constrain(b, field, UM_CONSTRAINT_SCHEMA, text, err);
}

static um_status take_text(um_body *b, const char *field, int32_t kind, const json_t *v, um_err *err) {
    char what[60];
    const char *text = NULL;
    snprintf(what, sizeof what, "\"%s\"", field);
    um_status st = um_json_take_text(v, what, &text, err);
    return st ? st : um_body_constrain(b, field, kind, text, err);
}

static um_status take_choice(um_body *b, const char *field, const json_t *v, um_err *err) {
    size_t n = 0;
    while (n < json_array_size(v) && json_is_string(json_array_get(v, n))) n++;
    if (!n || n < json_array_size(v))
        return um_fail(err, UM_EINVAL, "\"%s\": expected an array of one or more strings", field);
    return um_body_constrain(b, field, UM_CONSTRAINT_CHOICE, exact_text(b, v), err);
}

/* ---- Fields of one value ----------------------------------------------------------------------------------------- */

um_status um_body_take_guided_json(um_body *b, const json_t *v, um_err *err) {
    return um_body_constrain_json(b, "guided_json", v, err);
}

um_status um_body_take_guided_regex(um_body *b, const json_t *v, um_err *err) {
    return take_text(b, "guided_regex", UM_CONSTRAINT_REGEX, v, err);
}

um_status um_body_take_guided_choice(um_body *b, const json_t *v, um_err *err) {
    return take_choice(b, "guided_choice", v, err);
}

um_status um_body_take_guided_grammar(um_body *b, const json_t *v, um_err *err) {
    return take_text(b, "guided_grammar", UM_CONSTRAINT_GRAMMAR, v, err);
}

um_status um_body_take_json_schema(um_body *b, const json_t *v, um_err *err) {
    return um_body_constrain_json(b, "json_schema", v, err);
}

um_status um_body_take_regex(um_body *b, const json_t *v, um_err *err) {
    return take_text(b, "regex", UM_CONSTRAINT_REGEX, v, err);
}

um_status um_body_take_ebnf(um_body *b, const json_t *v, um_err *err) {
    return take_text(b, "ebnf", UM_CONSTRAINT_GRAMMAR, v, err);
}

/* In llama.cpp "" is no grammar. */
um_status um_body_take_grammar(um_body *b, const json_t *v, um_err *err) {
    if (json_is_string(v) && !json_string_length(v)) return UM_OK;
    return take_text(b, "grammar", UM_CONSTRAINT_GRAMMAR, v, err);
}

/* ---- response_format --------------------------------------------------------------------------------------------- */

/* {"name", "schema", "strict"}. The schema holds also without `strict`. */
static um_status take_schema_member(um_body *b, const char *field, const json_t *v, um_err *err) {
    const json_t *schema = json_object_get(v, "schema");
    if (!schema || json_is_null(schema))
        return um_fail(err, UM_EINVAL, "\"%s\": a format of the type \"json_schema\" needs a \"schema\"", field);
    return um_body_constrain_json(b, field, schema, err);
}

/* {"type": "json_object"}; llama.cpp takes a "schema" beside it. */
static um_status take_json_object(um_body *b, const char *field, const json_t *v, um_err *err) {
    const json_t *schema = json_object_get(v, "schema");
    if (schema && !json_is_null(schema)) return um_body_constrain_json(b, field, schema, err);
    return um_body_constrain(b, field, UM_CONSTRAINT_JSON, NULL, err);
}

um_status um_body_take_format(um_body *b, const char *field, const json_t *v, const json_t *inner, um_err *err) {
    const char *type = json_string_value(json_object_get(v, "type"));
    if (um_streq(type, "text")) return UM_OK;
    if (um_streq(type, "json_object")) return take_json_object(b, field, v, err);
    if (um_streq(type, "json_schema")) return take_schema_member(b, field, inner, err);
    return um_fail(err, UM_EINVAL,
                   "\"%s\": the type \"%.40s\" is not supported; expected \"text\", \"json_object\" or \"json_schema\"",
                   field, type ? type : "");
}

um_status um_body_take_response_format(um_body *b, const json_t *v, um_err *err) {
    return um_body_take_format(b, "response_format", v, json_object_get(v, "json_schema"), err);
}

/* ---- structured_outputs ------------------------------------------------------------------------------------------ */

static um_status take_member(um_body *b, const char *field, const char *key, const json_t *v, um_err *err) {
    static const char settings[] = "disable_fallback|disable_any_whitespace";
    um_str at;
    bool on = false;
    um_status st = UM_OK;
    if (um_streq(key, "json")) return um_body_constrain_json(b, field, v, err);
    if (um_streq(key, "regex")) return take_text(b, field, UM_CONSTRAINT_REGEX, v, err);
    if (um_streq(key, "choice")) return take_choice(b, field, v, err);
    if (um_streq(key, "grammar")) return take_text(b, field, UM_CONSTRAINT_GRAMMAR, v, err);
    if (um_streq(key, "json_object") || um_streq(key, "disable_additional_properties")) {
        st = um_json_take_bool(v, key, &on, err);
        if (st || !on) return st;
        if (um_streq(key, "json_object")) return um_body_constrain(b, field, UM_CONSTRAINT_JSON, NULL, err);
    } else if (um_word_index(settings, '|', key, &at) >= 0) {
        return um_json_take_bool(v, key, &on, err);
    }
    return um_fail(err, UM_EINVAL,
                   "\"%s\": \"%.40s\" is not supported; expected json, regex, choice, grammar or "
                   "json_object",
                   field, key);
}

/* vLLM's {"json", "regex", "choice", "grammar", "json_object"} with one of these members. White space in JSON has no
 * other setting than json_space, and there is no other engine of grammars to fall back to. */
um_status um_body_take_structured_outputs(um_body *b, const json_t *v, um_err *err) {
    const char *key;
    json_t *value;
    if (!json_is_object(v))
        return um_fail(err, UM_EINVAL, "\"structured_outputs\": expected an object, found %s", um_json_kind(v));
    json_object_foreach((json_t *)(uintptr_t)v, key, value) {
        um_status st = json_is_null(value) ? UM_OK : take_member(b, "structured_outputs", key, value, err);
        if (st) return st;
    }
    return UM_OK;
}

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

static bool has(const json_t *root, const char *key) {
    const json_t *v = json_object_get(root, key);
    return v && !json_is_null(v);
}

bool um_body_may_constrain(const json_t *root) {
    static const char *const fields[] = {
        "response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice",
        "guided_grammar",  "json_schema",        "regex",       "ebnf",         "grammar",
        "output_config",   "output_format"};
    const json_t *choice = json_object_get(root, "tool_choice"), *inner = json_object_get(root, "sampling_params");
    for (size_t i = 0; i < UM_LEN(fields); i++)
        if (has(root, fields[i]) || has(inner, fields[i])) return true;
    if (has(json_object_get(root, "text"), "format") || json_is_array(inner)) return true;
    return json_is_object(choice) || um_streq(json_string_value(choice), "required");
}

/* Makes the request that a worker would make of the generation, as far as a constraint concerns it. */
static void make_request(const um_body *b, um_request *r) {
    const um_msg_generate *g = &b->generate;
    static const um_bias ban = {.value = -INFINITY};
    *r = b->checked;
    r->constraint = g->constraint;
    r->constraint_text = g->constraint_text.p;
    r->n_stop = g->n_stop;
    r->n_stop_ids = g->n_stop_ids;
    r->n_bad_words = g->n_bad_words;
    r->n_allowed_ids = g->n_allowed_ids;
    for (uint32_t i = 0; i < g->n_bias; i++)
        if (g->bias[i] == -INFINITY) r->bias = &ban, r->n_bias = 1;
}

um_status um_body_check_constraint(um_body *b, um_err *err) {
    um_request r;
    um_err own, *e = err ? err : &own;
    if (!b->constraint_field) return UM_OK;
    make_request(b, &r);
    e->param[0] = '\0';
    um_status st = um_request_check_constraint(&r, e);
    return st ? um_body_name_constraint(b, e) : UM_OK;
}

um_status um_body_name_constraint(const um_body *b, um_err *err) {
    if (!b->constraint_field || !um_streq(err->param, "constraint")) return err->code;
    err->param[0] = '\0';
    um_fail_about(err, err->code, b->constraint_field);
    return um_fail_in(err, "\"%s\"", b->constraint_field);
}
