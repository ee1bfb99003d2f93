/* Tests of LoRA adapters. Merged, or applied to the requests that use them, they add s * B A to the same layers as in
 * PEFT. An adapter that does not fit the model is refused, and the message names the reason. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lora_folder.h"
#include "model/lora.h"
#include "model_zoo.h"
#include "ops/host/host.h"

#define TOKENS 10
#define HIDDEN 64

#define ZOO_LLADA                                                                                                      \
    "{'architectures':['LLaDAModelLM'],'model_type':'llada','d_model':64,'n_heads':4,'n_kv_heads':4,'n_layers':2,"     \
    "'mlp_hidden_size':160,'vocab_size':256,'embedding_size':256,'max_sequence_length':256,'rope':true,"               \
    "'rope_theta':500000.0,'rms_norm_eps':1e-5,'layer_norm_type':'rms','block_type':'llama',"                          \
    "'activation_type':'silu','weight_tying':false,'include_bias':false,'mask_token_id':250,'eos_token_id':240}"
#define ZOO_SDAR                                                                                                       \
    ZOO_LLAMA("'architectures':['SDARForCausalLM'],'model_type':'sdar'",                                               \
              ",'head_dim':32,'tie_word_embeddings':true,'attention_bias':false,'block_size':4")

/* ---- Running ----------------------------------------------------------------------------------------------------- */

typedef struct open_as {
    const char *device, *dtype;
    const char *lora; /* or NULL */
    bool merge;
    int32_t check;
    int32_t places; /* for adapters that are loaded later */
} open_as;

static um_status try_open(um_model **m, const char *dir, const open_as *o, um_err *err) {
    um_config c;
    um_config_init(&c);
    c.model = dir;
    c.max_num_batched_tokens = 64;
    c.threads = 1;
    c.lora = o->lora;
    c.lora_merge = o->merge;
    c.max_loras = o->places;
    c.max_lora_rank = 4;
    c.check_weights = o->check;
    snprintf(c.device, sizeof c.device, "%s", o->device ? o->device : "ref");
    snprintf(c.dtype, sizeof c.dtype, "%s", o->dtype ? o->dtype : "float32");
    return um_model_open(m, &c, err);
}

static um_model *open_model(const char *dir, open_as o) {
    um_model *m;
    um_err err = {0};
    if (try_open(&m, dir, &o, &err)) fail_msg("%s", err.msg);
    return m;
}

/* Returns the hidden rows of TOKENS tokens that use the adapter with this index; -1: none (um_free). */
static float *hidden_of(um_model *m, int adapter) { return zoo_run_adapted(m, 1, &(int){TOKENS}, &(int){0}, &adapter); }

static float *hidden_as(const char *dir, open_as o, int adapter) {
    um_model *m = open_model(dir, o);
    float *h = hidden_of(m, adapter);
    um_model_close(m);
    return h;
}

static float difference(const float *a, const float *b) {
    float worst = 0;
    for (size_t i = 0; i < TOKENS * HIDDEN; i++) worst = fmaxf(worst, isfinite(a[i]) ? fabsf(a[i] - b[i]) : INFINITY);
    return worst;
}

/* Writes a random checkpoint with this configuration. */
static zoo written(const char *config) {
    zoo z = zoo_new(config);
    zoo_write(&z);
    return z;
}

/* Checks that an adapter gives the same hidden rows when it is loaded later, in a place that another one has left. */
static void check_loaded_later(const zoo *z, const lora_folder *a, const char *device, const float *applied) {
    um_err err = {0};
    um_model_info before, info;
    um_model *m = open_model(z->dir, (open_as){.device = device, .places = 1});
    float *plain = hidden_of(m, -1);
    um_model_get_info(m, &before);
    for (int round = 0; round < 2; round++) {
        if (um_model_load_adapter(m, "late", a->dir, &err)) fail_msg("%s", err.msg);
        float *late = hidden_of(m, 0), *off = hidden_of(m, -1);
        assert_memory_equal(late, applied, TOKENS * HIDDEN * sizeof(float));
        assert_memory_equal(off, plain, TOKENS * HIDDEN * sizeof(float));
        um_free(late);
        um_free(off);
        um_model_get_info(m, &info);
        assert_int_equal(info.n_adapters, 1);
        assert_string_equal(info.adapter[0].name, "late");
        assert_string_equal(info.adapter[0].path, a->dir);
        assert_int_equal(um_model_unload_adapter(m, "late", &err), UM_OK);
        um_model_get_info(m, &info);
        assert_int_equal(info.n_adapters, 0);
    }
    um_free(plain);
    um_model_close(m);
}

/* Compares the adapter with a checkpoint to whose weights the products B A have been added. Merged, and unless
 * merge_only also applied, the adapter gives the same hidden rows as that checkpoint. The base model gives different
 * ones. */
static void check_runs(const zoo *z, const lora_folder *a, bool merge_only) {
    static const char *const devices[] = {"ref", "cpu"};
    char *folded = lora_fold(a, z->dir);
    for (size_t d = 0; d < UM_LEN(devices); d++) {
        float *want = hidden_as(folded, (open_as){.device = devices[d]}, -1);
        float *merged = hidden_as(z->dir, (open_as){.device = devices[d], .lora = a->dir, .merge = true}, -1);
        assert_true(difference(want, merged) < 1e-4F);
        float *plain = hidden_as(z->dir, (open_as){.device = devices[d]}, -1);
        assert_true(difference(want, plain) > 1e-2F);
        if (!merge_only) {
            um_model *m = open_model(z->dir, (open_as){.device = devices[d], .lora = a->dir});
            float *applied = hidden_of(m, 0), *off = hidden_of(m, -1);
            if (!(difference(want, applied) < 1e-4F))
                fail_msg("applied differs by %g on %s", (double)difference(want, applied), devices[d]);
            assert_memory_equal(off, plain, TOKENS * HIDDEN * sizeof(float));
            check_loaded_later(z, a, devices[d], applied);
            um_free(applied);
            um_free(off);
            um_model_close(m);
        }
        um_free(want);
        um_free(merged);
        um_free(plain);
    }
    folder_free(folded);
}

