/* Tests of a router: answers, request numbers, aborts, totals, and the choice of an engine. */
#include <pthread.h>
#include <time.h>

#include "ops/host/host.h"
#include "support.h"

enum { REQUESTS = 12 };

static um_model *model;
static um_config config;
static char path[128];

static int open_model(void **state) {
    (void)state;
    um_err err = {0};
    test_config(&config, "sdar", path, sizeof(path));
    config.max_num_reqs = 2;
    config.num_pages = 40;
    config.threads = 1;
    if (um_model_open(&model, &config, &err)) fail_msg("%s", err.msg);
    return 0;
}

static int close_model(void **state) {
    (void)state;
    um_model_close(model);
    return 0;
}

static um_router *open_with(const um_config *c) {
    um_router *r = NULL;
    um_err err = {0};
    if (um_router_new(&r, model, c, &err)) fail_msg("%s", err.msg);
    assert_int_equal(um_router_size(r), c->data_parallel_size);
    return r;
}

static um_router *open_router(int32_t n, int32_t policy) {
    um_config c = config;
    c.data_parallel_size = n;
    c.route_policy = policy;
    return open_with(&c);
}

static void drain(um_router *r) {
    um_err err = {0};
    while (um_router_pending(r))
        if (um_router_step(r, &err)) fail_msg("%s", err.msg);
}

/* Returns request number i. Prompts, lengths and temperatures differ between requests. */
static um_request request(const um_router *r, int32_t i, int32_t *ids, test_answer *a) {
    um_request q;
    um_request_init(um_router_engine(r, 0), &q);
    q.n_ids = (size_t)(3 + i % 5);
    for (size_t k = 0; k < q.n_ids; k++) ids[k] = (int32_t)(231 + 7 * (size_t)i + k) % 490;
    q.ids = ids;
    q.sampling.max_tokens = 8 + i;
    q.sampling.temperature = i % 2 ? 1.0F : 0.0F;
    q.sampling.seed = i;
    q.sampling.ignore_eos = true;
    q.events = UM_EVENT_TEXT;
    q.on_event = test_collect;
    q.arg = a;
    return q;
}

static int64_t add(um_router *r, const um_request *q) {
    int64_t id = 0;
    um_err err = {0};
    if (um_router_add(r, q, &id, &err)) fail_msg("%s", err.msg);
    return id;
}

static int64_t add_numbered(um_router *r, int32_t i, test_answer *a) {
    int32_t ids[8];
    um_request q = request(r, i, ids, a);
    return add(r, &q);
}

static void answer_all(um_router *r, test_answer *a) {
    for (int32_t i = 0; i < REQUESTS; i++) {
        a[i] = (test_answer){0};
        assert_int_equal(add_numbered(r, i, &a[i]), i + 1); /* the router numbers the requests */
        if (i % 3 == 0) assert_int_equal(um_router_step(r, NULL), UM_OK);
    }
    drain(r);
}

static um_stats stats_of(const um_router *r, int32_t i) {
    um_stats s;
    um_engine_get_stats(um_router_engine(r, i), &s);
    return s;
}

static void answers_are_those_of_one_engine(void **state) {
    (void)state;
    static test_answer want[REQUESTS], have[REQUESTS];
    um_router *one = open_router(1, UM_ROUTE_PREFIX);
    answer_all(one, want);
    um_router_free(one);
    for (int32_t n = 2; n <= 4; n++) {
        for (int32_t policy = UM_ROUTE_PREFIX; policy <= UM_ROUTE_ROUND_ROBIN; policy++) {
            um_router *r = open_router(n, policy);
            answer_all(r, have);
            for (int32_t i = 0; i < n; i++) assert_true(stats_of(r, i).requests > 0);
            um_router_free(r);
            for (int32_t i = 0; i < REQUESTS; i++) {
                assert_true(have[i].done);
                assert_int_equal(have[i].n, want[i].n);
                assert_memory_equal(have[i].token, want[i].token, (size_t)want[i].n * sizeof(int32_t));
                assert_int_equal(have[i].finish, want[i].finish);
                assert_int_equal(have[i].nfe, want[i].nfe);
                assert_string_equal(have[i].streamed, want[i].text);
            }
        }
    }
}

