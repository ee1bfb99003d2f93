/* Replays recordings of LLaDA2.2: forward passes with block routing, requests of levenshtein and joint_indel pass for
 * pass, and the rules alone, which are fed recorded logits. */
#include "decode/strategies/indel.h"
#include "families.h"
#include "logits.h"
#include "requests.h"

enum { BLOCK_MAX = 32, IDS_MAX = 32 }; /* of the recordings of rules alone */

static float real(const json_t *o, const char *key) { return (float)json_number_value(json_object_get(o, key)); }

static bool is_joint(const family_case *c) {
    const char *rule = json_string_value(json_object_get(c->json, "rule"));
    if (!rule || (!um_streq(rule, "sglang") && !um_streq(rule, "levenshtein")))
        fail_msg("%s has the rule \"%s\", which the test does not know", c->name, rule ? rule : "(none)");
    return um_streq(rule, "sglang");
}

/* ---- Logits ------------------------------------------------------------------------------------------------------ */

/* The recorded tensors of a case, and the forward pass that is compared with them. */
/* Feeds the first n ids of a list at the positions from `first` on, which is a multiple of the block size. Compares all
 * rows with a recorded tensor, unless that is NULL. */
static void run_pass(family_logits *l, const json_t *ids, int32_t n, int32_t first, const um_tensor *want) {
    int32_t id[TOKENS], pos[TOKENS], end[TOKENS];
    const int32_t B = l->f.model->arch.block, all = first + n;
    assert_true(n > 0 && n <= TOKENS);
    for (int32_t i = 0; i < n; i++) {
        id[i] = id_at(ids, (size_t)i);
        pos[i] = first + i;
        end[i] = UM_MIN((pos[i] / B + 1) * B, all);
    }
    l->stored = first;
    family_logits_run(l, id, pos, end, n, want);
}

/* The default data have the logits of some passes only. */
static void check_forward(family_logits *l) {
    const json_t *pass;
    size_t i;
    json_array_foreach(json_object_get(l->c->json, "passes"), i, pass) {
        const json_t *ids = json_object_get(pass, "ids");
        char name[96];
        snprintf(name, sizeof name, "%s.logits", json_string_value(json_object_get(pass, "name")));
        const um_tensor *want = family_logits_find(l, "", name);
        if (want) run_pass(l, ids, (int32_t)json_array_size(ids), 0, want);
    }
    assert_true(l->n > 0);
}

/* The last pass over a block feeds its final tokens, so its keys stay. */
static void check_request(family_logits *l, const json_t *request, size_t index) {
    const json_t *prompt = json_object_get(request, "prompt"), *block, *pass;
    const int32_t B = l->f.model->arch.block, n = (int32_t)json_array_size(prompt) / B * B;
    size_t b, i;
    if (n) run_pass(l, prompt, n, 0, NULL);
    json_array_foreach(json_object_get(request, "blocks"), b, block)
        json_array_foreach(json_object_get(block, "passes"), i, pass) {
        char name[96];
        snprintf(name, sizeof name, "r%zu.block%zu.pass%zu.logits", index, b, i);
        run_pass(l, json_object_get(pass, "block_in"), B, n + (int32_t)b * B, family_logits_find(l, "", name));
    }
}

static void check_logits(const family_case *c, const char *device) {
    const json_t *requests = json_object_get(c->json, "requests"), *request;
    family_logits l;
    size_t i;
    if (family_logits_open(&l, c, device)) {
        if (!requests) check_forward(&l);
        json_array_foreach(requests, i, request) if (family_logits_has(&l, i)) check_request(&l, request, i);
    }
    family_logits_close(&l, device);
}

/* ---- Rules alone ------------------------------------------------------------------------------------------------- */

typedef struct answers {
    um_answer answer[BLOCK_MAX];
    um_top top[BLOCK_MAX][IDS_MAX];
} answers;

/* Makes the answer of a row from its logits: all ids by descending probability. `banned` is an id without probability,
 * or -1. */
