/* Compares the passes of groups of ranks with those of one device, for the models of all families and for everything
 * that a row can ask for. Ranks that are processes must have the bits of ranks that are threads of one process. Sums of
 * ranks are in another order, so numbers may differ by rounding, but no id may. With weights in q8 or q4, operands are
 * rounded to integers, so there the numbers are compared roughly, and no ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* cmocka.h needs the headers above. */
#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "free_port.h"
#include "model/model.h"
#include "rank_process.h"
#include "support.h"
#include "unit/lora_folder.h"

enum { PAGE = 32, N_PAGES = 8, SAVED = 4, BLENDS = 8, ROWS = 40, LONG = 20, SHORT = 12, KEPT = 6, TOP = 8, AFTER = 4 };

typedef struct settings {
    const char *folder, *device, *dtype, *quantization, *lora;
    int32_t ranks;
    bool whole_experts;
} settings;

/* Where models are opened from now on. */
static struct {
    int32_t port; /* the ranks are processes, and this is the port of rank 0; 0: they are threads */
    bool dummy;   /* the weights are random */
} place;

typedef struct fixture {
    um_model *model;
    um_forward *forward;
} fixture;

static bool is_on_host(void) { return !strncmp(test_device("cpu"), "cpu", 3); }

/* GPUs blend embeddings only for models that read the blends. */
static bool makes_blends(const um_model *m) { return is_on_host() || m->arch.conditioning_ff > 0; }

static void configure(um_config *c, const settings *s) {
    um_config_init(c);
    c->model = s->folder;
    c->threads = 4;
    c->max_num_batched_tokens = 64;
    c->tensor_parallel_size = s->ranks;
    c->enable_expert_parallel = s->whole_experts;
    if (place.dummy) c->load_format = UM_LOAD_DUMMY;
    c->lora = s->lora;
    snprintf(c->device, sizeof c->device, "%s", s->device);
    snprintf(c->dtype, sizeof c->dtype, "%s", s->dtype);
    snprintf(c->quantization, sizeof c->quantization, "%s", s->quantization);
    if (!place.port) return;
    c->nnodes = s->ranks;
    c->rank = 0;
    c->master_port = place.port;
    c->threads = 1;
    c->distributed_timeout_seconds = 60;
    rank_device(c->device, sizeof c->device, s->device, 0);
}

static um_status try_open(fixture *f, const settings *s, um_err *err) {
    um_config c;
    *f = (fixture){0};
    configure(&c, s);
    um_status st = um_model_open(&f->model, &c, err);
    if (st) return st;
    const um_forward_config fc = {.max_tokens = 64,
                                  .max_rows = 64,
                                  .max_spans = 4,
                                  .n_saved = SAVED,
                                  .n_blends = makes_blends(f->model) ? BLENDS : 0,
                                  .page_size = PAGE,
                                  .n_pages = N_PAGES,
                                  .n_scratch_pages = 1, /* keys are selected */
                                  .kv_type = UM_F32};
    return f->model->backend->forward_new(&f->forward, f->model->device, &f->model->net, &fc, err);
}

static void close_fixture(fixture *f) {
    f->model->backend->forward_free(f->forward);
    um_model_close(f->model);
}

/* What a sequence of passes has answered. */
typedef struct answers {
    um_answer row[3][ROWS];
    um_top top[3][ROWS][TOP];
    int32_t n[3];
} answers;

/* A pass over up to two requests. */
typedef struct pass {
    um_batch batch;
    int32_t id[64], pos[64], slot[64], end[64], save[SAVED][2];
    um_span span[2];
    um_row row[ROWS];
    um_kv_select select[2];
} pass;

static const int32_t pages[][1] = {{3}, {1}, {5}, {6}};
static const um_edit edits[] = {{5, 0.5f, 0, false}, {40, -1, 1.2f, false}, {77, 0, 0, true}, {200, 2, 0, false}};
static uint32_t every_third[64];