/* ---- Engines in parallel ----------------------------------------------------------------------------------------- */

/* Makes every forward pass wait at its beginning until a pass of the other engine has begun as well. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    int n_waiting, n_rounds;
    bool timed_out; /* a pass has waited for a minute in vain */
    const um_ops *ops;
} barrier = {.lock = PTHREAD_MUTEX_INITIALIZER, .arrived = PTHREAD_COND_INITIALIZER};

static void wait_for_other(void) {
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 60;
    pthread_mutex_lock(&barrier.lock);
    int number = barrier.n_rounds;
    if (++barrier.n_waiting == 2) {
        barrier.n_waiting = 0;
        barrier.n_rounds++;
        pthread_cond_broadcast(&barrier.arrived);
    }
    while (barrier.n_rounds == number && !barrier.timed_out)
        barrier.timed_out = pthread_cond_timedwait(&barrier.arrived, &barrier.lock, &end) != 0;
    pthread_mutex_unlock(&barrier.lock);
}

static void embed_together(um_dev *dev, const um_weight *w, const int32_t *id, int32_t n, float scale, float *x) {
    wait_for_other();
    barrier.ops->embed(dev, w, id, n, scale, x);
}

/* Runs one request on each engine. The requests are equal, so the engines run the same number of passes. */
static void answer_two(um_router *r, test_answer *a) {
    int32_t ids[8];
    for (int32_t i = 0; i < 2; i++) {
        a[i] = (test_answer){0};
        um_request q = request(r, 3, ids, &a[i]);
        add(r, &q);
    }
    drain(r);
}

static void engines_compute_at_the_same_time(void **state) {
    (void)state;
    static test_answer want[2], have[2];
    um_router *r = open_router(1, UM_ROUTE_ROUND_ROBIN);
    answer_two(r, want);
    um_router_free(r);
    um_ops together = *model->device->ops;
    barrier.ops = model->device->ops;
    together.embed = embed_together;
    model->device->ops = &together;
    r = open_router(2, UM_ROUTE_ROUND_ROBIN);
    answer_two(r, have);
    um_stats one = stats_of(r, 0), both;
    um_router_get_stats(r, &both);
    um_router_free(r);
    model->device->ops = barrier.ops;
    assert_false(barrier.timed_out);
    assert_int_equal(barrier.n_rounds, one.steps);
    assert_int_equal(both.steps, 2 * one.steps);
    for (int32_t i = 0; i < 2; i++) {
        assert_true(have[i].done);
        assert_int_equal(have[i].nfe, want[i].nfe);
        assert_int_equal(have[i].n, want[i].n);
        assert_memory_equal(have[i].token, want[i].token, (size_t)want[i].n * sizeof(int32_t));
        assert_string_equal(have[i].streamed, want[i].text);
    }
    /* The duration of a joint step is counted once, and the steps of the engines lie within it. */
    assert_true(both.step_seconds >= one.step_seconds);
    assert_true(both.forward_seconds + both.apply_seconds <= both.step_seconds);
}

typedef struct event_log {
    pthread_t thread;
    int64_t id[64]; /* ids of the requests, in the order of their events */
    int32_t n;
} event_log;

static void log_event(void *arg, const um_event *ev) {
    event_log *h = (event_log *)arg;
    assert_true(pthread_equal(pthread_self(), h->thread));
    assert_true(h->n < (int32_t)UM_LEN(h->id));
    h->id[h->n++] = ev->id;
}

static void callbacks_come_on_the_thread_that_steps_in_the_order_of_the_engines(void **state) {
    (void)state;
    int32_t ids[8];
    event_log h = {.thread = pthread_self()};
    um_router *r = open_router(3, UM_ROUTE_ROUND_ROBIN);
    for (int32_t i = 0; i < 6; i++) {
        um_request q = request(r, 3, ids, NULL);
        q.events = UM_EVENT_SNAPSHOT;
        q.on_event = log_event;
        q.arg = &h;
        add(r, &q);
    }
    assert_int_equal(um_router_step(r, NULL), UM_OK);
    /* Request number k goes to engine k mod 3. Callbacks run engine by engine: 0 with 3 and 6, 1 with 1 and 4, 2 with 2
     * and 5. */
    static const int64_t order[] = {3, 6, 1, 4, 2, 5};
    assert_int_equal(h.n, 6);
    assert_memory_equal(h.id, order, sizeof(order));
    um_router_free(r);
}

