/* load: arrival times, parsing of server responses, and summaries of records. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cli/load.h"

/* ---- Arrivals ---------------------------------------------------------------------------------------------------- */

static void arrivals_depend_on_the_seed_only(void **state) {
    static const double golden[] = {0.0107285, 0.0355248, 1.1081798, 1.1705653};
    um_arrivals a = {0}, b = {0}, c = {0};
    (void)state;
    um_arrivals_poisson(&a, 1, 5, 100, 0);
    um_arrivals_poisson(&b, 1, 10, 200, 0);
    um_arrivals_poisson(&c, 2, 5, 100, 0);
    assert_int_equal(a.n, 100);
    for (size_t i = 0; i < UM_LEN(golden); i++) assert_true(fabs(a.at[i] - golden[i]) < 1e-6);
    for (size_t i = 0; i < a.n; i++)
        assert_true(fabs(a.at[i] - 2 * b.at[i]) < 1e-9); /* the rate only scales the times */
    assert_true(fabs(a.at[50] - c.at[50]) > 1e-6);
    um_arrivals_free(&a);
    um_arrivals_free(&b);
    um_arrivals_free(&c);
}

/* Gaps of an exponential distribution: mean and deviation are 1 / rate, and a share of 1 / e is longer than 1 / rate.
 */
static void gaps_are_exponential(void **state) {
    enum { N = 100000 };
    const double rate = 8;
    um_arrivals a = {0};
    double sum = 0, squares = 0, longer = 0;
    (void)state;
    um_arrivals_poisson(&a, 7, rate, N, 0);
    for (size_t i = 0; i < a.n; i++) {
        double gap = a.at[i] - (i ? a.at[i - 1] : 0);
        assert_true(gap > 0);
        sum += gap;
        squares += gap * gap;
        longer += gap > 1 / rate;
    }
    double mean = sum / N, deviation = sqrt(squares / N - mean * mean);
    assert_true(fabs(mean * rate - 1) < 0.02 && fabs(deviation * rate - 1) < 0.02);
    assert_true(fabs(longer / N - exp(-1)) < 0.01);
    um_arrivals_free(&a);
}

static void seconds_limit_the_arrivals(void **state) {
    um_arrivals a = {0};
    (void)state;
    um_arrivals_poisson(&a, 3, 100, 5, 10);
    assert_true(a.n > 800 && a.n < 1200 && a.at[a.n - 1] < 10);
    um_arrivals_free(&a);
}