static void make_answer(um_answer *a, um_top *top, const json_t *row, int32_t banned) {
    const int32_t V = (int32_t)json_array_size(row);
    float largest = -INFINITY, sum = 0;
    int32_t n = 0;
    assert_true(V <= IDS_MAX);
    for (int32_t i = 0; i < V; i++)
        if (i != banned) largest = fmaxf(largest, (float)json_number_value(json_array_get(row, (size_t)i)));
    for (int32_t i = 0; i < V; i++) {
        if (i == banned) continue;
        const um_top t = {.id = i, .p = expf((float)json_number_value(json_array_get(row, (size_t)i)) - largest)};
        int32_t at = n++;
        for (; at > 0 && top[at - 1].p < t.p; at--) top[at] = top[at - 1];
        top[at] = t;
        sum += t.p;
    }
    for (int32_t i = 0; i < IDS_MAX; i++)
        if (i < n) top[i].p /= sum;
        else top[i] = (um_top){.id = -1};
    *a = (um_answer){.sample = top[0].id, .p_sample = top[0].p, .best = top[0].id, .p_best = top[0].p, .top = top};
}

static void set_tokens(um_indel *b, const json_t *list) {
    for (int32_t i = 0; i < b->n; i++) {
        const int32_t id = id_at(list, (size_t)i);
        b->token[i] = id == b->how.mask_id ? UM_MASKED : id;
    }
}

static void check_step(const um_indel *b, const family_case *c, const json_t *pass, size_t run, size_t index,
                       bool done) {
    const json_t *out = json_object_get(pass, "block_out"), *flags = json_object_get(pass, "original_after");
    size_t k = 0;
    for (int32_t i = 0; i < b->n; i++) {
        const int32_t want = id_at(out, (size_t)i), have = b->id[i] == UM_MASKED ? b->how.mask_id : b->id[i];
        if (have != want)
            fail_msg("%s run %zu pass %zu: token %d is %d, expected %d", c->name, run, index, i, have, want);
        const bool flag = k < json_array_size(flags) && id_at(flags, k) == i;
        if (b->original[i] != flag) fail_msg("%s run %zu pass %zu: flag of token %d", c->name, run, index, i);
        k += flag;
    }
    if (done != json_is_true(json_object_get(pass, "done")))
        fail_msg("%s run %zu pass %zu: done is %d", c->name, run, index, done);
}

static um_indel_how how_of(const family_case *c, const json_t *params) {
    return (um_indel_how){.rule = is_joint(c) ? UM_INDEL_JOINT : UM_INDEL_LEVENSHTEIN,
                          .threshold = real(params, "threshold"),
                          .edit_threshold = real(params, "edit_threshold"),
                          .max_post = (int32_t)number(params, "max_post_steps"),
                          .steps = (int32_t)number(params, "steps"),
                          .max_steps = (int32_t)number(params, "max_steps_per_block"),
                          .mask_id = (int32_t)number(c->json, "mask_token_id"),
                          .delete_id = (int32_t)number(c->json, "delete_token_id"),
                          .split_id = (int32_t)number(c->json, "split_token_id")};
}

/* SGLang's step treats control tokens of a prompt like predicted ones: it keeps none of the prompt's tokens. */
static void check_run(const family_case *c, const json_t *run, size_t index, answers *a) {
    const json_t *block = json_object_get(run, "block"), *pass;
    const um_indel_how how = how_of(c, json_object_get(run, "params"));
    const int32_t n = (int32_t)json_array_size(block), fixed = (int32_t)number(run, "prompt");
    const int32_t kept = is_joint(c) ? 0 : fixed, banned = is_joint(c) ? -1 : how.mask_id;
    um_indel b;
    size_t i;
    assert_true(n > 0 && n <= BLOCK_MAX);
    um_indel_init(&b, &how, n);
    set_tokens(&b, block);
    um_indel_begin(&b, n, fixed, kept);
    json_array_foreach(json_object_get(run, "passes"), i, pass) {
        const json_t *rows = json_object_get(pass, "logits");
        set_tokens(&b, json_object_get(pass, "block_in"));
        for (int32_t k = kept; k < n; k++)
            make_answer(&a->answer[k - kept], a->top[k - kept], json_array_get(rows, (size_t)k), banned);
        const bool done = um_indel_step(&b, a->answer, IDS_MAX);
        check_step(&b, c, pass, index, i, done);
    }
    um_indel_deinit(&b);
}

static void check_rules(const family_case *c) {
    const json_t *runs = json_object_get(c->json, "runs"), *run;
    answers *a = UM_NEW(answers);
    size_t i;
    json_array_foreach(runs, i, run) check_run(c, run, i, a);
    print_message("# %-16s %zu blocks\n", c->name, json_array_size(runs));
    um_free(a);
}

static void check_passes(const family_case *c, const char *device) {
    if (json_object_get(c->json, "runs")) check_rules(c);
    else check_logits(c, device);
}

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