static void engines_divide_the_cores(void **state) {
    (void)state;
    um_err err = {0};
    um_model *own = NULL;
    um_config c = config;
    c.threads = 0;
    c.data_parallel_size = 2;
    if (um_model_open(&own, &c, &err)) fail_msg("%s", err.msg);
    um_router *r = NULL;
    if (um_router_new(&r, own, &c, &err)) fail_msg("%s", err.msg);
    for (int32_t i = 0; i < 2; i++)
        assert_int_equal(um_host_threads(um_router_engine(r, i)->forward), UM_MAX(um_cpu_count() / 2, 1));
    um_router_free(r);
    um_model_close(own);
    c.threads = 3;
    if (um_model_open(&own, &c, &err)) fail_msg("%s", err.msg);
    if (um_router_new(&r, own, &c, &err)) fail_msg("%s", err.msg);
    for (int32_t i = 0; i < 2; i++) assert_int_equal(um_host_threads(um_router_engine(r, i)->forward), 3);
    um_router_free(r);
    um_model_close(own);
}

/* ---- Totals and routing ------------------------------------------------------------------------------------------ */

static void totals_are_the_sums_of_the_engines(void **state) {
    (void)state;
    static test_answer a[REQUESTS];
    um_stats sum, s[3];
    um_router *r = open_router(3, UM_ROUTE_ROUND_ROBIN);
    answer_all(r, a);
    um_router_get_stats(r, &sum);
    assert_null(um_router_engine(r, 3));
    assert_null(um_router_engine(r, -1));
    for (int32_t i = 0; i < 3; i++) {
        s[i] = stats_of(r, i);
        assert_int_equal(s[i].requests, REQUESTS / 3);
    }
    int64_t tokens = 0;
    for (int32_t i = 0; i < REQUESTS; i++) tokens += a[i].n;
    assert_int_equal(sum.requests, REQUESTS);
    assert_int_equal(sum.tokens, tokens);
    assert_int_equal(sum.steps, s[0].steps + s[1].steps + s[2].steps);
    assert_int_equal(sum.passes, s[0].passes + s[1].passes + s[2].passes);
    assert_int_equal(sum.forward_tokens, s[0].forward_tokens + s[1].forward_tokens + s[2].forward_tokens);
    assert_int_equal(sum.kv_bytes, 3 * s[0].kv_bytes);
    assert_int_equal(sum.pages_total, 3 * config.num_pages);
    assert_int_equal(sum.pages_used, 0);
    assert_int_equal(sum.weight_bytes, s[0].weight_bytes); /* the engines share the weights */
    um_router_free(r);
}

static void least_loaded_counts_the_tokens_of_prompt_and_answer(void **state) {
    (void)state;
    static test_answer a[6];
    static const struct { int32_t max_tokens, engine; } step[] = {{40, 0}, {8, 1}, {8, 1}, {8, 1}, {30, 1}, {8, 0}};
    int32_t ids[8];
    um_router *r = open_router(2, UM_ROUTE_LEAST_LOADED);
    for (size_t i = 0; i < UM_LEN(step); i++) {
        size_t before = um_engine_pending(um_router_engine(r, step[i].engine));
        um_request q = request(r, 0, ids, &a[i]);
        q.sampling.max_tokens = step[i].max_tokens;
        add(r, &q);
        assert_int_equal(um_engine_pending(um_router_engine(r, step[i].engine)), before + 1);
    }
    drain(r);
    memset(a, 0, sizeof a);
    add_numbered(r, 0, &a[0]); /* finished requests no longer count as load */
    assert_int_equal(um_engine_pending(um_router_engine(r, 0)), 1);
    um_router_free(r);
}

/* Engine 1 has stored a long prompt. The same prompt is sent to engine 1 again, although engine 0 has a shorter queue.
 */
