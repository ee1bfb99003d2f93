/* Tests of the contents of events and slots, apart from text: ids, times, confidences, blocks in flight, special
 * tokens. */
#include <math.h>

#include <jansson.h>

#include "support.h"
#include "unit/bos_folder.h"

#define LLADA22  "families/llada22/models/llada22_a"
#define NEMOTRON "families/nemotron/models/nemotron_c"

static const struct {
    const char *model, *strategy;
} kinds[] = {
    {"sdar", "multi_bd"},
    {"llada2", "dmax"},
    {"llada", "d2f"},
    {"fast_dllm_v2", "fast_dllm_v2"},
    {"llada", "full"},
    {"llada", "prefix_cache"},
    {"llada", "dual_cache"},
    {"llada", "sparse"},
    {LLADA22, "levenshtein"},
    {LLADA22, "joint_indel"},
    {NEMOTRON, "seeded_bd"},
    {NEMOTRON, "autoregressive"},
    {NEMOTRON, "self_speculation"},
    {"families/wedlm/models/wedlm_8b", "causal_window"},
};

static const int32_t prompt[] = {231, 443, 286, 438, 473};

static test_engine tiny; /* of models/tiny-block */

static void open_kind(test_engine *t, const char *model, char path[128]) {
    um_config c;
    test_config(&c, model, path, 128);
    c.num_pages = 40;
    c.max_num_reqs = 2;
    test_open(t, &c);
}

static um_request request(const um_engine *e, const char *strategy) {
    um_request r;
    um_request_init(e, &r);
    r.ids = prompt;
    r.n_ids = UM_LEN(prompt);
    r.sampling.max_tokens = 21;
    snprintf(r.decoding.strategy, sizeof r.decoding.strategy, "%s", strategy);
    return r;
}

static int64_t add(um_engine *e, const um_request *r) {
    um_err err;
    int64_t id = 0;
    if (um_engine_add(e, r, &id, &err)) fail_msg("%s", err.msg);
    return id;
}

/* ---- Snapshots --------------------------------------------------------------------------------------------------- */

typedef struct history {
    const char *strategy;
    int32_t n_snapshots, n_finished, last_tokens;
    double last_seconds;
    int32_t max_tokens;
} history;

static void check_confidence(const history *f, const um_snapshot *s) {
    for (size_t i = 0; i < s->n; i++) {
        bool masked = s->state[i] == UM_TOKEN_MASK;
        if (masked != isnan(s->confidence[i]) || (!masked && !(s->confidence[i] > 0 && s->confidence[i] <= 1)))
            fail_msg("%s: position %zu, state %d, confidence %g", f->strategy, i, s->state[i],
                     (double)s->confidence[i]);
    }
}

/* Checks that the blocks follow each other, lie inside the answer and contain all its masks. */
static void check_blocks(const history *f, const um_snapshot *s) {
    int32_t masks = 0, seen = 0, end = INT32_MIN;
    for (int32_t i = 0; i < s->n_blocks; i++) {
        const um_block_view *b = &s->block[i];
        assert_true(b->length > 0 && b->start >= end && b->start + b->length <= f->max_tokens);
        assert_true(b->start + b->length > 0 || b->masks == 0);
        assert_non_null(b->status);
        end = b->start + b->length;
        masks += b->masks;
        for (int32_t p = UM_MAX(b->start, 0); p < UM_MIN(end, (int32_t)s->n); p++) seen += s->state[p] == UM_TOKEN_MASK;
    }
    assert_int_equal(masks, seen);
}

static void watch(void *arg, const um_event *ev) {
    history *f = (history *)arg;
    f->n_finished += ev->type == UM_EVENT_FINISH;
    if (ev->type == UM_EVENT_FINISH) assert_true(ev->result->decode_seconds >= f->last_seconds);
    if (ev->type != UM_EVENT_SNAPSHOT) return;
    f->n_snapshots++;
    check_confidence(f, ev->snapshot);
    check_blocks(f, ev->snapshot);
    assert_true(ev->decode_seconds >= f->last_seconds && ev->decode_tokens >= f->last_tokens);
    f->last_seconds = ev->decode_seconds;
    f->last_tokens = ev->decode_tokens;
}

