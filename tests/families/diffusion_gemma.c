/* Replays recordings of DiffusionGemma: single passes of both modes, and requests with the recorded draws. */
#include "engine/engine.h"
#include "families.h"
#include "golden/forward_fixture.h"
#include "requests.h"

/* ---- Logits ------------------------------------------------------------------------------------------------------ */

/* The recorded tensors of a case, and the forward pass that is compared with them. */
typedef struct logits {
    const family_case *c;
    um_map map;
    um_store *recorded;
    fixture f;
    int32_t stored; /* positions whose keys are in the pages */
    float worst;
    int32_t n;
} logits;

static void compare(logits *l, const char *name, int32_t n) {
    const um_tensor *want = um_store_find(l->recorded, name);
    const int32_t V = l->f.model->arch.vocab;
    const float cap = l->f.model->arch.logit_cap;
    if (!want) return;
    assert_true(want->type == UM_F32 && want->dim[0] == n && want->dim[1] == V);
    compute_logits(&l->f, n);
    for (size_t i = 0; i < (size_t)n * (size_t)V; i++) {
        float w;
        memcpy(&w, (const char *)want->data + i * sizeof w, sizeof w);
        const float got = cap * tanhf(l->f.logits[i] / cap);
        l->worst = fmaxf(l->worst, isnan(got) ? INFINITY : fabsf(w - got));
    }
    l->n++;
    if (!(l->worst <= FAMILY_TOLERANCE)) fail_msg("%s: %s differs by %g", l->c->name, name, (double)l->worst);
}

/* Describes the next pass of n tokens behind the stored keys. */
typedef struct pass {
    int32_t id[TOKENS], pos[TOKENS], end[TOKENS], page[PAGES];
    um_span span;
    um_batch batch;
} pass;

static void describe(const logits *l, pass *p, const json_t *ids, bool canvas, int32_t blend) {
    const int32_t n = (int32_t)json_array_size(ids), all = l->stored + n;
    assert_true(n > 0 && n <= TOKENS && all <= PAGE * PAGES);
    for (int32_t i = 0; i < PAGES; i++) p->page[i] = i;
    for (int32_t i = 0; i < n; i++) {
        p->id[i] = id_at(ids, (size_t)i);
        p->pos[i] = l->stored + i;
        p->end[i] = canvas ? all : p->pos[i] + 1;
    }
    p->span = (um_span){
        .n = n, .page = p->page, .keys = {0, all}, .adapter = -1, .canvas = canvas, .start = l->stored, .blend = blend};
    p->batch = (um_batch){
        .n_tokens = n, .n_spans = 1, .id = p->id, .pos = p->pos, .slot = p->pos, .seen_end = p->end, .span = &p->span};
}

/* Stores a text in the first mode. */
static void encode(logits *l, const json_t *ids, const char *name) {
    pass p;
    describe(l, &p, ids, false, 0);
    run_whole(&l->f, &p.batch);
    compare(l, name, p.batch.n_tokens);
    l->stored += p.batch.n_tokens;
}

/* Runs a pass over a canvas. With tau > 0, another pass makes the blends of the next one. */
static void denoise(logits *l, const json_t *ids, bool blended, float tau, const char *name) {
    pass p;
    um_row row[TOKENS];
    um_answer answer[TOKENS];
    describe(l, &p, ids, true, blended);
    run_whole(&l->f, &p.batch);
    compare(l, name, p.batch.n_tokens);
    if (!(tau > 0)) return;
    for (int32_t i = 0; i < p.batch.n_tokens; i++)
        row[i] = (um_row){.src = {i}, .w = {1}, .how = {.temperature = tau, .top_p = 1}, .blend = 1 + i};
    p.batch.row = row;
    p.batch.answer = answer;
    p.batch.n_rows = p.batch.n_tokens;
    run(&l->f, &p.batch);
}