/* ---- Layers that adapters change --------------------------------------------------------------------------------- */

typedef struct layout {
    const char *config, *within, *leaves; /* leaves: "a|b" */
} layout;

/* Returns an adapter_config.json with the leaves as target_modules, in single quotes (um_free). */
static char *config_of(const char *leaves, const char *more) {
    um_buf b = {0};
    um_buf_puts(&b, "{'peft_type':'LORA','r':4,'lora_alpha':8,'lora_dropout':0.1,'bias':'none','target_modules':['");
    for (const char *p = leaves; *p; p++)
        if (*p == '|') um_buf_puts(&b, "','");
        else um_buf_putc(&b, *p);
    um_buf_printf(&b, "']%s}", more);
    return um_buf_take(&b);
}

static void check_layout(const layout *l) {
    zoo z = written(l->config);
    lora_folder a = lora_new(1);
    char *config = config_of(l->leaves, "");
    lora_fit(&a, z.dir, l->within, l->leaves, 4, 2);
    lora_write(&a, config);
    check_runs(&z, &a, false);
    um_free(config);
    lora_free(&a);
    folder_free(z.dir);
}

static void merged_and_applied_adapters_give_what_the_summed_weights_give(void **state) {
    (void)state;
    static const layout layouts[] = {
        {ZOO_LLADA, "blocks.", "q_proj|k_proj|v_proj|attn_out"}, /* as D2F */
        {ZOO_LLADA, "blocks.", "q_proj|v_proj"},                 /* without the middle part of the stack */
        {ZOO_LLADA, "blocks.", "ff_proj|up_proj|ff_out"},
        {ZOO_LLADA, "blocks.", "up_proj"},
        {ZOO_DREAM, "layers.", "q_proj|k_proj|v_proj|o_proj"}, /* as D2F */
        {ZOO_DREAM, "layers.", "k_proj|gate_proj|down_proj"},
        {ZOO_SDAR, "layers.", "q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj"},
        {ZOO_ILLADA(",'attention_bias':true,'mlp_bias':true"), "layers.", "q_proj|o_proj|down_proj"},
        {ZOO_LLADA2(""), "attention.", "query_key_value|dense"},
        {ZOO_LLADA_MOE_B, "self_attn.", "q_proj|o_proj"},
    };
    for (size_t i = 0; i < UM_LEN(layouts); i++) check_layout(&layouts[i]);
}

/* The dense layer and the shared experts have the same leaf names as the routed experts. A regular expression tells
 * them apart. */
static void dense_and_shared_layers_of_a_mixture_are_adapted(void **state) {
    (void)state;
    zoo z = written(ZOO_LLADA2(""));
    lora_folder a = lora_new(2);
    lora_fit(&a, z.dir, "shared_experts.", "gate_proj|up_proj|down_proj", 4, 2);
    lora_fit(&a, z.dir, "layers.0.mlp.", "gate_proj|up_proj|down_proj", 4, 2);
    lora_write(&a, "{'r':4,'lora_alpha':8,"
                   "'target_modules':'.*mlp\\\\.(shared_experts\\\\.)?(gate|up|down)_proj'}");
    check_runs(&z, &a, false);
    lora_free(&a);
    folder_free(z.dir);
}

static void routers_are_adapted_in_fp32(void **state) {
    (void)state;
    zoo z = written(ZOO_SDAR_MOE);
    lora_folder a = lora_new(3);
    lora_fit(&a, z.dir, "mlp.gate", "gate", 4, 2);
    lora_write(&a, "{'r':4,'lora_alpha':8,'target_modules':['gate']}");
    check_runs(&z, &a, false);
    lora_free(&a);
    folder_free(z.dir);
}

static void routed_experts_and_heads_are_merged(void **state) {
    (void)state;
    zoo z = written(ZOO_LLADA2(""));
    lora_folder experts = lora_new(4), head = lora_new(5);
    lora_fit(&experts, z.dir, "layers.", "gate_proj|up_proj|down_proj", 2, 1);
    lora_write(&experts, "{'r':2,'lora_alpha':2,'target_modules':['gate_proj','up_proj','down_proj']}");
    check_runs(&z, &experts, true);
    lora_fit(&head, z.dir, "lm_head", "lm_head", 4, 2);
    lora_write(&head, "{'r':4,'lora_alpha':8,'target_modules':['lm_head']}");
    char *folded = lora_fold(&head, z.dir);
    um_model *want = open_model(folded, (open_as){0}),
             *m = open_model(z.dir, (open_as){.lora = head.dir, .merge = true});
    float x[HIDDEN], y[2][256];
    for (int i = 0; i < HIDDEN; i++) x[i] = (float)(i % 7) - 3;
    want->device->ops->linear(want->device->dev, want->net.head, NULL, x, 1, false, y[0]);
    m->device->ops->linear(m->device->dev, m->net.head, NULL, x, 1, false, y[1]);
    for (int i = 0; i < 256; i++) assert_true(fabsf(y[0][i] - y[1][i]) < 1e-4F);
    um_model_close(want);
    um_model_close(m);
    folder_free(folded);
    lora_free(&experts);
    lora_free(&head);
    folder_free(z.dir);
}