static void add_span(pass *p, int32_t n, const int32_t *page, int32_t from, int adapter) {
    const int32_t first = p->batch.n_tokens;
    p->span[p->batch.n_spans++] =
        (um_span){.first = first, .n = n, .page = page, .keys = {0, from + n}, .adapter = adapter};
    for (int32_t i = 0; i < n; i++) {
        const int32_t t = first + i;
        p->id[t] = (int32_t)(um_rng_u64(7, (uint64_t)(t + 100 * from)) % 240);
        p->pos[t] = from + i;
        p->slot[t] = page[0] * PAGE + from + i;
        p->end[t] = from + n;
    }
    p->batch.n_tokens += n;
}

/* Adds rows that ask for everything. */
static void add_rows(pass *p, um_top top[ROWS][TOP], int32_t n, bool blends) {
    for (int32_t i = 0; i < n; i++) {
        um_row *r = &p->row[i];
        *r = (um_row){.src = {i % p->batch.n_tokens},
                      .w = {1},
                      .how = {.temperature = i % 3 ? 0.8f : 0, .top_p = 1, .key = um_rng_key(9, (uint64_t)i, 0, 0)},
                      .want = UM_WANT_BEST | UM_WANT_SECOND | UM_WANT_SAMPLE | UM_WANT_PROB_OF |
                              (i % 2 ? UM_WANT_ENTROPY : UM_WANT_PLAIN_ENTROPY),
                      .id = 17 * i % 240,
                      .blend = blends && i < BLENDS ? 1 + i : 0};
        if (i % 5 == 1) r->how.top_p = 0.9f;
        if (i % 5 == 2) r->how.top_k = 7;
        if (i % 5 == 3) r->how.min_p = 0.2f;
        if (i % 7 == 3) r->how.filters_first = true;
        if (i % 4 == 1) r->edit = edits, r->n_edit = (int32_t)UM_LEN(edits);
        if (i % 4 == 2) r->own = edits, r->n_own = 2;
        if (i % 6 == 5) r->allow = every_third;
        if (i % 4 == 0) r->n_top = TOP, r->top = top[i];
        if (i % 8 == 7) r->src[1] = 0, r->w[0] = 1.5f, r->w[1] = -0.5f;
    }
    p->batch.n_rows = n;
}

static void run(fixture *f, pass *p, um_answer *answer) {
    const um_backend *b = f->model->backend;
    um_err err = {0};
    p->batch.id = p->id;
    p->batch.pos = p->pos;
    p->batch.slot = p->slot;
    p->batch.seen_end = p->end;
    p->batch.span = p->span;
    p->batch.row = p->row;
    p->batch.answer = answer;
    p->batch.save = (const int32_t(*)[2])p->save;
    if (b->submit(f->forward, &p->batch, &err) || b->wait(f->forward, &err)) fail_msg("%s", err.msg);
}

/* Runs three passes: over two requests, the first of which selects keys for all heads and the other for each head; over
 * a canvas with blends and saved rows of the first; and over the selected keys. */
static void run_all(fixture *f, answers *out) {
    const bool has_canvas = f->model->arch.conditioning_ff > 0, selects = um_arch_window(&f->model->arch) == 0;
    const int adapter = f->model->net.n_adapters ? 0 : -1;
    pass p = {0};
    *out = (answers){.n = {ROWS, LONG, selects ? 2 * AFTER : 0}};
    add_span(&p, LONG, pages[0], 0, adapter);
    p.span[0].canvas = has_canvas; /* GPUs make blends in passes with a canvas */
    add_span(&p, SHORT, pages[1], 0, -1);
    for (int i = 0; i < 2 && selects; i++) {
        const int32_t n = p.span[i].n;
        p.select[i] = (um_kv_select){
            .block = {n - 4, n}, .n_keep = KEPT, .pool = 3 - 2 * i, .per_head = i == 1, .page = pages[2 + i]};
        p.span[i].select = &p.select[i];
    }
    add_rows(&p, out->top[0], out->n[0], makes_blends(f->model));
    for (int32_t i = 0; i < SAVED; i++) p.save[i][0] = 3 * i, p.save[i][1] = i;
    p.batch.n_saves = SAVED;
    run(f, &p, out->row[0]);

    p = (pass){0};
    add_span(&p, BLENDS, pages[0], LONG, adapter);
    p.span[0].canvas = has_canvas;
    p.span[0].start = LONG;
    p.span[0].blend = has_canvas ? 1 : 0;
    add_rows(&p, out->top[1], out->n[1], false);
    for (int32_t i = 0; i < SAVED; i++) p.row[2 * i].src[0] = -1 - i;
    run(f, &p, out->row[1]);

    p = (pass){0};
    if (!selects) return;
    add_span(&p, AFTER, pages[2], KEPT, -1);
    add_span(&p, AFTER, pages[3], KEPT, -1);
    add_rows(&p, out->top[2], out->n[2], false);
    run(f, &p, out->row[2]);
}

