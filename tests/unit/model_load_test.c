/* Tests of opening folders: names and shapes of weights, optional tensors, and names in the hub's cache. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model_folder.h"
#include "ops/host/host.h"

enum { H = 8, FF = 12, V = 32, D = 4, NQ = 2, NKV = 1, LAYERS = 2, SPECS_MAX = 64 };

static const char sdar[] =
    "{'architectures':['SDARForCausalLM'],'model_type':'sdar','hidden_size':8,'intermediate_size':12,"
    "'num_hidden_layers':2,'num_attention_heads':2,'num_key_value_heads':1,'head_dim':4,'vocab_size':32,"
    "'max_position_embeddings':64,'rope_theta':1000000,'rms_norm_eps':1e-6,'tie_word_embeddings':%s,"
    "'mask_token_id':30,'eos_token_id':31}";
static const char llada[] =
    "{'architectures':['LLaDAModelLM'],'model_type':'llada','d_model':8,'n_heads':2,'n_kv_heads':1,'n_layers':2,"
    "'mlp_hidden_size':12,'vocab_size':32,'embedding_size':32,'max_sequence_length':64,'rope':true,"
    "'rope_theta':500000.0,'rms_norm_eps':1e-5,'layer_norm_type':'rms','block_type':'llama','activation_type':'silu',"
    "'weight_tying':false,'include_bias':false,'mask_token_id':30,'eos_token_id':31}";

/* ---- A checkpoint as a list of tensors --------------------------------------------------------------------------- */

typedef struct spec {
    char name[96], dtype[8];
    int rows, cols; /* cols 0: a vector */
} spec;

typedef struct checkpoint {
    char *dir;
    spec t[SPECS_MAX];
    int n;
} checkpoint;

static void add(checkpoint *c, const char *pattern, int layer, const char *suffix, int rows, int cols) {
    spec *t = &c->t[c->n++];
    const char *hole = strstr(pattern, "%d");
    if (hole) snprintf(t->name, sizeof t->name, "%.*s%d%s%s", (int)(hole - pattern), pattern, layer, hole + 2, suffix);
    else snprintf(t->name, sizeof t->name, "%s%s", pattern, suffix);
    strcpy(t->dtype, "F32");
    t->rows = rows;
    t->cols = cols;
}

static void list_tensors(checkpoint *c, const um_family *f, bool qk_norm) {
    const um_tensor_names *n = f->names;
    add(c, n->embed, 0, ".weight", V, H);
    add(c, n->final_norm, 0, ".weight", H, 0);
    add(c, n->head, 0, ".weight", V, H);
    for (int i = 0; i < LAYERS; i++) {
        add(c, n->attn_norm, i, ".weight", H, 0);
        add(c, n->q, i, ".weight", NQ * D, H);
        add(c, n->k, i, ".weight", NKV * D, H);
        add(c, n->v, i, ".weight", NKV * D, H);
        add(c, n->o, i, ".weight", H, NQ * D);
        if (qk_norm) add(c, n->q_norm, i, ".weight", D, 0);
        if (qk_norm) add(c, n->k_norm, i, ".weight", D, 0);
        add(c, n->ffn_norm, i, ".weight", H, 0);
        add(c, n->gate, i, ".weight", FF, H);
        add(c, n->up, i, ".weight", FF, H);
        add(c, n->down, i, ".weight", H, FF);
    }
}

/* Returns the folder of an SDAR checkpoint. `tied` is the JSON text of tie_word_embeddings. */
static checkpoint new_sdar(const char *tied, bool qk_norm) {
    checkpoint c = {.dir = folder_new()};
    char text[sizeof sdar + 8];
    snprintf(text, sizeof text, sdar, tied);
    char *config = quoted(text);
    folder_write_text(c.dir, "config.json", config);
    um_free(config);
    folder_write_tokenizer(c.dir, V, "{}");
    list_tensors(&c, um_family_find("sdar"), qk_norm);
    return c;
}

