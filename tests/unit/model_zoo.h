/* Small checkpoints of every family with random weights, for the tests of the model room.
 *
 * The value of a weight depends on its role, layer, expert, row and column, and not on the tensor that contains it. So
 * two layouts of a model contain the same numbers. */
#ifndef TESTS_MODEL_ZOO_H
#define TESTS_MODEL_ZOO_H

#include "model_folder.h"

/* Small configurations of the families. The tokenizer has 241 words, so the special ids are rows without a token. */
#define ZOO_LLAMA(names, more)                                                                                         \
    "{" names ",'hidden_size':64,'intermediate_size':160,'num_hidden_layers':2,'num_attention_heads':4,"               \
    "'num_key_value_heads':2,'vocab_size':256,'max_position_embeddings':256,'rope_theta':1000000.0,"                   \
    "'rope_scaling':null,'rms_norm_eps':1e-6,'hidden_act':'silu','mask_token_id':250,'eos_token_id':240" more "}"
#define ZOO_ILLADA(more)                                                                                               \
    ZOO_LLAMA("'architectures':['ILLaDAForCausalLM'],'model_type':'illada'", ",'tie_word_embeddings':true" more)
#define ZOO_DREAM                                                                                                      \
    ZOO_LLAMA("'architectures':['DreamModel'],'model_type':'Dream'",                                                   \
              ",'tie_word_embeddings':false,'use_sliding_window':false,'use_mrope':false,'max_window_layers':2")
#define ZOO_REASONER(more)                                                                                             \
    ZOO_LLAMA("'architectures':['DreamForCausalLM'],'model_type':'Dream'",                                             \
              ",'tie_word_embeddings':false,'block_size':4" more)
#define ZOO_LLADA_MOE(more)                                                                                            \
    "{'architectures':['LLaDAMoEModelLM'],'model_type':'lladamoe','hidden_size':64,'num_hidden_layers':2,"             \
    "'num_attention_heads':2,'num_key_value_heads':2,'num_experts':8,'num_experts_per_tok':3,"                         \
    "'expert_intermediate_size':32,'dense_intermediate_size':96,'moe_router_score_function':'softmax',"                \
    "'norm_topk_prob':true,'routed_scaling_factor':1,'rope_theta':50000.0,'partial_rotary_factor':1.0,"                \
    "'rope_scaling':null,'qk_layernorm':true,'attention_bias':false,'max_position_embeddings':256,"                    \
    "'rms_norm_eps':1e-5,'vocab_size':256,'hidden_act':'silu','tie_word_embeddings':false,'use_cache':false,"          \
    "'mask_token_id':250,'pad_token_id':249,'eos_token_id':240" more "}"
#define ZOO_LLADA_MOE_A                                                                                                \
    ZOO_LLADA_MOE(",'shared_expert_intermediate_size':null,'moe_layer_freq':[1,1],'clip_qkv':null,"                    \
                  "'moe_router_enable_expert_bias':false")
#define ZOO_LLADA_MOE_B                                                                                                \
    ZOO_LLADA_MOE(",'shared_expert_intermediate_size':48,'moe_layer_freq':[0,1],'clip_qkv':0.8,"                       \
                  "'moe_router_enable_expert_bias':true")
#define ZOO_LLADA2(more)                                                                                               \
    "{'architectures':['LLaDA2MoeModelLM'],'model_type':'llada2_moe','hidden_size':64,'num_hidden_layers':3,"          \
    "'num_attention_heads':4,'num_key_value_heads':2,'head_dim':32,'intermediate_size':160,"                           \
    "'moe_intermediate_size':32,'num_experts':16,'num_experts_per_tok':4,'num_shared_experts':1,'n_group':4,"          \
    "'topk_group':2,'first_k_dense_replace':1,'score_function':'sigmoid','moe_router_enable_expert_bias':true,"        \
    "'router_dtype':'fp32','norm_topk_prob':true,'routed_scaling_factor':2.5,'rms_norm_eps':1e-6,"                     \
    "'rope_theta':600000,'partial_rotary_factor':0.5,'rotary_dim':16,'rope_scaling':null,"                             \
    "'max_position_embeddings':256,'vocab_size':256,'hidden_act':'silu','use_bias':false,'use_qkv_bias':false,"        \
    "'use_qk_norm':true,'use_rmsnorm':true,'norm_head':false,'tie_word_embeddings':false,'mask_token_id':250,"         \
    "'pad_token_id':249,'eos_token_id':240" more "}"
