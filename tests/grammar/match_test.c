/* Matches and makes texts, for comparisons with other programs: `match_test lines` reads lines of JSON
 * {"kind": "regex"|"schema"|"gbnf", "constraint": TEXT, "texts": [TEXT...], "samples": N, "seed": N, "space_max": N}.
 * It answers each with a line {"matches": [true|false...], "samples": [TEXT...]}, where samples are random texts of the
 * constraint, or with {"error": TEXT, "status": NAME}. Without arguments it tests itself. */
#include <jansson.h>
#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

#include "grammar/grammar.h"

#define SAMPLE_BYTES_MAX 400
#define SAMPLE_DEPTH_MAX 60
#define SAMPLE_TRIES     20

/* ---- Random texts ------------------------------------------------------------------------------------------------ */

typedef struct sampler {
    const um_rules *r;
    uint64_t key, count;
    um_buf text;
} sampler;

static int32_t draw(sampler *s, int32_t n) { return (int32_t)(um_rng_u64(s->key, s->count++) % (uint64_t)n); }

/* Appends one byte of the set. */
static bool sample_byte(sampler *s, const um_expr *e) {
    for (int tries = 0; tries < 4000; tries++) {
        const unsigned b = (unsigned)draw(s, 256);
        if (!(e->bytes[b / 64] >> b % 64 & 1)) continue;
        um_buf_putc(&s->text, (char)b);
        return true;
    }
    return false;
}

/* Appends a random text of the expression. Returns false when it leads nowhere or is too long. */
static bool sample(sampler *s, const um_expr *e, int depth) {
    bool ok = depth <= SAMPLE_DEPTH_MAX && s->text.len <= SAMPLE_BYTES_MAX;
    switch (e->kind) {
    case UM_EXPR_BYTES: return ok && sample_byte(s, e);
    case UM_EXPR_TEXT: um_buf_append(&s->text, e->text, (size_t)e->n); return ok;
    case UM_EXPR_CALL: return ok && sample(s, s->r->rule[e->rule].body, depth + 1);
    case UM_EXPR_EITHER: return ok && e->n && sample(s, e->part[draw(s, e->n)], depth + 1);
    case UM_EXPR_JOIN:
        for (int32_t i = 0; i < e->n && ok; i++) ok = sample(s, e->part[i], depth + 1);
        return ok;
    case UM_EXPR_REPEAT:
        for (int32_t i = 0; ok && i != e->max && (i < e->min || draw(s, 3)); i++) ok = sample(s, e->part[0], depth + 1);
        return ok;
    }
    return false;
}

static json_t *samples_of(const um_rules *r, int64_t n, uint64_t seed) {
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++)
        for (uint64_t t = 0; t < SAMPLE_TRIES; t++) {
            sampler s = {.r = r, .key = um_rng_key(seed, (uint64_t)i, t, 0)};
            const bool ok = sample(&s, r->rule[r->root].body, 0);
            if (ok) json_array_append_new(list, json_stringn(s.text.data ? s.text.data : "", s.text.len));
            um_buf_free(&s.text);
            if (ok) break;
        }
    return list;
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

static um_str text_of(const json_t *v) { return (um_str){json_string_value(v), json_string_length(v)}; }

static um_status build(um_rules *r, const json_t *line, um_err *err) {
    const char *kind = json_string_value(json_object_get(line, "kind"));
    const um_str constraint = text_of(json_object_get(line, "constraint"));
    const int64_t space_max = json_integer_value(json_object_get(line, "space_max"));
    const um_json_style style = {.space_max = (int32_t)space_max};
    if (um_streq(kind, "regex")) return um_rules_from_regex(r, constraint, err);
    if (um_streq(kind, "schema")) return um_rules_from_schema(r, constraint.p, constraint.n, &style, err);
    return um_rules_from_gbnf(r, constraint, err);
}