static void prefix_finds_the_engine_that_stored_the_beginning(void **state) {
    (void)state;
    static test_answer a[4];
    int32_t ids[100], other[8];
    um_stats s;
    um_router *r = open_router(2, UM_ROUTE_PREFIX);
    memset(a, 0, sizeof a);
    for (int32_t i = 0; i < 100; i++) ids[i] = i;
    add_numbered(r, 0, &a[0]); /* keeps engine 0 busy */
    um_request q = request(r, 1, other, &a[1]);
    q.ids = ids;
    q.n_ids = 100;
    add(r, &q);
    assert_int_equal(um_engine_pending(um_router_engine(r, 1)), 1);
    drain(r);
    q.arg = &a[3]; /* both engines are idle, so by their load alone engine 0 would get it */
    add(r, &q);
    assert_int_equal(um_engine_pending(um_router_engine(r, 1)), 1);
    add_numbered(r, 2, &a[2]); /* no engine has stored its prompt */
    assert_int_equal(um_engine_pending(um_router_engine(r, 0)), 1);
    drain(r);
    um_router_get_stats(r, &s);
    assert_true(s.prefix_hits >= 64);
    assert_int_equal(s.prefix_hits, stats_of(r, 1).prefix_hits);
    assert_int_equal(a[3].n, a[1].n);
    assert_memory_equal(a[3].token, a[1].token, (size_t)a[1].n * sizeof(int32_t));
    um_router_free(r);
}

/* The prompt is counted once, also when the scheduler considers the request several times before it fits. */
static void a_prompt_counts_once_as_looked_up(void **state) {
    (void)state;
    static test_answer a[5];
    int32_t ids[100], other[8];
    um_stats s;
    um_config c = config;
    c.max_num_reqs = 5;
    c.num_pages = 8; /* enough for two requests at once */
    um_router *r = open_with(&c);
    memset(a, 0, sizeof a);
    for (int32_t i = 0; i < 100; i++) ids[i] = i;
    for (int32_t i = 0; i < 5; i++) {
        um_request q = request(r, 1, other, &a[i]);
        q.ids = ids;
        q.n_ids = 100;
        q.sampling.max_tokens = 60;
        add(r, &q);
    }
    drain(r);
    um_router_get_stats(r, &s);
    assert_in_range(s.prefix_queries, 5 * 64, 5 * 100);
    assert_in_range(s.prefix_hits, 64, 5 * 100);
    um_router_free(r);
}

/* All answers of a request run in the same engine. */
static void several_answers_run_in_one_engine_under_one_number(void **state) {
    (void)state;
    static test_answer a;
    int32_t ids[8];
    um_router *r = open_router(3, UM_ROUTE_ROUND_ROBIN);
    um_request q = request(r, 1, ids, NULL);
    q.n = 3;
    q.on_event = NULL;
    int64_t id = add(r, &q);
    assert_int_equal(um_engine_pending(um_router_engine(r, (int32_t)(id % 3))), 3);
    assert_int_equal(um_router_abort(r, id, NULL), UM_OK);
    assert_int_equal(um_router_pending(r), 0);
    a = (test_answer){0};
    assert_int_equal(add_numbered(r, 0, &a), id + 1);
    um_router_free(r);
}

static void aborts_a_request_wherever_it_is(void **state) {
    (void)state;
    static test_answer a[REQUESTS];
    um_err err = {0};
    int64_t id[REQUESTS];
    um_stats s;
    um_router *r = open_router(3, UM_ROUTE_LEAST_LOADED);
    memset(a, 0, sizeof a);
    for (int32_t i = 0; i < REQUESTS; i++) id[i] = add_numbered(r, i, &a[i]);
    for (int32_t i = 0; i < 2; i++) assert_int_equal(um_router_step(r, NULL), UM_OK);
    for (int32_t i = 0; i < REQUESTS; i += 2) {
        err = (um_err){0};
        assert_int_equal(um_router_abort(r, id[i], &err), UM_OK);
        assert_int_equal(err.code, UM_OK);
        assert_true(a[i].done && a[i].finish == UM_FINISH_ABORTED);
        assert_int_equal(um_router_abort(r, id[i], &err), UM_ENOENT);
    }
    assert_int_equal(um_router_pending(r), REQUESTS / 2);
    drain(r);
    for (int32_t i = 1; i < REQUESTS; i += 2) assert_true(a[i].done && a[i].finish == UM_FINISH_MAX_TOKENS);
    um_router_get_stats(r, &s);
    assert_int_equal(s.pages_used, 0);
    assert_int_equal(um_router_abort(r, 1000, &err), UM_ENOENT);
    assert_non_null(strstr(err.msg, "no request 1000"));
    um_router_free(r);
}