#define ZOO_LLADA22 ZOO_LLADA2(",'expert_capacity':6,'block_size':4,'delete_token_id':251,'split_token_id':252")
#define ZOO_QWEN3_MOE(names, more)                                                                                     \
    "{" names ",'hidden_size':64,'intermediate_size':96,'moe_intermediate_size':32,'num_experts':8,"                   \
    "'num_experts_per_tok':2,'decoder_sparse_step':1,'num_hidden_layers':2,'num_attention_heads':4,"                   \
    "'num_key_value_heads':2,'head_dim':32,'vocab_size':256,'max_position_embeddings':256,'rope_theta':1000000.0,"     \
    "'rms_norm_eps':1e-6,'attention_bias':false,'hidden_act':'silu','tie_word_embeddings':false,"                      \
    "'mask_token_id':250,'eos_token_id':240" more "}"
#define ZOO_SDAR_MOE                                                                                                   \
    ZOO_QWEN3_MOE("'architectures':['SDARMoeForCausalLM'],'model_type':'sdar_moe'",                                    \
                  ",'norm_topk_prob':true,'mlp_only_layers':[0],'rope_scaling':null,'block_size':4")
#define ZOO_RND1(more)                                                                                                 \
    ZOO_QWEN3_MOE("'architectures':['RND1'],'model_type':'rnd1'",                                                      \
                  ",'mlp_only_layers':[],'rope_scaling':false,'sliding_window':false" more)
#define ZOO_WORDS 241

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

typedef struct zoo {
    char *dir;
    um_arch arch;
    bool bare;       /* write the names without the prefix "model." */
    size_t layout;   /* layout of the experts: index into names->experts */
    int router_bias; /* index of the name under which the router's bias is written */
    um_buf header, data;
    size_t from; /* offset of the data of the tensor that is being written */
    float poison;
    const char *quantization; /* option of that name; NULL: its default */
    char poisoned[96];        /* name of the tensor whose third last value is `poison`; "": none */
} zoo;

static inline void zoo_open(zoo *z, const char *pattern, int layer, int expert, const char *suffix) {
    char name[160], *hole = name;
    int number[] = {layer, expert};
    snprintf(name, sizeof name, "%s%s", pattern + (z->bare && !strncmp(pattern, "model.", 6) ? 6 : 0), suffix);
    for (int i = 0; i < 2 && (hole = strstr(name, "%d")); i++) {
        char rest[160];
        snprintf(rest, sizeof rest, "%s", hole + 2);
        snprintf(hole, sizeof name - (size_t)(hole - name), "%d%s", number[i], rest);
    }
    um_buf_printf(&z->header, "%s\"%s\":", z->header.len ? "," : "{", name);
    z->from = z->data.len;
    if (!strcmp(name, z->poisoned)) z->poisoned[0] = '!';
}

static inline void zoo_close(zoo *z, const char *shape) {
    um_buf_printf(&z->header, "{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}", shape, z->from,
                  z->data.len);
    if (z->poisoned[0] != '!') return;
    memcpy(z->data.data + z->data.len - 3 * sizeof(float), &z->poison, sizeof(float));
    z->poisoned[0] = '\0';
}

