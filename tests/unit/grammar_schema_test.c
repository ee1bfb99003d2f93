/* grammar: JSON schemas. */
#include "grammar/grammar.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

static const um_json_style tight = {.space_max = 0};

/* A schema, texts that match and texts that don't, each list ended by NULL. */
typedef struct row {
    const char *schema;
    const char *yes[8], *no[8];
} row;

static void check_row(const row *w) {
    um_rules r;
    um_err err = {.code = UM_OK};
    um_rules_init(&r);
    if (um_rules_from_schema(&r, w->schema, strlen(w->schema), &tight, &err)) fail_msg("%s: %s", w->schema, err.msg);
    assert_int_equal(err.code, UM_OK); /* callers may look at this alone */
    for (size_t i = 0; w->yes[i]; i++)
        if (!um_rules_match(&r, um_str_of(w->yes[i]))) fail_msg("%s refuses %s", w->schema, w->yes[i]);
    for (size_t i = 0; w->no[i]; i++)
        if (um_rules_match(&r, um_str_of(w->no[i]))) fail_msg("%s accepts %s", w->schema, w->no[i]);
    um_rules_free(&r);
}

static void knows_types_and_values(void **state) {
    (void)state;
    static const row rows[] = {
        {"{}", {"null", "1.5e3", "{\"a\":[[1]]}", "\"x\""}, {"", "tru", "[1,]", "{\"a\":[[[1]]}"}},
        {"true", {"null", "[]"}, {"x"}},
        {"{\"type\":\"boolean\"}", {"true", "false"}, {"null", "1"}},
        {"{\"type\":[\"string\",\"null\"]}", {"null", "\"\""}, {"0"}},
        {"{\"type\":\"string\",\"nullable\":true}", {"null", "\"\""}, {"0"}},
        {"{\"type\":\"integer\"}", {"0", "-12"}, {"01", "1.0", "-0", "-"}},
        {"{\"type\":\"number\"}", {"0", "-0.5", "1e-9", "12.50E+10"}, {"01", ".5", "1.", "1e", "1e400"}},
        {"{\"enum\":[\"a\\\"b\",1,null,{\"x\":[1]}]}", {"\"a\\\"b\"", "1", "null", "{\"x\":[1]}"}, {"\"a\"", "2"}},
        {"{\"enum\":[1,\"a\",true],\"type\":\"string\"}", {"\"a\""}, {"1", "true"}},
        {"{\"enum\":[1,5,9],\"minimum\":4,\"maximum\":8}", {"5"}, {"1", "9"}},
        {"{\"const\":\"\xC3\xA9\"}", {"\"\xC3\xA9\""}, {"\"e\""}},
        {"{\"type\":[\"integer\",\"string\"],\"not\":{\"type\":\"integer\"}}", {"\"x\""}, {"1"}},
    };
    for (size_t i = 0; i < UM_LEN(rows); i++) check_row(&rows[i]);
}

