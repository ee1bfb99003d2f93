/* Makes folders like those of released checkpoints: the real configuration, the special tokens, and shards of the real
 * size with real headers, and holes instead of weights. For the test next to this file, which removes the folders. */
#ifndef TESTS_RELEASED_FOLDER_H
#define TESTS_RELEASED_FOLDER_H

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

#define SHARD_BYTES 5000000000LL

/* ---- Files ------------------------------------------------------------------------------------------------------- */

/* tests/data/released/NAME.json */
static inline json_t *released_json(const char *name) {
    char path[256];
    json_t *json = NULL;
    um_err err = {0};
    snprintf(path, sizeof path, "tests/data/released/%s.json", name);
    if (um_json_load(&json, path, &err)) fail_msg("%s", err.msg);
    return json;
}

static inline void write_json(const char *dir, const char *name, const json_t *value) {
    char *path = um_path_join(dir, name);
    if (json_dump_file(value, path, JSON_COMPACT)) fail_msg("%s: %s", path, strerror(errno));
    um_free(path);
}

static inline int64_t number(const json_t *config, const char *key) {
    return json_integer_value(json_object_get(config, key));
}

/* ---- Shards ------------------------------------------------------------------------------------------------------ */

/* The shards that are being written. A tensor that does not fit begins the next shard. */
typedef struct shards {
    const char *dir;
    json_t *header, *map; /* header of the current shard; map from tensors to files */
    int64_t bytes, total;
    int n;
} shards;

static inline void shard_name(char out[64], int n) { snprintf(out, 64, "model-%05d.safetensors", n); }

/* Writes a shard: eight bytes of length, the header, and a hole. */
static inline void end_shard(shards *s) {
    char name[64];
    shard_name(name, s->n);
    char *path = um_path_join(s->dir, name), *text = json_dumps(s->header, JSON_COMPACT);
    uint64_t length = strlen(text);
    unsigned char prefix[8];
    for (int i = 0; i < 8; i++) prefix[i] = (unsigned char)(length >> (8 * i));
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(prefix, 1, sizeof prefix, f) + fwrite(text, 1, length, f), sizeof prefix + length);
    assert_int_equal(fclose(f), 0);
    if (truncate(path, (off_t)(sizeof prefix + length) + s->bytes))
        fail_msg("%s can't be made %lld bytes long: %s", path, (long long)s->bytes, strerror(errno));
    free(text);
    um_free(path);
    json_decref(s->header);
    s->header = json_object();
    s->bytes = 0;
    s->n++;
}

static inline void put_tensor(shards *s, const char *type, int64_t rows, int64_t columns, const char *name) {
    char file[64];
    int64_t bytes = rows * (columns ? columns : 1) * (um_streq(type, "F32") ? 4 : 2);
    if (s->bytes && s->bytes + bytes > SHARD_BYTES) end_shard(s);
    json_t *shape =
        columns ? json_pack("[II]", (json_int_t)rows, (json_int_t)columns) : json_pack("[I]", (json_int_t)rows);
    json_t *offsets = json_pack("[II]", (json_int_t)s->bytes, (json_int_t)(s->bytes + bytes));
    json_object_set_new(s->header, name,
                        json_pack("{ssso so}", "dtype", type, "shape", shape, "data_offsets", offsets));
    shard_name(file, s->n);
    json_object_set_new(s->map, name, json_string(file));
    s->bytes += bytes;
    s->total += bytes;
}

/* Adds a matrix, or a vector if columns is 0. */
UM_PRINTF(4, 5) static inline void put(shards *s, int64_t rows, int64_t columns, const char *pattern, ...) {
    char name[160];
    va_list args;
    va_start(args, pattern);
    vsnprintf(name, sizeof name, pattern, args);
    va_end(args);
    put_tensor(s, "BF16", rows, columns, name);
}

static inline void end_shards(shards *s) {
    end_shard(s);
    json_t *index = json_pack("{s{sI} so}", "metadata", "total_size", (json_int_t)s->total, "weight_map", s->map);
    write_json(s->dir, "model.safetensors.index.json", index);
    json_decref(index);
    json_decref(s->header);
}

/* ---- Tensors, as the releases name them -------------------------------------------------------------------------- */

