/* Replays the recordings in build/data/golden/cases and compares tokens, block states and finish reasons pass by pass.
 * The requests of a case run one at a time and all in one batch. One of these runs has keys and values in a common
 * pool, the other one has them in separate pools. Then the same requests run without --compat: their answers have no
 * masks and exactly max_tokens tokens. */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* cmocka.h needs the headers above. */
#include <cmocka.h>

#include "free_port.h"
#include "rank_process.h"
#include "support.h"

static const char *const cases[] = {
    "sdar_single",       "sdar_single_b32", "sdar_multi",   "sdar_multi_low", "fdv2_multi",   "stable_diffcoder",
    "sdar_moe_multi",    "llada2_single",   "llada2_multi", "dream_reasoner", "llada2_edit",  "llada2_dmax",
    "llada2_dmax_multi", "llada_d2f",       "llada_d2f_b8", "dream_d2f",      "dream_d2f_b8", "diffucoder_d2f"};

/* A recorded request that is being replayed. */
typedef struct replay {
    const char *name;
    json_t *want;
    size_t index, pass;
    size_t fragile; /* first pass whose decisions may depend on rounding: nothing is compared from there on */
    bool finished;
} replay;

static json_t *load(const char *name) {
    char path[256];
    um_err err;
    json_t *root = NULL;
    snprintf(path, sizeof(path), "build/data/golden/cases/%s.json", name);
    if (um_json_load(&root, path, &err)) fail_msg("%s", err.msg);
    return root;
}

static int64_t number(const json_t *obj, const char *key) { return json_integer_value(json_object_get(obj, key)); }

static void check_ids(const replay *r, const char *what, const json_t *want, const int32_t *have, size_t n) {
    if (json_array_size(want) != n)
        fail_msg("%s[%zu] pass %zu: %s: expected %zu, found %zu", r->name, r->index, r->pass, what,
                 json_array_size(want), n);
    for (size_t i = 0; i < n; i++) {
        int64_t id = json_integer_value(json_array_get(want, i));
        if (id != have[i])
            fail_msg("%s[%zu] pass %zu: %s %zu: expected %lld, found %d", r->name, r->index, r->pass, what, i,
                     (long long)id, have[i]);
    }
}

static void check_state(const replay *r, const json_t *want, const um_trace *t) {
    assert_int_equal(json_array_size(want), t->n_blocks);
    for (int32_t i = 0; i < t->n_blocks; i++) {
        const json_t *s = json_array_get(want, (size_t)i);
        const char *status = json_string_value(json_array_get(s, 1));
        int64_t masks = json_integer_value(json_array_get(s, 2));
        if (!um_streq(status, t->status[i]) || masks != t->masks[i])
            fail_msg("%s[%zu] pass %zu: block %d: expected %s with %lld masks, found %s with %d", r->name, r->index,
                     r->pass, t->block[i], status, (long long)masks, t->status[i], t->masks[i]);
    }
}

static void check_pass(replay *r, const um_trace *t) {
    if (r->pass >= r->fragile) return;
    const json_t *steps = json_object_get(r->want, "steps"), *step = json_array_get(steps, r->pass);
    if (!step) fail_msg("%s[%zu]: more passes than the %zu recorded", r->name, r->index, json_array_size(steps));
    assert_int_equal(json_is_true(json_object_get(step, "prefill")), t->prefill);
    assert_int_equal(number(step, "new"), t->n_new);
    check_ids(r, "blocks", json_object_get(step, "blocks"), t->block, (size_t)t->n_blocks);
    /* A recording has no tokens after the last pass, because Diffulex had freed the request. */
    if (r->pass + 1 < json_array_size(steps))
        check_ids(r, "tokens", json_object_get(step, "tokens"), t->token, (size_t)t->n_tokens);
    check_state(r, json_object_get(step, "state"), t);
    r->pass++;
}

static void check_result(replay *r, const um_result *res) {
    r->finished = true;
    if (r->fragile != SIZE_MAX) {
        assert_int_equal(r->pass, r->fragile);
        return;
    }
    assert_int_equal(r->pass, json_array_size(json_object_get(r->want, "steps")));
    assert_int_equal(r->pass, res->nfe);
    check_ids(r, "output", json_object_get(r->want, "output"), res->token_ids, res->n_tokens);
    assert_string_equal(um_finish_name(res->finish), json_string_value(json_object_get(r->want, "finish")));
}