static void knows_numbers(void **state) {
    (void)state;
    static const row rows[] = {
        {"{\"type\":\"integer\",\"minimum\":0}", {"0", "7", "123456789012345678901"}, {"-1"}},
        {"{\"type\":\"integer\",\"minimum\":-5,\"maximum\":120}",
         {"-5", "-1", "0", "9", "10", "99", "120"},
         {"-6", "121", "-10", "-0", "1000", "007"}},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":9,\"exclusiveMaximum\":12}", {"10", "11"}, {"9", "12"}},
        {"{\"type\":\"integer\",\"minimum\":1.5,\"maximum\":3.5}", {"2", "3"}, {"1", "4"}},
        {"{\"type\":\"integer\",\"maximum\":-10}", {"-10", "-11", "-999"}, {"-9", "0", "10"}},
        {"{\"type\":\"integer\",\"multipleOf\":7}", {"0", "7", "-14", "7000"}, {"1", "70001"}},
        {"{\"type\":\"integer\",\"multipleOf\":5,\"minimum\":12,\"maximum\":105}",
         {"15", "100", "105"},
         {"10", "110", "101"}},
        {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}",
         {"0", "0.0", "0.5", "1", "1.00", "0.999"},
         {"-0.1", "1.01", "2", "1e0", "01"}},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":1}",
         {"0.001", "0.99"},
         {"0", "0.0", "1", "1.0"}},
        {"{\"type\":\"number\",\"minimum\":-1.25,\"maximum\":2.5}",
         {"-1.25", "-1.2", "-0.5", "0", "2.5", "2.49", "-1.250"},
         {"-1.26", "-1.251", "2.51", "3", "-2"}},
        {"{\"type\":\"number\",\"minimum\":3.14}", {"3.14", "3.2", "4", "10.5"}, {"3.13", "3", "-4"}},
        {"{\"type\":\"number\",\"maximum\":-0.5}", {"-0.5", "-0.51", "-7"}, {"-0.4", "0", "1"}},
        {"{\"type\":\"number\",\"minimum\":1e-3,\"maximum\":0.0025}",
         {"0.001", "0.002", "0.0025"},
         {"0.0009", "0.0026", "0"}},
        {"{\"type\":\"number\",\"multipleOf\":0.01,\"minimum\":0}", {"0", "1.25", "3.5"}, {"1.255", "-1"}},
        {"{\"type\":\"integer\",\"minimum\":123456789012345678901234}",
         {"123456789012345678901234"},
         {"123456789012345678901233"}},
    };
    for (size_t i = 0; i < UM_LEN(rows); i++) check_row(&rows[i]);
}

/* All integers near the bounds, compared with the bounds. */
static void integers_are_exactly_those_in_range(void **state) {
    (void)state;
    for (int lo = -23; lo <= 120; lo += 11)
        for (int hi = lo; hi <= 230; hi += 17)
            for (int m = 1; m <= 7; m += 3) {
                char schema[160];
                um_rules r;
                um_err err = {.code = UM_OK};
                snprintf(schema, sizeof schema,
                         "{\"type\":\"integer\",\"minimum\":%d,\"maximum\":%d,\"multipleOf\":%d}", lo, hi, m);
                um_rules_init(&r);
                const um_status s = um_rules_from_schema(&r, schema, strlen(schema), &tight, &err);
                for (int i = lo - 12; i <= hi + 12; i++) {
                    char text[16];
                    snprintf(text, sizeof text, "%d", i);
                    const bool expected = i >= lo && i <= hi && i % m == 0;
                    if ((!s && um_rules_match(&r, um_str_of(text))) != expected) fail_msg("%s: %d", schema, i);
                }
                um_rules_free(&r);
            }
}