/* ---- From callbacks ---------------------------------------------------------------------------------------------- */

typedef struct chain {
    um_router *router;
    int64_t target; /* the request that the first event aborts */
    test_answer *next;
    um_status stepped;
    int64_t added;
} chain;

static void on_first_event(void *arg, const um_event *ev) {
    chain *c = (chain *)arg;
    (void)ev;
    if (!c->target) return;
    assert_int_equal(um_router_abort(c->router, c->target, NULL), UM_OK);
    c->target = 0;
    c->added = add_numbered(c->router, 5, c->next);
    c->stepped = um_router_step(c->router, NULL);
}

static void callbacks_may_abort_and_add_but_not_step(void **state) {
    (void)state;
    static test_answer target, next;
    int32_t ids[8];
    for (int32_t n = 1; n <= 2; n++) {
        um_router *r = open_router(n, UM_ROUTE_ROUND_ROBIN);
        target = next = (test_answer){0};
        chain c = {.router = r, .next = &next};
        um_request q = request(r, 1, ids, NULL);
        q.on_event = on_first_event;
        q.arg = &c;
        add(r, &q);
        c.target = add_numbered(r, 2, &target);
        drain(r);
        assert_true(target.done && target.finish == UM_FINISH_ABORTED);
        assert_int_equal(c.added, 3);
        assert_true(next.done && next.finish == UM_FINISH_MAX_TOKENS);
        assert_int_equal(c.stepped, UM_EINVAL);
        um_router_free(r);
    }
}

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

static void a_refused_request_uses_no_number(void **state) {
    (void)state;
    static test_answer a;
    int32_t ids[8];
    um_err err = {0};
    um_router *r = open_router(2, UM_ROUTE_PREFIX);
    a = (test_answer){0};
    um_request q = request(r, 0, ids, &a);
    q.n_ids = 0;
    assert_int_equal(um_router_add(r, &q, NULL, &err), UM_EINVAL);
    assert_int_equal(um_router_pending(r), 0);
    assert_int_equal(add_numbered(r, 0, &a), 1);
    um_router_free(r);
}

static void refuses_impossible_sizes_and_policies(void **state) {
    (void)state;
    static const struct {
        int32_t n, policy;
        const char *part;
    } bad[] = {{0, 0, "data_parallel_size: 0 is outside 1..64"},
               {65, 0, "data_parallel_size: 65 is outside 1..64"},
               {2, 3, "route_policy: expected prefix, least-loaded or round-robin, found \"3\""},
               {2, -1, "route_policy: expected prefix, least-loaded or round-robin, found \"-1\""}};
    for (size_t i = 0; i < UM_LEN(bad); i++) {
        um_router *r = NULL;
        um_err err = {0};
        um_config c = config;
        c.data_parallel_size = bad[i].n;
        c.route_policy = bad[i].policy;
        assert_true(um_router_new(&r, model, &c, &err) < 0);
        assert_null(r);
        if (!strstr(err.msg, bad[i].part)) fail_msg("expected \"%s\" in: %s", bad[i].part, err.msg);
    }
}

static void engines_have_equally_many_pages(void **state) {
    (void)state;
    um_router *r = NULL;
    um_config c = config;
    c.data_parallel_size = 3;
    c.num_pages = -1;
    assert_int_equal(um_router_new(&r, model, &c, NULL), UM_OK);
    assert_true(stats_of(r, 0).pages_total > 0);
    for (int32_t i = 1; i < 3; i++) assert_int_equal(stats_of(r, i).pages_total, stats_of(r, 0).pages_total);
    um_router_free(r);
}

/* Returns the total number of pages that n engines choose automatically when requests could need more than all memory.
 */