static void on_event(void *arg, const um_event *ev) {
    replay *r = (replay *)arg;
    if (ev->type == UM_EVENT_TRACE) check_pass(r, ev->trace);
    else if (ev->type == UM_EVENT_FINISH) check_result(r, ev->result);
}

static void set(um_config *c, const char *name, const json_t *obj, const char *key) {
    const json_t *v = json_object_get(obj, key);
    char text[64];
    um_err err;
    if (!v) return;
    if (json_is_string(v)) snprintf(text, sizeof(text), "%s", json_string_value(v));
    else snprintf(text, sizeof(text), "%.9g", json_number_value(v));
    if (um_config_set(c, name, text, &err)) fail_msg("%s", err.msg);
}

static void configure(um_config *c, const json_t *root, const char *device) {
    const json_t *engine = json_object_get(root, "engine"), *sampling = json_object_get(root, "sampling");
    const json_t *thresholds = json_object_get(engine, "decoding_thresholds");
    static const char *const engine_keys[] = {"page_size",         "max_model_len", "max_num_batched_tokens",
                                              "max_num_reqs",      "block_size",    "buffer_size",
                                              "decoding_strategy", "sampling_mode", "token_merge_top_k"};
    static const char *const threshold_keys[] = {"add_block_threshold", "semi_complete_threshold", "accept_threshold",
                                                 "token_stability_threshold", "remask_threshold"};
    static const char *const sampling_keys[] = {"temperature", "max_tokens", "max_nfe"};
    um_config_init(c);
    for (size_t i = 0; i < UM_LEN(engine_keys); i++) set(c, engine_keys[i], engine, engine_keys[i]);
    for (size_t i = 0; i < UM_LEN(threshold_keys); i++) set(c, threshold_keys[i], thresholds, threshold_keys[i]);
    for (size_t i = 0; i < UM_LEN(sampling_keys); i++) set(c, sampling_keys[i], sampling, sampling_keys[i]);
    c->sampling.ignore_eos = json_is_true(json_object_get(sampling, "ignore_eos"));
    c->compat = UM_COMPAT_DIFFULEX;
    snprintf(c->device, sizeof(c->device), "%s", device);
    snprintf(c->dtype, sizeof(c->dtype), "float32");
}

static size_t read_prompt(const json_t *request, int32_t *ids) {
    const json_t *prompt = json_object_get(request, "prompt");
    size_t n = json_array_size(prompt);
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)json_integer_value(json_array_get(prompt, i));
    return n;
}

static void add(um_engine *e, replay *r, int32_t *ids) {
    um_request q;
    um_err err;
    um_request_init(e, &q);
    q.ids = ids;
    q.n_ids = read_prompt(r->want, ids);
    q.events = UM_EVENT_TRACE;
    q.on_event = on_event;
    q.arg = r;
    if (um_engine_add(e, &q, NULL, &err)) fail_msg("%s", err.msg);
}

static void drain(um_engine *e) {
    um_err err;
    while (um_engine_pending(e))
        if (um_engine_step(e, &err)) fail_msg("%s", err.msg);
}

/* The model of a case, and an engine with the case's settings. */
typedef struct recorded {
    um_model *model;
    um_engine *engine;
} recorded;

static void open_recorded(recorded *x, um_config *c, const json_t *root) {
    char folder[256];
    um_err err;
    *x = (recorded){0};
    snprintf(folder, sizeof(folder), "build/data/golden/models/%s", json_string_value(json_object_get(root, "family")));
    c->model = folder;
    if (um_model_open(&x->model, c, &err) || um_engine_new(&x->engine, x->model, c, &err)) fail_msg("%s", err.msg);
    c->model = NULL;
}

static void close_recorded(recorded *x) {
    um_engine_free(x->engine);
    um_model_close(x->model);
}

/* How several ranks compute a model. */
typedef struct division {
    int32_t ranks;
    bool whole_experts;
    bool processes; /* each rank is one */
} division;
static const division alone = {1, false, false};

/* Starts the processes of the other ranks. */
static void start_processes(um_config *c, const json_t *root, division by, pid_t pid[UM_RANKS_MAX]) {
    char folder[256], device[sizeof c->device];
    snprintf(folder, sizeof(folder), "build/data/golden/models/%s", json_string_value(json_object_get(root, "family")));
    snprintf(device, sizeof device, "%s", c->device);
    c->nnodes = by.ranks;
    c->rank = 0;
    c->master_port = free_port();
    c->threads = 1;
    c->distributed_timeout_seconds = 60;
    c->model = folder;
    for (int32_t r = 1; r < by.ranks; r++) pid[r] = rank_process_start(c, device, r);
    c->model = NULL;
    rank_device(c->device, sizeof c->device, device, 0);
}

