/* A worker over an in-process link: its replies to commands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "failing_device.h"
#include "server/worker/worker.h"

#define WAIT_MS 60000 /* the longest wait for an expected event */

typedef struct fixture {
    um_config config;
    um_worker_config worker;
    um_hub *hub;
    uint16_t incarnation; /* the worker's present one */
    pthread_t thread;
    um_status status;
    um_err err;
    um_arena arena;
} fixture;

static void *run(void *arg) {
    fixture *f = (fixture *)arg;
    f->status = um_worker_run(&f->worker, &f->err);
    return NULL;
}

static int32_t ranks = 1; /* of the next worker's engine */

/* Prepares a worker without a link. */
static void init(fixture *f, const char *model) {
    memset(f, 0, sizeof *f);
    um_config_init(&f->config);
    f->config.model = model;
    f->config.threads = 1;
    f->config.tensor_parallel_size = ranks;
    f->incarnation = 7;
    f->worker = (um_worker_config){.engine = &f->config, .incarnation = 7, .stats_interval = 1e6};
}

static void start(fixture *f, const char *model) {
    um_err err;
    init(f, model);
    assert_int_equal(um_hub_open_local(&f->hub, 1, &err), UM_OK);
    f->worker.port = um_port_open_local(f->hub, 0, 7);
    assert_int_equal(pthread_create(&f->thread, NULL, run, f), 0);
}

static void send(fixture *f, um_msg m) {
    um_buf frame = {0};
    um_wire_write(&frame, &m);
    assert_true(um_hub_send(f->hub, 0, f->incarnation, &frame));
}

/* Returns the next message, which is valid until the call after the next. */
static um_msg receive(fixture *f) {
    um_msg m;
    um_str frame;
    um_err err;
    struct pollfd p = {.fd = um_hub_fd(f->hub), .events = POLLIN};
    do { /* skips frames of the old incarnation, sent before the worker noticed the loss */
        while (!um_hub_receive(f->hub, &frame))
            if (poll(&p, 1, WAIT_MS) <= 0) fail_msg("no message within %d s", WAIT_MS / 1000);
        um_arena_reset(&f->arena);
        if (um_wire_read(&m, &f->arena, frame, &err)) fail_msg("%s", err.msg);
    } while (m.incarnation < f->incarnation);
    assert_int_equal(m.incarnation, f->incarnation);
    return m;
}

/* Returns whether the message may come at any time. */
static bool is_news(um_msg_type type) { return type == UM_MSG_STATS || type == UM_MSG_LOADING; }

/* Returns the next message, which must be of this type. Skips STATS and LOADING. */
static um_msg expect(fixture *f, um_msg_type type) {
    um_msg m = receive(f);
    while (is_news(m.type) && m.type != type) m = receive(f);
    if (m.type != type) fail_msg("expected \"%s\", found \"%s\"", um_msg_name(type), um_msg_name(m.type));
    return m;
}

static void stop(fixture *f) {
    pthread_join(f->thread, NULL);
    um_port_close(f->worker.port);
    um_hub_close(f->hub);
    um_arena_free(&f->arena);
}

static void shut_down(fixture *f) {
    send(f, (um_msg){.type = UM_MSG_SHUTDOWN});
    stop(f);
    assert_int_equal(f->status, UM_OK);
}

static void ready(fixture *f) {
    start(f, "models/tiny-block");
    um_msg hello = expect(f, UM_MSG_HELLO);
    assert_true(um_str_eq(hello.hello.version, um_str_of(um_version())));
    um_msg loading = receive(f);
    assert_int_equal(loading.type, UM_MSG_LOADING);
    assert_int_equal(loading.loading.bytes, 0);
    assert_true(loading.loading.bytes_all > 1000000);
    um_msg m = expect(f, UM_MSG_READY);
    assert_true(m.ready.pages_total > 0 && m.ready.max_model_len > 0 && m.ready.page_size > 0 && m.ready.n_params > 0);
    assert_true(um_str_eq(m.ready.strategy, UM_STR("multi_bd")) && um_str_eq(m.ready.sampler, UM_STR("confidence")));
    expect(f, UM_MSG_STATS);
}

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

static const int32_t prompt[] = {70, 71, 72, 73, 74, 75, 76, 77};