/* The products of the test are exact. So a merged weight must be bit-identical to the sum, rounded once to bf16. */
static void merging_rounds_once(void **state) {
    (void)state;
    zoo z = written(ZOO_DREAM);
    lora_folder a = lora_new(6);
    lora_fit(&a, z.dir, "layers.", "q_proj|k_proj|v_proj|o_proj", 4, 2);
    lora_write(&a, "{'r':4,'lora_alpha':8,'target_modules':['q_proj','k_proj','v_proj','o_proj']}");
    char *folded = lora_fold(&a, z.dir);
    static const char *const types[] = {"float32", "bfloat16"};
    for (size_t i = 0; i < UM_LEN(types); i++) {
        float *want = hidden_as(folded, (open_as){.device = "cpu", .dtype = types[i]}, -1);
        float *have = hidden_as(z.dir, (open_as){.device = "cpu", .dtype = types[i], .lora = a.dir, .merge = true}, -1);
        assert_memory_equal(want, have, TOKENS * HIDDEN * sizeof(float));
        um_free(want);
        um_free(have);
    }
    folder_free(folded);
    lora_free(&a);
    folder_free(z.dir);
}

static void modules_to_save_replace_tensors_when_merged(void **state) {
    (void)state;
    zoo z = written(ZOO_DREAM);
    lora_folder a = lora_new(7);
    lora_fit(&a, z.dir, "layers.", "q_proj", 4, 2);
    lora_put(&a, "base_model.model.lm_head.weight", 256, 64);
    size_t norm = lora_put(&a, "base_model.model.model.norm.modules_to_save.default.weight", 64, 0);
    lora_write(&a, "{'r':4,'lora_alpha':8,'target_modules':['q_proj'],'modules_to_save':['lm_head','norm']}");
    um_model *m = open_model(z.dir, (open_as){.lora = a.dir, .merge = true, .check = UM_CHECK_ERROR});
    assert_memory_equal(m->net.final_norm->data, a.data.data + norm, 64 * sizeof(float));
    um_model_close(m);
    lora_free(&a);
    folder_free(z.dir);
}

/* The modules of a layer that modules_to_save names are no targets. The head has a replacement tensor and matrices. */
static void what_is_saved_whole_is_no_target(void **state) {
    (void)state;
    zoo z = written(ZOO_DREAM);
    lora_folder a = lora_new(15);
    lora_fit(&a, z.dir, "self_attn.", "q_proj|k_proj|v_proj|o_proj", 4, 2);
    lora_fit(&a, z.dir, "layers.1.mlp.", "gate_proj|up_proj|down_proj", 4, 2);
    lora_pair_put(&a, "lm_head", 256, 64, 4, 2);
    lora_put(&a, "base_model.model.lm_head.base_layer.weight", 256, 64);
    lora_put(&a, "base_model.model.model.layers.0.mlp.gate_proj.weight", 160, 64);
    lora_put(&a, "base_model.model.model.layers.0.mlp.up_proj.weight", 160, 64);
    size_t down = lora_put(&a, "base_model.model.model.layers.0.mlp.down_proj.weight", 64, 160);
    lora_write(&a, "{'r':4,'lora_alpha':8,'target_modules':'all-linear','modules_to_save':['layers.0.mlp']}");
    um_model *m = open_model(z.dir, (open_as){.lora = a.dir, .merge = true});
    float x[160] = {1}, y[HIDDEN];
    m->device->ops->linear(m->device->dev, m->net.layer[0].down.w, NULL, x, 1, false, y);
    for (size_t i = 0; i < HIDDEN; i++) {
        float want;
        memcpy(&want, a.data.data + down + i * 160 * sizeof want, sizeof want);
        assert_true(y[i] == want);
    }
    um_model_close(m);
    lora_free(&a);
    folder_free(z.dir);
}

/* ---- Several adapters in one batch ------------------------------------------------------------------------------- */

static void requests_with_different_adapters_share_a_batch(void **state) {
    (void)state;
    enum { REQUESTS = 6 };
    static const char *const devices[] = {"ref", "cpu"};
    const int n[REQUESTS] = {6, 10, 3, 1, 9, 5}, number[REQUESTS] = {0, 1, 2, 3, 4, 5},
              adapter[REQUESTS] = {0, -1, 1, 1, 0, -1};
    zoo z = written(ZOO_LLADA2(""));
    lora_folder a = lora_new(8), b = lora_new(9);
    char list[512];
    lora_fit(&a, z.dir, "attention.", "query_key_value|dense", 4, 2);
    lora_write(&a, "{'r':4,'lora_alpha':8,'target_modules':['query_key_value','dense']}");
    lora_fit(&b, z.dir, "shared_experts.", "gate_proj|down_proj", 3, 1);
    lora_fit(&b, z.dir, "attention.", "dense", 3, 1);
    lora_write(&b, "{'r':3,'lora_alpha':3,'target_modules':'.*(shared_experts\\\\.(gate|down)_proj|dense)'}");
    snprintf(list, sizeof list, "one=%s,two=%s", a.dir, b.dir);
    for (size_t d = 0; d < UM_LEN(devices); d++) {
        um_model *m = open_model(z.dir, (open_as){.device = devices[d], .lora = list});
        float *together = zoo_run_adapted(m, REQUESTS, n, number, adapter), *at = together;
        for (int i = 0; i < REQUESTS; i++) {
            float *alone = zoo_run_adapted(m, 1, &n[i], &number[i], &adapter[i]);
            assert_memory_equal(at, alone, (size_t)n[i] * HIDDEN * sizeof(float));
            at += (size_t)n[i] * HIDDEN;
            um_free(alone);
        }
        um_free(together);
        um_model_close(m);
    }
    lora_free(&a);
    lora_free(&b);
    folder_free(z.dir);
}