static void replay_case(const char *name, const char *device, const char *layout, bool batched, division by) {
    json_t *root = load(name), *requests = json_object_get(root, "requests");
    um_config c;
    recorded x;
    replay r[16];
    int32_t ids[1024];
    pid_t pid[UM_RANKS_MAX];
    size_t n = json_array_size(requests), passes = 0;
    assert_true(n > 0 && n <= UM_LEN(r));
    if (um_streq(device, "ref")) n = 1; /* it is slow */
    configure(&c, root, device);
    snprintf(c.kv_cache_layout, sizeof(c.kv_cache_layout), "%s", layout);
    c.tensor_parallel_size = by.ranks;
    c.enable_expert_parallel = by.whole_experts;
    if (by.processes) start_processes(&c, root, by, pid);
    open_recorded(&x, &c, root);
    for (size_t i = 0; i < n; i++) {
        const json_t *want = json_array_get(requests, i), *fragile = json_object_get(want, "fragile_from");
        r[i] = (replay){.name = name,
                        .want = json_array_get(requests, i),
                        .index = i,
                        .fragile = fragile ? (size_t)json_integer_value(fragile) : SIZE_MAX};
        add(x.engine, &r[i], ids);
        if (!batched) drain(x.engine);
    }
    drain(x.engine);
    for (size_t i = 0; i < n; i++) {
        assert_true(r[i].finished);
        passes += r[i].pass;
    }
    print_message("# %-18s %-4s %-8s %-7s %d ranks%s%s %zu requests, %zu passes equal\n", name, device, layout,
                  batched ? "batched" : "alone", by.ranks, by.whole_experts ? " with whole experts" : "",
                  by.processes ? " in processes" : "", n, passes);
    close_recorded(&x);
    for (int32_t k = 1; by.processes && k < by.ranks; k++) assert_true(rank_process_end(pid[k]));
    json_decref(root);
}

/* Replays every case. Every second case has keys and values in a common pool, and the others in separate pools. */
static void replay_all(bool batched) {
    static const char *const layouts[] = {"unified", "distinct"};
    const char *device = test_device("cpu");
    for (size_t i = 0; i < UM_LEN(cases); i++)
        replay_case(cases[i], device, layouts[(i + batched) % 2], batched, alone);
}

static void equals_recordings_alone(void **state) {
    (void)state;
    replay_all(false);
}
static void equals_recordings_batched(void **state) {
    (void)state;
    replay_all(true);
}

/* Returns whether case i is the first one of its model. */
static bool is_first_of_model(size_t i) {
    json_t *before = i ? load(cases[i - 1]) : NULL, *root = load(cases[i]);
    const bool is = !json_equal(json_object_get(before, "family"), json_object_get(root, "family"));
    json_decref(before);
    json_decref(root);
    return is;
}

/* Two or four ranks compute each model together. Most models have 2 KV heads, so of four ranks two have the same. */
static void equals_recordings_in_ranks(void **state) {
    (void)state;
    const char *device = test_device("cpu");
    const bool two = test_has_room(device, 2), four = test_has_room(device, 4);
    for (size_t i = 0; i < UM_LEN(cases); i++)
        for (int32_t ranks = 2; is_first_of_model(i) && ranks <= 4 && (ranks == 2 ? two : four); ranks += 2)
            replay_case(cases[i], device, ranks == 2 ? "unified" : "distinct", true, (division){ranks, false, false});
}

/* Each rank has some of the experts instead of a part of each. */
static void equals_recordings_with_whole_experts(void **state) {
    static const char *const of[] = {"sdar_moe_multi", "llada2_single", "llada2_edit"};
    (void)state;
    for (size_t i = 0; i < UM_LEN(of); i++)
        for (int32_t ranks = 2; ranks <= 4 && test_has_room(test_device("cpu"), ranks); ranks += 2)
            replay_case(of[i], test_device("cpu"), "unified", true, (division){ranks, true, false});
}