/* Appends rows * cols random values for a role, uniform in mean - spread .. mean + spread. */
static inline void zoo_fill(zoo *z, const char *role, int layer, int expert, int64_t rows, int64_t cols, float mean,
                            float spread) {
    uint64_t of_role = 0;
    for (const char *p = role; *p; p++) of_role = of_role * 131 + (uint8_t)*p;
    uint64_t key = um_rng_key(of_role, (uint64_t)layer, (uint64_t)expert, 0);
    for (uint64_t i = 0; i < (uint64_t)(rows * cols); i++) {
        float v = mean + spread * (float)(2 * um_rng_uniform(key, i) - 1);
        um_buf_append(&z->data, &v, sizeof v);
    }
}

static inline void zoo_matrix(zoo *z, const char *pattern, const char *role, int layer, int64_t rows, int64_t cols) {
    char shape[64];
    zoo_open(z, pattern, layer, 0, ".weight");
    zoo_fill(z, role, layer, 0, rows, cols, 0, 0.26f);
    snprintf(shape, sizeof shape, "[%d,%d]", (int)rows, (int)cols);
    zoo_close(z, shape);
}

static inline void zoo_vector(zoo *z, const char *pattern, const char *suffix, const char *role, int layer, int64_t n,
                              float mean) {
    char shape[64];
    zoo_open(z, pattern, layer, 0, suffix);
    zoo_fill(z, role, layer, 0, n, 1, mean, 0.35f);
    snprintf(shape, sizeof shape, "[%d]", (int)n);
    zoo_close(z, shape);
}

static inline void zoo_norm(zoo *z, const char *pattern, const char *role, int layer) {
    char bias[32];
    snprintf(bias, sizeof bias, "%s bias", role);
    zoo_vector(z, pattern, ".weight", role, layer, z->arch.hidden, 1);
    if (z->arch.layer_norm) zoo_vector(z, pattern, ".bias", bias, layer, z->arch.hidden, 0);
}

static inline void zoo_attention(zoo *z, int i) {
    const um_arch *a = &z->arch;
    const um_tensor_names *n = a->family->names;
    const int64_t q = a->n_heads * a->head_dim, kv = a->n_kv_heads * a->head_dim;
    zoo_norm(z, n->attn_norm, "attn_norm", i);
    if (n->qkv) {
        char shape[64];
        zoo_open(z, n->qkv, i, 0, ".weight");
        zoo_fill(z, "q", i, 0, q, a->hidden, 0, 0.26f);
        zoo_fill(z, "k", i, 0, kv, a->hidden, 0, 0.26f);
        zoo_fill(z, "v", i, 0, kv, a->hidden, 0, 0.26f);
        snprintf(shape, sizeof shape, "[%d,%d]", (int)(q + 2 * kv), a->hidden);
        zoo_close(z, shape);
    } else {
        zoo_matrix(z, n->q, "q", i, q, a->hidden);
        zoo_matrix(z, n->k, "k", i, kv, a->hidden);
        zoo_matrix(z, n->v, "v", i, kv, a->hidden);
    }
    if (a->qkv_bias) {
        zoo_vector(z, n->q, ".bias", "q bias", i, q, 0);
        zoo_vector(z, n->k, ".bias", "k bias", i, kv, 0);
        zoo_vector(z, n->v, ".bias", "v bias", i, kv, 0);
    }
    zoo_matrix(z, n->o, "o", i, a->hidden, q);
    if (a->o_bias) zoo_vector(z, n->o, ".bias", "o bias", i, a->hidden, 0);
    if (a->qk_norm) zoo_vector(z, n->q_norm, ".weight", "q_norm", i, a->head_dim, 1);
    if (a->qk_norm) zoo_vector(z, n->k_norm, ".weight", "k_norm", i, a->head_dim, 1);
}

static inline void zoo_dense(zoo *z, int i) {
    const um_arch *a = &z->arch;
    const um_tensor_names *n = a->family->names;
    zoo_matrix(z, n->gate, "gate", i, a->n_ff, a->hidden);
    zoo_matrix(z, n->up, "up", i, a->n_ff, a->hidden);
    zoo_matrix(z, n->down, "down", i, a->hidden, a->n_ff);
    if (!a->mlp_bias) return;
    zoo_vector(z, n->gate, ".bias", "gate bias", i, a->n_ff, 0);
    zoo_vector(z, n->up, ".bias", "up bias", i, a->n_ff, 0);
    zoo_vector(z, n->down, ".bias", "down bias", i, a->hidden, 0);
}