static um_msg_generate question(uint64_t rid) {
    static const um_pair set[] = {{UM_STR("max_tokens"), UM_STR("24")},
                                  {UM_STR("ignore_eos"), UM_STR("true")},
                                  {UM_STR("logprobs"), UM_STR("2")},
                                  {UM_STR("block_size"), UM_STR("8")}};
    return (um_msg_generate){.rid = rid,
                             .events = UM_EVENT_TEXT | UM_EVENT_SNAPSHOT,
                             .n = 1,
                             .ids = prompt,
                             .n_ids = UM_LEN(prompt),
                             .set = set,
                             .n_set = UM_LEN(set)};
}

/* The collected events of one answer. */
typedef struct answer {
    um_buf text;
    int32_t ids[64], text_end[64], likeliest_id[128];
    float logprob[64], likeliest[128];
    uint32_t n;
    int n_snapshots;
} answer;

static void add_text(answer *a, const um_msg_text *t) {
    assert_int_equal(t->offset, a->n);
    assert_true(t->n_logprob == t->n_ids && t->n_likeliest == 2);
    for (uint32_t i = 0; i < t->n_ids; i++, a->n++) {
        a->ids[a->n] = t->ids[i];
        a->text_end[a->n] = t->text_end[i];
        a->logprob[a->n] = t->logprob[i];
        memcpy(a->likeliest_id + 2 * a->n, t->likeliest_id + 2 * i, 2 * sizeof *t->likeliest_id);
        memcpy(a->likeliest + 2 * a->n, t->likeliest + 2 * i, 2 * sizeof *t->likeliest);
    }
    um_buf_append(&a->text, t->text.p, t->text.n);
}

static void check_snapshot(const um_msg_snapshot *s) {
    for (uint32_t i = 0; i < s->n; i++) {
        assert_int_equal(s->ids[i] == -1, s->state[i] == UM_TOKEN_MASK);
        assert_int_equal(s->pass[i] == -1, s->state[i] == UM_TOKEN_MASK);
    }
    for (uint32_t i = 0; i < s->n_blocks; i++) assert_string_not_equal(um_block_name(s->block_status[i]), "unknown");
}

static void check_finish(answer *a, const um_msg_finish *f) {
    assert_int_equal(f->n_ids, a->n);
    assert_memory_equal(f->ids, a->ids, a->n * sizeof(int32_t));
    assert_memory_equal(f->text_end, a->text_end, a->n * sizeof(int32_t));
    assert_true(f->n_logprob == a->n && f->n_likeliest == 2 && f->n_likeliest_all == 2 * a->n);
    assert_memory_equal(f->logprob, a->logprob, a->n * sizeof(float));
    assert_memory_equal(f->likeliest_id, a->likeliest_id, 2 * a->n * sizeof(int32_t));
    assert_memory_equal(f->likeliest, a->likeliest, 2 * a->n * sizeof(float));
    assert_true(um_str_eq(f->text, (um_str){a->text.data, a->text.len}));
    um_buf_free(&a->text);
}

static void streamed_events_add_up_to_the_result(void **state) {
    (void)state;
    fixture f;
    answer a = {0};
    ready(&f);
    send(&f, (um_msg){.type = UM_MSG_GENERATE, .generate = question(5)});
    for (;;) {
        um_msg m = receive(&f);
        if (m.type == UM_MSG_STATS) continue;
        assert_int_equal(m.text.rid, 5); /* the first field of each */
        if (m.type == UM_MSG_TEXT) add_text(&a, &m.text);
        if (m.type == UM_MSG_SNAPSHOT) a.n_snapshots++, check_snapshot(&m.snapshot);
        if (m.type != UM_MSG_FINISH) continue;
        assert_int_equal(m.finish.finish, UM_FINISH_MAX_TOKENS);
        assert_int_equal(m.finish.n_ids, 24);
        assert_int_equal(m.finish.prompt_tokens, UM_LEN(prompt));
        check_finish(&a, &m.finish);
        break;
    }
    assert_true(a.n_snapshots > 0);
    shut_down(&f);
}

