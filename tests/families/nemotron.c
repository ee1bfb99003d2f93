/* Replays recordings of Nemotron-Labs-Diffusion: seeded_bd, autoregressive and self_speculation. */
#include "logits.h"
#include "requests.h"

/* ---- Logits ------------------------------------------------------------------------------------------------------ */

/* Runs a pass behind the stored keys, and compares its last rows with a recorded tensor, unless that is NULL. A pass is
 * causal, or its tokens see each other. */
static void run_pass(family_logits *l, const json_t *ids, bool causal, bool keep, const um_tensor *want) {
    int32_t id[TOKENS], pos[TOKENS], end[TOKENS];
    const int32_t n = (int32_t)json_array_size(ids), all = l->stored + n;
    assert_true(n <= TOKENS);
    for (int32_t i = 0; i < n; i++) {
        id[i] = id_at(ids, (size_t)i);
        pos[i] = l->stored + i;
        end[i] = causal ? pos[i] + 1 : all;
    }
    family_logits_run(l, id, pos, end, n, want);
    if (keep) l->stored = all;
}

/* The three passes of a `forward` case. */
static void check_forward(family_logits *l) {
    const json_t *ids = json_object_get(l->c->json, "ids"), *block = json_object_get(l->c->json, "block");
    run_pass(l, ids, true, true, family_logits_find(l, "causal.", "logits"));
    run_pass(l, block, false, false, family_logits_find(l, "block.", "logits"));
    l->stored = 0;
    const um_tensor *full = family_logits_find(l, "full.", "logits");
    if (full) run_pass(l, ids, false, false, full);
}

static void check_blocks(family_logits *l, const json_t *request, const char *of) {
    const json_t *blocks = json_object_get(request, "blocks"), *block;
    const bool causal = json_is_true(json_object_get(json_object_get(request, "params"), "causal_context"));
    size_t b;
    run_pass(l, json_object_get(request, "prompt"), causal, true, family_logits_find(l, of, "prefill.logits"));
    json_array_foreach(blocks, b, block) {
        const json_t *passes = json_object_get(block, "passes"), *pass;
        char name[64];
        size_t i;
        json_array_foreach(passes, i, pass) {
            snprintf(name, sizeof name, "block%zu.pass%zu.logits", b, i);
            const um_tensor *want = family_logits_find(l, of, name);
            if (want) run_pass(l, json_object_get(pass, "block_in"), false, false, want);
        }
        snprintf(name, sizeof name, "block%zu.commit.logits", b);
        run_pass(l, json_object_get(block, "block"), causal, true, family_logits_find(l, of, name));
    }
}

static void check_tokens(family_logits *l, const json_t *request, const char *of) {
    const json_t *output = json_object_get(request, "output");
    run_pass(l, json_object_get(request, "prompt"), true, true, family_logits_find(l, of, "step0.logits"));
    for (size_t i = 0; i + 1 < json_array_size(output); i++) {
        char name[64];
        json_t *one = json_pack("[i]", id_at(output, i));
        snprintf(name, sizeof name, "step%zu.logits", i + 1);
        run_pass(l, one, true, true, family_logits_find(l, of, name));
        json_decref(one);
    }
}

static void check_rounds(family_logits *l, const json_t *request, const char *of) {
    const json_t *rounds = json_object_get(request, "rounds"), *round;
    const int32_t mask = l->f.model->arch.mask_id;
    size_t k, i;
    run_pass(l, json_object_get(request, "prompt"), true, true, NULL);
    json_array_foreach(rounds, k, round) {
        const json_t *draft = json_object_get(round, "draft");
        json_t *window = json_pack("[i]", id_at(draft, 0));
        char name[64];
        for (i = 1; i < json_array_size(draft); i++) json_array_append_new(window, json_integer(mask));
        l->stored = (int32_t)number(round, "cache");
        snprintf(name, sizeof name, "round%zu.draft", k);
        const um_tensor *want = family_logits_find(l, of, name);
        if (want) run_pass(l, window, false, false, want);
        snprintf(name, sizeof name, "round%zu.verify", k);
        run_pass(l, draft, true, true, family_logits_find(l, of, name));
        json_decref(window);
    }
}

