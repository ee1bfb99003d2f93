/* Replays recordings of WeDLM: causal_window with entropy_distance. Where a recorded request draws, the recorded tokens
 * replace those that the forward pass has drawn. */
#include "decode/decode.h"
#include "logits.h"
#include "requests.h"

/* ---- Logits ------------------------------------------------------------------------------------------------------ */

/* Runs a causal pass over tokens in the order in which they are fed. `positions`: NULL, they follow the stored ones. */
static void run_pass(family_logits *l, const json_t *ids, const json_t *positions, const um_tensor *want) {
    int32_t id[TOKENS], pos[TOKENS], end[TOKENS];
    const int32_t n = (int32_t)json_array_size(ids);
    assert_true(n <= TOKENS);
    for (int32_t i = 0; i < n; i++) {
        id[i] = id_at(ids, (size_t)i);
        pos[i] = positions ? id_at(positions, (size_t)i) : l->stored + i;
        end[i] = l->stored + i + 1;
    }
    family_logits_run(l, id, pos, end, n, want);
}

static void check_forward(family_logits *l) {
    const json_t *passes = json_object_get(l->c->json, "passes"), *pass;
    size_t i;
    json_array_foreach(passes, i, pass) {
        const json_t *prefix = json_object_get(pass, "prefix");
        char name[64];
        snprintf(name, sizeof name, "%s.logits", json_string_value(json_object_get(pass, "name")));
        const um_tensor *want = family_logits_find(l, "", name);
        if (!want) fail_msg("%s: the tensor %s is missing", l->c->name, name);
        l->stored = 0;
        if (json_array_size(prefix)) run_pass(l, prefix, NULL, NULL);
        l->stored = (int32_t)json_array_size(prefix);
        run_pass(l, json_object_get(pass, "ids"), json_object_get(pass, "positions"), want);
    }
}

static void check_request(family_logits *l, const json_t *request, size_t index) {
    const json_t *steps = json_object_get(request, "steps"), *step;
    char of[32], name[64];
    size_t i;
    snprintf(of, sizeof of, "r%zu.", index);
    l->stored = 0;
    run_pass(l, json_object_get(request, "prompt"), NULL, family_logits_find(l, of, "prefill.logits"));
    json_array_foreach(steps, i, step) {
        snprintf(name, sizeof name, "step%zu.logits", i);
        l->stored = (int32_t)number(step, "committed_before");
        run_pass(l, json_object_get(step, "input_ids"), json_object_get(step, "positions"),
                 family_logits_find(l, of, name));
    }
}

static void check_passes(const family_case *c, const char *device) {
    const json_t *requests = json_object_get(c->json, "requests"), *request;
    family_logits l;
    size_t i;
    if (family_logits_open(&l, c, device)) {
        if (!requests) check_forward(&l);
        json_array_foreach(requests, i, request) if (family_logits_has(&l, i)) check_request(&l, request, i);
    }
    family_logits_close(&l, device);
}

/* ---- Draws ------------------------------------------------------------------------------------------------------- */

/* A recorded draw, and the random key of the row that stands for it. */
typedef struct draw {
    uint64_t key;
    int32_t token;
} draw;

/* The backend of the engine, with passes whose draws are replaced. */
static struct {
    const um_backend *own;
    um_backend table;
    const um_batch *batch;
    draw *draw;
    size_t n_draws;
    const json_t *step; /* the step that is checked against the fed tokens; NULL: none */
} feed;

static int order_draws(const void *a, const void *b) {
    const draw *x = (const draw *)a, *y = (const draw *)b;
    return x->key < y->key ? -1 : x->key > y->key;
}

/* The tokens of the last pass must end with the recorded window: the first pass feeds the prompt before it. */
static void check_fed(const um_batch *b) {
    const json_t *ids = json_object_get(feed.step, "input_ids"), *positions = json_object_get(feed.step, "positions");
    const size_t n = json_array_size(ids);
    assert_true((size_t)b->n_tokens >= n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(b->id[(size_t)b->n_tokens - n + i], id_at(ids, i));
        assert_int_equal(b->pos[(size_t)b->n_tokens - n + i], id_at(positions, i));
    }
}