static void check_number(const settings *s, const char *what, int pass, int32_t row, float want, float got,
                         double most) {
    if (want == got || fabs((double)want - (double)got) <= most * fmax(1, fabs((double)want))) return;
    fail_msg("%s in %d ranks: pass %d row %d: %s: expected %.8g, found %.8g", s->folder, s->ranks, pass, row, what,
             (double)want, (double)got);
}

static void compare(const settings *s, const answers *want, const answers *got, double most) {
    for (int p = 0; p < 3; p++)
        for (int32_t i = 0; i < want->n[p]; i++) {
            const um_answer *a = &want->row[p][i], *b = &got->row[p][i];
            const bool is_exact = most <= 1e-3;
            if (is_exact && (a->best != b->best || a->second != b->second || a->sample != b->sample))
                fail_msg("%s in %d ranks: pass %d row %d: expected ids %d %d %d, found %d %d %d", s->folder, s->ranks,
                         p, i, a->best, a->second, a->sample, b->best, b->second, b->sample);
#define NUMBER(field) check_number(s, #field, p, i, a->field, b->field, most)
            NUMBER(p_best), NUMBER(p_id), NUMBER(log_p_id), NUMBER(logsumexp);
            if (is_exact) NUMBER(p_second), NUMBER(p_sample);
            /* Rounding may decide whether top-p or min-p drops one of these models' many similar ids. */
            if (is_exact && i % 5 != 1 && i % 5 != 3)
                NUMBER(q_best), NUMBER(q_second), NUMBER(q_sample), NUMBER(entropy);
#undef NUMBER
            for (int k = 0; k < TOP; k++) {
                if (is_exact) assert_int_equal(want->top[p][i][k].id, got->top[p][i][k].id);
                check_number(s, "top", p, i, want->top[p][i][k].p, got->top[p][i][k].p, most);
            }
        }
}

/* Runs the passes in several ranks, if the model can be divided. */
static void check_division(const settings *s, const answers *want, bool can, double most) {
    static answers got, again;
    fixture f;
    um_err err = {0};
    const um_status st = try_open(&f, s, &err);
    assert_int_equal(st, can ? UM_OK : UM_EUNSUPPORTED);
    if (!can) return;
    run_all(&f, &got);
    compare(s, want, &got, most);
    run_all(&f, &again); /* results don't depend on timing */
    assert_memory_equal(&got, &again, sizeof got);
    close_fixture(&f);
}

/* Runs the passes in one rank and in `ranks`; models with experts in both ways of dividing these. Returns the number of
 * ways that the model can be divided. */
static int check(settings s, double most) {
    static answers want;
    fixture f;
    um_err err = {0};
    const int32_t ranks = s.ranks;
    int n = 0;
    s.ranks = 1;
    if (try_open(&f, &s, &err)) fail_msg("%s: %s", s.folder, err.msg);
    const um_arch arch = f.model->arch;
    run_all(&f, &want);
    close_fixture(&f);
    s.ranks = ranks;
    for (int whole = 0; whole <= (arch.route.n_experts > 0); whole++) {
        const bool can = !um_arch_check_ranks(&arch, ranks, whole, &err);
        s.whole_experts = whole;
        check_division(&s, &want, can, most);
        n += can;
    }
    return n;
}