static void knows_strings(void **state) {
    (void)state;
    static const row rows[] = {
        {"{\"type\":\"string\"}",
         {"\"\"", "\"a\\n\\u00e9\\ud83d\\ude00\\/\"", "\"\xC3\xA9\""},
         {"\"\n\"", "\"\\x\"", "\"\\ud83d\"", "\"\\ude00\"", "\"\xC3\"", "\"a\"b\""}},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
         {"\"ab\"", "\"\\u0041\xC3\xA9\xC3\xA9\"", "\"\\ud83d\\ude00x\""},
         {"\"a\"", "\"abcd\""}},
        {"{\"type\":\"string\",\"pattern\":\"^a+$\"}", {"\"aa\""}, {"\"\"", "\"ab\"", "aa"}},
        {"{\"type\":\"string\",\"pattern\":\"b\"}", {"\"abc\"", "\"b\""}, {"\"ac\""}},
        {"{\"type\":\"string\",\"pattern\":\"^[a-z]+$\",\"maxLength\":3}", {"\"a\"", "\"abc\""}, {"\"abcd\"", "\"\""}},
        {"{\"type\":\"string\",\"pattern\":\"^[A-Z][a-z]*$\",\"minLength\":3,\"maxLength\":4}",
         {"\"Abc\"", "\"Abcd\""},
         {"\"Ab\"", "\"Abcde\""}},
        {"{\"type\":\"string\",\"pattern\":\"^ab\",\"maxLength\":4}", {"\"ab\"", "\"abxy\""}, {"\"abxyz\"", "\"xab\""}},
        {"{\"type\":\"string\",\"format\":\"date\"}",
         {"\"2024-02-28\"", "\"1999-12-31\""},
         {"\"2024-02-30\"", "\"2024-13-01\"", "\"2024-1-1\""}},
        {"{\"type\":\"string\",\"format\":\"date-time\"}",
         {"\"2024-02-28T23:59:59.5Z\"", "\"2024-01-01T00:00:00+01:00\""},
         {"\"2024-02-28T24:00:00Z\""}},
        {"{\"type\":\"string\",\"format\":\"uuid\"}", {"\"123e4567-e89b-12d3-a456-426614174000\""}, {"\"123e4567\""}},
        {"{\"type\":\"string\",\"format\":\"email\"}", {"\"a.b@example.org\""}, {"\"a@\"", "\"a\""}},
        {"{\"type\":\"string\",\"format\":\"ipv4\"}", {"\"255.0.10.1\""}, {"\"256.0.0.1\"", "\"1.2.3\""}},
        {"{\"type\":\"string\",\"format\":\"int32\"}", {"\"anything\""}, {"1"}},
    };
    for (size_t i = 0; i < UM_LEN(rows); i++) check_row(&rows[i]);
}

#define AB "\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"null\"}}"