static double automatic_pages(int32_t n, float share) {
    um_router *r = NULL;
    um_stats sum;
    um_config c = config;
    c.data_parallel_size = n;
    c.num_pages = -1;
    c.max_num_reqs = 4096;
    c.kv_memory_share = share;
    assert_int_equal(um_router_new(&r, model, &c, NULL), UM_OK);
    um_router_get_stats(r, &sum);
    um_router_free(r);
    return sum.pages_total;
}

/* The amount of free memory changes while other programs run. So the test expects a factor of two where the shares
 * differ by a factor of four. */
static void automatic_pages_keep_to_their_share_of_memory(void **state) {
    (void)state;
    double little = automatic_pages(1, 0.001F), more = automatic_pages(1, 0.004F),
           together = automatic_pages(2, 0.004F);
    assert_true(more > 2 * little);
    assert_true(together < 2 * more && more < 2 * together);
}

/* All words of the statistics have different values. So the test notices a total that is missing or in a wrong field.
 */
static void every_total_is_a_sum(void **state) {
    (void)state;
    um_router *r = open_router(1, UM_ROUTE_PREFIX);
    um_engine *e = um_router_engine(r, 0);
    uint32_t want[sizeof(um_stats) / sizeof(uint32_t)], have[UM_LEN(want)];
    um_stats stats;
    const um_stats before = e->stats;
    for (size_t i = 0; i < UM_LEN(want); i++) want[i] = (uint32_t)i + 1;
    memcpy(&e->stats, want, sizeof(want));
    um_engine_get_stats(e, &stats);
    memcpy(want, &stats, sizeof(want));
    um_router_get_stats(r, &stats);
    memcpy(have, &stats, sizeof(have));
    for (size_t i = 0; i < UM_LEN(want); i++) assert_int_equal(have[i], want[i]);
    e->stats = before;
    um_router_free(r);
}

static void slots_of_all_engines_are_shown_running_ones_first(void **state) {
    (void)state;
    um_router *r = open_router(2, UM_ROUTE_ROUND_ROBIN);
    int32_t ids[8][8];
    um_slot slot[8];
    um_err err = {0};
    for (int32_t i = 0; i < 8; i++) {
        um_request q = request(r, i, ids[i], NULL);
        q.events = 0;
        q.on_event = NULL;
        assert_int_equal(um_router_add(r, &q, NULL, &err), UM_OK);
    }
    assert_int_equal(um_router_step(r, &err), UM_OK);
    assert_int_equal(um_router_slots(r, slot, 3), 8);
    assert_int_equal(um_router_slots(r, slot, 8), 8);
    for (int i = 0; i < 8; i++) assert_int_equal(slot[i].running, i < 4);
    assert_int_equal(um_router_flush_cache(r, &err), UM_EINVAL);
    drain(r);
    assert_int_equal(um_router_slots(r, slot, 8), 0);
    assert_int_equal(um_router_flush_cache(r, &err), UM_OK);
    um_router_free(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_those_of_one_engine),
        cmocka_unit_test(engines_compute_at_the_same_time),
        cmocka_unit_test(callbacks_come_on_the_thread_that_steps_in_the_order_of_the_engines),
        cmocka_unit_test(engines_divide_the_cores),
        cmocka_unit_test(totals_are_the_sums_of_the_engines),
        cmocka_unit_test(automatic_pages_keep_to_their_share_of_memory),
        cmocka_unit_test(every_total_is_a_sum),
        cmocka_unit_test(least_loaded_counts_the_tokens_of_prompt_and_answer),
        cmocka_unit_test(prefix_finds_the_engine_that_stored_the_beginning),
        cmocka_unit_test(a_prompt_counts_once_as_looked_up),
        cmocka_unit_test(several_answers_run_in_one_engine_under_one_number),
        cmocka_unit_test(aborts_a_request_wherever_it_is),
        cmocka_unit_test(callbacks_may_abort_and_add_but_not_step),
        cmocka_unit_test(a_refused_request_uses_no_number),
        cmocka_unit_test(slots_of_all_engines_are_shown_running_ones_first),
        cmocka_unit_test(refuses_impossible_sizes_and_policies),
        cmocka_unit_test(engines_have_equally_many_pages),
    };
    return cmocka_run_group_tests_name("router", tests, open_model, close_model);
}