static void adapters_are_found_by_name(void **state) {
    (void)state;
    zoo z = written(ZOO_DREAM);
    lora_folder a = lora_new(10);
    char list[512];
    int32_t at;
    um_err err = {0};
    um_model_info info;
    lora_fit(&a, z.dir, "layers.", "q_proj", 4, 2);
    lora_write(&a, "{'r':4,'lora_alpha':8,'target_modules':['q_proj']}");
    snprintf(list, sizeof list, "%s/,math=%s", a.dir, a.dir);
    um_model *m = open_model(z.dir, (open_as){.lora = list});
    um_model_get_info(m, &info);
    assert_int_equal(info.n_adapters, 2);
    assert_string_equal(info.adapter[0].name, strrchr(a.dir, '/') + 1);
    assert_string_equal(info.adapter[1].name, "math");
    assert_string_equal(info.adapter[1].path, a.dir);
    assert_int_equal(info.adapter[1].rank, 4);
    assert_int_equal(info.adapter[1].n_params, 2 * 4 * (64 + 64));
    assert_false(info.adapter[1].merged);
    assert_int_equal(um_model_adapter(m, NULL, &at, &err), UM_OK);
    assert_int_equal(at, -1);
    assert_int_equal(um_model_adapter(m, "math", &at, &err), UM_OK);
    assert_int_equal(at, 1);
    assert_int_equal(um_model_adapter(m, "maths", &at, &err), UM_EINVAL);
    assert_says(&err, "adapter \"maths\" is not loaded: there are ");
    assert_says(&err, ", math");
    um_model_close(m);
    m = open_model(z.dir, (open_as){.lora = a.dir, .merge = true});
    um_model_get_info(m, &info);
    assert_true(info.adapter[0].merged);
    assert_int_equal(um_model_adapter(m, info.adapter[0].name, &at, &err), UM_OK);
    assert_int_equal(at, -1);
    um_model_close(m);
    m = open_model(z.dir, (open_as){0});
    assert_int_equal(um_model_adapter(m, "math", &at, &err), UM_EINVAL);
    assert_says(&err, "without any (--lora name=folder)");
    um_model_close(m);
    lora_free(&a);
    folder_free(z.dir);
}

/* ---- Spellings of names ------------------------------------------------------------------------------------------ */

static void all_ways_to_write_a_key_mean_the_same(void **state) {
    (void)state;
    static const char *const styles[][2] = {{"base_model.model.", ".weight"},
                                            {"base_model.model.", ".default.weight"},
                                            {"base_model.model.", ""},
                                            {"base_model.model.", ".default"},
                                            {"", ".weight"},
                                            {"model.", ".weight"}};
    zoo z = written(ZOO_LLADA);
    float *want = NULL;
    for (size_t i = 0; i < UM_LEN(styles); i++) {
        lora_folder a = lora_new(11);
        a.prefix = styles[i][0];
        a.suffix = styles[i][1];
        lora_fit(&a, z.dir, "blocks.", "q_proj|attn_out", 4, 2);
        lora_write(&a, "{'r':4,'lora_alpha':8,'target_modules':['q_proj','attn_out']}");
        float *h = hidden_as(z.dir, (open_as){.lora = a.dir}, 0);
        if (!want) want = h;
        assert_memory_equal(h, want, TOKENS * HIDDEN * sizeof(float));
        if (h != want) um_free(h);
        lora_free(&a);
    }
    um_free(want);
    folder_free(z.dir);
}

/* LLaDA's files may omit the prefix "model.". Adapters with and without it then still work. */
static void a_base_without_the_leading_model_takes_the_same_adapters(void **state) {
    (void)state;
    zoo z = zoo_new(ZOO_LLADA);
    z.bare = true;
    zoo_write(&z);
    lora_folder a = lora_new(12);
    a.prefix = "base_model.model.model.";
    lora_fit(&a, z.dir, "blocks.", "q_proj", 4, 2);
    lora_write(&a, "{'r':4,'lora_alpha':8,'target_modules':'model\\\\.transformer\\\\.blocks\\\\.[01]\\\\.q_proj'}");
    check_runs(&z, &a, false);
    lora_free(&a);
    folder_free(z.dir);
}

typedef struct scaled {
    const char *leaves, *within;
    int rank;
    double scale;
} scaled;

static void check_scales(const scaled *part, size_t n, const char *config) {
    zoo z = written(ZOO_DREAM);
    lora_folder a = lora_new(13);
    for (size_t i = 0; i < n; i++) lora_fit(&a, z.dir, part[i].within, part[i].leaves, part[i].rank, part[i].scale);
    lora_write(&a, config);
    check_runs(&z, &a, false);
    lora_free(&a);
    folder_free(z.dir);
}

static void scales_follow_rank_and_alpha_of_each_module(void **state) {
    (void)state;
    static const scaled rslora[] = {{"q_proj|o_proj", "layers.", 4, 4}};
    check_scales(rslora, 1, "{'r':4,'lora_alpha':8,'use_rslora':true,'target_modules':['q_proj','o_proj']}");
    static const scaled pattern[] = {{"q_proj", "layers.0.", 8, 2},
                                     {"q_proj", "layers.1.", 2, 8},
                                     {"k_proj", "layers.", 4, 1},
                                     {"o_proj", "layers.", 4, 4}};
    check_scales(pattern, 4,
                 "{'r':4,'lora_alpha':16,'target_modules':['q_proj','k_proj','o_proj'],"
                 "'rank_pattern':{'model.layers.0.self_attn.q_proj':8,'q_proj':2},"
                 "'alpha_pattern':{'self_attn.k_pro.':4}}");
}

static void layers_and_exclusions_choose_among_the_targets(void **state) {
    (void)state;
    static const scaled last[] = {{"q_proj|up_proj", "layers.1.", 4, 2}};
    check_scales(last, 1, "{'r':4,'lora_alpha':8,'target_modules':['q_proj','up_proj'],'layers_to_transform':[1]}");
    check_scales(last, 1,
                 "{'r':4,'lora_alpha':8,'target_modules':['q_proj','up_proj'],'layers_to_transform':1,"
                 "'layers_pattern':['layers']}");
    check_scales(last, 1,
                 "{'r':4,'lora_alpha':8,'target_modules':['q_proj','up_proj'],'layers_to_transform':[],"
                 "'layers_pattern':'','exclude_modules':'model\\\\.layers\\\\.0\\\\..*'}");
    static const scaled attention[] = {{"q_proj|k_proj|v_proj|o_proj", "layers.", 4, 2}};
    check_scales(attention, 1,
                 "{'r':4,'lora_alpha':8,'target_modules':'all-linear',"
                 "'exclude_modules':['gate_proj','mlp.up_proj','down_proj']}");
}