static void snapshots_of_every_strategy_show_confidence_and_blocks(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(kinds); i++) {
        char path[128];
        test_engine t;
        history f = {.strategy = kinds[i].strategy, .max_tokens = 21};
        open_kind(&t, kinds[i].model, path);
        um_request r = request(t.engine, kinds[i].strategy);
        r.events = UM_EVENT_SNAPSHOT;
        r.on_event = watch;
        r.arg = &f;
        (void)add(t.engine, &r);
        int64_t before = um_alloc_count();
        test_drain(t.engine);
        assert_int_equal(um_alloc_count(), before);
        assert_int_equal(f.n_finished, 1);
        assert_true(f.n_snapshots > 1 && f.last_seconds > 0 && f.last_tokens > 0);
        test_close(&t);
    }
}

static void count_blocks(void *arg, const um_event *ev) {
    int32_t *most = (int32_t *)arg;
    if (ev->type == UM_EVENT_SNAPSHOT) *most = UM_MAX(*most, ev->snapshot->n_blocks);
}

static void as_many_blocks_are_in_flight_as_the_buffer_holds(void **state) {
    (void)state;
    for (int32_t n = 1; n < 4; n++) {
        char path[128];
        test_engine t;
        int32_t most = 0;
        open_kind(&t, "sdar", path);
        um_request r = request(t.engine, "multi_bd");
        r.decoding.buffer_size = n;
        r.decoding.block_size = 4;
        r.sampling.ignore_eos = true;
        r.events = UM_EVENT_SNAPSHOT;
        r.on_event = count_blocks;
        r.arg = &most;
        (void)add(t.engine, &r);
        test_drain(t.engine);
        assert_in_range(most, n, n + 1); /* one more block may be in flight while it is stored */
        test_close(&t);
    }
}

/* ---- Text -------------------------------------------------------------------------------------------------------- */

static void ids_of_all_text_events_are_the_answer(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(kinds); i++) {
        char path[128];
        test_engine t;
        static test_answer a;
        memset(&a, 0, sizeof a);
        open_kind(&t, kinds[i].model, path);
        um_request r = request(t.engine, kinds[i].strategy);
        r.events = UM_EVENT_TEXT;
        r.on_event = test_collect; /* checks the tokens of the events against the result */
        r.arg = &a;
        (void)add(t.engine, &r);
        test_drain(t.engine);
        assert_int_equal(a.n_streamed, a.n);
        test_close(&t);
    }
}

/* The values that the events of an answer carry for its tokens, apart from their ids. */
#define TOP 3
typedef struct scores {
    float logprob[64];
    um_logprob likeliest[64 * TOP];
    int32_t text_end[64];
    size_t n, text_len;
    bool is_cut; /* the last token's text continues after the text that was sent */
    int32_t n_finished, n_events, n_without_text;
    char text[512];
} scores;

static void keep_scores(scores *s, const um_event *ev) {
    assert_false(s->is_cut); /* only the last event may have such a token, when a stop string cut it */
    assert_true((size_t)ev->offset == s->n && s->n + ev->n_ids <= UM_LEN(s->text_end));
    assert_true(ev->logprob && ev->likeliest && ev->n_likeliest == TOP);
    s->text_len += ev->text_len;
    s->n_events++;
    for (size_t i = 0; i < ev->n_ids; i++, s->n++) {
        s->n_without_text += ev->text_end[i] == (s->n ? s->text_end[s->n - 1] : 0);
        s->is_cut |= (size_t)ev->text_end[i] > s->text_len;
        s->text_end[s->n] = ev->text_end[i];
        s->logprob[s->n] = ev->logprob[i];
        memcpy(s->likeliest + s->n * TOP, ev->likeliest + i * TOP, TOP * sizeof *ev->likeliest);
    }
}

static void compare_scores(void *arg, const um_event *ev) {
    scores *s = &((scores *)arg)[ev->index];
    if (ev->type == UM_EVENT_TEXT) keep_scores(s, ev);
    if (ev->type != UM_EVENT_FINISH) return;
    const um_result *r = ev->result;
    s->n_finished++;
    assert_int_equal(s->n, r->n_tokens);
    assert_true(r->n_likeliest == TOP && r->text_len < sizeof s->text);
    memcpy(s->text, r->text, r->text_len + 1);
    if (r->n_tokens == 0) return;
    assert_memory_equal(s->logprob, r->logprob, s->n * sizeof(float));
    assert_memory_equal(s->likeliest, r->likeliest, s->n * TOP * sizeof(um_logprob));
    assert_memory_equal(s->text_end, r->text_end, s->n * sizeof(int32_t));
    for (size_t i = 0; i < s->n; i++) assert_true(s->logprob[i] <= 0 && s->likeliest[i * TOP].logprob <= 0);
}

