/* What events and slots carry beside text: ids, times, confidences, blocks in flight, special tokens. */
#include <math.h>

#include <jansson.h>

#include "support.h"
#include "unit/bos_folder.h"

static const struct {
    const char *model, *strategy;
} kinds[] = {
    {"sdar", "multi_bd"}, {"llada2", "dmax"},        {"llada", "d2f"},        {"fast_dllm_v2", "fast_dllm_v2"},
    {"llada", "full"},    {"llada", "prefix_cache"}, {"llada", "dual_cache"}, {"llada", "sparse"},
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

typedef struct film {
    const char *strategy;
    int32_t n_snapshots, n_finished, last_tokens;
    double last_seconds;
    int32_t max_tokens;
} film;

static void check_confidence(const film *f, const um_snapshot *s) {
    for (size_t i = 0; i < s->n; i++) {
        bool masked = s->state[i] == UM_TOKEN_MASK;
        if (masked != isnan(s->confidence[i]) || (!masked && !(s->confidence[i] > 0 && s->confidence[i] <= 1)))
            fail_msg("%s: position %zu, state %d, confidence %g", f->strategy, i, s->state[i],
                     (double)s->confidence[i]);
    }
}

/* Blocks follow each other, lie in the answer, and hold its masks: no mask is settled or behind them. */
static void check_blocks(const film *f, const um_snapshot *s) {
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
    film *f = (film *)arg;
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
        film f = {.strategy = kinds[i].strategy, .max_tokens = 21};
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
        assert_in_range(most, n, n + 1); /* and one that is being stored */
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
        r.on_event = test_collect; /* which compares */
        r.arg = &a;
        (void)add(t.engine, &r);
        test_drain(t.engine);
        assert_int_equal(a.n_streamed, a.n);
        test_close(&t);
    }
}

/* What a request's events tell of its tokens beside their ids. */
#define TOP 3
typedef struct scores {
    float logprob[64];
    um_logprob likeliest[64 * TOP];
    int32_t text_end[64];
    size_t n, text_len;
    bool is_cut; /* a token's text goes on behind what came */
    int32_t n_finished, n_events, n_without_text;
    char text[512];
} scores;

static void keep_scores(scores *s, const um_event *ev) {
    assert_false(s->is_cut); /* only the last event may have such a token, where a stop string began in it */
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

/* The request's answers, whose steps allocate nothing. */
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
        snprintf(stop, sizeof stop, "%.3s", s->text + s->text_len / 2); /* ends the answer, perhaps inside a token */
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

/* Hot answers of the byte-level model are full of bytes that are no character alone. */
static void log_probabilities_wait_for_the_text_of_their_token(void **state) {
    (void)state;
    int32_t without_text = 0, events = 0;
    for (int64_t seed = 0; seed < 12; seed++) {
        static scores s;
        um_request r;
        um_request_init(tiny.engine, &r);
        r.ids = prompt;
        r.n_ids = UM_LEN(prompt);
        r.sampling.max_tokens = 60;
        r.sampling.temperature = 3;
        r.sampling.seed = seed;
        r.sampling.ignore_eos = true;
        r.decoding.block_size = 4;
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
    r.sampling.ignore_eos = true; /* what comes then are special tokens, and tokens behind them */
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

/* The decoder BPEDecoder writes the last token differently, so each waits for the next. */
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

/* ---- Facts of an engine ------------------------------------------------------------------------------------------ */

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
    r.decoding.accept_threshold = 1; /* one token a pass */
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
    assert_non_null(strstr(err.msg, "2 run or wait"));
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
    static const int32_t ids[70]; /* two pages and some */
    um_stats first = after_prompt(ids, 70, 0), second = after_prompt(ids, 70, 0);
    assert_true(second.prefix_hits > first.prefix_hits);
    assert_int_equal(um_engine_flush_cache(tiny.engine, NULL), UM_OK);
    um_stats third = after_prompt(ids, 70, 0);
    assert_true(third.prefix_hits == second.prefix_hits);
}

/* Who salts alike shares, and nobody else learns from the time of an answer what was asked before. */
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
    static const int want[] = {2, 0, 1, 3}; /* one place */
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
    assert_non_null(strstr(err.msg, "um_model_open reads the weights"));
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
        cmocka_unit_test(an_error_names_the_parameter),
        cmocka_unit_test(an_option_that_is_set_wrongly_is_named_as_it_was_called),
        cmocka_unit_test(a_model_opened_for_its_text_has_facts_and_no_engine),
    };
    return cmocka_run_group_tests_name("events", tests, open_tiny, close_tiny);
}