/* Rank 0: the module is no target. The expected values are those of PEFT 0.21. */
static void modules_are_chosen_and_scaled_as_by_peft(void **state) {
    (void)state;
    static const struct {
        const char *config, *module;
        int rank;
        float scale;
    } cases[] = {
        {"'target_modules':['q_proj']", "model.layers.0.self_attn.q_proj", 4, 2},
        {"'target_modules':['q_proj']", "model.layers.0.self_attn.eq_proj", 0, 0},
        {"'target_modules':['self_attn.q_proj']", "model.layers.0.self_attn.q_proj", 4, 2},
        {"'target_modules':'.*q_proj'", "model.layers.0.self_attn.q_proj", 4, 2},
        {"'target_modules':'q_proj'", "model.layers.0.self_attn.q_proj", 0, 0},
        {"'target_modules':['up_proj'],'layers_to_transform':[7]", "model.layers.1.mlp.experts.7.up_proj", 0, 0},
        {"'target_modules':['up_proj'],'layers_to_transform':[7],'layers_pattern':'experts'",
         "model.layers.1.mlp.experts.7.up_proj", 4, 2},
        {"'target_modules':['lm_head'],'layers_to_transform':1", "lm_head", 4, 2}, /* the complete path */
        {"'target_modules':['ff_out'],'layers_to_transform':1", "model.transformer.ff_out", 0, 0},
        {"'target_modules':['gate_proj'],'modules_to_save':['mlp']", "model.layers.0.mlp.gate_proj", 0, 0},
        {"'target_modules':['up_proj'],'exclude_modules':['experts.7.up_proj']", "model.layers.1.mlp.experts.7.up_proj",
         0, 0},
        {"'target_modules':['q_proj'],'rank_pattern':{'proj':1,'q_proj':8,'.*':2}", "model.layers.0.self_attn.q_proj",
         8, 1},
        {"'target_modules':['q_proj'],'alpha_pattern':{'^q_proj':1,'^model.*q_proj':16}",
         "model.layers.0.self_attn.q_proj", 4, 4},
        {"'target_modules':['q_proj'],'use_rslora':true,'rank_pattern':{'q_proj':16}",
         "model.layers.0.self_attn.q_proj", 16, 2},
    };
    for (size_t i = 0; i < UM_LEN(cases); i++) {
        char text[256];
        um_lora_config *c;
        um_lora_terms t;
        um_err err = {0};
        snprintf(text, sizeof text, "{'r':4,'lora_alpha':8,%s}", cases[i].config);
        json_t *root = json_of(text);
        if (um_lora_config_parse(&c, root, "config", &err)) fail_msg("%s", err.msg);
        if (um_lora_config_find(c, cases[i].module, &t, &err)) fail_msg("%s", err.msg);
        if (t.is_target != (cases[i].rank > 0)) fail_msg("%s: %s", text, cases[i].module);
        if (t.is_target && (t.rank != cases[i].rank || t.scale != cases[i].scale))
            fail_msg("%s: rank %d, scale %g", text, t.rank, (double)t.scale);
        um_lora_config_free(c);
        json_decref(root);
    }
}

/* The path of a routed expert contains its number, which must not be taken for the number of the layer. */
static void layers_of_experts_are_told_from_their_numbers(void **state) {
    (void)state;
    zoo z = written(ZOO_LLADA2(""));
    lora_folder a = lora_new(16);
    lora_fit(&a, z.dir, "layers.2.", "up_proj", 4, 2);
    lora_write(&a, "{'r':4,'lora_alpha':8,'target_modules':['up_proj'],'layers_to_transform':[2]}");
    check_runs(&z, &a, true);
    lora_free(&a);
    folder_free(z.dir);
}

static void a_name_that_the_head_shares_leaves_the_head_alone(void **state) {
    (void)state;
    zoo z = written(ZOO_LLADA);
    lora_folder a = lora_new(14);
    lora_fit(&a, z.dir, "blocks.", "ff_out", 4, 2);
    lora_write(&a, "{'r':4,'lora_alpha':8,'target_modules':['ff_out']}");
    check_runs(&z, &a, false);
    lora_free(&a);
    folder_free(z.dir);
}

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

static zoo dream; /* the base model of the adapters below */

static int write_dream(void **state) {
    (void)state;
    dream = written(ZOO_DREAM);
    return 0;
}

static int remove_dream(void **state) {
    (void)state;
    folder_free(dream.dir);
    return 0;
}

static void check_refused(const lora_folder *a, open_as o, um_status code, const char *part) {
    um_model *m = NULL;
    um_err err = {0};
    o.lora = o.lora ? o.lora : a->dir;
    um_status s = try_open(&m, dream.dir, &o, &err);
    if (!s) fail_msg("accepted, expected \"%s\"", part);
    assert_null(m);
    assert_says(&err, part);
    assert_int_equal(s, code);
}

/* Checks that an adapter with q_proj of both layers and this configuration is refused. */
static void refuses_config(const char *config, um_status code, const char *part) {
    lora_folder a = lora_new(20);
    lora_fit(&a, dream.dir, "layers.", "q_proj", 4, 2);
    lora_write(&a, config);
    check_refused(&a, (open_as){0}, code, part);
    lora_free(&a);
}

#define Q "'r':4,'lora_alpha':8,'target_modules':['q_proj']"

