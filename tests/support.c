/* Helpers for engine tests; see support.h. */
#include "support.h"

#include "free_port.h"
#include "rank_process.h"

/* A process that was started as a rank ends here, before it runs a test. */
__attribute__((constructor)) static void run_rank(int argc, char **argv) { rank_process_run(argc, argv); }

uint64_t test_seed(void) {
    const char *env = getenv("UM_TEST_SEED");
    uint64_t seed = env ? strtoull(env, NULL, 10) : (uint64_t)um_rng_seed();
    print_message("           seed %llu (UM_TEST_SEED repeats it)\n", (unsigned long long)seed);
    return seed;
}

const char *test_device(const char *otherwise) {
    const char *device = getenv("UM_TEST_DEVICE");
    return device ? device : otherwise;
}

int32_t test_ranks(void) {
    const char *ranks = getenv("UM_TEST_RANKS");
    return ranks ? atoi(ranks) : 1;
}

bool test_has_room(const char *device, int32_t ranks) {
    const um_backend *b;
    um_err err = {0};
    int32_t number, there;
    if (um_backend_find(&b, &number, device, &err)) fail_msg("%s", err.msg);
    if (um_backend_is_host(b)) return true;
    if (strchr(device, ':')) there = 1; /* one of them is named */
    else if (b->count(b, &there, &err)) fail_msg("%s", err.msg);
    if (there < ranks) print_message("# %s has %d devices: nothing runs in %d ranks\n", device, there, ranks);
    return there >= ranks;
}

void test_config(um_config *c, const char *name, char *path, size_t path_size) {
    snprintf(path, path_size, strchr(name, '/') ? "build/data/%s" : "build/data/golden/models/%s", name);
    um_config_init(c);
    c->model = path;
    c->max_model_len = 256;
    c->max_num_batched_tokens = 1024;
    snprintf(c->dtype, sizeof(c->dtype), "float32");
    snprintf(c->device, sizeof(c->device), "%s", test_device("cpu"));
    c->tensor_parallel_size = test_ranks();
    c->enable_expert_parallel = getenv("UM_TEST_EXPERT_PARALLEL") && (strstr(name, "moe") || strstr(name, "llada2"));
}

/* Starts the processes of the other ranks. c is the configuration of rank 0. */
static void start_ranks(test_engine *t, um_config *c) {
    char device[sizeof c->device];
    snprintf(device, sizeof device, "%s", c->device);
    t->n_processes = c->tensor_parallel_size - 1;
    c->nnodes = c->tensor_parallel_size;
    c->rank = 0;
    c->master_port = free_port();
    c->distributed_timeout_seconds = 60;
    for (int32_t r = 1; r <= t->n_processes; r++) t->rank[r] = rank_process_start(c, device, r);
    rank_device(c->device, sizeof c->device, device, 0);
}

void test_open(test_engine *t, const um_config *given) {
    um_config c = *given;
    um_err err = {0};
    *t = (test_engine){0};
    if (getenv("UM_TEST_PROCESSES") && c.tensor_parallel_size > 1) start_ranks(t, &c);
    if (um_model_open(&t->model, &c, &err) || um_engine_new(&t->engine, t->model, &c, &err)) fail_msg("%s", err.msg);
}

void test_drop_unread(um_decoding *d) {
    const um_strategy *strategy;
    const um_sampler *sampler = NULL;
    um_option_set sets[UM_DECODE_SETS_MAX];
    um_sampling_params any;
    um_decoding plain;
    assert_int_equal(um_strategy_find(&strategy, d->strategy, NULL), UM_OK);
    if (!um_streq(d->sampler, "auto")) assert_int_equal(um_sampler_find(&sampler, d->sampler, NULL), UM_OK);
    size_t n = um_decode_option_sets(sets, d, &any);
    um_decoding_init(&plain);
    for (size_t i = 0; i < n; i++) {
        if (sets[i].base != d || sets[i].rows == um_decoding_options) continue;
        for (size_t k = 0; k < sets[i].n; k++) {
            const um_option *row = &sets[i].rows[k];
            if (um_params_have(strategy->params, row->name)) continue;
            if (sampler && um_params_have(sampler->params, row->name)) continue;
            memcpy((char *)d + row->offset, (const char *)&plain + row->offset, row->size);
        }
    }
}

void test_close(test_engine *t) {
    um_engine_free(t->engine);
    um_model_close(t->model);
    for (int32_t r = 1; r <= t->n_processes; r++) assert_true(rank_process_end(t->rank[r]));
}

void test_drain(um_engine *e) {
    um_err err = {0};
    while (um_engine_pending(e))
        if (um_engine_step(e, &err)) fail_msg("%s", err.msg);
}

/* Appends the text and the ids of an event. They must begin where the previous event ended. */
static void collect_text(test_answer *a, const um_event *ev) {
    size_t n = strlen(a->streamed);
    assert_true(ev->text_len || ev->n_ids);
    assert_true(n + ev->text_len < sizeof(a->streamed));
    memcpy(a->streamed + n, ev->text, ev->text_len);
    a->streamed[n + ev->text_len] = '\0';
    assert_int_equal(ev->offset, a->n_streamed);
    assert_true((size_t)a->n_streamed + ev->n_ids <= UM_LEN(a->streamed_token));
    memcpy(a->streamed_token + a->n_streamed, ev->ids, ev->n_ids * sizeof(int32_t));
    a->n_streamed += (int32_t)ev->n_ids;
}

/* Checks that the streamed events join to the whole answer. */
static void check_streamed(const test_answer *a, const um_result *r) {
    if (!a->n_streamed && !a->streamed[0]) return; /* the request streams no text, or the answer is empty */
    assert_string_equal(a->streamed, r->text);
    assert_int_equal(a->n_streamed, (int32_t)r->n_tokens);
    assert_memory_equal(a->streamed_token, r->token_ids, r->n_tokens * sizeof(int32_t));
}

void test_collect(void *answer, const um_event *ev) {
    test_answer *a = (test_answer *)answer;
    a->n_events++;
    if (ev->type == UM_EVENT_TEXT) collect_text(a, ev);
    if (ev->type != UM_EVENT_FINISH) return;
    const um_result *r = ev->result;
    check_streamed(a, r);
    assert_true(r->n_tokens <= UM_LEN(a->token) && r->text_len < sizeof(a->text));
    assert_false(a->done);
    if (r->n_tokens) memcpy(a->token, r->token_ids, r->n_tokens * sizeof(int32_t));
    a->n = (int32_t)r->n_tokens;
    memcpy(a->text, r->text, r->text_len + 1);
    a->nfe = r->nfe;
    a->prompt_tokens = r->prompt_tokens;
    a->finish = r->finish;
    a->seed = r->seed;
    a->done = true;
}
