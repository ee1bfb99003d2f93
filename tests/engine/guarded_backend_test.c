/* Nothing outside a backend touches its memory. A backend of this file keeps weights, vectors, keys, values and
 * activations in a region that no code can read or write outside of the backend's functions: any access ends the
 * program with SIGSEGV. Whole answers on it equal those of the backend `ref`, whose operations it uses. */
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ops/host/host.h"
#include "ops/ref/ref.h"
#include "support.h"
#include "unit/lora_folder.h"

/* ---- The region -------------------------------------------------------------------------------------------------- */

static const size_t REGION = (size_t)2 << 30; /* address space; only what is written takes memory */
static char *region;
static size_t used;
static int depth; /* functions of the backend that run now */

static void protect(int access) {
    if (used && mprotect(region, used, access)) fail_msg("mprotect failed");
}

static void enter(void) {
    if (depth++ == 0) protect(PROT_READ | PROT_WRITE);
}

static void leave(void) {
    if (--depth == 0) protect(PROT_NONE);
}

/* Returns zeroed memory of the region. It is given back with the device. */
static void *take(size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *p = region + used;
    used += (bytes + page - 1) / page * page;
    if (used > REGION) fail_msg("the region is too small");
    assert_true(depth > 0);
    protect(PROT_READ | PROT_WRITE);
    return p;
}

/* Moves memory of the backend ref into the region. */
static void *move(void *p, size_t bytes) {
    void *to = take(bytes);
    memcpy(to, p, bytes);
    um_free(p);
    return to;
}

/* ---- Operations whose memory is in the region -------------------------------------------------------------------- */

static um_status guarded_buffer(um_dev *dev, void **out, size_t bytes, const char *what, um_err *err) {
    (void)dev;
    (void)what;
    (void)err;
    *out = take(bytes);
    return UM_OK;
}

static void guarded_buffer_free(um_dev *dev, void *p) {
    (void)dev;
    (void)p;
}

static um_status guarded_weight(um_dev *dev, um_weight **out, const um_tensor *part, int n, um_dtype type,
                                um_err *err) {
    um_status s = um_ops_ref.weight(dev, out, part, n, type, err);
    if (!s) (*out)->data = move((*out)->data, um_ops_ref.weight_bytes(*out));
    return s;
}

static void guarded_weight_free(um_dev *dev, um_weight *w) {
    (void)dev;
    um_free(w);
}

static um_status guarded_kv_new(um_dev *dev, um_kv **out, const um_kv_shape *shape, um_err *err) {
    um_status s = um_ops_ref.kv_new(dev, out, shape, err);
    if (s) return s;
    um_kv *kv = *out;
    const size_t bytes = um_ops_ref.kv_bytes(shape) + um_ops_ref.kv_scratch_bytes(shape);
    const ptrdiff_t value = kv->value - kv->key;
    assert_true(shape->layout == UM_KV_UNIFIED);
    kv->pool[0] = move(kv->pool[0], bytes);
    kv->key = (float *)kv->pool[0];
    kv->value = kv->key + value;
    return UM_OK;
}

static void guarded_kv_free(um_dev *dev, um_kv *kv) {
    (void)dev;
    um_free(kv);
}

/* ---- The backend ------------------------------------------------------------------------------------------------- */

#define GUARDED(call)                                                                                                  \
    do {                                                                                                               \
        enter();                                                                                                       \
        call;                                                                                                          \
        leave();                                                                                                       \
    } while (0)

static um_status guarded_open(um_device **out, const um_backend *self, const um_dev_config *c, um_err *err) {
    um_status s;
    GUARDED(s = um_host_open(out, self, c, err));
    return s;
}

static void guarded_close(um_device *d) {
    GUARDED(um_backend_ref.close(d));
    if (used && madvise(region, used, MADV_DONTNEED)) fail_msg("madvise failed");
    used = 0;
}

static um_status weight(um_device *d, um_weight **out, const um_tensor *part, int n, um_dtype type, um_err *err) {
    um_status s;
    GUARDED(s = um_backend_ref.weight(d, out, part, n, type, err));
    return s;
}

static void weight_free(um_device *d, um_weight *w) { GUARDED(um_backend_ref.weight_free(d, w)); }

static um_status vector(um_device *d, um_vector **out, const um_tensor *part, int n, const char *what, um_err *err) {
    um_status s;
    GUARDED(s = um_backend_ref.vector(d, out, part, n, what, err));
    return s;
}