static void refuses_other_kinds_of_adapters(void **state) {
    (void)state;
    refuses_config("{'peft_type':'IA3'," Q "}", UM_EUNSUPPORTED, "\"peft_type\" is IA3");
    refuses_config("{'use_dora':true," Q "}", UM_EUNSUPPORTED, "\"use_dora\" is set");
    refuses_config("{'fan_in_fan_out':true," Q "}", UM_EUNSUPPORTED, "\"fan_in_fan_out\" is set");
    refuses_config("{'target_parameters':['w1']," Q "}", UM_EUNSUPPORTED, "\"target_parameters\" is set");
    refuses_config("{'bias':'lora_only'," Q "}", UM_EUNSUPPORTED, "\"bias\" is lora_only");
    refuses_config("{'init_lora_weights':'pissa'," Q "}", UM_EUNSUPPORTED, "\"init_lora_weights\" is pissa");
}

static void refuses_configurations_that_contradict_themselves(void **state) {
    (void)state;
    refuses_config("[]", UM_EPARSE, "adapter_config.json: expected a JSON object");
    refuses_config("{'r':4", UM_EPARSE, "adapter_config.json:1:");
    refuses_config("{'lora_alpha':8,'target_modules':['q_proj']}", UM_EMODEL, "\"r\" is missing");
    refuses_config("{'r':4,'target_modules':['q_proj']}", UM_EMODEL, "\"lora_alpha\" is missing");
    refuses_config("{'r':4,'lora_alpha':1e9,'target_modules':['q_proj']}", UM_EPARSE,
                   "\"lora_alpha\" needs a number -1000000..1000000");
    refuses_config("{'r':257,'lora_alpha':8,'target_modules':['q_proj']}", UM_EPARSE,
                   "\"r\": expected an integer 1..256");
    refuses_config("{'r':4,'lora_alpha':8}", UM_EMODEL, "\"target_modules\" names no module");
    refuses_config("{'r':4,'lora_alpha':8,'target_modules':[7]}", UM_EPARSE, "entry 0 is not the name of a module");
    refuses_config("{'r':4,'lora_alpha':8,'target_modules':{}}", UM_EPARSE, "expected a list of modules");
    refuses_config("{'r':4,'lora_alpha':8,'target_modules':'(q_proj'}", UM_EPARSE,
                   "is not a regular expression, at byte 7");
    refuses_config("{" Q ",'layers_to_transform':['one']}", UM_EPARSE, "\"layers_to_transform\": expected the number");
    refuses_config("{" Q ",'layers_pattern':'layers'}", UM_EMODEL, "\"layers_pattern\" needs \"layers_to_transform\"");
    refuses_config("{'r':4,'lora_alpha':8,'target_modules':'.*q_proj','layers_to_transform':[0]}", UM_EMODEL,
                   "not with a regular expression");
    refuses_config("{" Q ",'rank_pattern':{'q_proj':0}}", UM_EPARSE, "\"rank_pattern\": \"q_proj\" needs an integer");
    refuses_config("{" Q ",'alpha_pattern':{'q_proj':'8'}}", UM_EPARSE, "\"alpha_pattern\": \"q_proj\" needs a number");
    refuses_config("{'r':4,'lora_alpha':8,'target_modules':'([a-z0-9._]+)*[A-Z]'}", UM_ELIMIT, "takes too long");
}

static void refuses_targets_and_tensors_that_do_not_meet(void **state) {
    (void)state;
    refuses_config("{'r':4,'lora_alpha':8,'target_modules':['q_proj','attn_out']}", UM_EMODEL,
                   "names attn_out, which is no linear layer of this dream model: it has lm_head, q_proj, k_proj, "
                   "v_proj, o_proj, gate_proj, up_proj, down_proj");
    refuses_config("{'r':4,'lora_alpha':8,'target_modules':['q_proj','k_proj']}", UM_EMODEL,
                   "model.layers.0.self_attn.k_proj is a target of adapter_config.json, but adapter_model.safetensors "
                   "has no lora_A and lora_B for it");
    refuses_config("{'r':4,'lora_alpha':8,'target_modules':['q_proj'],'layers_to_transform':[0]}", UM_EMODEL,
                   "there is a tensor base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight, but its module "
                   "is no target of adapter_config.json");
    refuses_config("{'r':8,'lora_alpha':8,'target_modules':['q_proj']}", UM_EMODEL,
                   "tensor base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight: expected [8, 64], rank 8 "
                   "from adapter_config.json and the size of the layer, found [4, 64]");
    refuses_config("{" Q ",'modules_to_save':['lm_head']}", UM_EMODEL, "\"modules_to_save\" names lm_head, but");
}

/* Checks that an adapter with q_proj and one further tensor is refused. */
static void refuses_tensor(const char *key, int rows, int cols, open_as o, um_status code, const char *part) {
    lora_folder a = lora_new(21);
    lora_fit(&a, dream.dir, "layers.", "q_proj", 4, 2);
    lora_put(&a, key, rows, cols);
    lora_write(&a, "{" Q ",'modules_to_save':null}");
    check_refused(&a, o, code, part);
    lora_free(&a);
}

static void refuses_tensors_that_nothing_takes(void **state) {
    (void)state;
    const open_as as = {0};
    refuses_tensor("base_model.model.model.embed_tokens.lora_embedding_A", 4, 256, as, UM_EUNSUPPORTED,
                   "embed_tokens.lora_embedding_A is of an embedding");
    refuses_tensor("base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector", 64, 0, as, UM_EUNSUPPORTED,
                   "lora_magnitude_vector is of DoRA");
    refuses_tensor("base_model.model.model.layers.0.self_attn.q_proj.lora_B.bias", 64, 0, as, UM_EUNSUPPORTED,
                   "lora_B.bias is a bias");
    refuses_tensor("base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight", 4, 64, as, UM_EMODEL,
                   "k_proj.lora_A.weight, but not lora_B of the same module");
    refuses_tensor("model.layers.0.self_attn.q_proj.lora_A.default.weight", 4, 64, as, UM_EMODEL,
                   "but not lora_B of the same module");
    refuses_tensor("base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight", 4, 64, as, UM_EMODEL,
                   "are the same matrix");
    refuses_tensor("base_model.model.lm_head.weight", 256, 64, as, UM_EMODEL, "\"modules_to_save\" does not name");
    lora_folder a = lora_new(22);
    lora_fit(&a, dream.dir, "layers.", "q_proj", 4, 2);
    lora_pair_put(&a, "model.layers.2.self_attn.q_proj", 64, 64, 4, 2);
    lora_write(&a, "{" Q "}");
    check_refused(&a, as, UM_EMODEL,
                  "layers.2.self_attn.q_proj.lora_A.weight belongs to no linear layer of this dream");
    lora_free(&a);
}