/* Starts the processes of the ranks beside rank 0. */
static void start_processes(settings s, pid_t pid[UM_RANKS_MAX]) {
    um_config c;
    configure(&c, &s);
    for (int32_t r = 1; r < s.ranks; r++) {
        pid[r] = rank_process_start(&c, s.device, r);
        assert_true(pid[r] >= 0);
    }
}

/* Takes the system's memory for files from this process, so that its ranks can't share any, or gives it back. */
static void limit_files(bool on) {
    struct rlimit r;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &r), 0);
    r.rlim_cur = on ? 0 : r.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

/* Returns whether this process has memory that ranks share. */
static bool has_board(void) {
    um_buf maps = {0};
    assert_int_equal(um_file_read("/proc/self/maps", (size_t)1 << 24, &maps, NULL), UM_OK);
    const bool has = strstr(maps.data, "unmask-ranks") != NULL;
    um_buf_free(&maps);
    return has;
}

/* Returns whether all answers have the same bits. The last field of an answer is a pointer behind padding. */
static bool have_same_bits(const answers *a, const answers *b) {
    const size_t used = offsetof(um_answer, logsumexp) + sizeof a->row[0][0].logsumexp;
    bool same = memcmp(a->top, b->top, sizeof a->top) == 0;
    for (int p = 0; p < 3; p++)
        for (int32_t i = 0; i < a->n[p]; i++) same &= memcmp(&a->row[p][i], &b->row[p][i], used) == 0;
    return same;
}

/* Compares the bits of ranks that are processes with those of threads. `shares`: they share memory. */
static void check_processes(settings s, bool shares) {
    static answers want, got;
    fixture f;
    um_err err = {0};
    pid_t pid[UM_RANKS_MAX];
    if (try_open(&f, &s, &err)) fail_msg("%s: %s", s.folder, err.msg);
    run_all(&f, &want);
    close_fixture(&f);
    place.port = free_port();
    start_processes(s, pid);
    limit_files(!shares);
    const um_status st = try_open(&f, &s, &err);
    limit_files(false);
    if (st) fail_msg("%s: %s", s.folder, err.msg);
    assert_int_equal(has_board(), shares);
    run_all(&f, &got);
    f.model->backend->copy_page(f.forward, pages[0][0], pages[2][0], PAGE);
    close_fixture(&f);
    place.port = 0;
    for (int32_t r = 1; r < s.ranks; r++) assert_true(rank_process_end(pid[r]));
    compare(&s, &want, &got, 0);
    if (!have_same_bits(&want, &got)) fail_msg("%s in %d processes: other bits", s.folder, s.ranks);
}

/* ---- Cases ------------------------------------------------------------------------------------------------------- */

static const char *const recorded[] = {
    "llada_b",    "illada",   "illada_b",          "llada_moe",     "llada_moe_b",  "llada_moe_fused",
    "dream",      "llada2",   "dream_reasoner_b",  "llada2_merged", "llada2_2",     "llada2_fused",
    "sdar_b",     "sdar_moe", "fast_dllm_v2_tied", "rnd1",          "wedlm",        "stable_diffcoder_b",
    "sdar_moe_b", "wedlm_7b", "dream_reasoner",    "rnd1_b",        "llada2_2_tie", "diffusion_gemma"};

static void every_family_in_ranks(void **state) {
    const char *device = test_device("cpu");
    /* 13 models have experts. LLaDA-MoE has 2 heads here, in three models, and DiffusionGemma has 6 experts. */
    const int n_all = (int)UM_LEN(recorded), wanted[] = {n_all + 13, n_all + 13 - 2 * 3 - 1};
    (void)state;
    for (int32_t ranks = 2; ranks <= 4 && test_has_room(device, ranks); ranks += 2) {
        int n = 0;
        for (int i = 0; i < n_all; i++) {
            char folder[128];
            snprintf(folder, sizeof folder, "build/data/reference/%s", recorded[i]);
            n += check((settings){folder, device, "float32", "none", NULL, ranks, false}, 2e-4);
        }
        assert_int_equal(n, wanted[ranks / 4]);
    }
}