/* Writes the tensor of expert `e` or, when stacked, of all experts. `below` is a second matrix under the first one, or
 * NULL. */
static inline void zoo_expert_tensor(zoo *z, const char *pattern, const char *role, const char *below, int i, int e,
                                     bool stacked, int64_t rows, int64_t cols) {
    const int E = z->arch.route.n_experts;
    const int64_t high = below ? 2 * rows : rows;
    char shape[64];
    zoo_open(z, pattern, i, e, "");
    for (int k = stacked ? 0 : e; k < (stacked ? E : e + 1); k++) {
        zoo_fill(z, role, i, k, rows, cols, 0, 0.26f);
        if (below) zoo_fill(z, below, i, k, rows, cols, 0, 0.26f);
    }
    if (stacked) snprintf(shape, sizeof shape, "[%d,%d,%d]", E, (int)high, (int)cols);
    else snprintf(shape, sizeof shape, "[%d,%d]", (int)high, (int)cols);
    zoo_close(z, shape);
}

static inline void zoo_experts(zoo *z, int i) {
    const um_arch *a = &z->arch;
    const um_tensor_names *n = a->family->names;
    const um_expert_names *x = &n->experts[z->layout];
    zoo_matrix(z, n->router, "router", i, a->route.n_experts, a->hidden);
    if (a->route.bias) zoo_vector(z, n->router_bias[z->router_bias], "", "router bias", i, a->route.n_experts, 0);
    for (int e = 0; e < (x->stacked ? 1 : a->route.n_experts); e++) {
        zoo_expert_tensor(z, x->gate, "expert gate", x->up ? NULL : "expert up", i, e, x->stacked, a->expert_ff,
                          a->hidden);
        if (x->up) zoo_expert_tensor(z, x->up, "expert up", NULL, i, e, x->stacked, a->expert_ff, a->hidden);
        zoo_expert_tensor(z, x->down, "expert down", NULL, i, e, x->stacked, a->hidden, a->expert_ff);
    }
    if (!a->shared_ff) return;
    zoo_matrix(z, n->shared_gate, "shared gate", i, a->shared_ff, a->hidden);
    zoo_matrix(z, n->shared_up, "shared up", i, a->shared_ff, a->hidden);
    zoo_matrix(z, n->shared_down, "shared down", i, a->hidden, a->shared_ff);
}

/* Creates a checkpoint in a new folder. Its fields may be changed before zoo_write. */
static inline zoo zoo_new(const char *config) {
    zoo z = {.dir = folder_new()};
    um_err err = {0};
    char *text = quoted(config);
    json_t *json = json_of(config);
    if (um_arch_parse(&z.arch, json, "config.json", NULL, &err)) fail_msg("%s", err.msg);
    folder_write_text(z.dir, "config.json", text);
    folder_write_tokenizer(z.dir, ZOO_WORDS, "{}");
    json_decref(json);
    um_free(text);
    return z;
}

static inline void zoo_write(zoo *z) {
    const um_arch *a = &z->arch;
    const um_tensor_names *n = a->family->names;
    zoo_matrix(z, n->embed, "embed", 0, a->vocab, a->hidden);
    zoo_norm(z, n->final_norm, "final_norm", 0);
    if (!a->tied) zoo_matrix(z, n->head, "head", 0, a->vocab, a->hidden);
    for (int i = 0; i < a->n_layers; i++) {
        zoo_attention(z, i);
        zoo_norm(z, n->ffn_norm, "ffn_norm", i);
        if (um_arch_is_moe(a, i)) zoo_experts(z, i);
        else zoo_dense(z, i);
    }
    um_buf_puts(&z->header, "}");
    folder_write_safetensors(z->dir, "model.safetensors", z->header.data, z->data.data, z->data.len);
    um_buf_free(&z->header);
    um_buf_free(&z->data);
}

