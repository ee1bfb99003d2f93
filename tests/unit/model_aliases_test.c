/* Tests of DiffusionGemma's folders: the factors of its two modes, tensors with the name of either mode, and tensors
 * that are not read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model_folder.h"

enum { V = 40, SPECS_MAX = 160 };

static const char config_text[] =
    "{'architectures':['DiffusionGemmaForBlockDiffusion'],'canvas_length':8,'text_config':{'hidden_size':8,"
    "'intermediate_size':12,'num_hidden_layers':2,'layer_types':['sliding_attention','full_attention'],"
    "'num_attention_heads':2,'num_key_value_heads':1,'head_dim':4,'global_head_dim':8,"
    "'num_global_key_value_heads':1,'num_experts':4,'top_k_experts':2,'moe_intermediate_size':4,'sliding_window':8,"
    "'final_logit_softcapping':30.0,'rms_norm_eps':1e-6,'vocab_size':40,'max_position_embeddings':64,"
    "'hidden_activation':'gelu_pytorch_tanh','eos_token_id':1,'rope_parameters':{'sliding_attention':{"
    "'rope_theta':10000.0},'full_attention':{'rope_theta':1000000.0}}}}";

#define MAIN  "model.decoder."
#define ALIAS "model.encoder.language_model."

/* ---- A checkpoint as a list of tensors --------------------------------------------------------------------------- */

typedef struct spec {
    char name[96];
    um_tensor t; /* its shape */
    int seed;    /* tensors with the same seed and shape have the same values */
} spec;

typedef struct checkpoint {
    char *dir;
    spec t[SPECS_MAX];
    int n;
} checkpoint;

static um_status add_listed(void *arg, const um_tensor *t, um_err *err) {
    checkpoint *c = (checkpoint *)arg;
    (void)err;
    assert_true(c->n < SPECS_MAX);
    spec *to = &c->t[c->n];
    snprintf(to->name, sizeof to->name, "%s", t->name);
    to->t = *t;
    to->seed = c->n++;
    return UM_OK;
}

/* Returns a folder with the configuration and the tokenizer. Its tensors are listed, not written. */
static checkpoint new_checkpoint(void) {
    checkpoint c = {.dir = folder_new()};
    um_arch a;
    um_err err = {0};
    json_t *config = json_of(config_text);
    if (um_arch_parse(&a, config, "config.json", NULL, &err)) fail_msg("%s", err.msg);
    json_decref(config);
    char *text = quoted(config_text);
    folder_write_text(c.dir, "config.json", text);
    um_free(text);
    folder_write_tokenizer(c.dir, V, "{}");
    if (um_arch_tensors(&a, add_listed, &c, &err)) fail_msg("%s", err.msg);
    return c;
}