/* Runs the request and compares its events with its results. The steps must allocate nothing. */
static void run_scored(um_engine *e, um_request *r, scores *s) {
    memset(s, 0, (size_t)r->n * sizeof *s);
    r->sampling.logprobs = TOP;
    r->events = UM_EVENT_TEXT;
    r->on_event = compare_scores;
    r->arg = s;
    (void)add(e, r);
    int64_t before = um_alloc_count();
    test_drain(e);
    assert_int_equal(um_alloc_count(), before);
    for (int32_t i = 0; i < r->n; i++) assert_int_equal(s[i].n_finished, 1);
}

static void log_probabilities_of_all_text_events_are_the_answers(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(kinds); i++) {
        char path[128], stop[8] = "";
        const char *stops[] = {stop};
        test_engine t;
        static scores s[2];
        open_kind(&t, kinds[i].model, path);
        um_request r = request(t.engine, kinds[i].strategy);
        run_scored(t.engine, &r, s);
        assert_true(s->n > 0 && s->text_len == strlen(s->text));
        snprintf(stop, sizeof stop, "%.3s", s->text + s->text_len / 2); /* ends the answer, possibly inside a token */
        r.stop = stops;
        r.n_stop = 1;
        run_scored(t.engine, &r, s);
        assert_null(strstr(s->text, stop));
        r.n_stop = 0;
        r.n = 2;
        r.sampling.max_tokens = 7;
        r.sampling.temperature = 1.5F;
        run_scored(t.engine, &r, s);
        test_close(&t);
    }
}

/* The answer consists of two bytes, because nothing else is allowed. Together they are a character. The first byte
 * alone is a token without text. */
static void log_probabilities_wait_for_the_text_of_their_token(void **state) {
    (void)state;
    static const int32_t bytes[] = {127, 102}; /* C3 and A9 */
    int32_t without_text = 0, events = 0;
    for (int64_t seed = 0; seed < 12; seed++) {
        static scores s;
        um_request r;
        um_request_init(tiny.engine, &r);
        r.ids = prompt;
        r.n_ids = UM_LEN(prompt);
        r.sampling.max_tokens = 60;
        r.sampling.temperature = 2;
        r.sampling.seed = seed;
        r.decoding.block_size = 4;
        r.allowed_ids = bytes;
        r.n_allowed_ids = UM_LEN(bytes);
        run_scored(tiny.engine, &r, &s);
        without_text += s.n_without_text;
        events += s.n_events;
    }
    assert_true(without_text > 50 && events > 100);
}

/* ---- Special tokens ---------------------------------------------------------------------------------------------- */

static int open_tiny(void **state) {
    (void)state;
    um_config c;
    um_config_init(&c);
    c.model = "models/tiny-block";
    c.max_model_len = 128;
    c.max_num_reqs = 1;
    c.num_pages = 32;
    test_open(&tiny, &c);
    return 0;
}

static int close_tiny(void **state) {
    (void)state;
    test_close(&tiny);
    return 0;
}

static const um_message question = {.role = "user", .content = "Reverse the word \"lamp\"."};

static um_request ask(test_answer *a) {
    um_request r;
    um_request_init(tiny.engine, &r);
    r.messages = &question;
    r.n_messages = 1;
    r.sampling.max_tokens = 40;
    r.sampling.ignore_eos = true; /* the model then writes special tokens, and tokens after them */
    r.events = UM_EVENT_TEXT;
    r.on_event = test_collect;
    r.arg = a;
    return r;
}

static void tokens_without_text_are_streamed_too(void **state) {
    (void)state;
    static test_answer plain;
    um_request r = ask(&plain);
    (void)add(tiny.engine, &r);
    test_drain(tiny.engine);
    assert_int_equal(plain.n, 40);
    assert_int_equal(plain.n_streamed, 40);
    assert_null(strstr(plain.text, "<|"));
}

static void compare_ends(void *arg, const um_event *ev) {
    const test_engine *t = (const test_engine *)arg;
    size_t end = 0, len;
    if (ev->type != UM_EVENT_FINISH) return;
    assert_int_equal(ev->result->n_tokens, 12);
    for (size_t i = 0; i < ev->result->n_tokens; i++) {
        (void)um_model_token_bytes(t->model, ev->result->token_ids[i], &len);
        end += len;
        assert_int_equal(ev->result->text_end[i], end);
    }
}