static void vector_free(um_device *d, um_vector *v) { GUARDED(um_backend_ref.vector_free(d, v)); }

static um_status forward_new(um_forward **out, um_device *d, const um_network *n, const um_forward_config *c,
                             um_err *err) {
    um_status s;
    GUARDED(s = um_backend_ref.forward_new(out, d, n, c, err));
    return s;
}

static void forward_free(um_forward *f) { GUARDED(um_backend_ref.forward_free(f)); }

static int64_t n_copies, n_passes;

static void copy_page(um_forward *f, int32_t from, int32_t to, int32_t n) {
    n_copies++;
    GUARDED(um_backend_ref.copy_page(f, from, to, n));
}

static um_status submit(um_forward *f, const um_batch *b, um_err *err) {
    um_status s;
    n_passes++;
    GUARDED(s = um_backend_ref.submit(f, b, err));
    return s;
}

static um_status wait_pass(um_forward *f, um_err *err) {
    um_status s;
    GUARDED(s = um_backend_ref.wait(f, err));
    return s;
}

static int n_warmed;
static int32_t n_expected;

static um_status warm(um_forward *f, const um_pass_size *size, int32_t n, um_err *err) {
    (void)f;
    (void)err;
    n_warmed++;
    n_expected = n;
    assert_true(size[0].n_tokens > 0 && size[0].n_spans == 1);
    return UM_OK;
}

static um_ops guarded_ops;
static um_backend guarded;
const um_backend *const um_backends_all[] = {&guarded, &um_backend_ref, NULL};
const um_ops *const um_ops_all[] = {&um_ops_ref, NULL};

static int open_region(void **state) {
    (void)state;
    region = mmap(NULL, REGION, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED) fail_msg("mmap failed");
    guarded_ops = um_ops_ref;
    guarded_ops.buffer = guarded_buffer;
    guarded_ops.buffer_free = guarded_buffer_free;
    guarded_ops.weight = guarded_weight;
    guarded_ops.weight_free = guarded_weight_free;
    guarded_ops.kv_new = guarded_kv_new;
    guarded_ops.kv_free = guarded_kv_free;
    guarded = um_backend_ref;
    guarded.name = "cpu"; /* a name that the option takes */
    guarded.ops = &guarded_ops;
    guarded.open = guarded_open;
    guarded.close = guarded_close;
    guarded.weight = weight;
    guarded.weight_free = weight_free;
    guarded.vector = vector;
    guarded.vector_free = vector_free;
    guarded.forward_new = forward_new;
    guarded.forward_free = forward_free;
    guarded.warm = warm;
    guarded.copy_page = copy_page;
    guarded.submit = submit;
    guarded.wait = wait_pass;
    return 0;
}

static int close_region(void **state) {
    (void)state;
    return munmap(region, REGION);
}

/* ---- Answers ----------------------------------------------------------------------------------------------------- */

/* The first request wants two answers, which share the pages of their prompt until they write to them. */
enum { REQUESTS = 2, ANSWERS = REQUESTS + 1, PROMPT = 40, ANSWER = 8 };

typedef struct setting {
    const char *model, *strategy; /* strategy NULL: the family's */
    float cfg_scale, temperature;
    const char *lora_leaves, *lora_within; /* NULL: no adapter */
    bool merge;
} setting;

static const setting settings[] = {
    {.model = "sdar"},
    {.model = "sdar", .lora_leaves = "q_proj|k_proj|v_proj|o_proj", .lora_within = "layers."},
    {.model = "sdar", .lora_leaves = "q_proj|k_proj|v_proj|o_proj", .lora_within = "layers.", .merge = true},
    {.model = "sdar_moe", .temperature = 0.8F},
    {.model = "llada"},
    {.model = "llada", .cfg_scale = 1},
    {.model = "llada", .strategy = "dual_cache"},
    {.model = "llada", .strategy = "sparse"},
    {.model = "llada2"},
    {.model = "llada2", .strategy = "dmax"},
    {.model = "families/llada22/models/llada22_a"},
    {.model = "families/llada22/models/llada22_a", .strategy = "joint_indel"},
    {.model = "dream"},
    {.model = "dream", .strategy = "d2f"},
    {.model = "stable_diffcoder"},
    {.model = "fast_dllm_v2"},
};

static void collect(void *answers, const um_event *ev) { test_collect((test_answer *)answers + ev->index, ev); }