static void check_request(family_logits *l, const json_t *request, size_t index) {
    const char *mode = json_string_value(json_object_get(request, "mode"));
    char of[32];
    snprintf(of, sizeof of, "r%zu.", index);
    l->stored = 0;
    if (um_streq(mode, "block")) check_blocks(l, request, of);
    else if (um_streq(mode, "ar")) check_tokens(l, request, of);
    else if (um_streq(mode, "linear_spec")) check_rounds(l, request, of);
    else fail_msg("%s: request %zu has the mode \"%s\", which the test does not know", l->c->name, index, mode);
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

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

/* A recorded request that is being replayed. `want` are the lists of tokens that its traces show, in order. */
typedef struct replay {
    const family_case *c;
    const json_t *request;
    const char *device;
    json_t *want;
    size_t index, pass;
    int32_t mask, eos;
    bool has_seeds, is_speculation, finished;
} replay;

/* Appends the tokens of a block when it begins: its seed and masks. */
static void append_start(json_t *want, const json_t *block, int32_t mask) {
    const json_t *seed = json_object_get(block, "seed");
    const size_t n = json_array_size(json_object_get(block, "block"));
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer(i == 0 && json_is_integer(seed) ? json_integer_value(seed) : mask));
    json_array_append_new(want, list);
}

/* Without a seed, storing the prompt is no pass of its own. */
static void expect_blocks(replay *r) {
    const json_t *block, *pass;
    size_t b, i;
    json_array_foreach(json_object_get(r->request, "blocks"), b, block) {
        if (b > 0 || r->has_seeds) append_start(r->want, block, r->mask);
        json_array_foreach(json_object_get(block, "passes"), i, pass)
            json_array_append(r->want, json_object_get(pass, "block_out"));
    }
}

static void expect_tokens(replay *r) {
    const json_t *id;
    size_t i;
    json_array_foreach(json_object_get(r->request, "output"), i, id)
        json_array_append_new(r->want, json_pack("[O]", id));
}

/* The trace of a pass that drafts has the drafted tokens. The trace of a pass that verifies has the written ones. */
static void expect_rounds(replay *r) {
    const json_t *output = json_object_get(r->request, "output"), *round;
    size_t k;
    json_array_append_new(r->want, json_pack("[i]", id_at(output, 0)));
    json_array_foreach(json_object_get(r->request, "rounds"), k, round) {
        json_t *draft = json_copy(json_object_get(round, "draft"));
        json_array_remove(draft, 0);
        json_array_append_new(r->want, draft);
        json_array_append(r->want, json_object_get(round, "accepted"));
    }
}

/* A draft is cut at the limit of the answer, and left out when only one more token fits. What is written is cut at the
 * limit, too. */
static void check_trace(replay *r, const um_trace *t) {
    if (r->is_speculation && r->pass % 2 && t->n_new > 0) r->pass++;
    const json_t *want = json_array_get(r->want, r->pass);
    const size_t n = json_array_size(want);
    if (!want) fail_msg("%s[%zu]: more passes than the %zu recorded", r->c->name, r->index, r->pass);
    if (r->is_speculation ? (size_t)t->n_tokens > n : (size_t)t->n_tokens != n)
        fail_msg("%s[%zu] pass %zu: %d tokens, expected %zu", r->c->name, r->index, r->pass, t->n_tokens, n);
    for (int32_t i = 0; i < t->n_tokens; i++)
        if (t->token[i] != id_at(want, (size_t)i))
            fail_msg("%s[%zu] pass %zu: token %d is %d, expected %d", r->c->name, r->index, r->pass, i, t->token[i],
                     id_at(want, (size_t)i));
    r->pass++;
}

/* The recorded output includes the id that ended it. Where blocks were stored with masks, the answer ends before the
 * first. */
static void check_result(replay *r, const um_result *res) {
    const json_t *output = json_object_get(r->request, "output");
    const int32_t mask = json_object_get(r->request, "blocks") ? r->mask : -1;
    const bool ended = um_streq(json_string_value(json_object_get(r->request, "finish")), "stop");
    size_t n = 0;
    while (n < json_array_size(output) && id_at(output, n) != mask && id_at(output, n) != r->eos) n++;
    if (res->n_tokens != n) fail_msg("%s[%zu]: %zu tokens, expected %zu", r->c->name, r->index, res->n_tokens, n);
    for (size_t i = 0; i < n; i++) assert_int_equal(res->token_ids[i], id_at(output, i));
    if (json_object_get(r->request, "finish"))
        assert_int_equal(res->finish, ended ? UM_FINISH_EOS : UM_FINISH_MAX_TOKENS);
    /* The recorded loop stores the last block, too, and does not count the prompt's pass. */
    if (!ended && !r->is_speculation) {
        assert_int_equal(r->pass, json_array_size(r->want));
        assert_int_equal(res->nfe, number(r->request, "nfe") - !r->has_seeds);
    }
    print_message("# %-16s %-4s request %zu: %d passes, %.2f tokens a pass\n", r->c->name, r->device, r->index,
                  res->nfe, (double)res->n_tokens / UM_MAX(res->nfe, 1));
    r->finished = true;
}