static inline void put_llada(shards *s, const json_t *c) {
    const int64_t H = number(c, "d_model"), F = number(c, "mlp_hidden_size"), V = number(c, "embedding_size");
    const int64_t KV = H / number(c, "n_heads") * number(c, "n_kv_heads");
    put(s, V, H, "model.transformer.wte.weight");
    for (int n = 0; n < number(c, "n_layers"); n++) {
        put(s, H, 0, "model.transformer.blocks.%d.attn_norm.weight", n);
        put(s, H, H, "model.transformer.blocks.%d.q_proj.weight", n);
        put(s, KV, H, "model.transformer.blocks.%d.k_proj.weight", n);
        put(s, KV, H, "model.transformer.blocks.%d.v_proj.weight", n);
        put(s, H, H, "model.transformer.blocks.%d.attn_out.weight", n);
        put(s, H, 0, "model.transformer.blocks.%d.ff_norm.weight", n);
        put(s, F, H, "model.transformer.blocks.%d.ff_proj.weight", n);
        put(s, F, H, "model.transformer.blocks.%d.up_proj.weight", n);
        put(s, H, F, "model.transformer.blocks.%d.ff_out.weight", n);
    }
    put(s, H, 0, "model.transformer.ln_f.weight");
    put(s, V, H, "model.transformer.ff_out.weight");
}

static inline void put_feed_forward(shards *s, int64_t H, int64_t F, const char *where) {
    put(s, F, H, "%s.gate_proj.weight", where);
    put(s, F, H, "%s.up_proj.weight", where);
    put(s, H, F, "%s.down_proj.weight", where);
}

static inline void put_experts(shards *s, const json_t *c, int n, int64_t width) {
    char where[96];
    const int64_t H = number(c, "hidden_size"), E = number(c, "num_experts");
    put(s, E, H, "model.layers.%d.mlp.gate.weight", n);
    for (int64_t e = 0; e < E; e++) {
        snprintf(where, sizeof where, "model.layers.%d.mlp.experts.%d", n, (int)e);
        put_feed_forward(s, H, width, where);
    }
}

/* Qwen2's layers have biases on queries, keys and values; Qwen3's and LLaDA-MoE's have norms of queries and keys. */
static inline void put_llama(shards *s, const json_t *c) {
    const char *architecture = json_string_value(json_array_get(json_object_get(c, "architectures"), 0));
    const bool qwen2 = um_streq(architecture, "DreamModel") || um_streq(architecture, "Fast_dLLM_QwenForCausalLM") ||
                       json_is_true(json_object_get(c, "attention_bias"));
    const bool llama =
        um_streq(architecture, "ILLaDAForCausalLM") || um_streq(architecture, "StableDiffcoderForCausalLM");
    const int64_t H = number(c, "hidden_size"), V = number(c, "vocab_size"), heads = number(c, "num_attention_heads");
    const int64_t D = number(c, "head_dim") ? number(c, "head_dim") : H / heads;
    const int64_t Q = heads * D, KV = number(c, "num_key_value_heads") * D;
    const int64_t llada_moe = number(c, "expert_intermediate_size");
    const int64_t expert = llada_moe ? llada_moe : number(c, "moe_intermediate_size");
    char where[96];
    put(s, V, H, "model.embed_tokens.weight");
    for (int n = 0; n < number(c, "num_hidden_layers"); n++) {
        put(s, H, 0, "model.layers.%d.input_layernorm.weight", n);
        put(s, H, 0, "model.layers.%d.post_attention_layernorm.weight", n);
        put(s, Q, H, "model.layers.%d.self_attn.q_proj.weight", n);
        put(s, KV, H, "model.layers.%d.self_attn.k_proj.weight", n);
        put(s, KV, H, "model.layers.%d.self_attn.v_proj.weight", n);
        put(s, H, Q, "model.layers.%d.self_attn.o_proj.weight", n);
        if (qwen2) {
            put(s, Q, 0, "model.layers.%d.self_attn.q_proj.bias", n);
            put(s, KV, 0, "model.layers.%d.self_attn.k_proj.bias", n);
            put(s, KV, 0, "model.layers.%d.self_attn.v_proj.bias", n);
        } else if (!llama) {
            put(s, D, 0, "model.layers.%d.self_attn.q_norm.weight", n);
            put(s, D, 0, "model.layers.%d.self_attn.k_norm.weight", n);
        }
        snprintf(where, sizeof where, "model.layers.%d.mlp", n);
        if (expert) put_experts(s, c, n, expert);
        else put_feed_forward(s, H, number(c, "intermediate_size"), where);
    }
    put(s, H, 0, "model.norm.weight");
    if (!json_is_true(json_object_get(c, "tie_word_embeddings"))) put(s, V, H, "lm_head.weight");
}