/* Each rank is a process. */
static void equals_recordings_in_processes(void **state) {
    const char *device = test_device("cpu");
    (void)state;
    for (size_t i = 0; i < UM_LEN(cases) && test_has_room(device, 2); i++)
        if (is_first_of_model(i)) replay_case(cases[i], device, "unified", true, (division){2, false, true});
}

/* The reference is slow, so it replays only the first case of each model. */
static void equals_recordings_on_ref(void **state) {
    (void)state;
    const char *device = test_device("ref");
    for (size_t i = 0; i < UM_LEN(cases); i++)
        if (is_first_of_model(i)) replay_case(cases[i], device, "unified", false, alone);
}

/* ---- Without --compat -------------------------------------------------------------------------------------------- */

enum { TOKENS_MAX = 256, EOS = 501 };

/* The result of a recorded request without --compat. */
typedef struct answer {
    int32_t n, token[TOKENS_MAX], stop_id;
    um_finish finish;
} answer;

static void keep(void *arg, const um_event *ev) {
    answer *a = (answer *)arg;
    if (ev->type != UM_EVENT_FINISH) return;
    assert_true(ev->result->n_tokens <= TOKENS_MAX);
    a->n = (int32_t)ev->result->n_tokens;
    a->finish = ev->result->finish;
    a->stop_id = ev->result->stop_id;
    memcpy(a->token, ev->result->token_ids, ev->result->n_tokens * sizeof(int32_t));
}

static void add_request(um_engine *e, const json_t *want, bool ignore_eos, answer *a) {
    int32_t ids[1024];
    um_request q;
    um_err err;
    um_request_init(e, &q);
    q.ids = ids;
    q.n_ids = read_prompt(want, ids);
    q.sampling.ignore_eos = ignore_eos;
    q.sampling.max_nfe = 0;
    q.on_event = keep;
    q.arg = a;
    *a = (answer){.n = -1};
    if (um_engine_add(e, &q, NULL, &err)) fail_msg("%s", err.msg);
}

static void check_answer(const char *name, const answer *a, bool ignore_eos, const um_config *c, int32_t mask,
                         int32_t eos) {
    int32_t most = c->sampling.max_tokens;
    bool is_full = a->finish == UM_FINISH_MAX_TOKENS && a->n == most, ended = a->finish == UM_FINISH_EOS && a->n < most;
    if (!is_full && (ignore_eos || !ended))
        fail_msg("%s: %d of %d tokens, finished by %s", name, a->n, most, um_finish_name(a->finish));
    if (ended) assert_int_equal(a->stop_id, eos);
    for (int32_t i = 0; i < a->n; i++) {
        if (a->token[i] == mask) fail_msg("%s: a mask at %d", name, i);
        if (a->token[i] == eos && !ignore_eos) fail_msg("%s: an end of sequence at %d", name, i);
    }
}

/* Decodes every request of the case without --compat: as it was recorded, and with ignore_eos. */
static void decode_without_compat(const char *name) {
    json_t *root = load(name), *requests = json_object_get(root, "requests");
    static answer a[2][16];
    size_t n = json_array_size(requests);
    um_config c;
    um_model_info info;
    recorded x;
    assert_true(n > 0 && n <= UM_LEN(a[0]));
    configure(&c, root, "cpu");
    c.compat = UM_COMPAT_NONE;
    c.decoding.remask_threshold = NAN; /* Diffulex ignores it; without --compat samplers that edit reject it */
    open_recorded(&x, &c, root);
    for (size_t i = 0; i < 2 * n; i++) add_request(x.engine, json_array_get(requests, i / 2), i % 2, &a[i % 2][i / 2]);
    drain(x.engine);
    um_model_get_info(x.model, &info);
    for (size_t i = 0; i < 2 * n; i++) check_answer(name, &a[i % 2][i / 2], i % 2, &c, info.mask_id, EOS);
    close_recorded(&x);
    json_decref(root);
}

static void without_compat_no_mask_leaves_and_max_tokens_is_exact(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(cases); i++) decode_without_compat(cases[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_recordings_in_ranks),
        cmocka_unit_test(equals_recordings_in_processes),
        cmocka_unit_test(equals_recordings_with_whole_experts),
        cmocka_unit_test(equals_recordings_on_ref),
        cmocka_unit_test(equals_recordings_alone),
        cmocka_unit_test(equals_recordings_batched),
        cmocka_unit_test(without_compat_no_mask_leaves_and_max_tokens_is_exact),
    };
    return cmocka_run_group_tests_name("golden recordings", tests, NULL, NULL);
}
