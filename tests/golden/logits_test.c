/* Logits of the forward pass against recordings: every row of the first three passes of each case's first request, on
 * every backend, in fp32. README.md in this folder describes the recordings. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "forward_fixture.h"

#define TOLERANCE 3e-4f

typedef struct recording {
    const char *name;
    json_t *json;
    um_map map;
    um_store *tensors;
    int32_t block, prompt;
    bool is_d2f;
} recording;

/* One recorded pass as a batch of one span. */
typedef struct pass {
    int32_t n, id[TOKENS], pos[TOKENS], slot[TOKENS], end[TOKENS], page[PAGES];
    const float *logits; /* [n, vocab] recorded */
    um_span span;
    um_batch batch;
} pass;

/* ---- Recordings -------------------------------------------------------------------------------------------------- */

static void open_recording(recording *r, const char *name) {
    char path[256];
    um_err err = {0};
    *r = (recording){.name = name};
    snprintf(path, sizeof path, "build/data/golden/cases/%s.json", name);
    if (um_json_load(&r->json, path, &err)) fail_msg("%s", err.msg);
    snprintf(path, sizeof path, "build/data/golden/cases/%s.logits.safetensors", name);
    if (um_map_open(&r->map, path, &err)) fail_msg("%s", err.msg);
    r->tensors = um_store_new();
    if (um_safetensors_parse(r->tensors, r->map.data, r->map.size, path, NULL, &err)) fail_msg("%s", err.msg);
    json_t *engine = json_object_get(r->json, "engine");
    r->block = (int32_t)json_integer_value(json_object_get(engine, "block_size"));
    r->is_d2f = um_streq(json_string_value(json_object_get(engine, "decoding_strategy")), "d2f");
    json_t *request = json_array_get(json_object_get(r->json, "requests"), 0);
    r->prompt = (int32_t)json_array_size(json_object_get(request, "prompt"));
}

static void close_recording(recording *r) {
    um_store_close(r->tensors);
    um_map_close(&r->map);
    json_decref(r->json);
}

static const um_tensor *recorded(const recording *r, int step, const char *what) {
    char name[32];
    snprintf(name, sizeof name, "step%d.%s", step, what);
    const um_tensor *t = um_store_find(r->tensors, name);
    assert_non_null(t);
    return t;
}

/* Returns the first position of pass `step` whose block did not run. Recorded rows from there on are undefined. The
 * blocks that run are those in use after the previous pass. */
static int32_t defined_end(const recording *r, int step) {
    if (step == 0) return INT32_MAX;
    json_t *request = json_array_get(json_object_get(r->json, "requests"), 0);
    json_t *state = json_object_get(json_array_get(json_object_get(request, "steps"), (size_t)step - 1), "state");
    int32_t end = 0;
    for (size_t i = 0; i < json_array_size(state); i++) {
        json_t *block = json_array_get(state, i);
        int32_t id = (int32_t)json_integer_value(json_array_get(block, 0));
        if (strcmp(json_string_value(json_array_get(block, 1)), "DUMMY")) end = UM_MAX(end, (id + 1) * r->block);
    }
    assert_true(end > 0);
    return end;
}

/* Returns the first position that `pos` does not see. Attention is block-causal from position 0, except that in d2f's
 * prefill the prompt sees exactly the prompt. */
static int32_t visible_end(const recording *r, int step, int32_t pos) {
    um_visibility rule = {.see = UM_SEE_BLOCK_CAUSAL, .block = r->block};
    if (step == 0 && r->is_d2f && pos < r->prompt) return r->prompt;
    return um_visible_end(rule, pos);
}