static void arrivals_of_a_trace_ascend(void **state) {
    um_arrivals a = {0};
    (void)state;
    assert_true(um_arrivals_push(&a, 0) && um_arrivals_push(&a, 0) && um_arrivals_push(&a, 1.5));
    assert_false(um_arrivals_push(&a, 1) || um_arrivals_push(&a, -1) || um_arrivals_push(&a, NAN));
    assert_false(um_arrivals_push(&a, INFINITY));
    assert_int_equal(a.n, 3);
    um_arrivals_free(&a);
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

static void points_and_ranges_are_checked(void **state) {
    static const char *const bad[] = {"", "0", "1,", ",1", "1,x", "-1", "1e9", "nan"};
    double v[UM_LOAD_POINTS_MAX];
    int64_t least, most;
    size_t n;
    (void)state;
    assert_int_equal(um_load_parse_points("1,0.5,32", "x", false, v, &n, NULL), UM_OK);
    assert_true(n == 3 && v[1] == 0.5 && v[2] == 32);
    assert_int_equal(um_load_parse_points("1,0.5", "x", true, v, &n, NULL), UM_EINVAL);
    for (size_t i = 0; i < UM_LEN(bad); i++)
        assert_int_equal(um_load_parse_points(bad[i], "x", false, v, &n, NULL), UM_EINVAL);
    assert_int_equal(um_load_parse_range("16..64", "x", &least, &most, NULL), UM_OK);
    assert_true(least == 16 && most == 64);
    assert_int_equal(um_load_parse_range("8", "x", &least, &most, NULL), UM_OK);
    assert_true(least == 8 && most == 8);
    assert_int_equal(um_load_parse_range("64..16", "x", &least, &most, NULL), UM_EINVAL);
    assert_int_equal(um_load_parse_range("0..4", "x", &least, &most, NULL), UM_EINVAL);
    assert_int_equal(um_load_parse_range("4..", "x", &least, &most, NULL), UM_EINVAL);
}

static void random_prompts_have_the_requested_lengths(void **state) {
    um_load_prompts p = {0}, q = {0};
    size_t seen[4] = {0};
    (void)state;
    um_load_prompts_words(&p, 400, 2, 5, 9);
    um_load_prompts_words(&q, 400, 2, 5, 9);
    for (size_t i = 0; i < p.n; i++) {
        size_t words = 1;
        for (const char *c = p.prompt[i].text; *c; c++) words += *c == ' ';
        assert_in_range(words, 2, 5);
        seen[words - 2]++;
        assert_string_equal(p.prompt[i].text, q.prompt[i].text);
    }
    for (size_t i = 0; i < UM_LEN(seen); i++) assert_in_range(seen[i], 60, 140);
    um_load_prompts_free(&p);
    um_load_prompts_free(&q);
}

/* ---- Answers of servers ------------------------------------------------------------------------------------------ */

static void parses_responses_of_servers(void **state) {
    static const struct {
        int status;
        const char *data;
        um_peer_kind kind;
        const char *text;
    } rows[] = {
        {200, "[DONE]", UM_PEER_DONE, ""},
        {200, "{\"choices\":[{\"delta\":{\"content\":\"a\"}}]}", UM_PEER_TEXT, "a"},
        {200, "{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}", UM_PEER_NOTHING, ""},
        {200, "{\"choices\":[{\"text\":\"b\",\"finish_reason\":\"length\"}]}", UM_PEER_TEXT, "b"},
        {200, "{\"choices\":[{\"message\":{\"content\":\"c\"}}]}", UM_PEER_TEXT, "c"},
        {200, "{\"choices\":[],\"usage\":{}}", UM_PEER_NOTHING, ""},
        {200, "{\"event\":\"append\",\"text\":\"d\"}", UM_PEER_TEXT, "d"},
        {200, "{\"event\":\"buffer_snapshot\",\"text\":\"e\"}", UM_PEER_SNAPSHOT, "e"},
        {200, "{\"event\":\"final\",\"text\":\"f\"}", UM_PEER_WHOLE, "f"},
        {200, "{\"event\":\"error\",\"message\":\"g\"}", UM_PEER_ERROR, ""},
        {200, "{\"error\":{\"message\":\"h\"}}", UM_PEER_ERROR, ""},
        {400, "{}", UM_PEER_ERROR, ""},
        {200, "", UM_PEER_ERROR, ""},
        {200, "[]", UM_PEER_ERROR, ""},
        {200, "nonsense", UM_PEER_ERROR, ""},
        {502, "<html>", UM_PEER_ERROR, ""},
        {200, "{\"choices\":[7,{\"delta\":3}]}", UM_PEER_NOTHING, ""},
        {200, "{\"choices\":{\"delta\":3},\"usage\":[1]}", UM_PEER_NOTHING, ""},
        {200, "{\"choices\":[{\"delta\":{\"content\":{}},\"finish_reason\":[]}],\"nfe\":-4}", UM_PEER_NOTHING, ""},
    };
    (void)state;
    for (size_t i = 0; i < UM_LEN(rows); i++) {
        um_peer_message s;
        um_peer_read(&s, rows[i].status, um_str_of(rows[i].data));
        if (s.kind != rows[i].kind) fail_msg("%s: kind %d", rows[i].data, s.kind);
        if (s.kind != UM_PEER_ERROR && s.kind != UM_PEER_DONE && s.text.n)
            assert_memory_equal(s.text.p, rows[i].text, strlen(rows[i].text));
        if (s.kind == UM_PEER_ERROR) assert_true(s.err.code && s.err.msg[0]);
        um_peer_message_free(&s);
    }
}

static void usage_has_passes(void **state) {
    static const char data[] =
        "{\"choices\":[],\"usage\":{\"prompt_tokens\":18,\"completion_tokens\":11,\"prompt_tokens_details\":"
        "{\"cached_tokens\":16},\"nfe\":5,\"tpf\":2.2,\"engine_decode_time_s\":0.5,\"engine_decode_tps\":22}}";
    um_peer_message s;
    (void)state;
    um_peer_read(&s, 200, UM_STR(data));
    assert_true(s.usage.is_given && s.usage.prompt_tokens == 18 && s.usage.completion_tokens == 11);
    assert_true(s.usage.cached_tokens == 16 && s.usage.nfe == 5);
    um_peer_message_free(&s);
}

/* Sums of counts must not overflow, whatever a server sends. */
static void counts_are_clamped(void **state) {
    static const char data[] =
        "{\"choices\":[],\"usage\":{\"prompt_tokens\":4611686018427387904,\"completion_tokens\":-1,"
        "\"nfe\":4294967297}}";
    um_peer_message s;
    (void)state;
    um_peer_read(&s, 200, UM_STR(data));
    assert_true(s.usage.is_given && s.usage.prompt_tokens == INT32_MAX && s.usage.nfe == INT32_MAX);
    assert_int_equal(s.usage.completion_tokens, 0);
    um_peer_message_free(&s);
}

static void errors_name_the_parameter_and_give_advice(void **state) {
    um_peer_message s;
    (void)state;
    um_peer_read(&s, 400, UM_STR("{\"error\":{\"message\":\"-3 is outside 0..2\",\"param\":\"temperature\"}}"));
    assert_string_equal(s.err.msg, "the server refuses temperature: -3 is outside 0..2");
    assert_string_equal(s.err.param, "temperature");
    um_peer_message_free(&s);
    um_peer_read(&s, 401, UM_STR("{\"error\":{\"message\":\"no key\"}}"));
    assert_non_null(strstr(s.err.msg, "--api-key"));
    um_peer_message_free(&s);
    um_peer_read(&s, 400, UM_STR("{\"error\":{\"message\":\"long\",\"code\":\"context_length_exceeded\"}}"));
    assert_true(s.is_too_long);
    um_peer_message_free(&s);
}

static void snapshots_become_frames(void **state) {
    static const char data[] =
        "{\"event\":\"buffer_snapshot\",\"tokens\":[\"1\",\"2\",\"\",\"\\u00fc\",\"\",\"\",\"3\"],"
        "\"pass\":[1,1,2,3,-1,3,2],\"stable_len\":2,\"nfe\":3}";
    static const um_piece want[] = {{UM_TOKEN_SET, false, {"", 0}},
                                    {UM_TOKEN_FRESH, false, {"\u00fc", 2}},
                                    {UM_TOKEN_MASK, false, {"", 0}},
                                    {UM_TOKEN_FRESH, false, {"", 0}},
                                    {UM_TOKEN_SET, false, {"3", 1}}};
    um_peer_message s;
    um_peer_frame f = {0};
    (void)state;
    um_peer_read(&s, 200, UM_STR(data));
    const um_frame *frame = um_peer_frame_read(&f, &s);
    assert_true(um_str_eq(frame->settled, UM_STR("12")) && frame->n == UM_LEN(want));
    for (size_t i = 0; i < frame->n; i++) {
        assert_int_equal(frame->piece[i].state, want[i].state);
        assert_int_equal(frame->piece[i].is_special, want[i].is_special);
        assert_true(um_str_eq(frame->piece[i].text, want[i].text));
    }
    um_peer_message_free(&s);
    um_peer_read(&s, 200, UM_STR("{\"event\":\"buffer_snapshot\",\"tokens\":[\"1\",\"\"],\"pass\":[1,1],\"nfe\":2}"));
    frame = um_peer_frame_read(&f, &s);
    assert_true(frame->n == 2 && !frame->piece[0].is_special && frame->piece[1].is_special);
    um_peer_message_free(&s);
    um_peer_read(&s, 200, UM_STR("{\"event\":\"buffer_snapshot\",\"tokens\":{\"a\":1},\"stable_len\":99,\"pass\":7}"));
    assert_int_equal(um_peer_frame_read(&f, &s)->n, 0);
    um_peer_message_free(&s);
    um_peer_frame_free(&f);
}

/* ---- Sums -------------------------------------------------------------------------------------------------------- */

static um_load_record answered(double due, double sent, double first, double end, int64_t tokens) {
    return (um_load_record){.due = due,
                            .sent = sent,
                            .first_snapshot = -1,
                            .first_text = first,
                            .end = end,
                            .outcome = UM_LOAD_ANSWERED,
                            .status = 200,
                            .chunks = 2,
                            .usage = {.is_given = true, .completion_tokens = tokens}};
}

/* A request that was sent late is slow, even if the server answered at once. */
static void times_count_from_when_a_request_was_due(void **state) {
    um_load_record r = answered(1, 4, 4.5, 6.5, 11);
    um_load_run run = {.record = &r, .n = 1, .seconds = 10};
    um_load_summary *s = UM_NEW(um_load_summary);
    (void)state;
    assert_true(um_load_ttft(&r) == 3.5 && fabs(um_load_tpot(&r) - 0.2) < 1e-12);
    um_load_summarise(s, &run, &(um_load_slo){0});
    assert_true(s->times[UM_LOAD_TOTAL].max == 5.5 && s->times[UM_LOAD_WAIT].max == 3);
    assert_int_equal(s->times[UM_LOAD_SNAPSHOT].n, 0);
    um_free(s);
}

static void rates_and_goodput_are_those_of_answered_requests(void **state) {
    char why[] = "no";
    um_load_record r[] = {answered(0, 0, 1, 2, 11),    answered(0, 0, 3, 4, 11),
                          answered(0, 0, 1, 31, 11),   {.outcome = UM_LOAD_REFUSED, .status = 429, .error = why},
                          {.outcome = UM_LOAD_BROKEN}, {.outcome = UM_LOAD_ABORTED}};
    um_load_run run = {.record = r, .n = UM_LEN(r), .seconds = 10};
    um_load_summary *s = UM_NEW(um_load_summary);
    (void)state;
    um_load_summarise(s, &run, &(um_load_slo){.ttft = 2, .tpot = 1});
    assert_true(s->n_rates == 1 && fabs(s->rates[0].requests - 0.3) < 1e-12);
    assert_true(fabs(s->rates[0].tokens - 3.3) < 1e-12 && fabs(s->rates[0].good - 0.1) < 1e-12);
    assert_true(s->outcomes[UM_LOAD_ANSWERED] == 3 && s->outcomes[UM_LOAD_REFUSED] == 1);
    assert_true(s->outcomes[UM_LOAD_BROKEN] == 1 && s->outcomes[UM_LOAD_ABORTED] == 1);
    assert_true(s->statuses[429] == 1 && s->statuses[0] == 1 && um_streq(s->error, "no"));
    assert_int_equal(s->times[UM_LOAD_TOTAL].n, 3);
    um_free(s);
}

static void one_chunk_has_no_time_per_token(void **state) {
    um_load_record whole = answered(0, 0, 2, 2, 11), one = answered(0, 0, 1, 2, 1);
    (void)state;
    whole.chunks = 1;
    assert_true(um_load_tpot(&whole) < 0 && um_load_tpot(&one) < 0);
}

static void quantiles_are_those_of_all_runs(void **state) {
    um_load_record r[100];
    um_load_summary *s = UM_NEW(um_load_summary);
    (void)state;
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 100; i++) r[i] = answered(0, 0, 0.001 * (100 * k + i + 1), 1, 2);
        um_load_run run = {.record = r, .n = UM_LEN(r), .seconds = 1};
        um_histogram_add(&run.gap, 0.5);
        um_load_summarise(s, &run, &(um_load_slo){0});
    }
    const um_histogram *h = &s->times[UM_LOAD_TTFT];
    assert_true(h->n == 200 && s->n_rates == 2 && s->times[UM_LOAD_GAP].n == 2);
    assert_true(fabs(um_histogram_quantile(h, 0.5) / 0.1 - 1) < 0.02);
    assert_true(fabs(um_histogram_quantile(h, 0.99) / 0.198 - 1) < 0.02);
    um_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrivals_depend_on_the_seed_only),
        cmocka_unit_test(gaps_are_exponential),
        cmocka_unit_test(seconds_limit_the_arrivals),
        cmocka_unit_test(arrivals_of_a_trace_ascend),
        cmocka_unit_test(points_and_ranges_are_checked),
        cmocka_unit_test(random_prompts_have_the_requested_lengths),
        cmocka_unit_test(parses_responses_of_servers),
        cmocka_unit_test(usage_has_passes),
        cmocka_unit_test(counts_are_clamped),
        cmocka_unit_test(errors_name_the_parameter_and_give_advice),
        cmocka_unit_test(snapshots_become_frames),
        cmocka_unit_test(times_count_from_when_a_request_was_due),
        cmocka_unit_test(rates_and_goodput_are_those_of_answered_requests),
        cmocka_unit_test(one_chunk_has_no_time_per_token),
        cmocka_unit_test(quantiles_are_those_of_all_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
