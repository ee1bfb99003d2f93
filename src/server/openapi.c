/* GET /openapi.json: describes the server as an OpenAPI document, made from the lists of endpoints, fields and options.
 * It is not in api/ because it needs the list of all endpoints. */
#include <jansson.h>

#include "engine/options.h"
#include "server/endpoints.h"
#include "server/respond/reply.h"

/* ---- Schemas of fields ------------------------------------------------------------------------------------------- */

/* Writes the member "type": the words of "a|b" and null, which every field takes as "not given". */
static void put_types(um_jw *w, const char *words) {
    um_jw_key(w, "type");
    um_jw_begin_array(w);
    while (*words) {
        size_t n = strcspn(words, "|");
        um_jw_str(w, words, n);
        words += n + (words[n] == '|');
    }
    um_jw_cstr(w, "null");
    um_jw_end_array(w);
}

/* Writes the member "enum": the values of `neutral`, and null. */
static void put_neutral(um_jw *w, const char *values) {
    bool has_null = false;
    um_jw_key(w, "enum");
    um_jw_begin_array(w);
    while (*values) {
        size_t n = strcspn(values, "|");
        has_null |= n == 4 && memcmp(values, "null", 4) == 0;
        um_jw_raw(w, values, n);
        values += n + (values[n] == '|');
    }
    if (!has_null) um_jw_null(w);
    um_jw_end_array(w);
}

static bool is_number(const um_option *row) {
    return row->type == UM_OPT_INT || row->type == UM_OPT_INT64 || row->type == UM_OPT_FLOAT;
}

/* Writes the members of an option's schema. A row with an automatic value also takes a word for it, and its numbers may
 * lie outside the range. */
static void put_option(um_jw *w, const um_option *row) {
    static const char *const types[] = {"boolean", "integer", "integer", "number", "string", "string", "string"};
    bool has_word = um_option_auto(row).n && is_number(row);
    um_buf text = {0}, range = {0};
    um_buf_printf(&text, "%s%s", types[row->type], has_word ? "|string" : "");
    put_types(w, text.data);
    if (is_number(row) && !has_word && (row->min != 0 || row->max != 0)) {
        um_jw_put_double(w, "minimum", row->min);
        um_jw_put_double(w, "maximum", row->max);
    }
    um_option_range(row, &range);
    um_buf_clear(&text);
    um_buf_printf(&text, "%s%s%s", row->help, range.len ? ": " : "", range.len ? range.data : "");
    um_jw_put_str(w, "description", (um_str){text.data, text.len});
    um_buf_free(&text);
    um_buf_free(&range);
}

static const um_option *find_option(const um_option_set *sets, size_t n, const char *name) {
    const um_option *row = NULL;
    for (size_t i = 0; i < n && !row; i++) row = um_options_find(sets[i].rows, sets[i].n, name);
    return row;
}

static void put_field(um_jw *w, const um_field *f, const um_option_set *sets, size_t n_sets) {
    um_jw_key(w, f->name);
    um_jw_begin_object(w);
    if (f->option) put_option(w, find_option(sets, n_sets, f->option));
    if (f->types) put_types(w, f->types);
    if (f->neutral) put_neutral(w, f->neutral);
    if (f->why && f->neutral) um_jw_put_cstr(w, "description", f->why);
    if (f->why && !f->neutral) {
        um_buf text = {0};
        um_buf_printf(&text, "without effect: %s", f->why);
        um_jw_put_str(w, "description", (um_str){text.data, text.len});
        um_buf_free(&text);
    }
    um_jw_end_object(w);
}

/* ---- Schemas of bodies ------------------------------------------------------------------------------------------- */