static void knows_objects(void **state) {
    (void)state;
    static const row rows[] = {
        {"{\"type\":\"object\"}", {"{}", "{\"x\":{\"y\":1}}"}, {"[]", "{\"x\"}"}},
        {"{\"type\":\"object\"," AB ",\"required\":[\"a\",\"b\"],\"additionalProperties\":false}",
         {"{\"a\":1,\"b\":null}"},
         {"{\"b\":null,\"a\":1}", "{\"a\":1}", "{}", "{\"a\":1,\"b\":null,\"c\":1}", "{\"a\":1,}"}},
        {"{\"type\":\"object\"," AB "}",
         {"{}", "{\"a\":1}", "{\"b\":null}", "{\"a\":1,\"b\":null}"},
         {"{,\"b\":null}", "{\"c\":1}", "{\"a\":1 }"}},
        {"{\"type\":\"object\"," AB ",\"required\":[\"b\"]}", {"{\"b\":null}", "{\"a\":1,\"b\":null}"}, {"{\"a\":1}"}},
        {"{\"type\":\"object\"," AB ",\"required\":[\"c\"]}", {"{\"c\":[1]}", "{\"a\":1,\"c\":\"\"}"}, {"{\"a\":1}"}},
        {"{\"type\":\"object\"," AB ",\"additionalProperties\":{\"type\":\"boolean\"}}",
         {"{}", "{\"aa\":true}", "{\"a\":1,\"x\":true,\"\":false}", "{\"a\\nb\":true}"},
         {"{\"a\":true}", "{\"\\u0061\":true}", "{\"x\":1}", "{\"b\":true}"}},
        {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"},\"maxProperties\":2}",
         {"{}", "{\"x\":1,\"y\":2}"},
         {"{\"x\":1,\"y\":2,\"z\":3}"}},
        {"{\"type\":\"object\"," AB ",\"minProperties\":1,\"maxProperties\":1}",
         {"{\"a\":1}", "{\"b\":null}"},
         {"{}", "{\"a\":1,\"b\":null}"}},
        {"{\"type\":\"object\",\"patternProperties\":{\"^x_[a-z]$\":{\"type\":\"integer\"}},\"additionalProperties\":"
         "false}",
         {"{}", "{\"x_a\":1,\"x_b\":2}"},
         {"{\"y\":1}", "{\"x_a\":\"\"}"}},
        {"{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"k\",\"l\"]},\"additionalProperties\":{\"const\":1}}",
         {"{}", "{\"k\":1,\"l\":1}"},
         {"{\"m\":1}"}},
        {"{\"type\":\"object\"," AB ",\"dependentRequired\":{\"a\":[\"b\"]}}",
         {"{}", "{\"b\":null}", "{\"a\":1,\"b\":null}"},
         {"{\"a\":1}"}},
        {"{\"type\":\"object\"," AB ",\"dependentSchemas\":{\"a\":{\"properties\":{\"a\":{\"minimum\":5}}}}}",
         {"{}", "{\"b\":null}", "{\"a\":5}"},
         {"{\"a\":4}"}},
        {"{\"type\":\"object\",\"allOf\":[{" AB "}],\"unevaluatedProperties\":false}", {"{\"a\":1}"}, {"{\"c\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":false,\"b\":true}}", {"{}", "{\"b\":[]}"}, {"{\"a\":1}"}},
    };
    for (size_t i = 0; i < UM_LEN(rows); i++) check_row(&rows[i]);
}

/* Properties beyond the size of one rule of optional ones. */
static void many_optional_properties_keep_their_order(void **state) {
    (void)state;
    um_buf b = {0};
    um_rules r;
    um_err err = {.code = UM_OK};
    um_buf_puts(&b, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < 200; i++) um_buf_printf(&b, "%s\"p%d\":{\"const\":%d}", i ? "," : "", i, i);
    um_buf_puts(&b, "}}");
    um_rules_init(&r);
    assert_int_equal(um_rules_from_schema(&r, b.data, b.len, &tight, &err), UM_OK);
    assert_true(um_rules_match(&r, UM_STR("{}")));
    assert_true(um_rules_match(&r, UM_STR("{\"p0\":0,\"p199\":199}")));
    assert_true(um_rules_match(&r, UM_STR("{\"p16\":16,\"p17\":17,\"p64\":64}")));
    assert_false(um_rules_match(&r, UM_STR("{\"p17\":17,\"p16\":16}")));
    assert_false(um_rules_match(&r, UM_STR("{\"p17\":17\"p18\":18}")));
    um_rules_free(&r);
    um_buf_free(&b);
}

static void knows_arrays(void **state) {
    (void)state;
    static const row rows[] = {
        {"{\"type\":\"array\"}", {"[]", "[1,[2]]"}, {"{}", "[1 ,2]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"null\"}}",
         {"[]", "[null]", "[null,null]"},
         {"[1]", "[null,]", "[,null]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":1,\"maxItems\":2}",
         {"[null]", "[null,null]"},
         {"[]", "[null,null,null]"}},
        {"{\"type\":\"array\",\"maxItems\":0}", {"[]"}, {"[1]"}},
        {"{\"type\":\"array\",\"items\":false}", {"[]"}, {"[1]"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"},{\"type\":\"integer\"}],\"items\":false,"
         "\"minItems\":1}",
         {"[null]", "[null,1]"},
         {"[]", "[null,1,1]", "[1]"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"}],\"items\":{\"const\":2},\"minItems\":2,"
         "\"maxItems\":3}",
         {"[null,2]", "[null,2,2]"},
         {"[null]", "[null,2,2,2]", "[2,2]"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"}],\"unevaluatedItems\":{\"const\":2}}",
         {"[]", "[null,2,2]"},
         {"[null,1]", "[2]"}},
        {"{\"type\":\"array\",\"unevaluatedItems\":false}", {"[]"}, {"[1]"}},
        {"{\"type\":\"array\",\"items\":[{\"type\":\"null\"}],\"additionalItems\":false}",
         {"[]", "[null]"},
         {"[null,null]"}},
        {"{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\",\"c\"]},\"uniqueItems\":true,\"minItems\":1,"
         "\"maxItems\":2}",
         {"[\"a\"]", "[\"c\",\"a\"]"},
         {"[]", "[\"a\",\"a\"]", "[\"a\",\"b\",\"c\"]"}},
    };
    for (size_t i = 0; i < UM_LEN(rows); i++) check_row(&rows[i]);
}

static void knows_combinations_and_references(void **state) {
    (void)state;
    static const row rows[] = {
        {"{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"integer\",\"minimum\":5}],\"maximum\":7}",
         {"null", "5", "7"},
         {"4", "8", "\"\""}},
        {"{\"allOf\":[{\"type\":\"integer\",\"minimum\":2},{\"maximum\":3}]}", {"2", "3"}, {"1", "4"}},
        {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}},{\"properties\":{\"a\":{"
         "\"minimum\":3},\"b\":{}},\"required\":[\"a\"]}]}",
         {"{\"a\":3}", "{\"a\":4,\"b\":0}"},
         {"{\"a\":2}", "{\"b\":0}"}},
        {"{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}", {"1", "\"\""}, {"null"}},
        {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"},\"x\":{\"type\":\"null\"}},"
         "\"required\":[\"k\",\"x\"]},"
         "{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"b\"}},\"required\":[\"k\"]}]}",
         {"{\"k\":\"a\",\"x\":null}", "{\"k\":\"b\"}"},
         {"{\"k\":\"a\"}", "{\"k\":\"b\",\"x\":null}"}},
        {"{\"$defs\":{\"n\":{\"type\":\"integer\"}},\"$ref\":\"#/$defs/n\",\"minimum\":3}", {"3"}, {"2", "\"\""}},
        {"{\"$defs\":{\"a/b~c d\":{\"type\":\"null\"}},\"$ref\":\"#/$defs/a~1b~0c%20d\"}", {"null"}, {"1"}},
        {"{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":{\"anyOf\":[{\"$ref\":\"#\"},{"
         "\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"]}",
         {"{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":null}}"},
         {"{\"v\":1}", "{\"v\":1,\"next\":{}}"}},
        {"{\"definitions\":{\"t\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/definitions/t\"}}},\"$ref\":\"#/"
         "definitions/t\"}",
         {"[]", "[[],[[]]]"},
         {"[1]"}},
    };
    for (size_t i = 0; i < UM_LEN(rows); i++) check_row(&rows[i]);
}

static void white_space_is_bounded(void **state) {
    (void)state;
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}}}";
    const um_json_style spaced = {.space_max = 2};
    um_rules r;
    um_err err = {.code = UM_OK};
    um_rules_init(&r);
    assert_int_equal(um_rules_from_schema(&r, schema, sizeof schema - 1, &spaced, &err), UM_OK);
    assert_true(um_rules_match(&r, UM_STR("{\"a\":[1,2]}")));
    assert_true(um_rules_match(&r, UM_STR("{\n \"a\" : [ 1 ,\n 2 ]\n}")));
    assert_false(um_rules_match(&r, UM_STR("{   \"a\":[]}")));
    assert_false(um_rules_match(&r, UM_STR("{\"a\":[]} ")));
    um_rules_free(&r);
    um_rules_init(&r);
    assert_int_equal(um_rules_from_any_json(&r, &spaced, &err), UM_OK);
    assert_true(um_rules_match(&r, UM_STR("{ \"a\": [true, {}] }")));
    assert_false(um_rules_match(&r, UM_STR("[]")));
    um_rules_free(&r);
}

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