/* BPEDecoder writes the last token differently, so the text of a token is known only when the next token is known. */
static void a_text_that_waits_for_the_next_token_is_its_tokens_own(void **state) {
    (void)state;
    char folder[] = BOS_FOLDER, from[512], to[256], cwd[256];
    json_t *v = NULL;
    um_config c;
    test_engine t;
    bos_folder_make(folder);
    assert_non_null(getcwd(cwd, sizeof cwd));
    snprintf(from, sizeof from, "%s/models/tiny-full/model.safetensors", cwd);
    snprintf(to, sizeof to, "%s/model.safetensors", folder);
    assert_int_equal(symlink(from, to), 0);
    snprintf(from, sizeof from, "%s/tokenizer.json", folder);
    assert_int_equal(um_json_load(&v, from, NULL), UM_OK);
    json_object_set_new(v, "decoder", json_pack("{s:s,s:s}", "type", "BPEDecoder", "suffix", "</w>"));
    assert_int_equal(unlink(from), 0);
    assert_int_equal(json_dump_file(v, from, 0), 0);
    json_decref(v);
    um_config_init(&c);
    c.model = folder;
    c.num_pages = 40;
    c.max_num_reqs = 1;
    test_open(&t, &c);
    um_request r = request(t.engine, "full");
    r.keep_special = true;
    r.sampling.max_tokens = 12;
    r.sampling.ignore_eos = true;
    r.on_event = compare_ends;
    r.arg = &t;
    (void)add(t.engine, &r);
    test_drain(t.engine);
    test_close(&t);
    assert_int_equal(unlink(to), 0);
    bos_folder_remove(folder);
}

static void special_tokens_are_text_when_that_is_asked_for(void **state) {
    (void)state;
    static test_answer a;
    um_request r = ask(&a);
    r.keep_special = true;
    (void)add(tiny.engine, &r);
    test_drain(tiny.engine);
    char *whole = NULL;
    assert_int_equal(um_model_decode(tiny.model, a.token, (size_t)a.n, true, &whole, NULL, NULL), UM_OK);
    assert_string_equal(a.text, whole);
    assert_non_null(strstr(a.text, "<|"));
    um_free(whole);
}

/* ---- The values of an engine ------------------------------------------------------------------------------------- */

static void check_sampler(const char *model, const char *strategy, const char *sampler, const char *want) {
    char path[128];
    um_config c;
    test_engine t;
    um_engine_info info;
    test_config(&c, model, path, sizeof path);
    c.max_num_reqs = 1;
    c.num_pages = 40;
    snprintf(c.decoding.strategy, sizeof c.decoding.strategy, "%s", strategy);
    snprintf(c.decoding.sampler, sizeof c.decoding.sampler, "%s", sampler);
    test_open(&t, &c);
    um_engine_get_info(t.engine, &info);
    if (!um_streq(info.sampler, want))
        fail_msg("%s, %s, %s: expected sampler %s, found %s", model, strategy, sampler, want, info.sampler);
    test_close(&t);
}

static void an_engine_names_the_sampler_that_it_uses(void **state) {
    (void)state;
    check_sampler("sdar", "auto", "auto", "confidence");
    check_sampler("sdar", "auto", "credit", "credit");
    check_sampler("llada", "auto", "auto", "low_confidence");
    check_sampler("llada", "d2f", "auto", "confidence");
    check_sampler("llada", "full", "random", "random");
    check_sampler("llada", "sparse", "auto", "low_confidence");
    check_sampler("llada2", "dmax", "auto", "dmax");
    check_sampler("llada2", "dmax", "edit", "dmax");
    check_sampler("fast_dllm_v2", "fast_dllm_v2", "auto", "confidence");
}

/* ---- Slots and priorities ---------------------------------------------------------------------------------------- */

static void slots_show_what_runs_and_what_waits(void **state) {
    (void)state;
    static test_answer a[2];
    um_slot slot[2];
    memset(a, 0, sizeof a);
    um_request r = ask(&a[0]), later = ask(&a[1]);
    r.decoding.accept_threshold = 1; /* accept one token in each pass */
    int64_t id = add(tiny.engine, &r), other = add(tiny.engine, &later);
    assert_int_equal(um_engine_step(tiny.engine, NULL), UM_OK);
    assert_int_equal(um_engine_slots(tiny.engine, NULL, 0), 2);
    assert_int_equal(um_engine_slots(tiny.engine, slot, UM_LEN(slot)), 2);
    assert_true(slot[0].running && slot[0].id == id && slot[0].nfe == 1 && slot[0].blocks > 0 && slot[0].masks > 0);
    assert_true(slot[0].prompt_tokens > 0 && slot[0].max_tokens == 40 && slot[0].seconds > 0);
    assert_string_equal(slot[0].strategy, "multi_bd");
    assert_true(!slot[1].running && slot[1].id == other && slot[1].nfe == 0 && slot[1].blocks == 0);
    um_err err = {0};
    assert_int_equal(um_engine_flush_cache(tiny.engine, &err), UM_EINVAL);
    assert_non_null(strstr(err.msg, "2 are unfinished"));
    test_drain(tiny.engine);
}