static void check_forward(logits *l) {
    const json_t *first = json_object_get(l->c->json, "canvas1"), *second = json_object_get(l->c->json, "canvas2");
    const float tau = (float)json_number_value(json_object_get(l->c->json, "tau"));
    encode(l, json_object_get(l->c->json, "prompt"), "prefill.head_logits");
    denoise(l, first, false, tau, "canvas_first.logits");
    denoise(l, second, true, 0, "canvas_second.logits");
    encode(l, second, "commit.head_logits");
    denoise(l, first, false, 0, "after_commit.logits");
}

/* Returns the temperature of a pass of a canvas; step counts down to 1. */
static float temperature(const json_t *defaults, const json_t *params, int32_t step) {
    static const char *const key[] = {"t_min", "t_max", "max_denoising_steps"};
    float v[3];
    for (int i = 0; i < 3; i++) {
        const json_t *own = json_object_get(params, key[i]);
        v[i] = (float)json_number_value(own ? own : json_object_get(defaults, key[i]));
    }
    return v[0] + (v[1] - v[0]) * ((float)step / v[2]);
}

static void check_request(logits *l, const json_t *request, size_t index) {
    const json_t *defaults = json_object_get(l->c->json, "defaults"), *params = json_object_get(request, "params"),
                 *block, *step;
    size_t b, i;
    l->stored = 0;
    json_array_foreach(json_object_get(request, "blocks"), b, block) {
        encode(l, json_object_get(block, "encoder_ids"), "(none)");
        json_array_foreach(json_object_get(block, "passes"), i, step) {
            char name[64];
            snprintf(name, sizeof name, "r%zu.block%zu.pass%zu.logits", index, b, i);
            denoise(l, json_object_get(step, "canvas_in"), i > 0,
                    temperature(defaults, params, (int32_t)number(step, "step")), name);
        }
    }
}

static void check_passes(const family_case *c, const char *device) {
    const json_t *requests = json_object_get(c->json, "requests");
    logits l = {.c = c, .recorded = um_store_new()};
    char path[600];
    um_err err;
    snprintf(path, sizeof path, "%.*s%s.safetensors", (int)(strlen(c->path) - 5), c->path, requests ? ".logits" : "");
    um_status s = um_map_open(&l.map, path, &err);
    if (!s) s = um_safetensors_parse(l.recorded, l.map.data, l.map.size, path, NULL, &err);
    if (!s) {
        open_fixture(&l.f, c->model, device);
        if (requests) check_request(&l, json_array_get(requests, 0), 0);
        else check_forward(&l);
        print_message("# %-16s %-4s %d passes, logits differ by %.2g at most\n", c->name, device, l.n, (double)l.worst);
        close_fixture(&l.f);
    } else if (s != UM_ENOENT) fail_msg("%s", err.msg); /* the default data lack the logits of most cases */
    um_store_close(l.recorded);
    um_map_close(&l.map);
}

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

/* A recorded request that is being replayed with its draws. */
typedef struct replay {
    const family_case *c;
    const json_t *request;
    const char *device;
    um_draws draws;
    size_t index, canvas, pass;
    int32_t n_passes;
    bool finished;
} replay;

static const json_t *pass_of(const replay *r, size_t canvas, size_t pass) {
    const json_t *block = json_array_get(json_object_get(r->request, "blocks"), canvas);
    const json_t *one = json_array_get(json_object_get(block, "passes"), pass);
    if (!one)
        fail_msg("%s[%zu]: canvas %zu has %zu recorded passes, but pass %zu is run", r->c->name, r->index, canvas,
                 json_array_size(json_object_get(block, "passes")), pass);
    return one;
}

static int32_t recorded_draw(void *arg, um_draw kind, int32_t canvas, int32_t pass, int32_t i) {
    const replay *r = (const replay *)arg;
    const json_t *block = json_array_get(json_object_get(r->request, "blocks"), (size_t)canvas);
    if (kind == UM_DRAW_START) {
        if (!block) fail_msg("%s[%zu]: canvas %d was not recorded", r->c->name, r->index, canvas);
        return id_at(json_object_get(block, "init_draw"), (size_t)i);
    }
    const json_t *one = pass_of(r, (size_t)canvas, (size_t)pass);
    return id_at(json_object_get(one, kind == UM_DRAW_SAMPLE ? "sampled" : "renoise_draw"), (size_t)i);
}