static inline void put_llada2(shards *s, const json_t *c) {
    const int64_t H = number(c, "hidden_size"), V = number(c, "vocab_size"), D = number(c, "head_dim");
    const int64_t Q = number(c, "num_attention_heads") * D, KV = number(c, "num_key_value_heads") * D;
    const int64_t expert = number(c, "moe_intermediate_size");
    char where[96];
    put(s, V, H, "model.word_embeddings.weight");
    for (int n = 0; n < number(c, "num_hidden_layers"); n++) {
        put(s, H, 0, "model.layers.%d.input_layernorm.weight", n);
        put(s, H, 0, "model.layers.%d.post_attention_layernorm.weight", n);
        put(s, Q + 2 * KV, H, "model.layers.%d.attention.query_key_value.weight", n);
        put(s, D, 0, "model.layers.%d.attention.query_layernorm.weight", n);
        put(s, D, 0, "model.layers.%d.attention.key_layernorm.weight", n);
        put(s, H, Q, "model.layers.%d.attention.dense.weight", n);
        snprintf(where, sizeof where, "model.layers.%d.mlp", n);
        if (n < number(c, "first_k_dense_replace")) {
            put_feed_forward(s, H, number(c, "intermediate_size"), where);
            continue;
        }
        put_experts(s, c, n, expert);
        snprintf(where, sizeof where, "model.layers.%d.mlp.gate.expert_bias", n);
        put_tensor(s, "F32", number(c, "num_experts"), 0, where);
        snprintf(where, sizeof where, "model.layers.%d.mlp.shared_experts", n);
        put_feed_forward(s, H, expert * number(c, "num_shared_experts"), where);
    }
    put(s, H, 0, "model.norm.weight");
    put(s, V, H, "lm_head.weight");
}

static inline void put_nemotron(shards *s, const json_t *c) {
    const int64_t H = number(c, "hidden_size"), V = number(c, "vocab_size"), D = number(c, "head_dim");
    const int64_t Q = number(c, "num_attention_heads") * D, KV = number(c, "num_key_value_heads") * D;
    char where[96];
    put(s, V, H, "encoder.embed_tokens.weight");
    for (int n = 0; n < number(c, "num_hidden_layers"); n++) {
        put(s, H, 0, "encoder.layers.%d.input_layernorm.weight", n);
        put(s, H, 0, "encoder.layers.%d.post_attention_layernorm.weight", n);
        put(s, Q, H, "encoder.layers.%d.self_attn.q_proj.weight", n);
        put(s, KV, H, "encoder.layers.%d.self_attn.k_proj.weight", n);
        put(s, KV, H, "encoder.layers.%d.self_attn.v_proj.weight", n);
        put(s, H, Q, "encoder.layers.%d.self_attn.o_proj.weight", n);
        if (!json_object_get(c, "rope_parameters")) { /* Qwen3's layout */
            put(s, D, 0, "encoder.layers.%d.self_attn.q_norm.weight", n);
            put(s, D, 0, "encoder.layers.%d.self_attn.k_norm.weight", n);
        }
        snprintf(where, sizeof where, "encoder.layers.%d.mlp", n);
        put_feed_forward(s, H, number(c, "intermediate_size"), where);
    }
    put(s, H, 0, "encoder.norm.weight");
    put(s, V, H, "diffusion_head.weight");
}

/* Adds a stack of matrices. */
UM_PRINTF(5, 6)
static inline void put_stack(shards *s, int64_t n, int64_t rows, int64_t columns, const char *pattern, ...) {
    char name[160];
    va_list args;
    va_start(args, pattern);
    vsnprintf(name, sizeof name, pattern, args);
    va_end(args);
    put_tensor(s, "BF16", n * rows, columns, name);
    json_object_set_new(json_object_get(s->header, name), "shape",
                        json_pack("[III]", (json_int_t)n, (json_int_t)rows, (json_int_t)columns));
}