static void answer(const setting *g, const char *device, const char *lora, test_answer out[ANSWERS]) {
    um_config c;
    char path[128];
    test_engine t;
    test_config(&c, g->model, path, sizeof path);
    snprintf(c.device, sizeof c.device, "%s", device);
    if (g->strategy) snprintf(c.decoding.strategy, sizeof c.decoding.strategy, "%s", g->strategy);
    c.max_num_reqs = 4;
    c.num_pages = 24;
    c.max_num_batched_tokens = 320;
    c.lora = lora;
    c.lora_merge = g->merge;
    test_open(&t, &c);
    memset(out, 0, ANSWERS * sizeof *out);
    for (int i = 0; i < REQUESTS; i++) { /* all begin with the same tokens */
        int32_t prompt[PROMPT];
        um_request r;
        um_err err = {0};
        for (int k = 0; k < PROMPT; k++) prompt[k] = (11 * k + 5 + (k > PROMPT - 3 ? i : 0)) % 490;
        um_request_init(t.engine, &r);
        r.ids = prompt;
        r.n_ids = PROMPT;
        r.adapter = lora && i ? "a" : NULL;
        r.sampling.seed = 7 + i;
        r.decoding.cfg_scale = g->cfg_scale;
        r.sampling.temperature = g->temperature;
        r.sampling.max_tokens = ANSWER;
        r.sampling.ignore_eos = true;
        r.n = i == 0 ? 2 : 1;
        r.on_event = collect;
        r.arg = &out[i == 0 ? 0 : i + 1];
        if (um_engine_add(t.engine, &r, NULL, &err)) fail_msg("%s %s: %s", g->model, device, err.msg);
        if (i == 0) test_drain(t.engine); /* the others find its keys */
    }
    test_drain(t.engine);
    test_close(&t);
}

static void check(const setting *g) {
    static test_answer have[ANSWERS], want[ANSWERS];
    lora_folder a = {0};
    char lora[160], path[128];
    if (g->lora_leaves) {
        snprintf(path, sizeof path, "build/data/golden/models/%s", g->model);
        a = lora_new(1);
        lora_fit(&a, path, g->lora_within, g->lora_leaves, 4, 2);
        lora_write(&a, "{'peft_type':'LORA','r':4,'lora_alpha':8,'bias':'none','target_modules':['q_proj','k_proj','v_"
                       "proj','o_proj']}");
        snprintf(lora, sizeof lora, "a=%s", a.dir);
    }
    answer(g, "ref", g->lora_leaves ? lora : NULL, want);
    answer(g, "cpu", g->lora_leaves ? lora : NULL, have);
    for (int i = 0; i < ANSWERS; i++) {
        assert_true(want[i].n > 0);
        assert_int_equal(have[i].n, want[i].n);
        assert_memory_equal(have[i].token, want[i].token, (size_t)want[i].n * sizeof want[i].token[0]);
    }
    if (g->lora_leaves) lora_free(&a);
}

static void answers_equal_those_of_the_reference(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(settings); i++) {
        const int64_t before = n_passes;
        check(&settings[i]);
        assert_true(n_passes > before);
    }
    assert_true(n_copies > 0);
}

static void the_engine_names_its_passes_unless_they_are_eager(void **state) {
    (void)state;
    for (int eager = 0; eager < 2; eager++) {
        um_config c;
        char path[128];
        test_engine t;
        test_config(&c, "sdar", path, sizeof path);
        snprintf(c.device, sizeof c.device, "cpu");
        c.enforce_eager = eager;
        n_warmed = n_expected = 0;
        test_open(&t, &c);
        test_close(&t);
        assert_int_equal(n_warmed, !eager);
        assert_int_equal(n_expected > 0, !eager);
    }
}

/* A child process that reads a norm of an open model from outside ends with SIGSEGV. */
static void an_access_from_outside_ends_the_program(void **state) {
    (void)state;
    um_config c;
    char path[128];
    test_engine t;
    int status;
    test_config(&c, "sdar", path, sizeof path);
    snprintf(c.device, sizeof c.device, "cpu");
    test_open(&t, &c);
    const volatile float *norm = t.model->net.final_norm->data;
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        _exit(norm[0] > 1e30F);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    test_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_access_from_outside_ends_the_program),
        cmocka_unit_test(answers_equal_those_of_the_reference),
        cmocka_unit_test(the_engine_names_its_passes_unless_they_are_eager),
    };
    return cmocka_run_group_tests_name("guarded backend", tests, open_region, close_region);
}