static void requests_run_side_by_side_and_every_answer_ends(void **state) {
    (void)state;
    fixture f;
    answer a[2][2] = {0};
    int left = 4;
    ready(&f);
    for (uint64_t rid = 0; rid < 2; rid++) {
        um_msg_generate g = question(rid + 1);
        g.n = 2;
        g.events = UM_EVENT_TEXT;
        send(&f, (um_msg){.type = UM_MSG_GENERATE, .generate = g});
    }
    while (left > 0) {
        um_msg m = receive(&f);
        assert_int_not_equal(m.type, UM_MSG_SNAPSHOT);
        if (m.type == UM_MSG_TEXT) add_text(&a[m.text.rid - 1][m.text.index], &m.text);
        if (m.type != UM_MSG_FINISH) continue;
        check_finish(&a[m.finish.rid - 1][m.finish.index], &m.finish);
        left--;
    }
    um_msg m = expect(&f, UM_MSG_STATS); /* sent at once after the last request */
    assert_int_equal(m.stats.requests, 4);
    assert_int_equal(m.stats.requests_running + m.stats.requests_waiting, 0);
    assert_int_equal(m.stats.pages_used_most > 0, 1);
    int64_t steps = 0;
    for (uint32_t i = 0; i < m.stats.n_step_tokens; i++) steps += m.stats.step_tokens[i];
    assert_int_equal(steps, m.stats.steps);
    shut_down(&f);
}

static void an_aborted_request_ends_and_unknown_ones_are_ignored(void **state) {
    (void)state;
    fixture f;
    ready(&f);
    um_msg_generate g = question(9);
    static const um_pair set[] = {{UM_STR("max_tokens"), UM_STR("400")}, {UM_STR("ignore_eos"), UM_STR("true")}};
    g.set = set;
    g.n_set = UM_LEN(set);
    g.events = 0;
    send(&f, (um_msg){.type = UM_MSG_ABORT, .abort = {.rid = 1234}});
    send(&f, (um_msg){.type = UM_MSG_GENERATE, .generate = g});
    send(&f, (um_msg){.type = UM_MSG_ABORT, .abort = {.rid = 9}});
    um_msg m = expect(&f, UM_MSG_FINISH);
    assert_int_equal(m.finish.rid, 9);
    assert_int_equal(m.finish.finish, UM_FINISH_ABORTED);
    send(&f, (um_msg){.type = UM_MSG_PING, .ping = {.number = 3}});
    m = expect(&f, UM_MSG_PONG);
    assert_int_equal(m.ping.number, 3);
    shut_down(&f);
}

static void a_bad_request_is_an_error_and_nothing_else(void **state) {
    (void)state;
    static const um_pair set[] = {{UM_STR("temperature"), UM_STR("warm")}};
    static const um_str stop[] = {{"a\0b", 3}};
    const int32_t outside[] = {1 << 30};
    fixture f;
    ready(&f);
    um_msg_generate parameter = question(1), text = question(2), ids = question(3), empty = question(4);
    parameter.set = set;
    parameter.n_set = 1;
    text.stop = stop;
    text.n_stop = 1;
    ids.ids = outside;
    ids.n_ids = 1;
    empty.n_ids = 0;
    const struct {
        const um_msg_generate *g;
        const char *param;
    } cases[] = {{&parameter, "temperature"}, {&text, "stop"}, {&ids, "ids"}, {&empty, "ids"}};
    for (size_t i = 0; i < UM_LEN(cases); i++) {
        send(&f, (um_msg){.type = UM_MSG_GENERATE, .generate = *cases[i].g});
        um_msg m = expect(&f, UM_MSG_ERROR);
        assert_int_equal(m.error.rid, cases[i].g->rid);
        assert_true(m.error.status < 0 && m.error.message.n > 0);
        if (!um_str_eq(m.error.param, um_str_of(cases[i].param)))
            fail_msg("expected param %s, found \"%.*s\": %.*s", cases[i].param, (int)m.error.param.n, m.error.param.p,
                     (int)m.error.message.n, m.error.message.p);
    }
    shut_down(&f);
}

static void a_duplicate_request_number_is_an_error(void **state) {
    (void)state;
    fixture f;
    ready(&f);
    um_msg_generate g = question(6);
    g.events = 0;
    send(&f, (um_msg){.type = UM_MSG_GENERATE, .generate = g});
    send(&f, (um_msg){.type = UM_MSG_GENERATE, .generate = g});
    bool failed = false, finished = false;
    while (!failed || !finished) {
        um_msg m = receive(&f);
        failed |= m.type == UM_MSG_ERROR;
        finished |= m.type == UM_MSG_FINISH;
    }
    shut_down(&f);
}