static inline void put_gemma_layer(shards *s, const json_t *c, int n, const char *where) {
    static const char *const norms[] = {"input_layernorm",
                                        "post_attention_layernorm",
                                        "pre_feedforward_layernorm",
                                        "pre_feedforward_layernorm_2",
                                        "post_feedforward_layernorm",
                                        "post_feedforward_layernorm_1",
                                        "post_feedforward_layernorm_2"};
    const bool full = n % 6 == 5;
    const int64_t H = number(c, "hidden_size"), D = number(c, full ? "global_head_dim" : "head_dim"),
                  Q = number(c, "num_attention_heads") * D,
                  KV = number(c, full ? "num_global_key_value_heads" : "num_key_value_heads") * D,
                  E = number(c, "num_experts"), F = number(c, "moe_intermediate_size");
    char mlp[96];
    for (size_t i = 0; i < UM_LEN(norms); i++) put(s, H, 0, "%s.%s.weight", where, norms[i]);
    put(s, Q, H, "%s.self_attn.q_proj.weight", where);
    put(s, KV, H, "%s.self_attn.k_proj.weight", where);
    if (!full) put(s, KV, H, "%s.self_attn.v_proj.weight", where);
    put(s, H, Q, "%s.self_attn.o_proj.weight", where);
    put(s, D, 0, "%s.self_attn.q_norm.weight", where);
    put(s, D, 0, "%s.self_attn.k_norm.weight", where);
    snprintf(mlp, sizeof mlp, "%s.mlp", where);
    put_feed_forward(s, H, number(c, "intermediate_size"), mlp);
    put_stack(s, E, 2 * F, H, "%s.experts.gate_up_proj", where);
    put_stack(s, E, H, F, "%s.experts.down_proj", where);
    put(s, E, H, "%s.router.proj.weight", where);
    put(s, H, 0, "%s.router.scale", where);
    put(s, E, 0, "%s.router.per_expert_scale", where);
    put(s, 1, 0, "%s.layer_scalar", where);
    put(s, 1, 0, "model.encoder.language_model.layers.%d.layer_scalar", n);
}

static inline void put_gemma(shards *s, const json_t *c) {
    const int64_t H = number(c, "hidden_size");
    char where[64];
    put(s, number(c, "vocab_size"), H, "model.decoder.embed_tokens.weight");
    put(s, H, 0, "model.decoder.norm.weight");
    put(s, H, 0, "model.decoder.self_conditioning.pre_norm.weight");
    put_feed_forward(s, H, number(c, "intermediate_size"), "model.decoder.self_conditioning");
    for (int n = 0; n < number(c, "num_hidden_layers"); n++) {
        snprintf(where, sizeof where, "model.decoder.layers.%d", n);
        put_gemma_layer(s, c, n, where);
    }
}

static inline void write_weights(const char *dir, const json_t *config) {
    shards s = {.dir = dir, .header = json_object(), .map = json_object(), .n = 1};
    if (json_object_get(config, "d_model")) put_llada(&s, config);
    else if (json_object_get(config, "score_function")) put_llada2(&s, config);
    else if (json_object_get(config, "dlm_paradigm")) put_nemotron(&s, config);
    else if (json_object_get(config, "canvas_length")) put_gemma(&s, json_object_get(config, "text_config"));
    else put_llama(&s, config);
    end_shards(&s);
}

/* ---- Folders ----------------------------------------------------------------------------------------------------- */

/* Writes a vocabulary of one word and the special tokens at their ids. */
static inline void write_tokenizer(const char *dir, const json_t *tokens, const json_t *special) {
    json_t *added = json_array(), *id;
    const char *text;
    json_object_foreach((json_t *)tokens, text, id)
        json_array_append_new(added, json_pack("{sO ss sb sb sb sb sb}", "id", id, "content", text, "single_word", 0,
                                               "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1));
    json_t *tokenizer =
        json_pack("{ss so s{ss} s{ss s{si} ss}}", "version", "1.0", "added_tokens", added, "pre_tokenizer", "type",
                  "WhitespaceSplit", "model", "type", "WordLevel", "vocab", "word", 100, "unk_token", "word");
    assert_non_null(tokenizer);
    write_json(dir, "tokenizer.json", tokenizer);
    write_json(dir, "tokenizer_config.json", special);
    json_decref(tokenizer);
}

/* Makes the folder of one of `releases` below `root`; the caller frees its path. Writes the weights of a configuration
 * once, and the other files each time. */
static inline char *released_folder(const char *root, const json_t *releases, const json_t *release) {
    const char *name = json_string_value(json_object_get(release, "config"));
    const char *tokens = json_string_value(json_object_get(release, "tokens"));
    json_t *config = released_json(name), *generation = json_object_get(release, "generation");
    char *dir = um_path_join(root, name);
    if (mkdir(dir, 0777) == 0) write_weights(dir, config);
    json_object_update(config, json_object_get(release, "change"));
    write_json(dir, "config.json", config);
    write_tokenizer(dir, json_object_get(json_object_get(releases, "tokens"), tokens),
                    json_object_get(release, "special"));
    if (generation) write_json(dir, "generation_config.json", generation);
    json_decref(config);
    return dir;
}

#endif