/* Writes the fields of an API: the rows of its tables, of which the first of a name counts, then the options. */
static void put_fields(um_jw *w, const um_api *a) {
    um_request defaults;
    um_option_set sets[UM_OPTION_SETS_MAX];
    size_t n = um_request_option_sets(sets, &defaults);
    for (const um_field_set *const *s = a->sets; *s; s++)
        for (const um_field *f = (*s)->rows; f < (*s)->rows + (*s)->n; f++)
            if (um_field_find(a->sets, f->name) == f) put_field(w, f, sets, n);
    for (size_t i = 0; i < n; i++) {
        for (const um_option *row = sets[i].rows; row < sets[i].rows + sets[i].n; row++) {
            if (um_field_find(a->sets, row->name)) continue;
            um_jw_key(w, row->name);
            um_jw_begin_object(w);
            put_option(w, row);
            um_jw_end_object(w);
        }
    }
}

/* Writes {"required": [name]}. */
static void put_required(um_jw *w, const char *name) {
    um_jw_begin_object(w);
    um_jw_key(w, "required");
    um_jw_begin_array(w);
    um_jw_cstr(w, name);
    um_jw_end_array(w);
    um_jw_end_object(w);
}

static void put_body_schema(um_jw *w, const um_api *a) {
    um_jw_key(w, a->writer->name);
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "type", "object");
    um_jw_put_bool(w, "additionalProperties", false);
    um_jw_key(w, "properties");
    um_jw_begin_object(w);
    put_fields(w, a);
    um_jw_end_object(w);
    um_jw_key(w, "anyOf");
    um_jw_begin_array(w);
    put_required(w, a->prompt);
    if (a->or_prompt) put_required(w, a->or_prompt);
    um_jw_end_array(w);
    um_jw_end_object(w);
}

/* ---- Endpoints --------------------------------------------------------------------------------------------------- */

static const um_endpoint *find_endpoint(const char *path) {
    for (const um_endpoint_set *const *s = um_endpoints; *s; s++)
        for (size_t i = 0; i < (*s)->n; i++)
            if (um_streq((*s)->rows[i].path, path)) return &(*s)->rows[i];
    return NULL;
}

/* Returns whether the endpoint has the API. Paths of the same function have the same APIs. */
static bool has_api(const um_endpoint *e, const um_api *a) {
    const um_endpoint *own = find_endpoint(a->path);
    return um_streq(e->method, "POST") && own && own->handle == e->handle;
}

/* Writes the member requestBody with the APIs of an endpoint, if it has any. */
static void put_request_body(um_jw *w, const um_endpoint *e) {
    bool has_any = false;
    for (const um_api *const *a = um_apis; *a; a++) has_any |= has_api(e, *a);
    if (!has_any) return;
    um_jw_key(w, "requestBody");
    um_jw_begin_object(w);
    um_jw_put_bool(w, "required", true);
    um_jw_key(w, "content");
    um_jw_begin_object(w);
    um_jw_key(w, "application/json");
    um_jw_begin_object(w);
    um_jw_key(w, "schema");
    um_jw_begin_object(w);
    um_jw_key(w, "anyOf");
    um_jw_begin_array(w);
    for (const um_api *const *a = um_apis; *a; a++) {
        if (!has_api(e, *a)) continue;
        char ref[80];
        snprintf(ref, sizeof ref, "#/components/schemas/%s", (*a)->writer->name);
        um_jw_begin_object(w);
        um_jw_put_cstr(w, "$ref", ref);
        um_jw_end_object(w);
    }
    um_jw_end_array(w);
    for (int i = 0; i < 4; i++) um_jw_end_object(w);
}

static void put_parameter(um_jw *w, um_str name) {
    um_jw_begin_object(w);
    um_jw_put_str(w, "name", name);
    um_jw_put_cstr(w, "in", "path");
    um_jw_put_bool(w, "required", true);
    um_jw_key(w, "schema");
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "type", "string");
    um_jw_end_object(w);
    um_jw_end_object(w);
}

static void put_parameters(um_jw *w, const char *path) {
    um_jw_key(w, "parameters");
    um_jw_begin_array(w);
    for (const char *at = strchr(path, '{'); at; at = strchr(at + 1, '{'))
        put_parameter(w, (um_str){at + 1, strcspn(at + 1, "}")});
    um_jw_end_array(w);
}