/* With bf16 the results of a rank are rounded before they are added, so numbers are compared roughly. Models with
 * experts are left out: rounding may choose another expert. */
static void bf16_in_ranks(void **state) {
    const char *device = test_device("cpu");
    (void)state;
    for (int32_t ranks = 2; ranks <= 4 && test_has_room(device, ranks); ranks += 2) {
        assert_true(
            check((settings){"build/data/golden/models/sdar", device, "bfloat16", "none", NULL, ranks, false}, 0.1));
        assert_true(
            check((settings){"build/data/golden/models/dream", device, "bfloat16", "none", NULL, ranks, false}, 0.1));
    }
}

static void check_all_processes(bool shares) {
    static const char *const of_two[] = {"llada_b", "llada_moe", "dream", "llada2_2", "sdar_moe", "diffusion_gemma"},
                             *const of_four[] = {"llada2", "diffusion_gemma"},
                             *const whole[] = {"llada2_fused", "llada_moe", "sdar_moe", "diffusion_gemma"};
    char folder[128];
    for (size_t i = 0; i < UM_LEN(of_two); i++) {
        snprintf(folder, sizeof folder, "build/data/reference/%s", of_two[i]);
        check_processes((settings){folder, "cpu", "float32", "none", NULL, 2, false}, shares);
    }
    for (size_t i = 0; i < UM_LEN(whole); i++) {
        snprintf(folder, sizeof folder, "build/data/reference/%s", whole[i]);
        check_processes((settings){folder, "cpu", "bfloat16", "none", NULL, 2, true}, shares);
    }
    for (size_t i = 0; i < UM_LEN(of_four); i++) {
        snprintf(folder, sizeof folder, "build/data/reference/%s", of_four[i]);
        check_processes((settings){folder, "cpu", "bfloat16", "none", NULL, 4, false}, shares);
    }
    check_processes((settings){"build/data/golden/models/sdar", "ref", "float32", "none", NULL, 2, false}, shares);
    check_processes((settings){"build/data/golden/models/sdar", "cpu", "float32", "q8", NULL, 4, false}, shares);
}

static void processes_have_the_bits_of_threads(void **state) {
    (void)state;
    check_all_processes(true);
}

/* GPUs of one process read each other's memory, and those of several processes copy their results. */
static void gpus_of_processes_have_the_bits_of_one_process(void **state) {
    static const char *const of_two[] = {"llada_b", "llada_moe", "dream", "llada2_2", "sdar_moe", "diffusion_gemma"};
    const char *device = test_device("cuda");
    char folder[128];
    (void)state;
    for (int32_t ranks = 2; ranks <= 4 && test_has_room(device, ranks); ranks += 2)
        for (int whole = 0; whole < 2; whole++)
            for (size_t i = 0; i < UM_LEN(of_two); i++) {
                if (ranks == 4 && !um_streq(of_two[i], "llada_b")) continue;
                if (whole && !strstr(of_two[i], "moe")) continue;
                snprintf(folder, sizeof folder, "build/data/reference/%s", of_two[i]);
                check_processes((settings){folder, device, "float32", "none", NULL, ranks, whole}, true);
                check_processes((settings){folder, device, "bfloat16", "none", NULL, ranks, whole}, true);
            }
}

static void processes_without_common_memory_have_them_too(void **state) {
    (void)state;
    check_all_processes(false);
}

static void the_reference_in_ranks(void **state) {
    (void)state;
    assert_true(check((settings){"build/data/golden/models/sdar", "ref", "float32", "none", NULL, 2, false}, 2e-4));
    assert_true(
        check((settings){"build/data/reference/diffusion_gemma", "ref", "float32", "none", NULL, 2, false}, 2e-4));
}