static um_stats after_prompt(const int32_t *ids, size_t n, uint64_t salt) {
    um_stats s;
    um_request r = ask(NULL);
    r.messages = NULL;
    r.ids = ids;
    r.n_ids = n;
    r.cache_salt = salt;
    r.events = 0;
    r.on_event = NULL;
    (void)add(tiny.engine, &r);
    test_drain(tiny.engine);
    um_engine_get_stats(tiny.engine, &s);
    return s;
}

static void a_flushed_cache_serves_no_prompt(void **state) {
    (void)state;
    static const int32_t ids[70]; /* two full pages and a part of a third */
    um_stats first = after_prompt(ids, 70, 0), second = after_prompt(ids, 70, 0);
    assert_true(second.prefix_hits > first.prefix_hits);
    assert_int_equal(um_engine_flush_cache(tiny.engine, NULL), UM_OK);
    um_stats third = after_prompt(ids, 70, 0);
    assert_true(third.prefix_hits == second.prefix_hits);
}

/* Only requests with the same salt share a stored prompt. Others can't find out from response times which prompts were
 * used before. */
static void a_stored_prompt_serves_those_of_its_salt(void **state) {
    (void)state;
    static const int32_t ids[70] = {3, 1, 4};
    static const struct {
        uint64_t salt;
        bool found;
    } asked[] = {{1, false}, {0, false}, {2, false}, {1, true}, {2, true}, {0, true}};
    um_stats before, after;
    for (size_t i = 0; i < UM_LEN(asked); i++) {
        um_engine_get_stats(tiny.engine, &before);
        after = after_prompt(ids, 70, asked[i].salt);
        assert_int_equal(after.prefix_hits > before.prefix_hits, asked[i].found);
    }
}

typedef struct order {
    int64_t id[4];
    int n;
} order;

static void note_end(void *arg, const um_event *ev) {
    order *o = (order *)arg;
    if (ev->type == UM_EVENT_FINISH) o->id[o->n++] = ev->id;
}

static void the_lower_priority_number_is_admitted_first(void **state) {
    (void)state;
    static const int32_t priority[] = {0, 5, -1, 5};
    static const int want[] = {2, 0, 1, 3}; /* the engine has one slot */
    order o = {0};
    int64_t id[4];
    for (int i = 0; i < 4; i++) {
        um_request r = ask(NULL);
        r.priority = priority[i];
        r.events = 0;
        r.on_event = note_end;
        r.arg = &o;
        id[i] = add(tiny.engine, &r);
    }
    test_drain(tiny.engine);
    for (int i = 0; i < 4; i++) assert_int_equal(o.id[i], id[want[i]]);
}

/* ---- Times ------------------------------------------------------------------------------------------------------- */

/* Lower and upper bound of a time, measured by the test itself. */
typedef struct bounds {
    double least, most;
} bounds;

typedef struct timed {
    double add_begins, add_ends;
    bounds started;     /* begin and end of the step that scheduled it */
    bounds first_text;  /* begin of the step of its first text, and the time of that event */
    double step_begins; /* when the current step began */
    um_result result;
    bool is_done;
} timed;

static void note_times(void *arg, const um_event *ev) {
    timed *t = (timed *)arg;
    if (ev->type == UM_EVENT_TEXT && !t->first_text.most) t->first_text = (bounds){t->step_begins, um_now()};
    if (ev->type != UM_EVENT_FINISH) return;
    t->result = *ev->result;
    t->is_done = true;
}

static void add_timed(um_engine *e, um_request *r, timed *t) {
    *t = (timed){.add_begins = um_now()};
    r->events = UM_EVENT_TEXT;
    r->on_event = note_times;
    r->arg = t;
    (void)add(e, r);
    t->add_ends = um_now();
}

static void step_timed(um_engine *e, timed *t, size_t n) {
    const double begins = um_now();
    um_slot slot[2];
    for (size_t i = 0; i < n; i++) t[i].step_begins = begins;
    assert_int_equal(um_engine_step(e, NULL), UM_OK);
    const double ends = um_now();
    const size_t n_slots = um_engine_slots(e, slot, UM_LEN(slot));
    for (size_t i = 0; i < n; i++) {
        bool waits = false;
        for (size_t k = 0; k < n_slots; k++) waits |= !slot[k].running && slot[k].id == (int64_t)i + 1;
        if (!waits && !t[i].started.most) t[i].started = (bounds){begins, ends};
    }
}