static void put_responses(um_jw *w) {
    static const char *const words[][2] = {{"200", "success"}, {"default", "an error; its message says what to do"}};
    um_jw_key(w, "responses");
    um_jw_begin_object(w);
    for (size_t i = 0; i < UM_LEN(words); i++) {
        um_jw_key(w, words[i][0]);
        um_jw_begin_object(w);
        um_jw_put_cstr(w, "description", words[i][1]);
        um_jw_end_object(w);
    }
    um_jw_end_object(w);
}

static void put_endpoint(um_jw *w, const um_endpoint *e) {
    char method[8] = "";
    for (size_t i = 0; e->method[i] && i + 1 < sizeof method; i++) method[i] = (char)(e->method[i] | 32);
    um_jw_key(w, method);
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "summary", e->summary);
    um_jw_key(w, "tags");
    um_jw_begin_array(w);
    um_jw_cstr(w, e->shape);
    um_jw_end_array(w);
    if (strchr(e->path, '{')) put_parameters(w, e->path);
    put_request_body(w, e);
    put_responses(w);
    if (e->flags & UM_ENDPOINT_OPEN) {
        um_jw_key(w, "security");
        um_jw_begin_array(w);
        um_jw_end_array(w);
    }
    um_jw_end_object(w);
}

/* Writes a path with all of its methods, when `first` is the first row of the path. */
static void put_path(um_jw *w, const um_endpoint *first) {
    if (find_endpoint(first->path) != first) return;
    um_jw_key(w, first->path);
    um_jw_begin_object(w);
    for (const um_endpoint_set *const *s = um_endpoints; *s; s++)
        for (size_t i = 0; i < (*s)->n; i++)
            if (um_streq((*s)->rows[i].path, first->path)) put_endpoint(w, &(*s)->rows[i]);
    um_jw_end_object(w);
}

/* ---- The document ------------------------------------------------------------------------------------------------ */

/* Requests have a key in one of two headers. A server without keys takes requests without one. */
static void put_security(um_jw *w) {
    um_jw_key(w, "securitySchemes");
    um_jw_begin_object(w);
    um_jw_key(w, "bearer");
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "type", "http");
    um_jw_put_cstr(w, "scheme", "bearer");
    um_jw_end_object(w);
    um_jw_key(w, "key");
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "type", "apiKey");
    um_jw_put_cstr(w, "in", "header");
    um_jw_put_cstr(w, "name", "x-api-key");
    um_jw_end_object(w);
    um_jw_end_object(w);
}

static void put_document(um_jw *w) {
    static const char security[] = "[{\"bearer\":[]},{\"key\":[]},{}]";
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "openapi", "3.1.0");
    um_jw_key(w, "info");
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "title", "unmask");
    um_jw_put_cstr(w, "version", um_version());
    um_jw_end_object(w);
    um_jw_key(w, "security");
    um_jw_raw(w, security, strlen(security));
    um_jw_key(w, "paths");
    um_jw_begin_object(w);
    for (const um_endpoint_set *const *s = um_endpoints; *s; s++)
        for (size_t i = 0; i < (*s)->n; i++) put_path(w, &(*s)->rows[i]);
    um_jw_end_object(w);
    um_jw_key(w, "components");
    um_jw_begin_object(w);
    put_security(w);
    um_jw_key(w, "schemas");
    um_jw_begin_object(w);
    for (const um_api *const *a = um_apis; *a; a++) put_body_schema(w, *a);
    um_jw_end_object(w);
    um_jw_end_object(w);
    um_jw_end_object(w);
}

static void get_document(um_service *s, um_exchange *x, const char *id) {
    um_buf text = {0};
    um_jw w;
    (void)s, (void)id;
    um_jw_init(&w, &text);
    put_document(&w);
    um_reply_json(x, 200, &text);
    um_buf_free(&text);
}

static const um_endpoint endpoints[] = {
    {"GET", "/openapi.json", get_document, 0, "OpenAPI", "describe all endpoints and the fields of their bodies"},
};
const um_endpoint_set um_openapi_endpoints = {endpoints, UM_LEN(endpoints)};