/* A recorded request that is being replayed. */
typedef struct replay {
    const family_case *c;
    const json_t *request;
    const char *device;
    size_t index, block, pass;
    int32_t n_passes;
    bool finished;
} replay;

static void check_trace(replay *r, const um_trace *t) {
    const json_t *block = json_array_get(json_object_get(r->request, "blocks"), r->block);
    const json_t *pass = json_array_get(json_object_get(block, "passes"), r->pass);
    const json_t *want = json_object_get(pass, "block_out");
    if (!want) fail_msg("%s[%zu]: more passes than the %d recorded", r->c->name, r->index, r->n_passes);
    assert_int_equal(t->n_tokens, json_array_size(want));
    for (int32_t i = 0; i < t->n_tokens; i++)
        if (t->token[i] != id_at(want, (size_t)i))
            fail_msg("%s[%zu] block %zu pass %zu: token %d is %d, expected %d", r->c->name, r->index, r->block, r->pass,
                     i, t->token[i], id_at(want, (size_t)i));
    r->n_passes++;
    r->pass++;
    if (r->pass < json_array_size(json_object_get(block, "passes"))) return;
    assert_true(json_is_true(json_object_get(pass, "done")));
    r->block++;
    r->pass = 0;
}

/* Tells whether an id is among the recorded ids that end an answer. */
static bool is_stop(const replay *r, int32_t id) {
    const json_t *ids = json_object_get(r->c->json, "stop_ids"), *v;
    size_t i;
    json_array_foreach(ids, i, v) if (json_integer_value(v) == id) return true;
    return false;
}

/* The recorded output includes the id that ended it. */
static void check_result(replay *r, const um_result *res) {
    const json_t *output = json_object_get(r->request, "output");
    size_t n = json_array_size(output);
    const bool ended = n > 0 && is_stop(r, id_at(output, n - 1));
    n -= ended;
    if (res->n_tokens != n) fail_msg("%s[%zu]: %zu tokens, expected %zu", r->c->name, r->index, res->n_tokens, n);
    for (size_t i = 0; i < n; i++) assert_int_equal(res->token_ids[i], id_at(output, i));
    assert_int_equal(res->finish, ended ? UM_FINISH_EOS : UM_FINISH_MAX_TOKENS);
    assert_int_equal(r->block, json_array_size(json_object_get(r->request, "blocks")));
    assert_int_equal(res->nfe, r->n_passes);
    print_message("# %-16s %-4s request %zu: %d passes, %.2f tokens a pass\n", r->c->name, r->device, r->index,
                  res->nfe, (double)res->n_tokens / UM_MAX(res->nfe, 1));
    r->finished = true;
}

static void on_event(void *arg, const um_event *ev) {
    replay *r = (replay *)arg;
    if (ev->type == UM_EVENT_TRACE) check_trace(r, ev->trace);
    else if (ev->type == UM_EVENT_FINISH) check_result(r, ev->result);
}

static void set_params(um_request *q, const replay *r) {
    const json_t *params = json_object_get(r->request, "params");
    um_decoding *d = &q->decoding;
    strcpy(d->strategy, is_joint(r->c) ? "joint_indel" : "levenshtein");
    d->accept_threshold = real(params, "threshold");
    d->edit_threshold = real(params, "edit_threshold");
    d->max_post_edit_steps = (int32_t)number(params, "max_post_steps");
    if (!is_joint(r->c)) {
        d->denoising_steps = (int32_t)number(params, "steps");
        d->max_steps_per_block = (int32_t)number(params, "max_steps_per_block");
    }
    q->sampling.max_tokens = (int32_t)number(params, "max_new_tokens");
    q->sampling.temperature = 0;
}

static void add(um_engine *e, replay *r) {
    um_request q;
    um_err err;
    um_request_init(e, &q);
    int32_t *ids = family_ids(json_object_get(r->request, "prompt"), &q.n_ids);
    q.ids = ids;
    set_params(&q, r);
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
    size_t i;
    if (!n) return; /* a case of single passes, or of rules alone */
    replay *r = UM_NEW_ARRAY(replay, n);
    family_engine_open(&t, c, device, mode, family_longest_prompt(requests) + 32, UM_COMPAT_NONE);
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

const family_replay llada22_replay = {
    .family = "llada2.2",
    .passes = check_passes,
    .requests = check_requests,
};