/* A frame that is truncated after its request number. */
static void an_invalid_command_gets_an_error(void **state) {
    (void)state;
    fixture f;
    um_buf frame = {0};
    ready(&f);
    um_msg m = {.type = UM_MSG_GENERATE, .generate = question(8)};
    um_wire_write(&frame, &m);
    frame.len = 32;
    frame.data[8] = 32, frame.data[9] = 0; /* its length */
    assert_true(um_hub_send(f.hub, 0, 7, &frame));
    m = expect(&f, UM_MSG_ERROR);
    assert_int_equal(m.error.rid, 8);
    shut_down(&f);
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

static um_msg call(fixture *f, const char *name, const char *args) {
    static uint64_t id;
    send(f, (um_msg){.type = UM_MSG_CALL, .call = {.call_id = ++id, .name = um_str_of(name), .args = um_str_of(args)}});
    um_msg m = expect(f, UM_MSG_RETURN);
    assert_int_equal(m.ret.call_id, id);
    return m;
}

/* Calls a utility that must succeed; returns the result as JSON. */
static json_t *result(fixture *f, const char *name, const char *args) {
    json_t *v = NULL;
    um_err err;
    um_msg m = call(f, name, args);
    if (m.ret.status) fail_msg("%s: %.*s", name, (int)m.ret.value.n, m.ret.value.p);
    if (um_json_parse(&v, m.ret.value.p, m.ret.value.n, name, &err)) fail_msg("%s", err.msg);
    return v;
}

static bool mentions(um_str s, const char *what) { return s.n && memmem(s.p, s.n, what, strlen(what)); }

static void calls_find_utilities_by_name(void **state) {
    (void)state;
    fixture f;
    ready(&f);
    json_t *v = result(&f, "echo", "{\"a\": [1, \"\xC3\xA9\"]}");
    assert_string_equal(json_string_value(json_array_get(json_object_get(v, "a"), 1)), "\xC3\xA9");
    json_decref(v);
    v = result(&f, "stats", "");
    assert_true(json_is_integer(json_object_get(v, "pages_total")));
    assert_int_equal(json_array_size(json_object_get(v, "step_tokens")), UM_STATS_BUCKETS);
    json_decref(v);
    v = result(&f, "memory_report", "{}");
    assert_true(json_integer_value(json_object_get(v, "weight_bytes")) > 0);
    json_decref(v);
    v = result(&f, "list_models", "{}");
    assert_true(json_array_size(v) == 1 && json_is_string(json_object_get(json_array_get(v, 0), "path")));
    json_decref(v);
    v = result(&f, "slots", "{}");
    assert_int_equal(json_array_size(v), 0);
    json_decref(v);
    json_decref(result(&f, "flush_cache", "{}"));
    shut_down(&f);
}

static void a_failed_call_reports_the_reason(void **state) {
    (void)state;
    static const struct {
        const char *name, *args, *says, *param;
    } cases[] = {
        {"nothing", "{}", "run_diffusion_generation", ""},
        {"echo", "{", "arguments", ""},
        {"set_log_level", "{\"level\": \"loud\"}", "debug", "level"},
        {"set_log_level", "{\"level\": 5}", "a string", "level"},
        {"start_profile", "{\"prefix\": \"../x\"}", "slash", "prefix"},
        {"start_profile", "{\"path\": 1}", "a string", "path"},
        {"start_profile", "{\"path\": \"/nowhere/x.json\"}", "/nowhere/x.json", ""},
        {"run_diffusion_generation", "{}", "prompts", "prompts"},
        {"run_diffusion_generation", "{\"prompts\": [1]}", "prompts", "prompts"},
        {"run_diffusion_generation", "{\"prompts\": [\"a\"], \"sampling\": {}}", "params: {", "sampling"},
        {"score", "{}", "an object", "request"},
        {"score", "{\"request\": {\"prompt\": \"a\"}}", "missing", "answer"},
        {"score", "{\"request\": {\"prompt\": [70], \"answer\": [[71], []]}}", "answer 1: the answer is empty",
         "answer"},
        {"score", "{\"request\": {}, \"name\": 1}", "request: {", "name"},
        {"abort_scores", "{}", "1 or more", "ticket"},
        {"stats", "{\"worker\": 1}", "none", "worker"},
        {"flush_cache", "[]", "an object", ""},
        {"run_diffusion_generation", "{\"prompts\": [\"a\"], \"params\": [{}, {}]}", "params", "params"},
        {"run_diffusion_generation", "{\"prompts\": [\"a\", [1]], \"params\": {\"top_k\": []}}", "top_k", "top_k"}};
    fixture f;
    ready(&f);
    for (size_t i = 0; i < UM_LEN(cases); i++) {
        um_msg m = call(&f, cases[i].name, cases[i].args);
        assert_true(m.ret.status < 0);
        if (!mentions(m.ret.value, cases[i].says))
            fail_msg("%s %s: expected \"%s\" in: %.*s", cases[i].name, cases[i].args, cases[i].says, (int)m.ret.value.n,
                     m.ret.value.p);
        if (!um_str_eq(m.ret.param, um_str_of(cases[i].param)))
            fail_msg("%s %s: it is about \"%.*s\"", cases[i].name, cases[i].args, (int)m.ret.param.n, m.ret.param.p);
    }
    shut_down(&f);
}

static void a_call_generates_a_list(void **state) {
    (void)state;
    fixture f;
    ready(&f);
    json_t *v = result(&f, "run_diffusion_generation",
                       "{\"prompts\": [\"What is 12 + 30?\", [70, 71, 72], \"x\"],"
                       " \"params\": {\"max_tokens\": 8, \"ignore_eos\": true, \"temperature\": 0}}");
    assert_int_equal(json_array_size(v), 3);
    for (size_t i = 0; i < 3; i++) {
        json_t *one = json_array_get(v, i);
        assert_int_equal(json_array_size(json_object_get(one, "token_ids")), 8);
        assert_true(json_is_string(json_object_get(one, "text")));
        assert_true(json_integer_value(json_object_get(one, "nfe")) > 0);
        assert_true(json_is_integer(json_object_get(one, "seed")));
        assert_null(json_object_get(one, "logprobs"));
        assert_string_equal(json_string_value(json_object_get(one, "finish_reason")), "max_new_tokens_reached");
    }
    assert_int_equal(json_integer_value(json_object_get(json_array_get(v, 1), "prompt_tokens")), 3);
    json_decref(v);
    shut_down(&f);
}

static void a_call_scores_answers(void **state) {
    (void)state;
    fixture f;
    ready(&f);
    json_t *v =
        result(&f, "score", "{\"request\": {\"prompt\": [70, 71, 72], \"answer\": [[73, 74], \"x\"], \"seed\": 4}}");
    const json_t *scores = json_object_get(v, "scores");
    assert_int_equal(json_array_size(scores), 2);
    for (size_t i = 0; i < 2; i++) {
        assert_true(json_real_value(json_object_get(json_array_get(scores, i), "logprob")) < 0);
        assert_int_equal(json_integer_value(json_object_get(json_array_get(scores, i), "prompt_tokens")), 3);
    }
    assert_int_equal(json_integer_value(json_object_get(json_array_get(scores, 0), "tokens")), 2);
    json_decref(v);
    shut_down(&f);
}

/* A call that takes minutes returns once it is aborted, and nothing runs then. */
static void an_abort_ends_the_scores_of_a_call(void **state) {
    (void)state;
    static const char args[] = "{\"ticket\": 5, \"request\": {\"prompt\": [70], \"samples\": 1000000, \"answer\":"
                               " [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23],"
                               " [24]]}}";
    fixture f;
    ready(&f);
    send(&f, (um_msg){.type = UM_MSG_CALL, .call = {.call_id = 77, .name = UM_STR("score"), .args = um_str_of(args)}});
    send(&f, (um_msg){.type = UM_MSG_CALL,
                      .call = {.call_id = 78, .name = UM_STR("abort_scores"), .args = UM_STR("{\"ticket\": 5}")}});
    um_msg m = expect(&f, UM_MSG_RETURN);
    assert_int_equal(m.ret.call_id, 77);
    assert_int_equal(m.ret.status, UM_ECANCELED);
    m = expect(&f, UM_MSG_RETURN);
    assert_int_equal(m.ret.call_id, 78);
    assert_true(mentions(m.ret.value, "{\"aborted\":1}"));
    json_t *v = result(&f, "slots", "{}");
    assert_int_equal(json_array_size(v), 0);
    json_decref(v);
    v = result(&f, "abort_scores", "{\"ticket\": 5}");
    assert_int_equal(json_integer_value(json_object_get(v, "aborted")), 0);
    json_decref(v);
    shut_down(&f);
}

static void a_generated_list_has_seeds_and_probabilities(void **state) {
    (void)state;
    fixture f;
    ready(&f);
    json_t *v = result(&f, "run_diffusion_generation",
                       "{\"prompts\": [[70, 71], [72]], \"params\": [{\"max_tokens\": 4, \"seed\": 9, \"logprobs\": 2,"
                       " \"ignore_eos\": true, \"temperature\": 0}, {\"max_tokens\": 4, \"logprobs\": 0}]}");
    const json_t *one = json_array_get(v, 0), *ids = json_object_get(one, "token_ids"),
                 *list = json_object_get(one, "logprobs");
    assert_int_equal(json_integer_value(json_object_get(one, "seed")), 9);
    assert_int_equal(json_integer_value(json_object_get(one, "prompt_tokens")), 2);
    assert_int_equal(json_array_size(list), 4);
    for (size_t i = 0; i < 4; i++) {
        const json_t *at = json_array_get(list, i), *top = json_object_get(at, "top");
        assert_int_equal(json_integer_value(json_object_get(at, "token_id")),
                         json_integer_value(json_array_get(ids, i)));
        assert_int_equal(json_array_size(top), 2);
        /* Decoding is greedy, so the token is the top candidate. */
        assert_true(json_equal(json_object_get(json_array_get(top, 0), "token_id"), json_object_get(at, "token_id")));
        assert_true(json_real_value(json_object_get(at, "logprob")) <= 0);
    }
    one = json_array_get(v, 1);
    list = json_object_get(one, "logprobs");
    assert_int_equal(json_array_size(list), json_array_size(json_object_get(one, "token_ids")));
    for (size_t i = 0; i < json_array_size(list); i++)
        assert_int_equal(json_array_size(json_object_get(json_array_get(list, i), "top")), 0);
    json_decref(v);
    shut_down(&f);
}

static void numbers_name_the_prompts_of_a_list(void **state) {
    (void)state;
    fixture f;
    ready(&f);
    um_msg m = call(&f, "run_diffusion_generation",
                    "{\"prompts\": [[70], []], \"numbers\": [4, 7], \"params\": {\"max_tokens\": 2}}");
    assert_true(m.ret.status < 0);
    if (!mentions(m.ret.value, "prompt 7")) fail_msg("%.*s", (int)m.ret.value.n, m.ret.value.p);
    m = call(&f, "run_diffusion_generation", "{\"prompts\": [[70], [71]], \"numbers\": [4]}");
    assert_true(um_str_eq(m.ret.param, UM_STR("numbers")));
    shut_down(&f);
}

/* ---- Start and end ----------------------------------------------------------------------------------------------- */

static void requests_are_aborted_at_the_end(void **state) {
    (void)state;
    static const um_pair set[] = {{UM_STR("max_tokens"), UM_STR("400")}, {UM_STR("ignore_eos"), UM_STR("true")}};
    fixture f;
    ready(&f);
    um_msg_generate g = question(1);
    g.set = set;
    g.n_set = UM_LEN(set);
    send(&f, (um_msg){.type = UM_MSG_GENERATE, .generate = g});
    send(&f, (um_msg){.type = UM_MSG_CALL,
                      .call = {.call_id = 4,
                               .name = UM_STR("run_diffusion_generation"),
                               .args = UM_STR("{\"prompts\": [\"a\"], \"params\": {\"max_tokens\": 400}}")}});
    send(&f, (um_msg){.type = UM_MSG_SHUTDOWN});
    bool finished = false, returned = false;
    while (!finished || !returned) {
        um_msg m = receive(&f);
        finished |= m.type == UM_MSG_FINISH && m.finish.finish == UM_FINISH_ABORTED;
        returned |= m.type == UM_MSG_RETURN && m.ret.call_id == 4;
    }
    stop(&f);
    assert_int_equal(f.status, UM_OK);
}

/* A call with several prompts returns nothing either, even if some prompts finished before the device failed. */
static void check_failed_device(const char *words) {
    static const um_pair set[] = {{UM_STR("max_tokens"), UM_STR("400")},
                                  {UM_STR("ignore_eos"), UM_STR("true")},
                                  {UM_STR("accept_threshold"), UM_STR("1")}, /* one token per pass */
                                  {UM_STR("block_size"), UM_STR("4")}};
    for (int in = FAILS_IN_SUBMIT; in <= FAILS_IN_WAIT; in++) {
        fixture f;
        int n_texts = 0;
        ready(&f);
        um_msg_generate g = question(1);
        g.n = 2;
        g.set = set;
        g.n_set = UM_LEN(set);
        g.allowed_ids = prompt; /* ids with text: the model might write nothing but end tokens */
        g.n_allowed_ids = UM_LEN(prompt);
        fail_after(in, 30);
        send(&f, (um_msg){.type = UM_MSG_GENERATE, .generate = g});
        send(&f, (um_msg){.type = UM_MSG_CALL,
                          .call = {.call_id = 4,
                                   .name = UM_STR("run_diffusion_generation"),
                                   .args = UM_STR("{\"prompts\": [\"a\", \"b\"], \"params\":"
                                                  " [{\"max_tokens\": 1}, {\"max_tokens\": 400, \"ignore_eos\": true, "
                                                  "\"accept_threshold\": 1}]}")}});
        um_msg m = receive(&f);
        for (; m.type != UM_MSG_FAILED; m = receive(&f)) {
            if (m.type == UM_MSG_FINISH || m.type == UM_MSG_ERROR || m.type == UM_MSG_RETURN)
                fail_msg("a \"%s\" of a request that the device failed", um_msg_name(m.type));
            n_texts += m.type == UM_MSG_TEXT;
        }
        assert_true(n_texts > 0);
        assert_int_equal(m.failed.status, UM_EDEVICE);
        assert_true(mentions(m.failed.message, words));
        stop(&f);
        assert_int_equal(f.status, UM_EDEVICE);
        assert_non_null(strstr(f.err.msg, words));
        fail_after(in, -1);
    }
}

static void a_failed_device_ends_the_worker_and_no_cut_answer_is_sent(void **state) {
    (void)state;
    check_failed_device(DEVICE_ERROR);
}

static void a_failed_rank_ends_the_worker_with_its_words(void **state) {
    (void)state;
    ranks = 2;
    check_failed_device(": " DEVICE_ERROR); /* the number of the rank stands before */
    ranks = 1;
}

static void a_model_that_cannot_be_opened_is_reported(void **state) {
    (void)state;
    fixture f;
    start(&f, "models/none");
    expect(&f, UM_MSG_HELLO);
    um_msg m = expect(&f, UM_MSG_FAILED);
    assert_true(mentions(m.failed.message, "models/none"));
    stop(&f);
    assert_int_equal(f.status, UM_ENOENT);
}

/* The addresses of a worker that is not started by its server, and the folder of their sockets. */
typedef struct remote {
    char folder[32], command_addr[64], event_addr[64];
} remote;

static void start_remote(fixture *f, remote *r) {
    um_err err;
    snprintf(r->folder, sizeof r->folder, "/tmp/um-worker-XXXXXX");
    assert_non_null(mkdtemp(r->folder));
    snprintf(r->command_addr, sizeof r->command_addr, "ipc://%s/c", r->folder);
    snprintf(r->event_addr, sizeof r->event_addr, "ipc://%s/e", r->folder);
    init(f, "models/tiny-block");
    assert_int_equal(um_port_open_zmq(&f->worker.port, r->command_addr, r->event_addr, 0, 7, &err), UM_OK);
    assert_int_equal(pthread_create(&f->thread, NULL, run, f), 0);
}

/* Starts a server, to which the worker connects. Returns the worker's first counters. */
static um_msg_stats await_worker(fixture *f, const remote *r) {
    um_err err;
    if (um_hub_open_zmq(&f->hub, 1, r->command_addr, r->event_addr, &err)) fail_msg("%s", err.msg);
    expect(f, UM_MSG_HELLO);
    expect(f, UM_MSG_READY);
    return expect(f, UM_MSG_STATS).stats;
}

/* A worker on another host has no parent process here. Its server restarts while a request runs. */
static void a_worker_without_a_parent_outlives_its_server(void **state) {
    (void)state;
    static const um_pair set[] = {{UM_STR("max_tokens"), UM_STR("400")}, {UM_STR("ignore_eos"), UM_STR("true")}};
    fixture f;
    remote r;
    start_remote(&f, &r);
    for (; f.incarnation < 10; f.incarnation++) {
        assert_int_equal(await_worker(&f, &r).requests_running, 0);
        if (f.incarnation == 9) break;
        um_msg_generate g = question(1);
        g.set = set;
        g.n_set = UM_LEN(set);
        send(&f, (um_msg){.type = UM_MSG_GENERATE, .generate = g});
        expect(&f, UM_MSG_SNAPSHOT);
        um_hub_close(f.hub);
    }
    shut_down(&f);
    assert_int_equal(rmdir(r.folder), 0);
}

/* Returns the counters after a request. */
static um_msg_stats ask(fixture *f) {
    um_msg_generate g = question(1);
    g.events = 0;
    send(f, (um_msg){.type = UM_MSG_GENERATE, .generate = g});
    expect(f, UM_MSG_FINISH);
    return expect(f, UM_MSG_STATS).stats;
}

static int64_t sum(const int64_t *a, uint32_t n) {
    int64_t s = 0;
    for (uint32_t i = 0; i < n; i++) s += a[i];
    return s;
}

/* The server keeps the counters of an incarnation that has ended and adds those of the next one. */
static void the_counters_of_each_connection_start_at_0(void **state) {
    (void)state;
    fixture f;
    remote r;
    start_remote(&f, &r);
    for (; f.incarnation < 10; f.incarnation++) {
        um_msg_stats s = await_worker(&f, &r);
        assert_true(s.steps == 0 && s.tokens == 0 && s.step_seconds == 0);
        assert_int_equal(sum(s.decode_step, s.n_decode_step), 0);
        if (f.incarnation == 8) { /* once with a sleep in between */
            assert_int_equal(ask(&f).requests, 1);
            json_decref(result(&f, "sleep", "{}"));
            json_decref(result(&f, "wake_up", "{}"));
            expect(&f, UM_MSG_READY);
        }
        s = ask(&f);
        assert_int_equal(s.requests, f.incarnation == 8 ? 2 : 1);
        assert_true(s.steps > 0 && s.step_seconds > 0);
        assert_int_equal(sum(s.step_tokens, s.n_step_tokens), s.steps);
        if (f.incarnation == 9) break;
        um_hub_close(f.hub);
    }
    shut_down(&f);
    assert_int_equal(rmdir(r.folder), 0);
}

/* Runs a worker in this thread. It must end before it is ready. */
static void run_until_canceled(fixture *f) {
    um_err err;
    assert_int_equal(um_hub_open_local(&f->hub, 1, &err), UM_OK);
    f->worker.port = um_port_open_local(f->hub, 0, 7);
    assert_int_equal(um_worker_run(&f->worker, &f->err), UM_ECANCELED);
    expect(f, UM_MSG_HELLO);
    expect(f, UM_MSG_FAILED);
    um_port_close(f->worker.port);
    um_hub_close(f->hub);
    um_arena_free(&f->arena);
}

static void an_orphan_ends_at_once(void **state) {
    (void)state;
    fixture f;
    init(&f, "models/tiny-block");
    f.worker.parent = 4194304; /* no process has this number */
    run_until_canceled(&f);
}

static bool is_third(void *arg) { return ++*(int *)arg >= 3; }

/* The worker asks before it loads and after each tensor. */
static void a_worker_that_is_stopped_while_it_loads_ends(void **state) {
    (void)state;
    fixture f;
    int n = 0;
    init(&f, "models/tiny-block");
    f.worker.is_stopped = is_third;
    f.worker.is_stopped_arg = &n;
    run_until_canceled(&f);
    assert_string_equal(f.err.msg, "the worker was told to stop");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streamed_events_add_up_to_the_result),
        cmocka_unit_test(requests_run_side_by_side_and_every_answer_ends),
        cmocka_unit_test(an_aborted_request_ends_and_unknown_ones_are_ignored),
        cmocka_unit_test(a_bad_request_is_an_error_and_nothing_else),
        cmocka_unit_test(a_duplicate_request_number_is_an_error),
        cmocka_unit_test(an_invalid_command_gets_an_error),
        cmocka_unit_test(calls_find_utilities_by_name),
        cmocka_unit_test(a_failed_call_reports_the_reason),
        cmocka_unit_test(a_call_generates_a_list),
        cmocka_unit_test(a_call_scores_answers),
        cmocka_unit_test(an_abort_ends_the_scores_of_a_call),
        cmocka_unit_test(a_generated_list_has_seeds_and_probabilities),
        cmocka_unit_test(numbers_name_the_prompts_of_a_list),
        cmocka_unit_test(requests_are_aborted_at_the_end),
        cmocka_unit_test(a_failed_device_ends_the_worker_and_no_cut_answer_is_sent),
        cmocka_unit_test(a_failed_rank_ends_the_worker_with_its_words),
        cmocka_unit_test(a_model_that_cannot_be_opened_is_reported),
        cmocka_unit_test(a_worker_without_a_parent_outlives_its_server),
        cmocka_unit_test(the_counters_of_each_connection_start_at_0),
        cmocka_unit_test(an_orphan_ends_at_once),
        cmocka_unit_test(a_worker_that_is_stopped_while_it_loads_ends),
    };
    return cmocka_run_group_tests(tests, open_device, NULL);
}