static void quantised_weights_in_ranks(void **state) {
    static const char *const type[] = {"q8", "q4"};
    (void)state;
    for (int i = 0; i < 2; i++)
        for (int32_t ranks = 2; ranks <= 4; ranks += 2)
            assert_int_equal(
                check((settings){"build/data/golden/models/sdar", "cpu", "float32", type[i], NULL, ranks, false}, 0.1),
                1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            check((settings){"build/data/golden/models/sdar_moe", "cpu", "float32", type[i], NULL, 2, false}, 0.1), 2);
}

/* Makes a folder like `model`, but with feed-forward layers of another width. */
static void make_folder(char folder[64], const char *model, const char *before, const char *after) {
    static const char *const files[] = {"tokenizer.json", "tokenizer_config.json"};
    um_buf path = {0}, text = {0}, config = {0};
    um_err err = {0};
    snprintf(folder, 64, "/tmp/um-widths-XXXXXX");
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < UM_LEN(files); i++) {
        char to[128], *from = NULL;
        um_buf_clear(&path);
        um_buf_printf(&path, "%s/%s", model, files[i]);
        from = realpath(path.data, NULL);
        snprintf(to, sizeof to, "%s/%s", folder, files[i]);
        assert_int_equal(symlink(from, to), 0);
        free(from);
    }
    um_buf_clear(&path);
    um_buf_printf(&path, "%s/config.json", model);
    if (um_file_read(path.data, 1 << 20, &text, &err)) fail_msg("%s", err.msg);
    const char *at = strstr(text.data, before);
    assert_non_null(at);
    um_buf_printf(&config, "%.*s%s%s", (int)(at - text.data), text.data, after, at + strlen(before));
    um_buf_clear(&path);
    um_buf_printf(&path, "%s/config.json", folder);
    if (um_file_replace(path.data, (um_str){config.data, config.len}, &err)) fail_msg("%s", err.msg);
    um_buf_free(&path);
    um_buf_free(&text);
    um_buf_free(&config);
}

static void remove_folder(const char *folder) {
    static const char *const files[] = {"tokenizer.json", "tokenizer_config.json", "config.json"};
    char path[128];
    for (size_t i = 0; i < UM_LEN(files); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(folder), 0);
}

/* 5 groups of 32 among 4 ranks, or 40 columns each; parts of 80 columns among 2. */
static void widths_that_do_not_divide_evenly_in_ranks(void **state) {
    const char *device = test_device("cpu");
    char folder[64];
    (void)state;
    place.dummy = true;
    make_folder(folder, "build/data/golden/models/sdar", "\"intermediate_size\": 256", "\"intermediate_size\": 160");
    for (int32_t ranks = 2; ranks <= 4 && test_has_room(device, ranks); ranks += 2) {
        assert_true(check((settings){folder, device, "float32", "none", NULL, ranks, false}, 2e-4));
        if (!is_on_host()) continue; /* such weights are for the host */
        assert_true(check((settings){folder, device, "float32", "q8", NULL, ranks, false}, 0.1));
        assert_true(check((settings){folder, "ref", "float32", "q4", NULL, ranks, false}, 0.1));
    }
    remove_folder(folder);
    place.dummy = false;
}

/* 19 groups of 32 among 6 ranks. */
static void widths_that_do_not_divide_evenly_in_six_ranks(void **state) {
    const char *device = test_device("cpu");
    char folder[64];
    (void)state;
    if (!test_has_room(device, 6)) return;
    place.dummy = true;
    make_folder(folder, "models/tiny-block", "\"intermediate_size\": 576", "\"intermediate_size\": 608");
    assert_true(check((settings){folder, device, "float32", "none", NULL, 6, false}, 2e-4));
    if (is_on_host()) {
        assert_true(check((settings){folder, device, "float32", "q8", NULL, 6, false}, 0.1));
        check_processes((settings){folder, device, "bfloat16", "none", NULL, 6, false}, true);
    }
    remove_folder(folder);
    place.dummy = false;
}