typedef struct refusal {
    const char *schema, *message;
    um_status status;
} refusal;

static void check_refusals(const refusal *rows, size_t n) {
    for (size_t i = 0; i < n; i++) {
        um_rules r;
        um_err err = {.code = UM_OK};
        um_rules_init(&r);
        const um_status s = um_rules_from_schema(&r, rows[i].schema, strlen(rows[i].schema), &tight, &err);
        if (s != rows[i].status || strncmp(err.msg, rows[i].message, strlen(rows[i].message)) != 0)
            fail_msg("%s: %d, \"%s\"", rows[i].schema, s, err.msg);
        um_rules_free(&r);
    }
}

static void names_what_is_not_supported(void **state) {
    (void)state;
    static const refusal rows[] = {
        {"{\"properties\":{\"a/b\":{\"type\":\"string\",\"pattern\":\"(?=x)\"}}}",
         "#/properties/a~1b: \"pattern\": column 1 of the regular expression: look-ahead", UM_EUNSUPPORTED},
        {"{\"type\":\"array\",\"uniqueItems\":true}", "#: \"uniqueItems\" is supported only", UM_EUNSUPPORTED},
        {"{\"$ref\":\"https://example.com/x.json\"}", "#: $ref \"https://example.com/x.json\": only", UM_EUNSUPPORTED},
        {"{\"not\":{\"const\":1}}", "#: \"not\" is supported only", UM_EUNSUPPORTED},
        {"{\"oneOf\":[{\"type\":\"integer\"},{\"minimum\":3}]}", "#/oneOf: a value might match both", UM_EUNSUPPORTED},
        {"{\"type\":\"number\",\"multipleOf\":0.3}", "#: \"multipleOf\" is supported for", UM_EUNSUPPORTED},
        {"{\"type\":\"string\",\"pattern\":\"^(ab|c)*$\",\"maxLength\":3}", "#: minLength or maxLength with",
         UM_EUNSUPPORTED},
        {"{\"$dynamicRef\":\"#x\"}", "#: \"$dynamicRef\" is not supported", UM_EUNSUPPORTED},
    };
    check_refusals(rows, UM_LEN(rows));
}