static spec *tensor(checkpoint *c, const char *name) {
    for (int i = 0; i < c->n; i++)
        if (!strcmp(c->t[i].name, name)) return &c->t[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

static void take_away(checkpoint *c, const char *name) {
    spec *t = tensor(c, name);
    *t = c->t[--c->n];
}

static void write_weights(const checkpoint *c) {
    um_buf header = {0}, data = {0};
    for (int i = 0; i < c->n; i++) {
        const spec *t = &c->t[i];
        size_t from = data.len, item = strcmp(t->dtype, "F32") ? 2 : 4;
        for (size_t k = 0; k < (size_t)t->rows * (size_t)(t->cols ? t->cols : 1); k++) {
            float v = (float)((k * 7 + (size_t)i) % 11) / 16;
            um_buf_append(&data, (const char *)&v + 4 - item, item); /* bf16 is the upper half of a float */
        }
        um_buf_printf(&header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%d", i ? "," : "{", t->name, t->dtype, t->rows);
        if (t->cols) um_buf_printf(&header, ",%d", t->cols);
        um_buf_printf(&header, "],\"data_offsets\":[%zu,%zu]}", from, data.len);
    }
    um_buf_puts(&header, "}");
    folder_write_safetensors(c->dir, "model.safetensors", header.data, data.data, data.len);
    um_buf_free(&header);
    um_buf_free(&data);
}

/* ---- Opening it -------------------------------------------------------------------------------------------------- */

static um_status open_on(um_model **m, const char *dir, const char *device, const char *dtype, um_err *err) {
    um_config c;
    um_config_init(&c);
    c.model = dir;
    c.max_num_batched_tokens = 16;
    c.threads = 1;
    c.check_weights = UM_CHECK_OFF;
    strcpy(c.device, device);
    strcpy(c.dtype, dtype);
    return um_model_open(m, &c, err);
}

static um_status open_dir(um_model **m, const char *dir, const char *dtype, um_err *err) {
    return open_on(m, dir, "ref", dtype, err);
}

static um_model *opens(checkpoint *c) {
    um_model *m;
    um_err err = {0};
    write_weights(c);
    if (open_dir(&m, c->dir, "auto", &err)) fail_msg("%s", err.msg);
    return m;
}

static void done(checkpoint *c, um_model *m) {
    um_model_close(m);
    folder_free(c->dir);
}

static void refuses(checkpoint *c, um_status want, const char *part) {
    um_model *m;
    um_err err = {0};
    write_weights(c);
    assert_int_equal(open_dir(&m, c->dir, "auto", &err), want);
    assert_null(m);
    assert_says(&err, part);
    folder_free(c->dir);
}

/* Opens the checkpoint. *said receives the warnings that were written to stderr (um_buf_free). */
static um_model *opens_saying(checkpoint *c, um_buf *said) {
    int old = catch_stderr(c->dir);
    um_model *m = opens(c);
    *said = release_stderr(c->dir, old);
    return m;
}

static void assert_warned(um_buf *said, const char *part) {
    if (!said->data || !strstr(said->data, part)) fail_msg("expected a warning with \"%s\"", part);
    um_buf_free(said);
}

static void opens_a_whole_folder(void **state) {
    (void)state;
    checkpoint c = new_sdar("false", true);
    um_model *m = opens(&c);
    um_model_info info;
    um_model_get_info(m, &info);
    assert_string_equal(info.family, "sdar");
    assert_string_equal(info.mask_rule, "block-causal");
    assert_string_equal(info.rule, "architectures[0]");
    assert_int_equal(info.n_layers, LAYERS);
    assert_int_equal(info.mask_id, 30);
    assert_int_equal(info.n_params, um_arch_params(&m->arch));
    assert_ptr_not_equal(m->net.head, m->net.embed);
    assert_int_equal(m->dtype, UM_F32);
    assert_true(m->net.rotary[0].cos->data[0] == 1 && m->net.rotary[0].sin->data[0] == 0);
    done(&c, m);
}

static void bf16_files_are_computed_in_bf16(void **state) {
    (void)state;
    checkpoint c = new_sdar("false", true);
    for (int i = 0; i < c.n; i++) strcpy(c.t[i].dtype, "BF16");
    um_model *m = opens(&c);
    assert_int_equal(m->dtype, UM_BF16);
    /* write_weights computes the values of a tensor from its index in the list. */
    int at = (int)(tensor(&c, "model.layers.1.self_attn.k_norm.weight") - c.t);
    for (int k = 0; k < D; k++) assert_true(m->net.layer[1].k_norm->data[k] == (float)((k * 7 + at) % 11) / 16);
    done(&c, m);
}

static void missing_tensor_is_named_with_its_shape(void **state) {
    (void)state;
    checkpoint c = new_sdar("false", true);
    take_away(&c, "model.layers.1.mlp.up_proj.weight");
    refuses(&c, UM_EMODEL, "tensor model.layers.1.mlp.up_proj.weight: expected [12, 8] from config.json, but no file");
    c = new_sdar("false", true);
    take_away(&c, "model.embed_tokens.weight");
    refuses(&c, UM_EMODEL, "tensor model.embed_tokens.weight");
    c = new_sdar("false", true);
    take_away(&c, "lm_head.weight");
    refuses(&c, UM_EMODEL, "tensor lm_head.weight");
}

static void wrong_shape_is_named_with_both(void **state) {
    (void)state;
    checkpoint c = new_sdar("false", true);
    tensor(&c, "model.layers.0.self_attn.q_proj.weight")->rows = 4;
    refuses(&c, UM_EMODEL,
            "tensor model.layers.0.self_attn.q_proj.weight: expected [8, 8] from config.json, found "
            "[4, 8] in model.safetensors");
    c = new_sdar("false", true);
    tensor(&c, "model.norm.weight")->cols = 1;
    refuses(&c, UM_EMODEL, "expected [8] from config.json, found [8, 1]");
}

static void type_that_is_not_computed_is_named(void **state) {
    (void)state;
    checkpoint c = new_sdar("false", true);
    strcpy(tensor(&c, "model.layers.0.mlp.down_proj.weight")->dtype, "I16");
    refuses(&c, UM_EUNSUPPORTED, "has type I16");
}

static void extra_tensors_are_counted(void **state) {
    (void)state;
    um_buf said = {0};
    checkpoint c = new_sdar("false", true);
    add(&c, "vision.tower", 0, ".weight", 2, 2);
    add(&c, "audio.tower", 0, ".weight", 2, 2);
    um_model *m = opens_saying(&c, &said);
    assert_warned(&said, "2 tensors are not part of the sdar architecture and are not used, the first is audio.tower");
    done(&c, m);
}

static void tensors_decide_about_head_norms(void **state) {
    (void)state;
    um_buf said = {0};
    checkpoint c = new_sdar("false", false);
    um_model *m = opens_saying(&c, &said);
    assert_warned(&said, "the tensors decide");
    assert_false(m->arch.qk_norm);
    assert_null(m->net.layer[0].q_norm);
    done(&c, m);
}

static void tensors_decide_about_biases_in_every_layer(void **state) {
    (void)state;
    um_buf said = {0};
    checkpoint c = new_sdar("false", true);
    for (int i = 0; i < LAYERS; i++) {
        add(&c, "model.layers.%d.self_attn.q_proj", i, ".bias", NQ * D, 0);
        add(&c, "model.layers.%d.self_attn.k_proj", i, ".bias", NKV * D, 0);
        add(&c, "model.layers.%d.self_attn.v_proj", i, ".bias", NKV * D, 0);
    }
    um_model *m = opens_saying(&c, &said);
    assert_warned(&said, "biases of queries, keys and values");
    assert_non_null(m->net.layer[1].qkv.bias);
    done(&c, m);
    c = new_sdar("false", true);
    add(&c, "model.layers.%d.self_attn.q_proj", 1, ".bias", NQ * D, 0);
    refuses(&c, UM_EMODEL, "tensor model.layers.0.self_attn.q_proj.bias");
}

static void tied_head_is_the_embedding(void **state) {
    (void)state;
    checkpoint c = new_sdar("true", true);
    take_away(&c, "lm_head.weight");
    um_model *m = opens(&c);
    assert_ptr_equal(m->net.head, m->net.embed);
    assert_int_equal(m->n_params, um_arch_params(&m->arch));
    done(&c, m);
    c = new_sdar("null", true);
    take_away(&c, "lm_head.weight");
    m = opens(&c);
    assert_ptr_equal(m->net.head, m->net.embed);
    done(&c, m);
    c = new_sdar("null", true);
    m = opens(&c);
    assert_ptr_not_equal(m->net.head, m->net.embed);
    done(&c, m);
}

static void llada_may_leave_out_the_leading_model(void **state) {
    (void)state;
    checkpoint c = {.dir = folder_new()};
    char *config = quoted(llada);
    folder_write_text(c.dir, "config.json", config);
    um_free(config);
    folder_write_tokenizer(c.dir, V, "{}");
    list_tensors(&c, um_family_find("llada"), false);
    for (int i = 0; i < c.n; i++) memmove(c.t[i].name, c.t[i].name + 6, strlen(c.t[i].name + 6) + 1);
    um_model *m = opens(&c);
    assert_int_equal(m->n_params, um_arch_params(&m->arch));
    done(&c, m);
}

static void autoregressive_folder_is_called_that_before_its_tokenizer_is_read(void **state) {
    (void)state;
    um_model *m;
    um_err err = {0};
    char *dir = folder_new();
    folder_write_text(dir, "config.json", "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\"}");
    assert_int_equal(open_dir(&m, dir, "auto", &err), UM_EUNSUPPORTED);
    assert_says(&err, "LlamaForCausalLM: an autoregressive model");
    folder_free(dir);
}

static void template_that_does_not_compile_leaves_the_model(void **state) {
    (void)state;
    um_buf said = {0};
    char *text;
    um_err err = {0};
    um_message hello = {"user", "w1"};
    checkpoint c = new_sdar("false", true);
    folder_write_text(c.dir, "chat_template.jinja", "{% nonsense %}");
    um_model *m = opens_saying(&c, &said);
    assert_warned(&said, "chat is not possible with this model");
    assert_int_equal(um_model_render(m, &hello, 1, &text, NULL, &err), UM_ETEMPLATE);
    assert_null(text);
    done(&c, m);
}

static void a_template_whose_turns_cannot_end_is_warned_about(void **state) {
    (void)state;
    um_buf said = {0};
    checkpoint c = new_sdar("false", true);
    folder_write_text(c.dir, "chat_template.jinja", "w1");
    um_model *m = opens_saying(&c, &said);
    assert_warned(&said, "\"<|im_end|>\" is no token of it: a base model");
    done(&c, m);
}

static void a_conversation_becomes_text_and_its_ids(void **state) {
    (void)state;
    um_err err = {0};
    char *text, *simple;
    int32_t *ids;
    size_t n, len;
    um_message message = {"user", "w3 w7"};
    um_chat_request q;
    checkpoint c = new_sdar("false", true);
    folder_write_text(c.dir, "chat_template.jinja", "w1 {{ messages[0].content }} {{ last }}");
    um_model *m = opens(&c);
    um_chat_init(&q);
    q.messages = &message;
    q.n_messages = 1;
    q.kwargs_json = "{\"last\": \"w2\"}";
    assert_int_equal(um_model_render_chat(m, &q, &text, &len, &ids, &n, &err), UM_OK);
    assert_string_equal(text, "w1 w3 w7 w2");
    assert_int_equal(len, 11);
    assert_int_equal(n, 4);
    assert_int_equal(ids[3], 2);
    um_free(text);
    um_free(ids);
    assert_int_equal(um_model_render_chat(m, &q, NULL, NULL, &ids, &n, &err), UM_OK);
    assert_int_equal(n, 4);
    um_free(ids);
    assert_int_equal(um_model_render(m, &message, 1, &simple, NULL, &err), UM_OK);
    assert_string_equal(simple, "w1 w3 w7 ");
    um_free(simple);
    q.kwargs_json = "{";
    assert_int_equal(um_model_render_chat(m, &q, &text, &len, &ids, &n, &err), UM_EPARSE);
    assert_null(text);
    assert_null(ids);
    assert_int_equal(n + len, 0);
    done(&c, m);
}

static void the_configuration_names_another_template(void **state) {
    (void)state;
    um_err err = {0};
    char *text;
    um_model *m;
    um_message message = {"user", "w3"};
    checkpoint c = new_sdar("false", true);
    write_weights(&c);
    um_config config;
    um_config_init(&config);
    config.model = c.dir;
    config.threads = 1;
    strcpy(config.device, "ref");
    config.chat_template = "{{ messages[0].content }} w4";
    assert_int_equal(um_model_open(&m, &config, &err), UM_OK);
    assert_int_equal(um_model_render(m, &message, 1, &text, NULL, &err), UM_OK);
    assert_string_equal(text, "w3 w4");
    um_free(text);
    um_model_close(m);
    config.chat_template = "{% broken";
    assert_int_equal(um_model_open(&m, &config, &err), UM_ETEMPLATE);
    assert_says(&err, "line 1");
    folder_free(c.dir);
}

static void text_becomes_ids_and_back(void **state) {
    (void)state;
    um_err err = {0};
    int32_t *ids;
    char *text;
    size_t n, len;
    checkpoint c = new_sdar("false", true);
    um_model *m = opens(&c);
    assert_int_equal(um_model_encode(m, "w3 w7 w1", 8, false, &ids, &n, &err), UM_OK);
    assert_int_equal(n, 3);
    assert_int_equal(ids[1], 7);
    assert_int_equal(um_model_decode(m, ids, n, false, &text, &len, &err), UM_OK);
    assert_string_equal(text, "w3 w7 w1");
    assert_int_equal(len, 8);
    um_free(text);
    ids[0] = V;
    assert_int_equal(um_model_decode(m, ids, n, false, &text, &len, &err), UM_ERANGE);
    assert_says(&err, "id 32 at index 0: expected 0 to 31");
    assert_null(text);
    um_free(ids);
    done(&c, m);
}

static void unknown_dtype_and_device_are_refused(void **state) {
    (void)state;
    um_model *m;
    um_err err = {0};
    checkpoint c = new_sdar("false", true);
    write_weights(&c);
    assert_int_equal(open_dir(&m, c.dir, "float8", &err), UM_EINVAL);
    assert_says(&err, "expected auto, float32 or bfloat16");
    assert_int_equal(open_on(&m, c.dir, "abacus", "auto", &err), UM_EINVAL);
    assert_says(&err, "abacus");
    assert_null(m);
    folder_free(c.dir);
}

/* ---- Names of models --------------------------------------------------------------------------------------------- */

static void finds(const char *name, const char *end) {
    char *path;
    um_err err = {0};
    if (um_model_find(&path, name, &err)) fail_msg("%s", err.msg);
    size_t n = strlen(path), k = strlen(end);
    assert_true(n >= k && !strcmp(path + n - k, end));
    um_free(path);
}

static void finds_none(const char *name, um_status want, const char *part) {
    char *path;
    um_err err = {0};
    assert_int_equal(um_model_find(&path, name, &err), want);
    assert_null(path);
    assert_says(&err, part);
}

static void make_snapshot(const char *cache, const char *revision) {
    char dir[512];
    static const char *const steps[] = {"", "/models--org--tiny", "/models--org--tiny/refs",
                                        "/models--org--tiny/snapshots"};
    for (size_t i = 0; i < UM_LEN(steps); i++) {
        snprintf(dir, sizeof dir, "%s%s", cache, steps[i]);
        mkdir(dir, 0700);
    }
    snprintf(dir, sizeof dir, "%s/models--org--tiny/snapshots/%s", cache, revision);
    assert_int_equal(mkdir(dir, 0700), 0);
    folder_write_text(dir, "config.json", "{}");
}

static void hub_names_are_found_in_the_cache(void **state) {
    (void)state;
    char *cache = folder_new(), *refs;
    setenv("HF_HUB_CACHE", cache, 1);
    unsetenv("HF_HOME");
    make_snapshot(cache, "aaaa");
    finds("org/tiny", "/snapshots/aaaa");
    make_snapshot(cache, "bbbb");
    refs = um_path_join(cache, "models--org--tiny/refs");
    folder_write_text(refs, "main", "aaaa\n");
    finds("org/tiny", "/snapshots/aaaa");
    folder_write_text(refs, "main", "bbbb");
    finds("org/tiny", "/snapshots/bbbb");
    finds_none("org/other", UM_ENOENT, cache);
    finds_none("org/other", UM_ENOENT, "downloads nothing");
    um_free(refs);
    folder_free(cache);
    unsetenv("HF_HUB_CACHE");
}

static void interrupted_downloads_are_named(void **state) {
    (void)state;
    char *cache = folder_new(), path[512];
    setenv("HF_HUB_CACHE", cache, 1);
    unsetenv("HF_HOME");
    make_snapshot(cache, "aaaa");
    snprintf(path, sizeof path, "%s/models--org--tiny/refs", cache);
    folder_write_text(path, "main", "bbbb");
    snprintf(path, sizeof path, "%s/models--org--tiny/snapshots/bbbb", cache);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/models--org--tiny/blobs", cache);
    mkdir(path, 0700);
    folder_write_text(path, "0123.incomplete", "half");
    folder_write_text(path, "4567", "whole");
    finds_none("org/tiny", UM_ENOENT, "snapshots/bbbb has no config.json, files still *.incomplete in blobs: 1");
    folder_free(cache);
    unsetenv("HF_HUB_CACHE");
}

/* The hub's tools store files in the folder blobs and link to them from the snapshots. */
static void snapshots_of_links_are_followed(void **state) {
    (void)state;
    char *cache = folder_new(), path[512];
    setenv("HF_HUB_CACHE", cache, 1);
    unsetenv("HF_HOME");
    make_snapshot(cache, "aaaa");
    snprintf(path, sizeof path, "%s/models--org--tiny/snapshots/aaaa/config.json", cache);
    assert_int_equal(remove(path), 0);
    assert_int_equal(symlink("../../blobs/0123", path), 0);
    finds_none("org/tiny", UM_ENOENT, "no snapshot is complete");
    char blobs[512];
    snprintf(blobs, sizeof blobs, "%s/models--org--tiny/blobs", cache);
    mkdir(blobs, 0700);
    folder_write_text(blobs, "0123", "{}");
    finds("org/tiny", "/snapshots/aaaa");
    folder_free(cache);
    unsetenv("HF_HUB_CACHE");
}

static void hub_cache_moves_with_hf_home(void **state) {
    (void)state;
    char *home = folder_new(), *hub = um_path_join(home, "hub");
    setenv("HF_HOME", home, 1);
    make_snapshot(hub, "cccc");
    finds("org/tiny", "hub/models--org--tiny/snapshots/cccc");
    um_free(hub);
    folder_free(home);
    unsetenv("HF_HOME");
}

static void bad_model_names_are_explained(void **state) {
    (void)state;
    finds("build/data/golden/models/sdar", "build/data/golden/models/sdar");
    finds_none("build/data/golden/models/sdar/config.json", UM_EINVAL, "is not a GGUF file");
    finds_none("/no/such/folder", UM_ENOENT, "no such folder");
    finds_none("no-such/..", UM_ENOENT, "no such folder");
    finds_none("models/eval.jsonl", UM_EINVAL, "is not a GGUF file; a model is");
    finds_none("models/tiny-block/model.safetensors", UM_EINVAL, "is not a GGUF file but a safetensors file; a model");
    finds_none("", UM_EINVAL, "no model given");
    finds_none(NULL, UM_EINVAL, "no model given");
}

static um_err find_error(const char *name) {
    um_err err = {0};
    char *path = NULL;
    assert_int_equal(um_model_find(&path, name, &err), UM_ENOENT);
    assert_null(path);
    return err;
}

/* "models/x" has the form of a hub name. The folder "models" is there, so it is meant as a path. */
static void only_names_of_the_hub_get_the_hint_to_download(void **state) {
    (void)state;
    static const char *const local[] = {"./org/name", "/org/name", "models/tiny-blok", "no/such/folder", "~/name"};
    um_err err = find_error("org/name");
    assert_non_null(strstr(err.msg, "'hf download org/name'"));
    for (size_t i = 0; i < UM_LEN(local); i++) {
        err = find_error(local[i]);
        assert_non_null(strstr(err.msg, "no such folder"));
        assert_null(strstr(err.msg, "download"));
        assert_null(strstr(err.msg, "ORG/NAME"));
    }
    err = find_error("models/tiny-blok");
    assert_non_null(strstr(err.msg, "the checkpoints in models are: tiny-block, tiny-full"));
    err = find_error("tiny-blok");
    assert_non_null(strstr(err.msg, "or ORG/NAME of one in the local Hugging Face cache"));
}

static void a_folder_of_checkpoints_lists_them(void **state) {
    (void)state;
    char *dir = folder_new(), name[64];
    um_err err = find_error("models");
    assert_non_null(strstr(err.msg,
                           "models is not a checkpoint, but a folder that holds some; name one of them: tiny-block, "
                           "tiny-full"));
    for (int i = 0; i < 10; i++) {
        snprintf(name, sizeof name, "m%d", i);
        char *sub = um_path_join(dir, name);
        assert_int_equal(mkdir(sub, 0700), 0);
        folder_write_text(sub, "config.json", "{}");
        um_free(sub);
    }
    err = find_error(dir);
    assert_non_null(strstr(err.msg, "name one of them: m0, m1, m2, m3, m4, m5, m6, m7 and 2 more"));
    folder_free(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_a_whole_folder),
        cmocka_unit_test(bf16_files_are_computed_in_bf16),
        cmocka_unit_test(missing_tensor_is_named_with_its_shape),
        cmocka_unit_test(wrong_shape_is_named_with_both),
        cmocka_unit_test(type_that_is_not_computed_is_named),
        cmocka_unit_test(extra_tensors_are_counted),
        cmocka_unit_test(tensors_decide_about_head_norms),
        cmocka_unit_test(tensors_decide_about_biases_in_every_layer),
        cmocka_unit_test(tied_head_is_the_embedding),
        cmocka_unit_test(llada_may_leave_out_the_leading_model),
        cmocka_unit_test(autoregressive_folder_is_called_that_before_its_tokenizer_is_read),
        cmocka_unit_test(template_that_does_not_compile_leaves_the_model),
        cmocka_unit_test(a_template_whose_turns_cannot_end_is_warned_about),
        cmocka_unit_test(a_conversation_becomes_text_and_its_ids),
        cmocka_unit_test(the_configuration_names_another_template),
        cmocka_unit_test(text_becomes_ids_and_back),
        cmocka_unit_test(unknown_dtype_and_device_are_refused),
        cmocka_unit_test(hub_names_are_found_in_the_cache),
        cmocka_unit_test(interrupted_downloads_are_named),
        cmocka_unit_test(snapshots_of_links_are_followed),
        cmocka_unit_test(hub_cache_moves_with_hf_home),
        cmocka_unit_test(bad_model_names_are_explained),
        cmocka_unit_test(only_names_of_the_hub_get_the_hint_to_download),
        cmocka_unit_test(a_folder_of_checkpoints_lists_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
