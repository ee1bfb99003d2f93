/* server: the tables of fields of all APIs: each row has one effect, or a reason why it has none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include <jansson.h>

#include "server/endpoints.h"

/* Calls `visit` with each row of each API. */
static void each_row(void (*visit)(const um_api *api, const um_field *f)) {
    for (const um_api *const *a = um_apis; *a; a++)
        for (const um_field_set *const *set = (*a)->sets; *set; set++)
            for (size_t i = 0; i < (*set)->n; i++) visit(*a, &(*set)->rows[i]);
}

static bool is_ignored(const um_field *f) { return !f->take && !f->option && !f->neutral; }

static void must_have_a_reason(const um_api *api, const um_field *f) {
    bool needs = is_ignored(f) || f->neutral;
    if (needs && (!f->why || strlen(f->why) < 10)) fail_msg("%s: %s has no reason", api->path, f->name);
    if (!needs && f->why) fail_msg("%s: %s has an effect and a reason for none", api->path, f->name);
}

static void fields_without_effect_have_a_reason(void **state) {
    (void)state;
    each_row(must_have_a_reason);
}

static void must_be_ignored_when_a_member(const um_api *api, const um_field *f) {
    if (f->is_member && !is_ignored(f)) fail_msg("%s: %s is a member, and the row has an effect", api->path, f->name);
    if (f->is_member && um_field_find(api->sets, f->name)) fail_msg("%s: %s is found as a field", api->path, f->name);
}

static void rows_of_members_are_for_listings(void **state) {
    (void)state;
    each_row(must_be_ignored_when_a_member);
}

static int n_ignored;

static void must_do_one_thing(const um_api *api, const um_field *f) {
    int n = (f->take != NULL) + (f->option != NULL) + (f->neutral != NULL);
    if (n > 1) fail_msg("%s: %s has %d effects", api->path, f->name, n);
    n_ignored += n == 0;
}

static void rows_have_at_most_one_effect(void **state) {
    (void)state;
    n_ignored = 0;
    each_row(must_do_one_thing);
    assert_true(n_ignored > 0);
}

/* Checks that a row with a function tells the JSON types that the function takes. */
static void must_have_types(const um_api *api, const um_field *f) {
    static const char words[] = "string|array|object|boolean|integer|number";
    um_str at;
    if (!f->take != !f->types) fail_msg("%s: %s needs types if and only if it has a function", api->path, f->name);
    for (const char *p = f->types; p && *p; p += strcspn(p, "|"), p += *p == '|') {
        char *word = um_strndup(p, strcspn(p, "|"));
        if (um_word_index(words, '|', word, &at) < 0) fail_msg("%s: %s: no type \"%s\"", api->path, f->name, word);
        um_free(word);
    }
}

static void functions_tell_their_types(void **state) {
    (void)state;
    each_row(must_have_types);
}

/* Checks that the values of `neutral` are JSON. */
static void must_have_neutral_json(const um_api *api, const um_field *f) {
    for (const char *p = f->neutral; p && *p; p += strcspn(p, "|"), p += *p == '|') {
        json_t *v = json_loadb(p, strcspn(p, "|"), JSON_DECODE_ANY, NULL);
        if (!v) fail_msg("%s: %s: \"%s\" is not JSON", api->path, f->name, p);
        json_decref(v);
    }
}

static void neutral_values_are_json(void **state) {
    (void)state;
    each_row(must_have_neutral_json);
}

static bool has_endpoint(const char *path) {
    for (const um_endpoint_set *const *set = um_endpoints; *set; set++)
        for (size_t i = 0; i < (*set)->n; i++)
            if (um_streq((*set)->rows[i].path, path)) return true;
    return false;
}

static void every_api_has_an_endpoint(void **state) {
    (void)state;
    for (const um_api *const *a = um_apis; *a; a++)
        if (!has_endpoint((*a)->path)) fail_msg("no endpoint has the path %s", (*a)->path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_without_effect_have_a_reason), cmocka_unit_test(rows_of_members_are_for_listings),
        cmocka_unit_test(rows_have_at_most_one_effect),        cmocka_unit_test(neutral_values_are_json),
        cmocka_unit_test(every_api_has_an_endpoint),           cmocka_unit_test(functions_tell_their_types),
    };
    return cmocka_run_group_tests_name("fields", tests, NULL, NULL);
}