static spec *tensor(checkpoint *c, const char *name) {
    for (int i = 0; i < c->n; i++)
        if (!strcmp(c->t[i].name, name)) return &c->t[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

static spec *add_copy(checkpoint *c, const char *name, const char *of) {
    spec *t = &c->t[c->n++];
    assert_true(c->n <= SPECS_MAX);
    *t = *tensor(c, of);
    snprintf(t->name, sizeof t->name, "%s", name);
    return t;
}

static void take_away(checkpoint *c, const char *name) { *tensor(c, name) = c->t[--c->n]; }

/* Writes the tensors [first, end) to a file in fp32. */
static void write_file(const checkpoint *c, const char *file, int first, int end) {
    um_buf header = {0}, data = {0};
    for (int i = first; i < end; i++) {
        const spec *s = &c->t[i];
        const size_t from = data.len, n = um_tensor_elements(&s->t);
        for (size_t k = 0; k < n; k++) {
            const float v = (float)((k * 7 + (size_t)s->seed) % 11) / 16;
            um_buf_append(&data, (const char *)&v, sizeof v);
        }
        um_buf_printf(&header, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[", i > first ? "," : "{", s->name);
        for (int d = 0; d < s->t.n_dims; d++) um_buf_printf(&header, "%s%lld", d ? "," : "", (long long)s->t.dim[d]);
        um_buf_printf(&header, "],\"data_offsets\":[%zu,%zu]}", from, data.len);
    }
    um_buf_puts(&header, "}");
    folder_write_safetensors(c->dir, file, header.data, data.data, data.len);
    um_buf_free(&header);
    um_buf_free(&data);
}

static void write_weights(const checkpoint *c) { write_file(c, "model.safetensors", 0, c->n); }

/* Writes the last n tensors to a shard of their own. */
static void write_shards(const checkpoint *c, int n) {
    um_buf index = {0};
    write_file(c, "a.safetensors", 0, c->n - n);
    write_file(c, "b.safetensors", c->n - n, c->n);
    um_buf_puts(&index, "{\"weight_map\":{");
    for (int i = 0; i < c->n; i++)
        um_buf_printf(&index, "%s\"%s\":\"%s.safetensors\"", i ? "," : "", c->t[i].name, i < c->n - n ? "a" : "b");
    um_buf_puts(&index, "}}");
    folder_write(c->dir, "model.safetensors.index.json", index.data, index.len);
    um_buf_free(&index);
}

/* ---- Opening it -------------------------------------------------------------------------------------------------- */

static um_status open_dir(um_model **m, const char *dir, um_err *err) {
    um_config c;
    um_config_init(&c);
    c.model = dir;
    c.max_num_batched_tokens = 16;
    c.threads = 1;
    strcpy(c.device, "ref");
    return um_model_open(m, &c, err);
}

/* Opens the written folder and returns the log messages. Releases the checkpoint. */
static um_buf opens(checkpoint *c) {
    um_model *m;
    um_err err = {0};
    const int old = catch_stderr(c->dir);
    const um_status s = open_dir(&m, c->dir, &err);
    um_buf said = release_stderr(c->dir, old);
    if (s) fail_msg("%s", err.msg);
    assert_int_equal(m->n_params, um_arch_params(&m->arch));
    um_model_close(m);
    folder_free(c->dir);
    return said;
}

static void opens_in_silence(checkpoint *c) {
    um_buf said = opens(c);
    if (said.len) fail_msg("expected no message, found \"%s\"", said.data);
    um_buf_free(&said);
}

/* Checks that the written folder is refused with all parts of a message. Releases the checkpoint. */
static void refuses(checkpoint *c, um_status want, const char *const *part, size_t n) {
    um_model *m;
    um_err err = {0};
    const um_status s = open_dir(&m, c->dir, &err);
    if (s != want) fail_msg("status %d, expected %d: %s", s, want, err.msg);
    assert_null(m);
    for (size_t i = 0; i < n; i++) assert_says(&err, part[i]);
    folder_free(c->dir);
}

#define REFUSES(c, want, ...)                                                                                          \
    do {                                                                                                               \
        static const char *const parts[] = {__VA_ARGS__};                                                              \
        refuses(c, want, parts, UM_LEN(parts));                                                                        \
    } while (0)

/* ---- Factors of both modes --------------------------------------------------------------------------------------- */

static void factors_of_both_modes_are_needed(void **state) {
    (void)state;
    checkpoint c = new_checkpoint();
    write_weights(&c);
    opens_in_silence(&c);
    c = new_checkpoint();
    take_away(&c, ALIAS "layers.1.layer_scalar");
    write_weights(&c);
    REFUSES(&c, UM_EMODEL, "tensor " ALIAS "layers.1.layer_scalar: expected [1]", "no file of");
    c = new_checkpoint();
    take_away(&c, MAIN "layers.0.layer_scalar");
    write_weights(&c);
    REFUSES(&c, UM_EMODEL, "tensor " MAIN "layers.0.layer_scalar: expected [1]", "no file of");
}

static void a_factor_that_is_stored_twice_is_refused(void **state) {
    (void)state;
    checkpoint c = new_checkpoint();
    add_copy(&c, ALIAS "layers.0.layer_scalar", ALIAS "layers.0.layer_scalar");
    write_shards(&c, 1);
    REFUSES(&c, UM_EMODEL, "tensor " ALIAS "layers.0.layer_scalar is stored twice", "a.safetensors", "b.safetensors");
    c = new_checkpoint();
    add_copy(&c, ALIAS "layers.0.layer_scalar", ALIAS "layers.0.layer_scalar");
    write_weights(&c);
    REFUSES(&c, UM_EPARSE, "duplicate key \"" ALIAS "layers.0.layer_scalar\"");
    c = new_checkpoint();
    tensor(&c, ALIAS "layers.0.layer_scalar")->t.dim[0] = 2;
    write_weights(&c);
    REFUSES(&c, UM_EMODEL, "tensor " ALIAS "layers.0.layer_scalar: expected [1] from config.json, found [2]");
}

/* ---- Tensors of both modes --------------------------------------------------------------------------------------- */

static void shared_tensors_may_have_the_name_of_the_encoder(void **state) {
    (void)state;
    checkpoint c = new_checkpoint();
    for (int i = 0; i < c.n; i++) {
        char name[sizeof c.t[i].name];
        if (strncmp(c.t[i].name, MAIN, sizeof MAIN - 1) || strstr(c.t[i].name, "layer_scalar")) continue;
        snprintf(name, sizeof name, ALIAS "%s", c.t[i].name + sizeof MAIN - 1);
        strcpy(c.t[i].name, name);
    }
    write_weights(&c);
    opens_in_silence(&c);
}

static void copies_of_shared_tensors_must_be_equal(void **state) {
    (void)state;
    static const char *const shared[] = {"embed_tokens.weight", "layers.1.experts.down_proj", "norm.weight"};
    checkpoint c = new_checkpoint();
    for (size_t i = 0; i < UM_LEN(shared); i++) {
        char name[2][96];
        snprintf(name[0], sizeof name[0], ALIAS "%s", shared[i]);
        snprintf(name[1], sizeof name[1], MAIN "%s", shared[i]);
        add_copy(&c, name[0], name[1]);
    }
    write_weights(&c);
    opens_in_silence(&c);
    c = new_checkpoint();
    add_copy(&c, ALIAS "layers.1.experts.down_proj", MAIN "layers.1.experts.down_proj")->seed++;
    write_shards(&c, 1);
    REFUSES(&c, UM_EMODEL,
            "tensor " ALIAS "layers.1.experts.down_proj in b.safetensors differs from " MAIN
            "layers.1.experts.down_proj in a.safetensors");
    c = new_checkpoint();
    add_copy(&c, ALIAS "norm.weight", MAIN "norm.weight")->t.dim[0] = 4;
    write_weights(&c);
    REFUSES(&c, UM_EMODEL, ALIAS "norm.weight", MAIN "norm.weight", "differs");
}

/* ---- Tensors that are not read ----------------------------------------------------------------------------------- */

static int count_of(const um_buf *text, const char *part) {
    int n = 0;
    for (const char *p = text->data; (p = strstr(p, part)); p++) n++;
    return n;
}

static void the_vision_tower_is_mentioned_once(void **state) {
    (void)state;
    checkpoint c = new_checkpoint();
    add_copy(&c, "model.encoder.vision_tower.a.weight", MAIN "norm.weight");
    add_copy(&c, "model.encoder.vision_tower.b.weight", MAIN "norm.weight");
    add_copy(&c, "model.encoder.embed_vision.embedding_projection.weight", MAIN "norm.weight");
    write_weights(&c);
    um_log_set_level(UM_LOG_INFO);
    um_buf said = opens(&c);
    assert_int_equal(count_of(&said, "3 tensors of the vision tower (images are not supported) are not read"), 1);
    assert_int_equal(count_of(&said, "vision"), 1);
    assert_int_equal(count_of(&said, "not used"), 0);
    um_buf_free(&said);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(factors_of_both_modes_are_needed),
        cmocka_unit_test(a_factor_that_is_stored_twice_is_refused),
        cmocka_unit_test(shared_tensors_may_have_the_name_of_the_encoder),
        cmocka_unit_test(copies_of_shared_tensors_must_be_equal),
        cmocka_unit_test(the_vision_tower_is_mentioned_once),
    };
    return cmocka_run_group_tests_name("tensors of DiffusionGemma", tests, NULL, NULL);
}