/* The recorded models of these families have too few heads or experts for four ranks. */
static void four_ranks_of_larger_models(void **state) {
    const char *device = test_device("cpu");
    char folder[64];
    (void)state;
    if (!test_has_room(device, 4)) return;
    place.dummy = true;
    make_folder(folder, "build/data/reference/llada_moe", "\"num_attention_heads\": 2,\n \"num_key_value_heads\": 2",
                "\"num_attention_heads\": 4,\n \"num_key_value_heads\": 4");
    assert_int_equal(check((settings){folder, device, "float32", "none", NULL, 4, false}, 2e-4), 2);
    remove_folder(folder);
    make_folder(folder, "build/data/reference/diffusion_gemma", "\"num_experts\": 6", "\"num_experts\": 8");
    assert_int_equal(check((settings){folder, device, "float32", "none", NULL, 4, false}, 2e-4), 2);
    remove_folder(folder);
    place.dummy = false;
}

/* Writes an answer to a prompt of 700 tokens, which is stored in one pass. */
static void answer_long_prompt(const char *folder, int32_t ranks, test_answer *out) {
    test_engine t;
    um_config c;
    um_request r;
    um_err err = {0};
    int32_t id[700];
    um_config_init(&c);
    c.model = folder;
    c.load_format = UM_LOAD_DUMMY;
    c.max_model_len = 768;
    c.max_num_batched_tokens = 1024;
    c.tensor_parallel_size = ranks;
    snprintf(c.device, sizeof c.device, "%s", test_device("cpu"));
    snprintf(c.dtype, sizeof c.dtype, "float32");
    for (int32_t i = 0; i < 700; i++) id[i] = (int32_t)(um_rng_u64(11, (uint64_t)i) % 490);
    test_open(&t, &c);
    um_request_init(t.engine, &r);
    r.ids = id;
    r.n_ids = UM_LEN(id);
    r.sampling.max_tokens = 24;
    r.sampling.ignore_eos = true;
    r.events = UM_EVENT_TEXT;
    r.on_event = test_collect;
    r.arg = out;
    if (um_engine_add(t.engine, &r, NULL, &err)) fail_msg("%s", err.msg);
    test_drain(t.engine);
    test_close(&t);
}

/* GPUs divide the rows of a pass with 700 tokens of 1,024 elements. The weights are random, so the test compares ids
 * that are chosen by small differences: an error in one row changes some of them. */
static void long_prompts_in_ranks(void **state) {
    static test_answer one;
    char folder[64];
    (void)state;
    make_folder(folder, "build/data/golden/models/sdar", "\"hidden_size\": 128", "\"hidden_size\": 1024");
    answer_long_prompt(folder, 1, &one);
    assert_int_equal(one.n, 24);
    for (int32_t ranks = 2; ranks <= 4 && test_has_room(test_device("cpu"), ranks); ranks += 2) {
        test_answer several = {0};
        answer_long_prompt(folder, ranks, &several);
        assert_int_equal(several.n, one.n);
        assert_memory_equal(several.token, one.token, (size_t)one.n * sizeof *one.token);
    }
    remove_folder(folder);
}

static void adapters_in_ranks(void **state) {
    static const struct {
        const char *model, *within, *leaves, *config;
    } of[] = {{"sdar", "layers.", "q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj",
               "'q_proj','k_proj','v_proj','o_proj','gate_proj','up_proj','down_proj'"},
              {"llada2", "attention.", "query_key_value|dense", "'query_key_value','dense'"}};
    (void)state;
    for (size_t i = 0; i < UM_LEN(of); i++) {
        char folder[128], config[256];
        lora_folder a = lora_new(1);
        snprintf(folder, sizeof folder, "build/data/golden/models/%s", of[i].model);
        snprintf(config, sizeof config, "{'peft_type':'LORA','r':4,'lora_alpha':8,'bias':'none','target_modules':[%s]}",
                 of[i].config);
        lora_fit(&a, folder, of[i].within, of[i].leaves, 4, 2);
        lora_write(&a, config);
        for (int32_t ranks = 2; ranks <= 4 && test_has_room(test_device("cpu"), ranks); ranks += 2)
            assert_true(check((settings){folder, test_device("cpu"), "float32", "none", a.dir, ranks, false}, 5e-4));
        lora_free(&a);
    }
}

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