static void load_pass(pass *p, const recording *r, int step) {
    const um_tensor *id = recorded(r, step, "ids"), *pos = recorded(r, step, "pos");
    *p = (pass){.n = (int32_t)id->dim[0], .logits = recorded(r, step, "logits")->data};
    assert_in_range(p->n, 1, TOKENS);
    for (int32_t i = 0; i < PAGES; i++) p->page[i] = PAGES - 1 - i; /* pages may be in any order */
    for (int32_t i = 0; i < p->n; i++) {
        p->id[i] = int_at(id, i);
        p->pos[i] = int_at(pos, i);
        p->slot[i] = p->page[p->pos[i] / PAGE] * PAGE + p->pos[i] % PAGE;
        p->end[i] = visible_end(r, step, p->pos[i]);
    }
    p->span = (um_span){.first = 0, .n = p->n, .page = p->page, .keys = {0, p->pos[p->n - 1] + 1}};
    p->batch = (um_batch){.n_tokens = p->n,
                          .n_spans = 1,
                          .id = p->id,
                          .pos = p->pos,
                          .slot = p->slot,
                          .seen_end = p->end,
                          .span = &p->span};
}

/* ---- Comparison -------------------------------------------------------------------------------------------------- */

static void open_golden(fixture *f, const char *family, const char *device) {
    char path[256];
    snprintf(path, sizeof path, "build/data/golden/models/%s", family);
    open_fixture(f, path, device);
}

static void compare(const fixture *f, const pass *p, const recording *r, int step, const char *device) {
    const int32_t V = f->model->arch.vocab, end = defined_end(r, step);
    float worst = 0;
    int32_t rows = 0;
    for (int32_t i = 0; i < p->n && p->pos[i] < end; i++, rows++) {
        for (int32_t v = 0; v < V; v++) {
            float want;
            memcpy(&want, p->logits + (size_t)i * (size_t)V + v, sizeof want);
            float got = f->logits[(size_t)i * (size_t)V + v];
            worst = fmaxf(worst, isnan(got) ? INFINITY : fabsf(want - got)); /* fmaxf ignores NaN */
        }
    }
    assert_true(rows > 0);
    print_message("%s step %d on %s: %d rows, largest difference %.2g\n", r->name, step, device, rows, (double)worst);
    if (!(worst <= TOLERANCE)) fail_msg("%s step %d on %s differs by %g", r->name, step, device, (double)worst);
}

static void check_case(const char *family, const char *name) {
    recording r;
    open_recording(&r, name);
    for (const um_ops *const *ops = um_ops_all; *ops; ops++) {
        fixture f;
        open_golden(&f, family, (*ops)->name);
        for (int step = 0; step < 3; step++) {
            pass p;
            load_pass(&p, &r, step);
            run_whole(&f, &p.batch);
            compute_logits(&f, p.n);
            compare(&f, &p, &r, step, (*ops)->name);
        }
        close_fixture(&f);
    }
    close_recording(&r);
}

/* ---- Cases ------------------------------------------------------------------------------------------------------- */

static void sdar_block_of_4(void **state) {
    (void)state;
    check_case("sdar", "sdar_single");
}

static void sdar_block_of_32(void **state) {
    (void)state;
    check_case("sdar", "sdar_single_b32");
}

static void sdar_four_blocks_at_once(void **state) {
    (void)state;
    check_case("sdar", "sdar_multi");
}

static void sdar_two_blocks_at_once(void **state) {
    (void)state;
    check_case("sdar", "sdar_multi_low");
}

static void fast_dllm_v2_logits(void **state) {
    (void)state;
    check_case("fast_dllm_v2", "fdv2_multi");
}

static void stable_diffcoder_logits(void **state) {
    (void)state;
    check_case("stable_diffcoder", "stable_diffcoder");
}

static void llada_prompt_sees_itself(void **state) {
    (void)state;
    check_case("llada", "llada_d2f");
}

static void dream_prompt_sees_itself(void **state) {
    (void)state;
    check_case("dream", "dream_d2f");
}

static void dream_reasoner_logits(void **state) {
    (void)state;
    check_case("dream_reasoner", "dream_reasoner");
}

static void sdar_moe_logits(void **state) {
    (void)state;
    check_case("sdar_moe", "sdar_moe_multi");
}

static void llada2_logits(void **state) {
    (void)state;
    check_case("llada2", "llada2_single");
    check_case("llada2", "llada2_multi");
}

/* ---- Properties of a pass ---------------------------------------------------------------------------------------- */