static json_t *answer_of(const um_rules *r, const json_t *line) {
    const json_t *texts = json_object_get(line, "texts");
    json_t *matches = json_array();
    for (size_t i = 0; i < json_array_size(texts); i++)
        json_array_append_new(matches, json_boolean(um_rules_match(r, text_of(json_array_get(texts, i)))));
    const int64_t n = json_integer_value(json_object_get(line, "samples"));
    const uint64_t seed = (uint64_t)json_integer_value(json_object_get(line, "seed"));
    return json_pack("{so, so}", "matches", matches, "samples", samples_of(r, n, seed));
}

/* Returns the answer to a line; free() it. */
static char *answer(const char *text, size_t n) {
    json_t *line = NULL, *out;
    um_rules r;
    um_err err = {.code = UM_OK};
    um_rules_init(&r);
    um_status s = um_json_parse(&line, text, n, "line", &err);
    if (!s) s = build(&r, line, &err);
    if (s) out = json_pack("{ss, ss}", "error", err.msg, "status", um_status_name(s));
    else out = answer_of(&r, line);
    char *json = json_dumps(out, JSON_COMPACT);
    um_rules_free(&r);
    json_decref(line);
    json_decref(out);
    return json;
}

static int answer_lines(void) {
    um_lines lines;
    um_str line;
    um_err err;
    um_lines_from(&lines, 0, "standard input");
    while (um_lines_next(&lines, true, &line, &err) == UM_LINES_LINE) {
        char *json = answer(line.p, line.n);
        puts(json ? json : "{\"error\": \"not UTF-8\"}");
        fflush(stdout);
        free(json);
    }
    um_lines_close(&lines);
    return 0;
}

/* ---- Tests ------------------------------------------------------------------------------------------------------- */

static void answers_a_line(void **state) {
    (void)state;
    static const struct {
        const char *line, *answer;
    } rows[] = {
        {"{\"kind\":\"regex\",\"constraint\":\"a+\",\"texts\":[\"aa\",\"b\"]}",
         "{\"matches\":[true,false],\"samples\":[]}"},
        {"{\"kind\":\"schema\",\"constraint\":\"{\\\"type\\\":\\\"null\\\"}\",\"texts\":[\"null\"]}",
         "{\"matches\":[true],\"samples\":[]}"},
        {"{\"kind\":\"gbnf\",\"constraint\":\"root ::= \\\"x\\\"\",\"samples\":2}",
         "{\"matches\":[],\"samples\":[\"x\",\"x\"]}"},
        {"{\"kind\":\"regex\",\"constraint\":\"(\",\"texts\":[]}",
         "{\"error\":\"column 1 of the regular expression: this group has no closing )\",\"status\":\"UM_EINVAL\"}"},
    };
    for (size_t i = 0; i < UM_LEN(rows); i++) {
        char *json = answer(rows[i].line, strlen(rows[i].line));
        assert_string_equal(json, rows[i].answer);
        free(json);
    }
}

/* What the sampler makes is a text of the rules. */
static void samples_match(void **state) {
    (void)state;
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"number\",\"minimum\":-2.5},"
        "\"b\":{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}},\"additionalProperties\":true}";
    const um_json_style style = {.space_max = 1};
    um_rules r;
    um_err err = {.code = UM_OK};
    um_rules_init(&r);
    assert_int_equal(um_rules_from_schema(&r, schema, sizeof schema - 1, &style, &err), UM_OK);
    json_t *list = samples_of(&r, 40, 7);
    assert_true(json_array_size(list) > 20);
    for (size_t i = 0; i < json_array_size(list); i++)
        assert_true(um_rules_match(&r, text_of(json_array_get(list, i))));
    json_decref(list);
    um_rules_free(&r);
}

int main(int argc, char **argv) {
    if (argc > 1 && um_streq(argv[1], "lines")) return answer_lines();
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers_a_line), cmocka_unit_test(samples_match)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