static void check_times(const char *strategy, const timed *t) {
    const um_result *r = &t->result;
    const double slack = 1e-9; /* allows for rounding of differences */
    const double queue_least = t->started.least - t->add_ends, queue_most = t->started.most - t->add_begins,
                 first_least = t->first_text.least - t->add_ends, first_most = t->first_text.most - t->add_begins;
    if (!(r->queue_seconds >= queue_least - slack && r->queue_seconds <= queue_most + slack))
        fail_msg("%s: queue %g s, expected %g..%g", strategy, r->queue_seconds, queue_least, queue_most);
    if (!(r->first_token_seconds >= first_least - slack && r->first_token_seconds <= first_most + slack))
        fail_msg("%s: first token after %g s, expected %g..%g", strategy, r->first_token_seconds, first_least,
                 first_most);
    if (!(r->queue_seconds > 0 && r->queue_seconds <= r->first_token_seconds &&
          r->first_token_seconds <= r->total_seconds))
        fail_msg("%s: queue %g s, first token %g s, total %g s", strategy, r->queue_seconds, r->first_token_seconds,
                 r->total_seconds);
}

/* The engine has one slot, so the second request waits until the first one has ended. */
static void times_count_from_submission_and_ascend(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(kinds); i++) {
        char path[128];
        um_config c;
        test_engine t;
        timed times[2];
        test_config(&c, kinds[i].model, path, sizeof path);
        c.num_pages = 40;
        c.max_num_reqs = 1;
        test_open(&t, &c);
        um_request r = request(t.engine, kinds[i].strategy);
        for (size_t k = 0; k < UM_LEN(times); k++) add_timed(t.engine, &r, &times[k]);
        while (um_engine_pending(t.engine)) step_timed(t.engine, times, UM_LEN(times));
        for (size_t k = 0; k < UM_LEN(times); k++) {
            assert_true(times[k].is_done && times[k].result.n_tokens > 0);
            check_times(kinds[i].strategy, &times[k]);
        }
        test_close(&t);
    }
}

static void note_queue(void *arg, const um_event *ev) {
    double *queue = (double *)arg;
    if (ev->type == UM_EVENT_FINISH) queue[ev->index] = ev->result->queue_seconds;
}

/* The times of all answers count from the same um_engine_add. A later answer is not scheduled before an earlier one. */
static void answers_of_a_request_count_from_its_submission(void **state) {
    (void)state;
    enum { ANSWERS = 4, WORDS = 400 };
    double queue[ANSWERS] = {0};
    um_buf text = {0};
    um_config c;
    test_engine t;
    um_config_init(&c);
    c.model = "models/tiny-full";
    c.max_num_reqs = ANSWERS;
    test_open(&t, &c);
    for (int i = 0; i < WORDS; i++) um_buf_puts(&text, " sum"); /* encoding takes longer than scheduling */
    um_request r;
    um_request_init(t.engine, &r);
    r.text = text.data;
    r.text_len = text.len;
    r.n = ANSWERS;
    r.sampling.max_tokens = 1;
    r.on_event = note_queue;
    r.arg = queue;
    (void)add(t.engine, &r);
    test_drain(t.engine);
    for (int i = 1; i < ANSWERS; i++)
        if (!(queue[i] >= queue[i - 1]))
            fail_msg("answer %d: queue %g s, the one before %g s", i, queue[i], queue[i - 1]);
    um_buf_free(&text);
    test_close(&t);
}

/* ---- Aborts from callbacks --------------------------------------------------------------------------------------- */

/* Request 0 has two answers, request 3 waits for a slot, and the callback adds request 4. */
enum { N_FIRST = 4, N_ALL = 5, EVERYONE = -1 };

typedef struct aborts {
    um_engine *engine;
    int trigger, type; /* the callback acts at the first event of this type of this request */
    int target;        /* the request that it aborts, or EVERYONE */
    bool fired;
    int64_t id[N_ALL];
    bool is_aborted[N_ALL];
    int32_t n_answers[N_ALL], n_finished[N_ALL];
} aborts;

static um_request short_request(aborts *a, int i);

static int number_of(const aborts *a, int64_t id) {
    int i = 0;
    while (i < N_ALL && a->id[i] != id) i++;
    assert_in_range(i, 0, N_ALL - 1);
    return i;
}