/* Runs the recorded pass as the second span of a batch. The first span is another request on other pages. */
static void hidden_rows_do_not_depend_on_the_batch(void **state) {
    (void)state;
    recording r;
    open_recording(&r, "sdar_multi");
    for (const um_ops *const *ops = um_ops_all; *ops; ops++) {
        fixture f;
        pass p;
        open_golden(&f, "sdar", (*ops)->name);
        load_pass(&p, &r, 0);
        run_whole(&f, &p.batch);
        size_t H = (size_t)f.model->arch.hidden, bytes = (size_t)p.n * H * sizeof(float);
        float *alone = um_alloc(bytes);
        memcpy(alone, um_host_hidden(f.forward), bytes);

        enum { OTHER = 7 };
        int32_t id[TOKENS], pos[TOKENS], slot[TOKENS], end[TOKENS], other_page[] = {0};
        for (int32_t i = 0; i < OTHER + p.n; i++) {
            bool first = i < OTHER;
            int32_t k = first ? i : i - OTHER;
            id[i] = first ? 3 * i : p.id[k];
            pos[i] = first ? i : p.pos[k];
            slot[i] = first ? i : p.slot[k];
            end[i] = first ? OTHER : p.end[k];
        }
        um_span span[2] = {{.n = OTHER, .page = other_page, .keys = {0, OTHER}, .adapter = -1},
                           {.first = OTHER, .n = p.n, .page = p.page, .keys = p.span.keys, .adapter = -1}};
        um_batch both = {
            .n_tokens = OTHER + p.n, .n_spans = 2, .id = id, .pos = pos, .slot = slot, .seen_end = end, .span = span};
        run_whole(&f, &both);
        assert_memory_equal(alone, um_host_hidden(f.forward) + OTHER * H, bytes);
        um_free(alone);
        close_fixture(&f);
    }
    close_recording(&r);
}

static int32_t recorded_best(const pass *p, int32_t row, int32_t V) {
    int32_t best = 0;
    float top = -INFINITY;
    for (int32_t v = 0; v < V; v++) {
        float z;
        memcpy(&z, p->logits + (size_t)row * (size_t)V + v, sizeof z);
        if (z >= top) best = v, top = z;
    }
    return best;
}

/* A saved hidden row gives the same answer in the next pass as in its own. Families that shift rely on this. */
static void saved_row_answers_in_the_next_pass(void **state) {
    (void)state;
    recording r;
    open_recording(&r, "fdv2_multi");
    for (const um_ops *const *ops = um_ops_all; *ops; ops++) {
        fixture f;
        pass p;
        open_golden(&f, "fast_dllm_v2", (*ops)->name);
        load_pass(&p, &r, 0);
        um_answer own = {0}, later = {0};
        um_row fresh = {.src = {p.n - 1, 0}, .w = {1, 0}, .want = UM_WANT_BEST}, carried = fresh;
        carried.src[0] = -1 - 1;
        const int32_t save[1][2] = {{p.n - 1, 1}};
        p.batch.row = &fresh;
        p.batch.n_rows = p.batch.n_saves = 1;
        p.batch.save = save;
        p.batch.answer = &own;
        run(&f, &p.batch);
        assert_int_equal(own.best, recorded_best(&p, p.n - 1, f.model->arch.vocab));

        um_batch next = {.n_rows = 1, .row = &carried, .answer = &later};
        run(&f, &next);
        assert_int_equal(later.best, own.best);
        assert_true(later.p_best == own.p_best);
        close_fixture(&f);
    }
    close_recording(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sdar_block_of_4),
        cmocka_unit_test(sdar_block_of_32),
        cmocka_unit_test(sdar_four_blocks_at_once),
        cmocka_unit_test(sdar_two_blocks_at_once),
        cmocka_unit_test(fast_dllm_v2_logits),
        cmocka_unit_test(stable_diffcoder_logits),
        cmocka_unit_test(llada_prompt_sees_itself),
        cmocka_unit_test(dream_prompt_sees_itself),
        cmocka_unit_test(dream_reasoner_logits),
        cmocka_unit_test(sdar_moe_logits),
        cmocka_unit_test(llada2_logits),
        cmocka_unit_test(hidden_rows_do_not_depend_on_the_batch),
        cmocka_unit_test(saved_row_answers_in_the_next_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