static void check_refusal(settings s, const char *param, const char *words) {
    fixture f;
    um_err err = {0};
    if (!try_open(&f, &s, &err)) fail_msg("%s can be divided into %d ranks", s.folder, s.ranks);
    assert_string_equal(err.param, param);
    if (!strstr(err.msg, words)) fail_msg("expected \"%s\" in \"%s\"", words, err.msg);
}

static void refuses_numbers_that_do_not_divide(void **state) {
    (void)state;
    check_refusal((settings){"models/tiny-block", "cpu", "float32", "none", NULL, 4, false}, "tensor_parallel_size",
                  "4 ranks can't divide 6 query heads with 2 KV heads among them; numbers that work for this model: 1, "
                  "2, 6");
    check_refusal((settings){"build/data/reference/diffusion_gemma", "cpu", "float32", "none", NULL, 3, false},
                  "tensor_parallel_size", "numbers that work for this model: 1, 2, 4");
    check_refusal((settings){"build/data/reference/dream", "cpu", "float32", "q8", NULL, 2, false},
                  "tensor_parallel_size", "2 ranks can't divide the 32 columns of ");
}

static void refuses_whole_experts_that_do_not_divide(void **state) {
    const char *device = test_device("cpu");
    (void)state;
    if (!test_has_room(device, 4)) return;
    check_refusal((settings){"build/data/reference/diffusion_gemma", device, "float32", "none", NULL, 4, true},
                  "tensor_parallel_size",
                  "4 ranks can't divide 6 experts (--enable-expert-parallel) among them; numbers that work for this "
                  "model: 1, 2");
    for (int32_t ranks = 1; ranks <= 2; ranks++)
        check_refusal((settings){"build/data/reference/dream", device, "float32", "none", NULL, ranks, true},
                      "enable_expert_parallel", "models of the family dream have no experts to divide among ranks");
}

int main(void) {
    memset(every_third, 0x49, sizeof every_third);
    const struct CMUnitTest on_host[] = {
        cmocka_unit_test(every_family_in_ranks),
        cmocka_unit_test(processes_have_the_bits_of_threads),
        cmocka_unit_test(processes_without_common_memory_have_them_too),
        cmocka_unit_test(the_reference_in_ranks),
        cmocka_unit_test(quantised_weights_in_ranks),
        cmocka_unit_test(widths_that_do_not_divide_evenly_in_ranks),
        cmocka_unit_test(widths_that_do_not_divide_evenly_in_six_ranks),
        cmocka_unit_test(four_ranks_of_larger_models),
        cmocka_unit_test(long_prompts_in_ranks),
        cmocka_unit_test(adapters_in_ranks),
        cmocka_unit_test(refuses_numbers_that_do_not_divide),
        cmocka_unit_test(refuses_whole_experts_that_do_not_divide),
    };
    const struct CMUnitTest on_gpus[] = {
        cmocka_unit_test(every_family_in_ranks),
        cmocka_unit_test(gpus_of_processes_have_the_bits_of_one_process),
        cmocka_unit_test(bf16_in_ranks),
        cmocka_unit_test(widths_that_do_not_divide_evenly_in_ranks),
        cmocka_unit_test(widths_that_do_not_divide_evenly_in_six_ranks),
        cmocka_unit_test(four_ranks_of_larger_models),
        cmocka_unit_test(long_prompts_in_ranks),
        cmocka_unit_test(adapters_in_ranks),
        cmocka_unit_test(refuses_whole_experts_that_do_not_divide),
    };
    if (is_on_host()) return cmocka_run_group_tests(on_host, NULL, NULL);
    return cmocka_run_group_tests(on_gpus, NULL, NULL);
}