/* Unfinished answers get their FINISH during the call or later, so the flag is set before it. */
static void abort_request(aborts *a, int i) {
    const bool any_left = a->n_finished[i] < a->n_answers[i];
    a->is_aborted[i] = true;
    um_status st = um_engine_abort(a->engine, a->id[i], NULL);
    assert_int_equal(st, any_left ? UM_OK : UM_ENOENT);
    assert_int_equal(um_engine_abort(a->engine, a->id[i], NULL), UM_ENOENT);
}

static void fire(aborts *a) {
    a->fired = true;
    for (int i = 0; i < N_FIRST; i++)
        if (a->target == i || a->target == EVERYONE) abort_request(a, i);
    um_request r = short_request(a, N_FIRST);
    a->id[N_FIRST] = add(a->engine, &r);
}

static void check_order(void *arg, const um_event *ev) {
    aborts *a = (aborts *)arg;
    const int i = number_of(a, ev->id);
    const bool is_end = ev->type == UM_EVENT_FINISH;
    if (a->is_aborted[i] && !(is_end && ev->result->finish == UM_FINISH_ABORTED))
        fail_msg("trigger %d, type %d, target %d: request %d, answer %d has event %d, finish %d after its abort",
                 a->trigger, a->type, a->target, i, ev->index, ev->type, is_end ? (int)ev->result->finish : 0);
    a->n_finished[i] += is_end;
    if (!a->fired && i == a->trigger && ev->type == a->type) fire(a);
}

static um_request short_request(aborts *a, int i) {
    um_request r = request(a->engine, "multi_bd");
    r.n = a->n_answers[i] = i == 0 ? 2 : 1;
    r.sampling.max_tokens = i == a->trigger && a->type == UM_EVENT_FINISH ? 2 : 21;
    r.sampling.ignore_eos = true;
    r.decoding.block_size = 4;
    r.events = UM_EVENT_TEXT | UM_EVENT_SNAPSHOT | UM_EVENT_TRACE;
    r.on_event = check_order;
    r.arg = a;
    return r;
}

static void run_aborts(um_engine *e, int type, int trigger, int target) {
    um_stats s;
    aborts a = {.engine = e, .trigger = trigger, .type = type, .target = target};
    for (int i = 0; i < N_FIRST; i++) {
        um_request r = short_request(&a, i);
        a.id[i] = add(e, &r);
    }
    while (!a.fired) {
        assert_true(um_engine_pending(e) > 0);
        assert_int_equal(um_engine_step(e, NULL), UM_OK);
    }
    for (int i = 0; i < N_FIRST; i++)
        if (a.is_aborted[i]) assert_int_equal(a.n_finished[i], a.n_answers[i]);
    test_drain(e);
    for (int i = 0; i < N_ALL; i++) assert_int_equal(a.n_finished[i], a.n_answers[i]);
    um_engine_get_stats(e, &s);
    assert_int_equal(s.pages_used, 0);
}

static void an_abort_from_any_callback_is_followed_by_finish_alone(void **state) {
    (void)state;
    static const int types[] = {UM_EVENT_TRACE, UM_EVENT_TEXT, UM_EVENT_SNAPSHOT, UM_EVENT_FINISH};
    char path[128];
    um_config c;
    test_engine t;
    test_config(&c, "sdar", path, sizeof path);
    c.num_pages = 40;
    c.max_num_reqs = 4;
    test_open(&t, &c);
    for (size_t k = 0; k < UM_LEN(types); k++)
        for (int trigger = 0; trigger < N_FIRST - 1; trigger++)
            for (int target = EVERYONE; target < N_FIRST; target++) run_aborts(t.engine, types[k], trigger, target);
    test_close(&t);
}

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

static void check_param(const um_request *r, const char *param) {
    um_err err = {0};
    assert_true(um_engine_add(tiny.engine, r, NULL, &err) < 0);
    if (strcmp(err.param, param) != 0) fail_msg("expected param %s, found \"%s\": %s", param, err.param, err.msg);
}