static void names_contradictions_and_mistakes(void **state) {
    (void)state;
    static const refusal rows[] = {
        {"{", "schema:", UM_EPARSE},
        {"[1]", "#: expected a schema", UM_EINVAL},
        {"false", "#: no value can match", UM_EINVAL},
        {"{\"a\":1,\"a\":2}", "schema", UM_EPARSE},
        {"{\"type\":\"text\"}", "#: \"type\": expected string, number", UM_EINVAL},
        {"{\"enum\":[]}", "#: no value can match: \"enum\" is empty", UM_EINVAL},
        {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "#: no value can match: the least", UM_EINVAL},
        {"{\"type\":\"integer\",\"minimum\":2.1,\"maximum\":2.9}", "#: no value can match: no integer", UM_EINVAL},
        {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", "#: no value can match: minLength", UM_EINVAL},
        {"{\"type\":\"string\",\"enum\":[1]}", "#: no value can match: the other keywords", UM_EINVAL},
        {"{\"allOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}", "#: no value can match: the types", UM_EINVAL},
        {"{\"type\":\"object\",\"properties\":{\"a\":false},\"required\":[\"a\"]}",
         "#/properties/a: no value can match", UM_EINVAL},
        {"{\"type\":\"array\",\"prefixItems\":[{}],\"items\":false,\"minItems\":2}", "#: no value can match",
         UM_EINVAL},
        {"{\"$ref\":\"#/$defs/x\"}", "#: $ref \"#/$defs/x\": there is no such schema", UM_EINVAL},
        {"{\"$ref\":\"#\"}", "#: the schema refers to itself without an end", UM_EINVAL},
        {"{\"$defs\":{\"a\":{\"anyOf\":[{\"$ref\":\"#/$defs/a\"},{\"type\":\"null\"}]}},\"$ref\":\"#/$defs/a\"}",
         "#/$defs/a: the schema refers to itself", UM_EINVAL},
        {"{\"minimum\":\"3\"}", "#: \"minimum\": expected a number", UM_EINVAL},
        {"{\"properties\":[]}", "#: \"properties\": expected an object", UM_EINVAL},
        {"{\"properties\":{\"a\":3}}", "#/properties/a: expected a schema", UM_EINVAL},
        {"{\"type\":\"string\",\"maxLength\":-1}", "#: \"maxLength\": expected a number of things", UM_EINVAL},
    };
    check_refusals(rows, UM_LEN(rows));
}

static void bounds_depth_and_combinations(void **state) {
    (void)state;
    um_buf b = {0};
    for (int i = 0; i < 500; i++) um_buf_puts(&b, "{\"items\":");
    um_buf_puts(&b, "{}");
    for (int i = 0; i < 500; i++) um_buf_puts(&b, "}");
    check_refusals(&(refusal){b.data, "#/items", UM_ELIMIT}, 1);
    um_buf_clear(&b);
    um_buf_puts(&b, "{\"allOf\":[");
    for (int i = 0; i < 40; i++)
        um_buf_printf(&b, "%s{\"anyOf\":[{\"minimum\":%d},{\"maximum\":%d}]}", i ? "," : "", i, 100 + i);
    um_buf_puts(&b, "]}");
    um_rules r;
    um_err err = {.code = UM_OK};
    um_rules_init(&r);
    assert_int_equal(um_rules_from_schema(&r, b.data, b.len, &tight, &err), UM_ELIMIT);
    assert_non_null(strstr(err.msg, "100000 combinations"));
    um_rules_free(&r);
    um_buf_free(&b);
}

/* Patterns that strangers send can't keep the compiler busy: matching takes a bounded number of steps. */
static void bounds_the_time_of_matching(void **state) {
    (void)state;
    um_buf b = {0};
    um_buf_puts(&b, "{\"type\":\"string\",\"pattern\":\"^");
    for (int i = 0; i < 100; i++) um_buf_puts(&b, "(");
    um_buf_puts(&b, "a");
    for (int i = 0; i < 100; i++) um_buf_puts(&b, "|b)+");
    um_buf_puts(&b, "$\",\"enum\":[\"abababababababababababababababababababababababc\"]}");
    check_refusals(&(refusal){b.data, "#: enum or const has values that are too long", UM_ELIMIT}, 1);
    um_buf_clear(&b);
    um_buf_puts(&b, "{\"type\":\"string\",\"minLength\":1,\"enum\":[\"");
    for (int i = 0; i < 2000; i++) um_buf_puts(&b, "a");
    um_buf_puts(&b, "\"]}");
    check_refusals(&(refusal){b.data, "#: enum or const has values that are too long", UM_ELIMIT}, 1);
    um_buf_clear(&b);
    um_buf_puts(&b, "{\"patternProperties\":{");
    for (int i = 0; i < 2000; i++) um_buf_printf(&b, "%s\"^q%d\":{}", i ? "," : "", i);
    um_buf_puts(&b, "},\"properties\":{");
    for (int i = 0; i < 2000; i++) um_buf_printf(&b, "%s\"p%d\":{}", i ? "," : "", i);
    um_buf_puts(&b, "}}");
    check_refusals(&(refusal){b.data, "#/patternProperties/^q", UM_ELIMIT}, 1);
    um_buf_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_types_and_values),
        cmocka_unit_test(knows_numbers),
        cmocka_unit_test(integers_are_exactly_those_in_range),
        cmocka_unit_test(knows_strings),
        cmocka_unit_test(knows_objects),
        cmocka_unit_test(many_optional_properties_keep_their_order),
        cmocka_unit_test(knows_arrays),
        cmocka_unit_test(knows_combinations_and_references),
        cmocka_unit_test(white_space_is_bounded),
        cmocka_unit_test(names_what_is_not_supported),
        cmocka_unit_test(names_contradictions_and_mistakes),
        cmocka_unit_test(bounds_depth_and_combinations),
        cmocka_unit_test(bounds_the_time_of_matching),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