static um_status submit(um_forward *f, const um_batch *b, um_err *err) {
    feed.batch = b;
    if (feed.step) check_fed(b);
    return feed.own->submit(f, b, err);
}

static um_status wait_and_replace(um_forward *f, um_err *err) {
    const um_status st = feed.own->wait(f, err);
    for (int32_t i = 0; i < feed.batch->n_rows && !st; i++) {
        const um_row *row = &feed.batch->row[i];
        if (!(row->how.temperature > 0)) continue;
        const draw key = {.key = row->how.key};
        const draw *found = (const draw *)bsearch(&key, feed.draw, feed.n_draws, sizeof key, order_draws);
        if (!found) fail_msg("row %d draws a token that the recording does not draw", i);
        feed.batch->answer[i].sample = found->token;
    }
    return st;
}

/* Adds the draws of a request. Its seed is its index. The row of mask k in step i draws with the key of its position
 * and i. */
static void add_draws(const json_t *request, size_t index) {
    const json_t *steps = json_object_get(request, "steps"), *step;
    size_t i;
    json_array_foreach(steps, i, step) {
        const json_t *sampled = json_object_get(step, "sampled"), *masks = json_object_get(step, "masks");
        if (!json_is_array(sampled)) continue;
        feed.draw = (draw *)um_realloc(feed.draw, (feed.n_draws + json_array_size(sampled) + 1) * sizeof(draw));
        for (size_t k = 0; k < json_array_size(sampled); k++) {
            const uint64_t pos = (uint64_t)(number(step, "committed_before") + id_at(masks, k));
            feed.draw[feed.n_draws++] =
                (draw){um_rng_key((uint64_t)index, pos, (uint64_t)i, UM_USE_SAMPLE), id_at(sampled, k)};
        }
    }
}

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

typedef struct replay {
    const family_case *c;
    const json_t *request, *steps;
    const char *device;
    size_t index, pass;
    family_mode mode;
    bool finished;
} replay;

/* Masks are shown with the mask id. A filled position may have it, too, so their number is compared as well. */
static void check_trace(replay *r, const um_trace *t) {
    const json_t *step = json_array_get(r->steps, r->pass), *window = json_object_get(step, "window_after");
    if (r->pass + 1 >= json_array_size(r->steps))
        fail_msg("%s[%zu]: more passes than the %zu recorded", r->c->name, r->index, r->pass);
    if ((size_t)t->n_tokens != json_array_size(window))
        fail_msg("%s[%zu] pass %zu: %d tokens, expected %zu", r->c->name, r->index, r->pass, t->n_tokens,
                 json_array_size(window));
    for (int32_t i = 0; i < t->n_tokens; i++)
        if (t->token[i] != id_at(window, (size_t)i))
            fail_msg("%s[%zu] pass %zu: token %d is %d, expected %d", r->c->name, r->index, r->pass, i, t->token[i],
                     id_at(window, (size_t)i));
    assert_int_equal(t->masks[0], json_array_size(json_object_get(step, "masks_after")));
    r->pass++;
    if (r->mode == FAMILY_ALONE) feed.step = json_array_get(r->steps, r->pass);
}

static bool is_stop(const replay *r, int32_t id) {
    const json_t *stops = json_object_get(json_object_get(r->request, "sampling"), "stop_token_ids");
    for (size_t i = 0; i < json_array_size(stops); i++)
        if (id_at(stops, i) == id) return true;
    return false;
}

/* The recorded output includes the id that ended it. The last recorded pass only confirms tokens that are known. */
static void check_result(replay *r, const um_result *res) {
    const json_t *output = json_object_get(r->request, "output");
    size_t n = json_array_size(output);
    const bool stops = is_stop(r, id_at(output, n - 1));
    n -= stops;
    if (res->n_tokens != n) fail_msg("%s[%zu]: %zu tokens, expected %zu", r->c->name, r->index, res->n_tokens, n);
    for (size_t i = 0; i < n; i++) assert_int_equal(res->token_ids[i], id_at(output, i));
    if (stops) assert_true(res->finish == UM_FINISH_EOS || res->finish == UM_FINISH_STOP_ID);
    else assert_int_equal(res->finish, UM_FINISH_MAX_TOKENS);
    assert_int_equal(res->nfe, number(r->request, "forwards") - 1);
    assert_int_equal(r->pass, res->nfe);
    print_message("# %-16s %-4s request %zu: %d passes, %.2f tokens a pass\n", r->c->name, r->device, r->index,
                  res->nfe, (double)res->n_tokens / UM_MAX(res->nfe, 1));
    r->finished = true;
    feed.step = NULL;
}