/* ---- Running ----------------------------------------------------------------------------------------------------- */

static inline um_status zoo_open_model(const zoo *z, const char *device, int32_t check, um_model **m, um_err *err) {
    um_config c;
    um_config_init(&c);
    c.model = z->dir;
    c.max_num_batched_tokens = 64;
    c.threads = 1;
    c.check_weights = check;
    strcpy(c.device, device);
    strcpy(c.dtype, "float32");
    if (z->quantization) snprintf(c.quantization, sizeof c.quantization, "%s", z->quantization);
    return um_model_open(m, &c, err);
}

static inline um_model *zoo_model(const zoo *z, const char *device) {
    um_model *m;
    um_err err = {0};
    if (zoo_open_model(z, device, UM_CHECK_ERROR, &m, &err)) fail_msg("%s", err.msg);
    return m;
}

enum { ZOO_PAGE = 32, ZOO_TOKENS = 64 };

/* Returns the final hidden rows [sum of n, hidden] of requests with n[i] tokens in one pass (um_free). Token k of a
 * request is (31 number[i] + 7 k) mod 200. Request i uses adapter[i]; NULL: no request uses one. */
static inline float *zoo_run_adapted(um_model *m, int n_requests, const int *n, const int *number, const int *adapter) {
    int32_t id[ZOO_TOKENS], pos[ZOO_TOKENS], slot[ZOO_TOKENS], end[ZOO_TOKENS], page[ZOO_TOKENS], total = 0;
    int32_t save[ZOO_TOKENS][2]; /* a pass computes the rows that are predicted or saved */
    um_span span[8];
    um_err err = {0};
    um_forward *f;
    um_forward_config fc = {.max_tokens = ZOO_TOKENS,
                            .max_rows = 1,
                            .n_saved = ZOO_TOKENS,
                            .page_size = ZOO_PAGE,
                            .n_pages = n_requests,
                            .kv_type = UM_F32};
    const um_visibility rule = {.see = m->arch.see, .block = m->arch.block};
    for (int i = 0; i < n_requests; i++) {
        page[i] = n_requests - 1 - i;
        span[i] = (um_span){.first = total, .n = n[i], .page = &page[i], .keys = {0, n[i]}};
        span[i].adapter = adapter ? adapter[i] : -1;
        for (int k = 0; k < n[i]; k++, total++) {
            id[total] = (31 * number[i] + 7 * k) % 200;
            pos[total] = k;
            slot[total] = page[i] * ZOO_PAGE + k;
            end[total] = UM_MIN(um_visible_end(rule, k), n[i]);
            save[total][0] = save[total][1] = total;
        }
    }
    um_batch b = {.n_tokens = total,
                  .n_spans = n_requests,
                  .n_saves = total,
                  .id = id,
                  .pos = pos,
                  .slot = slot,
                  .seen_end = end,
                  .span = span,
                  .save = (const int32_t(*)[2])save};
    if (m->backend->forward_new(&f, m->device, &m->net, &fc, &err)) fail_msg("%s", err.msg);
    assert_int_equal(m->backend->submit(f, &b, NULL), UM_OK);
    assert_int_equal(m->backend->wait(f, NULL), UM_OK);
    const size_t floats = (size_t)total * (size_t)m->arch.hidden;
    float *hidden = um_alloc(floats * sizeof(float));
    memcpy(hidden, um_host_hidden(f), floats * sizeof(float));
    m->backend->forward_free(f);
    return hidden;
}

static inline float *zoo_run(um_model *m, int n_requests, const int *n, const int *number) {
    return zoo_run_adapted(m, n_requests, n, number, NULL);
}

static inline float *zoo_run_one(um_model *m, int n) { return zoo_run(m, 1, &n, &(int){0}); }

static inline void zoo_done(zoo *z, um_model *m) {
    um_model_close(m);
    folder_free(z->dir);
}

#endif