static void on_event(void *arg, const um_event *ev) {
    replay *r = (replay *)arg;
    if (ev->type == UM_EVENT_TRACE) check_trace(r, ev->trace);
    else if (ev->type == UM_EVENT_FINISH) check_result(r, ev->result);
}

/* Sets the parameters of a request of the mode `block`. Without a threshold, each pass fills a quota. */
static void set_block_params(um_decoding *d, const json_t *params, int32_t block) {
    const json_t *threshold = json_object_get(params, "threshold");
    strcpy(d->strategy, "seeded_bd");
    strcpy(d->sampler, json_is_number(threshold) ? "confidence" : "low_confidence");
    if (json_is_number(threshold)) d->accept_threshold = (float)json_number_value(threshold);
    d->denoising_steps = (int32_t)(number(params, "steps") / (number(params, "max_new_tokens") / block));
    d->causal_context = json_is_true(json_object_get(params, "causal_context"));
}

static void set_params(um_request *q, replay *r, int32_t block) {
    const json_t *params = json_object_get(r->request, "params");
    const char *mode = json_string_value(json_object_get(r->request, "mode"));
    q->sampling.max_tokens = (int32_t)number(params, "max_new_tokens");
    q->sampling.temperature = 0;
    r->has_seeds = !json_is_false(json_object_get(params, "causal_context"));
    if (um_streq(mode, "block")) {
        set_block_params(&q->decoding, params, block);
        expect_blocks(r);
    } else if (um_streq(mode, "ar")) {
        strcpy(q->decoding.strategy, "autoregressive");
        expect_tokens(r);
    } else if (um_streq(mode, "linear_spec")) {
        strcpy(q->decoding.strategy, "self_speculation");
        q->decoding.draft_threshold = (float)json_number_value(json_object_get(params, "threshold"));
        q->sampling.max_tokens = (int32_t)json_array_size(json_object_get(r->request, "output"));
        r->is_speculation = true;
        expect_rounds(r);
    } else fail_msg("%s: request %zu has the mode \"%s\", which the test does not know", r->c->name, r->index, mode);
}

static void add(um_engine *e, const um_model_info *info, replay *r) {
    um_request q;
    um_err err;
    um_request_init(e, &q);
    int32_t *ids = family_ids(json_object_get(r->request, "prompt"), &q.n_ids);
    q.ids = ids;
    r->want = json_array();
    r->mask = info->mask_id;
    r->eos = info->stop[0];
    set_params(&q, r, info->block_size);
    q.events = UM_EVENT_TRACE;
    q.on_event = on_event;
    q.arg = r;
    if (um_engine_add(e, &q, NULL, &err)) fail_msg("%s[%zu]: %s", r->c->name, r->index, err.msg);
    um_free(ids);
}

static void check_requests(const family_case *c, const char *device, family_mode mode) {
    const json_t *requests = json_object_get(c->json, "requests"), *request;
    const size_t n = json_array_size(requests);
    test_engine t;
    um_model_info info;
    size_t i;
    if (!n) return; /* a case of single passes */
    replay *r = UM_NEW_ARRAY(replay, n);
    family_engine_open(&t, c, device, mode, family_longest_prompt(requests) + 32, UM_COMPAT_CHECKPOINT);
    um_model_get_info(t.model, &info);
    json_array_foreach(requests, i, request) {
        r[i] = (replay){.c = c, .request = request, .index = i, .device = device};
        add(t.engine, &info, &r[i]);
        if (mode == FAMILY_ALONE) test_drain(t.engine);
    }
    test_drain(t.engine);
    for (i = 0; i < n; i++) {
        assert_true(r[i].finished);
        json_decref(r[i].want);
    }
    test_close(&t);
    um_free(r);
}

const family_replay nemotron_replay = {
    .family = "nemotron_labs_diffusion",
    .passes = check_passes,
    .requests = check_requests,
};