static void refuses_what_can_only_be_merged(void **state) {
    (void)state;
    lora_folder head = lora_new(23), saved = lora_new(24), experts = lora_new(25);
    lora_fit(&head, dream.dir, "lm_head", "lm_head", 4, 2);
    lora_write(&head, "{'r':4,'lora_alpha':8,'target_modules':['lm_head']}");
    check_refused(&head, (open_as){0}, UM_EUNSUPPORTED,
                  "changes lm_head, the head; only a merged adapter can do this: load it alone with --lora-merge");
    lora_fit(&saved, dream.dir, "layers.", "q_proj", 4, 2);
    lora_put(&saved, "base_model.model.model.norm.weight", 64, 0);
    lora_write(&saved, "{" Q ",'modules_to_save':['norm']}");
    check_refused(&saved, (open_as){0}, UM_EUNSUPPORTED, "replaces whole tensors");
    zoo z = written(ZOO_SDAR_MOE);
    um_model *m;
    um_err err = {0};
    lora_fit(&experts, z.dir, "experts.", "up_proj", 4, 2);
    lora_write(&experts, "{'r':4,'lora_alpha':8,'target_modules':'.*experts.*up_proj'}");
    assert_int_equal(try_open(&m, z.dir, &(open_as){.lora = experts.dir}, &err), UM_EUNSUPPORTED);
    assert_says(&err, "changes model.layers.1.mlp.experts.0.up_proj, a routed expert");
    folder_free(z.dir);
    lora_free(&head);
    lora_free(&saved);
    lora_free(&experts);
}

static void refuses_replacements_of_another_shape_or_of_nothing(void **state) {
    (void)state;
    static const struct {
        const char *key, *module, *part;
    } cases[] = {{"base_model.model.model.norm.weight", "norm", "tensor model.norm.weight: expected [64] from"},
                 {"base_model.model.model.normal.weight", "normal", "normal.weight replaces no tensor"}};
    for (size_t i = 0; i < UM_LEN(cases); i++) {
        lora_folder a = lora_new(26);
        char config[256];
        lora_fit(&a, dream.dir, "layers.", "q_proj", 4, 2);
        lora_put(&a, cases[i].key, 32, 0);
        snprintf(config, sizeof config, "{" Q ",'modules_to_save':['%s']}", cases[i].module);
        lora_write(&a, config);
        check_refused(&a, (open_as){.merge = true}, UM_EMODEL, cases[i].part);
        lora_free(&a);
    }
}

static void refuses_folders_that_are_not_whole(void **state) {
    (void)state;
    lora_folder a = lora_new(27);
    char *path = um_path_join(a.dir, "adapter_model.safetensors"), list[256];
    check_refused(&a, (open_as){.lora = "/nowhere/at/all"}, UM_ENOENT, "adapter all: /nowhere/at/all is not a folder");
    check_refused(&a, (open_as){0}, UM_ENOENT, "adapter_config.json");
    lora_write(&a, "{" Q "}");
    check_refused(&a, (open_as){0}, UM_EMODEL, "holds no tensor");
    remove(path);
    check_refused(&a, (open_as){0}, UM_ENOENT, "adapter_model.safetensors is missing");
    folder_write_text(a.dir, "adapter_model.bin", "");
    check_refused(&a, (open_as){0}, UM_EUNSUPPORTED, "holds adapter_model.bin; unmask reads safetensors only");
    lora_fit(&a, dream.dir, "layers.", "q_proj", 4, 2);
    lora_write(&a, "{" Q "}");
    snprintf(list, sizeof list, "a=%s,a=%s", a.dir, a.dir);
    check_refused(&a, (open_as){.lora = list}, UM_EINVAL, "two adapters are called a");
    check_refused(&a, (open_as){.lora = "a="}, UM_EINVAL, "expected name=folder or a folder, found \"a=\"");
    snprintf(list, sizeof list, "a=%s,b=%s", a.dir, a.dir);
    check_refused(&a, (open_as){.lora = list, .merge = true}, UM_EINVAL, "exactly one adapter in lora, found 2");
    um_free(path);
    lora_free(&a);
}

static void values_that_are_no_numbers_are_told(void **state) {
    (void)state;
    lora_folder a = lora_new(28);
    lora_fit(&a, dream.dir, "layers.", "q_proj", 4, 2);
    const float nan = NAN;
    memcpy(a.data.data + a.pair[1].b, &nan, sizeof nan);
    lora_write(&a, "{" Q "}");
    check_refused(&a, (open_as){.check = UM_CHECK_ERROR}, UM_EMODEL,
                  "1 values of tensor base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight are NaN");
    int old = catch_stderr(a.dir);
    um_model_close(open_model(dream.dir, (open_as){.lora = a.dir, .check = UM_CHECK_WARN}));
    um_buf said = release_stderr(a.dir, old);
    assert_non_null(strstr(said.data, "answers will be wrong"));
    um_buf_free(&said);
    lora_free(&a);
}