static void on_event(void *arg, const um_event *ev) {
    replay *r = (replay *)arg;
    if (ev->type == UM_EVENT_TRACE) check_trace(r, ev->trace);
    else if (ev->type == UM_EVENT_FINISH) check_result(r, ev->result);
}

static void set_params(um_request *q, const json_t *request, size_t index) {
    const json_t *s = json_object_get(request, "sampling");
    um_decoding *d = &q->decoding;
    d->block_size = (int32_t)number(request, "window_size");
    d->entropy_threshold = (float)json_number_value(json_object_get(s, "wedlm_entropy_threshold")); /* null: 0 */
    d->position_penalty = (float)json_number_value(json_object_get(s, "wedlm_pos_penalty_factor"));
    q->sampling.temperature = (float)json_number_value(json_object_get(s, "temperature"));
    q->sampling.top_p = (float)json_number_value(json_object_get(s, "top_p"));
    q->sampling.top_k = (int32_t)number(s, "top_k");
    q->sampling.max_tokens = (int32_t)number(s, "max_tokens");
    q->sampling.seed = (int64_t)index;
}

static void add(um_engine *e, replay *r) {
    um_request q;
    um_err err;
    um_request_init(e, &q);
    int32_t *prompt = family_ids(json_object_get(r->request, "prompt"), &q.n_ids);
    int32_t *stop =
        family_ids(json_object_get(json_object_get(r->request, "sampling"), "stop_token_ids"), &q.n_stop_ids);
    q.ids = prompt;
    q.stop_ids = stop;
    set_params(&q, r->request, r->index);
    q.events = UM_EVENT_TRACE;
    q.on_event = on_event;
    q.arg = r;
    if (r->mode == FAMILY_ALONE) feed.step = json_array_get(r->steps, 0);
    if (um_engine_add(e, &q, NULL, &err)) fail_msg("%s[%zu]: %s", r->c->name, r->index, err.msg);
    um_free(prompt);
    um_free(stop);
}

/* A batch has small steps, so that prompts are stored in chunks. */
static void open_engine(test_engine *t, const family_case *c, const char *device, family_mode mode) {
    family_engine_open(t, c, device, mode, 48, UM_COMPAT_CHECKPOINT);
    feed.own = t->model->backend;
    feed.table = *feed.own;
    feed.table.submit = submit;
    feed.table.wait = wait_and_replace;
    t->model->backend = &feed.table;
}

static void close_engine(test_engine *t) {
    t->model->backend = feed.own;
    test_close(t);
    um_free(feed.draw);
    memset(&feed, 0, sizeof feed);
}

static void check_requests(const family_case *c, const char *device, family_mode mode) {
    const json_t *requests = json_object_get(c->json, "requests"), *request;
    const size_t n = json_array_size(requests);
    test_engine t;
    size_t i;
    if (!n) return; /* a case of single passes */
    replay *r = UM_NEW_ARRAY(replay, n);
    open_engine(&t, c, device, mode);
    json_array_foreach(requests, i, request) add_draws(request, i);
    if (feed.n_draws) qsort(feed.draw, feed.n_draws, sizeof *feed.draw, order_draws);
    json_array_foreach(requests, i, request) {
        const json_t *steps = json_object_get(request, "steps");
        r[i] = (replay){.c = c, .request = request, .steps = steps, .device = device, .index = i, .mode = mode};
        add(t.engine, &r[i]);
        if (mode == FAMILY_ALONE) test_drain(t.engine);
    }
    test_drain(t.engine);
    for (i = 0; i < n; i++) assert_true(r[i].finished);
    close_engine(&t);
    um_free(r);
}

const family_replay wedlm_replay = {
    .family = "wedlm",
    .passes = check_passes,
    .requests = check_requests,
};