static void an_error_names_the_parameter(void **state) {
    (void)state;
    static const int32_t bad_id[] = {1, 100000};
    static const char *const empty[] = {""};
    static const um_bias bias = {.id = -5};
    static const um_message many[] = {{.role = "user", .content = "\xff"}};
    um_request r = ask(NULL);
    r.sampling.temperature = -1;
    check_param(&r, "temperature");
    r = ask(NULL);
    snprintf(r.decoding.strategy, sizeof r.decoding.strategy, "full");
    check_param(&r, "decoding_strategy");
    r = ask(NULL);
    r.n = 0;
    check_param(&r, "n");
    r = ask(NULL);
    r.stop = empty;
    r.n_stop = 1;
    check_param(&r, "stop");
    r = ask(NULL);
    r.bias = &bias;
    r.n_bias = 1;
    check_param(&r, "logit_bias");
    r = ask(NULL);
    r.stop_ids = bad_id;
    r.n_stop_ids = 2;
    check_param(&r, "stop_token_ids");
    r = ask(NULL);
    r.adapter = "nobody";
    check_param(&r, "adapter");
    r = ask(NULL);
    r.messages = many;
    check_param(&r, "messages");
    r.messages = NULL;
    r.ids = bad_id;
    r.n_ids = 2;
    check_param(&r, "ids");
    r.ids = NULL;
    r.text = "\xff";
    r.text_len = 1;
    check_param(&r, "prompt");
}

static void an_option_that_is_set_wrongly_is_named_as_it_was_called(void **state) {
    (void)state;
    um_request r = ask(NULL);
    um_err err = {0};
    assert_int_equal(um_request_set(&r, "max_completion_tokens", "many", &err), UM_EINVAL);
    assert_string_equal(err.param, "max_completion_tokens");
    assert_int_equal(um_request_set(&r, "nonsense", "1", &err), UM_EINVAL);
    assert_string_equal(err.param, "nonsense");
    assert_int_equal(um_engine_abort(tiny.engine, 12345, &err), UM_ENOENT);
    assert_string_equal(err.param, "");
}

/* ---- Models without weights -------------------------------------------------------------------------------------- */

static void a_model_opened_for_its_text_has_facts_and_no_engine(void **state) {
    (void)state;
    um_config c;
    um_model *m = NULL;
    um_engine *e = NULL;
    um_err err = {0};
    um_model_info want, have;
    um_config_init(&c);
    c.model = "models/tiny-block";
    if (um_model_open_text(&m, &c, &err)) fail_msg("%s", err.msg);
    um_model_get_info(tiny.model, &want);
    um_model_get_info(m, &have);
    assert_string_equal(want.family, have.family);
    assert_int_equal(want.vocab, have.vocab);
    assert_true(want.n_params == have.n_params && want.max_position == have.max_position);
    assert_true(have.has_chat_template && have.n_stop == want.n_stop);
    int32_t *ids[2];
    size_t n[2];
    um_chat_request chat;
    um_chat_init(&chat);
    chat.messages = &question;
    chat.n_messages = 1;
    assert_int_equal(um_model_render_chat(m, &chat, NULL, NULL, &ids[0], &n[0], &err), UM_OK);
    assert_int_equal(um_model_render_chat(tiny.model, &chat, NULL, NULL, &ids[1], &n[1], &err), UM_OK);
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(ids[0], ids[1], n[0] * sizeof(int32_t));
    um_free(ids[0]);
    um_free(ids[1]);
    assert_int_equal(um_engine_new(&e, m, &c, &err), UM_EINVAL);
    assert_non_null(strstr(err.msg, "opened without its weights"));
    um_model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(snapshots_of_every_strategy_show_confidence_and_blocks),
        cmocka_unit_test(as_many_blocks_are_in_flight_as_the_buffer_holds),
        cmocka_unit_test(ids_of_all_text_events_are_the_answer),
        cmocka_unit_test(log_probabilities_of_all_text_events_are_the_answers),
        cmocka_unit_test(log_probabilities_wait_for_the_text_of_their_token),
        cmocka_unit_test(tokens_without_text_are_streamed_too),
        cmocka_unit_test(a_text_that_waits_for_the_next_token_is_its_tokens_own),
        cmocka_unit_test(special_tokens_are_text_when_that_is_asked_for),
        cmocka_unit_test(an_engine_names_the_sampler_that_it_uses),
        cmocka_unit_test(slots_show_what_runs_and_what_waits),
        cmocka_unit_test(a_flushed_cache_serves_no_prompt),
        cmocka_unit_test(a_stored_prompt_serves_those_of_its_salt),
        cmocka_unit_test(the_lower_priority_number_is_admitted_first),
        cmocka_unit_test(times_count_from_submission_and_ascend),
        cmocka_unit_test(answers_of_a_request_count_from_its_submission),
        cmocka_unit_test(an_abort_from_any_callback_is_followed_by_finish_alone),
        cmocka_unit_test(an_error_names_the_parameter),
        cmocka_unit_test(an_option_that_is_set_wrongly_is_named_as_it_was_called),
        cmocka_unit_test(a_model_opened_for_its_text_has_facts_and_no_engine),
    };
    return cmocka_run_group_tests_name("events", tests, open_tiny, close_tiny);
}