static void another_base_is_a_warning(void **state) {
    (void)state;
    lora_folder a = lora_new(29);
    lora_fit(&a, dream.dir, "layers.", "q_proj", 4, 2);
    lora_write(&a, "{'base_model_name_or_path':'Dream-org/Dream-v0-Instruct-7B'," Q "}");
    int old = catch_stderr(a.dir);
    um_model *m = open_model(dream.dir, (open_as){.lora = a.dir});
    um_buf said = release_stderr(a.dir, old);
    assert_non_null(strstr(said.data, "was made for Dream-org/Dream-v0-Instruct-7B, the model is "));
    um_buf_free(&said);
    um_model_close(m);
    lora_free(&a);
}

static void check_not_loaded(um_model *m, const char *name, const char *dir, um_status want, const char *why) {
    um_err err = {0};
    um_model_info before, after;
    um_model_get_info(m, &before);
    assert_int_equal(um_model_load_adapter(m, name, dir, &err), want);
    if (!strstr(err.msg, why)) fail_msg("%s", err.msg);
    um_model_get_info(m, &after);
    assert_int_equal(after.n_adapters, before.n_adapters);
}

static void an_adapter_that_cannot_be_loaded_later_changes_nothing(void **state) {
    (void)state;
    um_err err = {0};
    lora_folder good = lora_new(40), wide = lora_new(41), wrong = lora_new(42), broken = lora_new(43);
    lora_fit(&good, dream.dir, "layers.", "q_proj", 4, 2);
    lora_write(&good, "{" Q "}");
    lora_fit(&wide, dream.dir, "layers.", "q_proj", 13, 2);
    lora_write(&wide, "{'r':13,'lora_alpha':26,'target_modules':['q_proj']}");
    lora_fit(&wrong, dream.dir, "layers.", "q_proj", 4, 2);
    lora_write(&wrong, "{'r':4,'lora_alpha':8,'target_modules':['q_proj','no_proj']}");
    lora_fit(&broken, dream.dir, "layers.", "q_proj", 4, 2);
    const float nan = NAN;
    memcpy(broken.data.data + broken.pair[1].b, &nan, sizeof nan);
    lora_write(&broken, "{" Q "}");
    um_model *m = open_model(dream.dir, (open_as){.places = 2});
    float *plain = hidden_of(m, -1);
    check_not_loaded(m, "wide", wide.dir, UM_ELIMIT, "--max-lora-rank");
    check_not_loaded(m, "wrong", wrong.dir, UM_EMODEL, "no_proj");
    check_not_loaded(m, "broken", broken.dir, UM_EMODEL, "NaN");
    check_not_loaded(m, "none", "/nowhere", UM_ENOENT, "/nowhere");
    assert_int_equal(um_model_load_adapter(m, "a", good.dir, &err), UM_OK);
    check_not_loaded(m, "a", good.dir, UM_EINVAL, "loaded already");
    assert_int_equal(um_model_load_adapter(m, "b", good.dir, &err), UM_OK);
    check_not_loaded(m, "c", good.dir, UM_ELIMIT, "all 2 places");
    assert_int_equal(um_model_unload_adapter(m, "x", &err), UM_ENOENT);
    float *after = hidden_of(m, -1);
    assert_memory_equal(after, plain, TOKENS * HIDDEN * sizeof(float));
    um_free(plain);
    um_free(after);
    um_model_close(m);
    m = open_model(dream.dir, (open_as){0});
    check_not_loaded(m, "a", good.dir, UM_EUNSUPPORTED, "--max-loras");
    um_model_close(m);
    m = open_model(dream.dir, (open_as){.lora = good.dir, .merge = true, .places = 1});
    check_not_loaded(m, "a", good.dir, UM_EUNSUPPORTED, "--lora-merge");
    um_model_close(m);
    lora_folder *all[] = {&good, &wide, &wrong, &broken};
    for (size_t i = 0; i < UM_LEN(all); i++) lora_free(all[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merged_and_applied_adapters_give_what_the_summed_weights_give),
        cmocka_unit_test(dense_and_shared_layers_of_a_mixture_are_adapted),
        cmocka_unit_test(routers_are_adapted_in_fp32),
        cmocka_unit_test(routed_experts_and_heads_are_merged),
        cmocka_unit_test(merging_rounds_once),
        cmocka_unit_test(modules_to_save_replace_tensors_when_merged),
        cmocka_unit_test(what_is_saved_whole_is_no_target),
        cmocka_unit_test(requests_with_different_adapters_share_a_batch),
        cmocka_unit_test(adapters_are_found_by_name),
        cmocka_unit_test(all_ways_to_write_a_key_mean_the_same),
        cmocka_unit_test(a_base_without_the_leading_model_takes_the_same_adapters),
        cmocka_unit_test(scales_follow_rank_and_alpha_of_each_module),
        cmocka_unit_test(layers_and_exclusions_choose_among_the_targets),
        cmocka_unit_test(modules_are_chosen_and_scaled_as_by_peft),
        cmocka_unit_test(layers_of_experts_are_told_from_their_numbers),
        cmocka_unit_test(a_name_that_the_head_shares_leaves_the_head_alone),
        cmocka_unit_test(refuses_other_kinds_of_adapters),
        cmocka_unit_test(refuses_configurations_that_contradict_themselves),
        cmocka_unit_test(refuses_targets_and_tensors_that_do_not_meet),
        cmocka_unit_test(refuses_tensors_that_nothing_takes),
        cmocka_unit_test(refuses_what_can_only_be_merged),
        cmocka_unit_test(refuses_replacements_of_another_shape_or_of_nothing),
        cmocka_unit_test(refuses_folders_that_are_not_whole),
        cmocka_unit_test(values_that_are_no_numbers_are_told),
        cmocka_unit_test(another_base_is_a_warning),
        cmocka_unit_test(an_adapter_that_cannot_be_loaded_later_changes_nothing),
    };
    return cmocka_run_group_tests(tests, write_dream, remove_dream);
}