static void compare_ids(const replay *r, const char *what, const int32_t *got, size_t n, const json_t *want) {
    for (size_t i = 0; i < n; i++)
        if (got[i] != id_at(want, i))
            fail_msg("%s[%zu] canvas %zu pass %zu: %s %zu is %d, expected %d", r->c->name, r->index, r->canvas, r->pass,
                     what, i, got[i], id_at(want, i));
}

/* The trace of a pass has the canvas after it. */
static void check_trace(replay *r, const um_trace *t) {
    if ((size_t)t->block[0] > r->canvas) {
        const json_t *block = json_array_get(json_object_get(r->request, "blocks"), r->canvas);
        if (r->pass != json_array_size(json_object_get(block, "passes")))
            fail_msg("%s[%zu]: canvas %zu ends after %zu passes", r->c->name, r->index, r->canvas, r->pass);
        r->canvas++;
        r->pass = 0;
    }
    assert_int_equal(t->block[0], r->canvas);
    const json_t *want = json_object_get(pass_of(r, r->canvas, r->pass), "canvas_out");
    assert_int_equal(t->n_tokens, json_array_size(want));
    compare_ids(r, "token", t->token, (size_t)t->n_tokens, want);
}

/* The snapshot of a pass has its likeliest tokens. It comes after the trace. */
static void check_snapshot(replay *r, const um_snapshot *s) {
    const json_t *want = json_object_get(pass_of(r, r->canvas, r->pass), "argmax");
    const size_t n = json_array_size(want);
    if (s->n == (r->canvas + 1) * n) compare_ids(r, "likeliest token", s->id + r->canvas * n, n, want);
    r->pass++;
    r->n_passes++;
}

/* The recorded sequence is the prompt and whole canvases. It includes the id that ended it, and padding. */
static void check_result(replay *r, const um_result *res, const um_model_info *info) {
    const json_t *all = json_object_get(r->request, "sequence"), *blocks = json_object_get(r->request, "blocks"),
                 *stop = json_object_get(json_object_get(r->request, "params"), "eos_token_id");
    const size_t n_prompt = json_array_size(json_object_get(r->request, "prompt"));
    size_t n = 0;
    bool ended = false;
    for (; n_prompt + n < json_array_size(all); n++) {
        const int32_t id = id_at(all, n_prompt + n);
        for (size_t i = 0; i < (stop ? json_array_size(stop) : (size_t)info->n_stop) && !ended; i++)
            ended = id == (stop ? id_at(stop, i) : info->stop[i]);
        if (ended) break;
    }
    if (res->n_tokens != n) fail_msg("%s[%zu]: %zu tokens, expected %zu", r->c->name, r->index, res->n_tokens, n);
    for (size_t i = 0; i < n; i++) assert_int_equal(res->token_ids[i], id_at(all, n_prompt + i));
    assert_int_equal(r->canvas + 1, json_array_size(blocks));
    assert_int_equal(r->pass, json_array_size(json_object_get(json_array_get(blocks, r->canvas), "passes")));
    assert_int_equal(res->nfe, r->n_passes);
    print_message("# %-16s %-4s request %zu: %d passes, %.2f tokens a pass\n", r->c->name, r->device, r->index,
                  res->nfe, (double)res->n_tokens / UM_MAX(res->nfe, 1));
    r->finished = true;
}

static um_model_info model_info;

static void on_event(void *arg, const um_event *ev) {
    replay *r = (replay *)arg;
    if (ev->type == UM_EVENT_TRACE) check_trace(r, ev->trace);
    else if (ev->type == UM_EVENT_SNAPSHOT) check_snapshot(r, ev->snapshot);
    else if (ev->type == UM_EVENT_FINISH) check_result(r, ev->result, &model_info);
}

/* Returns a parameter of the request, or of all requests of the case. NULL: it is null. */
static const json_t *param(const replay *r, const char *key) {
    const json_t *own = json_object_get(json_object_get(r->request, "params"), key);
    if (!own) own = json_object_get(json_object_get(r->c->json, "defaults"), key);
    return own && !json_is_null(own) ? own : NULL;
}

static void set_number(const replay *r, const char *key, float off, float *out) {
    const json_t *v = param(r, key);
    *out = v ? (float)json_number_value(v) : off;
}

static void set_params(const replay *r, um_request *q) {
    um_decoding *d = &q->decoding;
    const json_t *stability = param(r, "stability_threshold");
    d->canvas_steps = (int32_t)json_integer_value(param(r, "max_denoising_steps"));
    d->stability_threshold = stability ? (int32_t)json_integer_value(stability) : -1;
    set_number(r, "entropy_bound", NAN, &d->canvas_entropy_bound);
    set_number(r, "t_min", 0, &d->t_min);
    set_number(r, "t_max", 0, &d->t_max);
    if (!param(r, "t_min")) d->t_max = 0;
    set_number(r, "confidence_threshold", 0, &d->confidence_threshold);
    const int32_t C = model_info.block_size;
    q->sampling.max_tokens = UM_CEIL_DIV((int32_t)json_integer_value(param(r, "max_new_tokens")), C) * C;
}

/* Gives the request that was added last its recorded draws. */
static void set_draws(um_engine *e, int64_t id, const um_draws *draws) {
    um_sequence *j = e->queue.first;
    while (j && j->id != id) j = j->after;
    assert_non_null(j);
    j->req.draws = draws;
}

static void add(um_engine *e, replay *r) {
    const json_t *stop = param(r, "eos_token_id");
    um_request q;
    um_err err;
    int64_t id;
    int32_t stops[UM_STOP_MAX];
    um_request_init(e, &q);
    int32_t *ids = family_ids(json_object_get(r->request, "prompt"), &q.n_ids);
    q.ids = ids;
    set_params(r, &q);
    if (stop) { /* they take the place of the model's */
        q.sampling.ignore_eos = true;
        q.n_stop_ids = UM_MIN(json_array_size(stop), UM_STOP_MAX);
        for (size_t i = 0; i < q.n_stop_ids; i++) stops[i] = id_at(stop, i);
        q.stop_ids = stops;
    }
    q.events = UM_EVENT_TRACE | UM_EVENT_SNAPSHOT;
    q.on_event = on_event;
    q.arg = r;
    if (um_engine_add(e, &q, &id, &err)) fail_msg("%s[%zu]: %s", r->c->name, r->index, err.msg);
    r->draws = (um_draws){recorded_draw, r};
    set_draws(e, id, &r->draws);
    um_free(ids);
}

static void check_requests(const family_case *c, const char *device, family_mode mode) {
    const json_t *requests = json_object_get(c->json, "requests"), *request;
    const size_t n = json_array_size(requests);
    test_engine t;
    size_t i;
    if (!n) return; /* a case of single passes */
    replay *r = UM_NEW_ARRAY(replay, n);
    family_engine_open(&t, c, device, mode, 40, UM_COMPAT_NONE);
    um_model_get_info(t.model, &model_info);
    json_array_foreach(requests, i, request) {
        r[i] = (replay){.c = c, .request = request, .index = i, .device = device};
        add(t.engine, &r[i]);
        if (mode == FAMILY_ALONE) test_drain(t.engine);
    }
    test_drain(t.engine);
    for (i = 0; i < n; i++) assert_true(r[i].finished);
    test_close(&t);
    um_free(r);
}

const family_replay diffusion_gemma_replay = {
    .family = "diffusion_gemma",
    .passes = check_passes,
    .requests = check_requests,
};
