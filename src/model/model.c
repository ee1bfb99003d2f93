/* Opens a checkpoint, and converts between text and ids for the public API. */
#include <math.h>
#include <stdlib.h>

#include "model/checkpoint.h"
#include "model/config.h"
#include "model/languages.h"
#include "model/lora.h"
#include "ops/quantize.h"

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

/* Sets the types of products from their names, which are choices of the options' rows. Without files, "auto" means the
 * type that config.json declares. */
static um_status choose_types(um_model *m, const um_config *c, const um_store *s, um_err *err) {
    um_status st = UM_OK;
    const bool is_auto = um_streq(c->dtype, "auto");
    m->dtype = um_streq(is_auto ? m->arch.declared_dtype : c->dtype, "bfloat16") ? UM_BF16 : UM_F32;
    if (is_auto && s) st = um_model_stored_dtype(&m->arch, s, &m->dtype, err);
    m->weight_type = um_streq(c->quantization, "q8")    ? UM_Q8
                     : um_streq(c->quantization, "q4")  ? UM_Q4
                     : um_streq(c->quantization, "fp8") ? UM_F8
                                                        : m->dtype;
    m->has_own_types = um_streq(c->quantization, "auto") && s;
    if (m->has_own_types) m->weight_type = um_model_stored_product(s, m->dtype);
    return st;
}

/* Returns the threads of one engine. The engines of a router compute at the same time, so they share the CPUs. */
static int threads_of(const um_config *c) {
    if (c->threads || c->data_parallel_size <= 1) return c->threads;
    return UM_MAX(um_cpu_count() / c->data_parallel_size, 1);
}

um_dev_config um_arch_sizes(const um_arch *a) {
    um_dev_config c = {.max_in = UM_MAX(a->hidden, a->conditioning_ff),
                       .max_vocab = a->vocab,
                       .max_hidden = a->hidden,
                       .max_experts = a->route.n_experts,
                       .max_top_k = a->route.top_k};
    for (int32_t i = 0; i < a->n_kinds; i++) {
        const um_arch_kind *k = &a->kind[i];
        c.max_in =
            UM_MAX(c.max_in, UM_MAX(k->n_heads * k->head_dim, UM_MAX(UM_MAX(k->n_ff, k->shared_ff), k->expert_ff)));
        c.max_head_dim = UM_MAX(c.max_head_dim, k->head_dim);
        c.max_heads = UM_MAX(c.max_heads, k->n_heads);
        c.max_expert_ff = UM_MAX(c.max_expert_ff, k->expert_ff);
    }
    return c;
}

/* Opens the device with scratch memory for the largest pass of this model. */
static um_status open_device(um_model *m, const um_config *c, um_err *err) {
    um_dev_config config = um_arch_sizes(&m->arch);
    config.number = m->number;
    config.rank_number = m->rank_number;
    config.threads = threads_of(c);
    config.pin = c->pin;
    config.dtype = m->dtype;
    config.weights = m->weight_type;
    config.deterministic = c->deterministic;
    config.eager = c->enforce_eager;
    config.max_tokens = config.max_rows = m->max_tokens;
    config.max_in = UM_MAX(config.max_in, m->rank_max);
    um_status s = m->backend->open(&m->device, m->backend, &config, err);
    if (!s || m->backend->ops || m->place.n > 1) return s; /* another rank may be the reason */
    return um_fail_in(err, "device \"%s\" can't be used (--device cpu works)", c->device);
}

/* Returns an earlier engine with the same device, or -1. */
static int32_t same_device(const um_device_list *list, int32_t engine) {
    for (int32_t i = 0; i < engine; i++)
        if (list->number[i * list->n_own] == list->number[engine * list->n_own]) return i;
    return -1;
}

/* Creates the copies of the model for the devices of the other engines. None has a device or weights yet. */
static um_status choose_devices(um_model *m, const um_config *c, um_err *err) {
    um_device_list list;
    um_status s = um_model_devices(&list, c, err);
    if (s) return s;
    m->devices = list;
    m->backend = m->devices.backend;
    m->n_ranks = list.n_ranks;
    m->net.expert_parallel = c->enable_expert_parallel;
    s = um_arch_check_ranks(&m->arch, m->n_ranks, c->enable_expert_parallel, err);
    if (s) return s;
    if (m->n_ranks > 1) {
        um_ranks_backend_new(&m->group, m->backend, m->n_ranks, (double)c->distributed_timeout_seconds);
        m->backend = m->group;
    }
    if (!um_backend_is_host(m->backend)) {
        if (m->weight_type == UM_F8 && m->dtype != UM_BF16)
            return um_fail_param(err, UM_EUNSUPPORTED, "quantization", "fp8 needs --dtype bfloat16, found %s",
                                 um_dtype_name(m->dtype));
        if (um_is_quantized(m->weight_type) && !m->has_own_types)
            return um_fail_param(err, UM_EUNSUPPORTED, "quantization", "%s needs device cpu, found %s", c->quantization,
                                 c->device);
        if (m->weight_type != UM_F8) m->weight_type = m->dtype;
        m->has_own_types = false;
    } else if (m->weight_type == UM_F8) {
        return um_fail_param(err, UM_EUNSUPPORTED, "quantization", "fp8 needs device cuda, found %s", c->device);
    } else {
        um_adapters_reserve(m, c->max_loras, c->max_lora_rank);
    }
    m->net.rank_max = m->merged ? 0 : m->rank_max;
    m->max_tokens = um_config_step_tokens(c, &m->arch, um_backend_is_host(m->backend));
    for (int32_t i = 0; i < m->devices.n; i++) {
        const int32_t same = same_device(&m->devices, i);
        m->on[i] = i == 0 ? m : same >= 0 ? m->on[same] : UM_NEW(um_model);
        if (i > 0 && same < 0) {
            *m->on[i] = *m;
            m->on[i]->n_sharing = 0;
        }
        m->on[i]->number = m->devices.number[i * list.n_own];
        m->on[i]->rank_number = &m->devices.number[i * list.n_own];
        m->on[i]->n_sharing++;
    }
    return UM_OK;
}

um_model *um_model_for(um_model *m, int32_t engine) { return engine < m->devices.n ? m->on[engine] : m; }

/* Returns whether engine i is the first one on its device. */
static bool is_first_on_device(const um_model *m, int32_t i) { return same_device(&m->devices, i) < 0; }

/* ---- Rotary tables ----------------------------------------------------------------------------------------------- */

/* Copies a table [rows, cols] to the device. */
static um_status load_table(um_model *m, um_vector **out, const float *table, size_t rows, size_t cols, um_err *err) {
    const um_tensor t = {.type = UM_F32, .n_dims = 2, .dim = {(int64_t)rows, (int64_t)cols}, .data = table};
    um_status s = m->backend->vector(m->device, out, &t, 1, "rotary tables", err);
    if (!s) m->weight_bytes += um_mul(um_mul(rows, cols), sizeof(float));
    return s;
}

/* Fills one rotary table with cos or sin of position * frequency, times `by`. Frequency and angle are rounded to fp32,
 * as in the reference. The function is evaluated in double, so that differences between math libraries can't change a
 * token. */
static um_status load_rotary(um_model *m, const um_arch_kind *kind, um_vector **out, double (*function)(double),
                             um_err *err) {
    const um_arch *a = &m->arch;
    const size_t half = (size_t)kind->rope_dim / 2, n = um_mul((size_t)a->max_position, half);
    const float by = um_arch_rotary_scale(a);
    float *table;
    void *p = NULL;
    um_status s = um_try_alloc(&p, um_mul(n, sizeof(float)), 64, "rotary tables", err);
    if (s) return s;
    table = (float *)p;
    for (size_t i = 0; i < half; i++) {
        const float frequency = um_arch_frequency(a, kind, (int32_t)i);
        for (size_t k = 0; k < (size_t)a->max_position; k++) {
            float angle = (float)k * frequency;
            table[k * half + i] = (float)function((double)angle) * by;
        }
    }
    s = load_table(m, out, table, (size_t)a->max_position, half, err);
    um_free(table);
    return s;
}

/* Loads the weight of norms that have none. */
static um_status load_ones(um_model *m, um_err *err) {
    const um_dev_config sizes = um_arch_sizes(&m->arch);
    const size_t n = (size_t)UM_MAX(sizes.max_hidden, sizes.max_head_dim);
    bool is_used = m->arch.conditioning_ff > 0;
    for (int32_t i = 0; i < m->arch.n_kinds; i++) is_used |= m->arch.kind[i].v_norm;
    if (!is_used) return UM_OK;
    float *ones = UM_NEW_ARRAY(float, n);
    for (size_t i = 0; i < n; i++) ones[i] = 1;
    um_status s = load_table(m, &m->net.ones, ones, 1, n, err);
    um_free(ones);
    return s;
}

/* Loads the factors of queries, if the architecture has them. */
static um_status load_query_factors(um_model *m, um_vector **out, um_err *err) {
    const um_arch *a = &m->arch;
    void *p = NULL;
    if (a->query_beta == 0) return UM_OK;
    um_status s = um_try_alloc(&p, um_mul((size_t)a->max_position, sizeof(float)), 64, "rotary tables", err);
    for (int32_t k = 0; !s && k < a->max_position; k++)
        ((float *)p)[k] = (float)(1 + a->query_beta * log(1 + k / a->yarn.original));
    if (!s) s = load_table(m, out, (const float *)p, (size_t)a->max_position, 1, err);
    um_free(p);
    return s;
}

/* Two kinds use the same rotary table when their heads turn alike, and the same KV cache when they store alike. */
static bool turn_alike(const um_arch_kind *a, const um_arch_kind *b) {
    return a->rope_dim == b->rope_dim && a->rope_pairs == b->rope_pairs && a->rope_theta == b->rope_theta &&
           a->rope_factor == b->rope_factor;
}

static bool store_alike(const um_arch_kind *a, const um_arch_kind *b) {
    return a->n_kv_heads == b->n_kv_heads && a->head_dim == b->head_dim && a->window == b->window;
}

const um_arch_kind *um_model_rotary_kind(const um_model *m, int32_t i) {
    int32_t k = 0;
    while (m->net.kind[k].rotary != i) k++;
    return &m->arch.kind[k];
}

/* Describes kind i, after those before it. */
static void describe_kind(um_model *m, int32_t i) {
    const um_arch_kind *k = &m->arch.kind[i];
    um_network *n = &m->net;
    int32_t turns = 0, stores = 0;
    while (turns < i && !turn_alike(&m->arch.kind[turns], k)) turns++;
    while (stores < i && !store_alike(&m->arch.kind[stores], k)) stores++;
    n->kind[i] = (um_layer_kind){.n_heads = k->n_heads,
                                 .n_kv_heads = k->n_kv_heads,
                                 .head_dim = k->head_dim,
                                 .rope_dim = k->rope_dim,
                                 .rotary = turns < i ? n->kind[turns].rotary : n->n_rotary++,
                                 .kv = stores < i ? n->kind[stores].kv : n->n_kv++,
                                 .window = k->window,
                                 .attn_scale = k->attn_scale != 0 ? k->attn_scale : 1 / sqrtf((float)k->head_dim),
                                 .v_norm = k->v_norm,
                                 .post_norms = k->post_norms,
                                 .act = k->act,
                                 .n_ff = k->n_ff,
                                 .expert_ff = k->expert_ff,
                                 .shared_ff = k->shared_ff};
}

/* Describes the model to the backend. */
void um_model_describe(um_model *m) {
    const um_arch *a = &m->arch;
    m->net = (um_network){.n_layers = a->n_layers,
                          .hidden = a->hidden,
                          .vocab = UM_MIN(a->vocab, um_tok_size(m->tok)),
                          .norm_eps = a->norm_eps,
                          .embed_scale = a->embed_scale,
                          .logit_scale = a->logit_scale,
                          .clip_qkv = a->clip_qkv,
                          .route = a->route,
                          .route_block = a->route_block,
                          .logit_cap = a->logit_cap,
                          .head_rows = a->vocab,
                          .n_kinds = a->n_kinds,
                          .conditioning = {.n_ff = a->conditioning_ff, .act = a->kind[0].act},
                          .n_adapters = m->n_adapters};
    for (int32_t i = 0; i < a->n_kinds; i++) describe_kind(m, i);
}

/* Cheap checks come first: the configuration, then the tokenizer and the ids that both name, then the names and shapes
 * of the tensors, and the weights last. The configuration is read before the tokenizer so that an autoregressive model
 * is reported as such, and not for a difference in its tokenizer. */
static um_status open_facts(um_model *m, const um_config *c, bool weights, um_store **files, um_err *err) {
    const bool dummy = c->load_format == UM_LOAD_DUMMY;
    um_arch_source from = {.dir = m->path, .family = c->model_name, .mask_id = c->mask_token_id};
    um_status s = um_arch_load(&m->arch, &from, err);
    if (!s) s = um_checkpoint_tok(&m->tok, m->path, err);
    if (!s && !dummy) s = um_checkpoint_weights(files, m->path, m->arch.family, err);
    if (s == UM_ENOENT && !weights && m->tok) s = UM_OK; /* config.json then decides on the optional tensors */
    from.tok = m->tok;
    from.tensors = *files;
    if (!s) s = um_arch_load(&m->arch, &from, err);
    if (!s) s = um_checkpoint_chat(&m->chat, m->path, m->tok, c->chat_template, m->arch.family->chat, err);
    if (s) return s;
    um_card_read(&m->card, m->path);
    m->arch.max_position = UM_MIN(m->arch.max_position, UM_POSITIONS_MAX);
    s = um_adapters_open(m, c->lora, c->lora_merge, err);
    um_model_describe(m);
    return s;
}

static um_status load(um_model *m, const um_store *files, int32_t check, um_load_meter *meter, um_err *err) {
    um_status s = um_model_load(m, files, check, meter, err);
    for (int32_t i = 0; i < m->net.n_rotary && !s; i++) {
        um_rotary *rotary = &m->net.rotary[i];
        const um_arch_kind *kind = um_model_rotary_kind(m, i);
        s = load_rotary(m, kind, &rotary->cos, cos, err);
        if (!s) s = load_rotary(m, kind, &rotary->sin, sin, err);
        if (!s) s = load_query_factors(m, &rotary->query, err);
    }
    return s ? s : load_ones(m, err);
}

static um_load_meter begin_meter(const um_model *m, const um_config *c) {
    um_load_meter p = {.fn = c->on_load, .arg = c->on_load_arg, .now = {.path = m->path}};
    for (int32_t i = 0; i < m->devices.n; i++)
        if (is_first_on_device(m, i)) p.now.bytes_all += m->file_bytes;
    return p;
}

/* Returns how many neighbours have a common scale, in the files or in products. */
static int32_t cut_grid(const um_model *m, const um_store *files) {
    int32_t grid = um_is_quantized(m->weight_type) ? UM_QUANT_GROUP : 1;
    for (size_t i = 0; files && i < um_store_count(files); i++) {
        const um_tensor *t = um_store_at(files, i);
        const um_format *f = t->n_dims >= 2 ? um_tensor_format(t) : NULL;
        if (f) grid = UM_MAX(grid, f->elements);
    }
    return grid;
}

/* All devices are opened and checked before the first weight is loaded, because loading can take minutes. The values of
 * the weights are checked once. */
um_status um_model_open_weights(um_model *m, const um_config *c, const um_store *files, um_err *err) {
    um_status s = choose_types(m, c, files, err);
    if (!s) s = um_model_check(m, files, err);
    if (!s) s = choose_devices(m, c, err);
    m->net.cut_grid = cut_grid(m, files);
    if (!s) s = um_model_launch(m, c, files, err);
    for (int32_t i = 0; !s && i < m->devices.n; i++) {
        if (!is_first_on_device(m, i)) continue;
        s = open_device(m->on[i], c, err);
        if (!s) s = um_model_check_memory(m->on[i], c, err);
    }
    um_load_meter meter = begin_meter(m, c);
    if (!s) s = um_load_meter_add(&meter, 0, err);
    for (int32_t i = 0; !s && i < m->devices.n; i++)
        if (is_first_on_device(m, i)) s = load(m->on[i], files, i ? UM_CHECK_OFF : c->check_weights, &meter, err);
    return s ? s : um_load_meter_add(&meter, meter.now.bytes_all, err);
}

/* Opens the devices of a model whose weights stay in their files. */
static um_status open_devices(um_model *m, const um_config *c, const um_store *files, um_err *err) {
    um_status s = choose_types(m, c, files, err);
    if (!s && files) s = um_model_check_names(m, files, err);
    if (!s) s = choose_devices(m, c, err);
    for (int32_t i = 0; !s && i < m->devices.n; i++)
        if (is_first_on_device(m, i)) s = open_device(m->on[i], c, err);
    return s;
}

/* Checks a model whose weights are read later. */
static um_status check_files(um_model *m, const um_config *c, const um_store *files, um_err *err) {
    um_status s = choose_types(m, c, files, err);
    return s ? s : um_model_check(m, files, err);
}

um_status um_model_sketch(um_model **out, const char *path, const um_arch *a, const um_store *s, const char *lora,
                          bool merge, um_err *err) {
    um_model *m = UM_NEW(um_model);
    m->path = um_strdup(path);
    m->arch = *a;
    um_status st = um_adapters_open(m, lora, merge, err);
    if (!st) st = um_model_check_names(m, s, err);
    if (st) {
        um_model_close(m);
        m = NULL;
    }
    *out = m;
    return st;
}

/* How much of a model is opened. */
typedef enum { OPEN_TEXT, OPEN_DEVICE, OPEN_FILES, OPEN_WEIGHTS } extent;

/* Sets the path, the architecture, the tokenizer and the chat template of m. `weights`: the files of the weights must
 * be there; they are opened but not read. */
static um_status find_facts(um_model *m, const um_config *c, bool weights, um_store **files, um_err *err) {
    const um_released *shape = c->load_format == UM_LOAD_DUMMY && c->model ? um_released_find(c->model) : NULL;
    if (!shape) {
        um_status s = um_model_find(&m->path, c->model, err);
        return s ? s : open_facts(m, c, weights, files, err);
    }
    um_status s = um_model_take_shape(m, shape, 0, c, err);
    return s || !c->chat_template ? s : um_chat_open_own(&m->chat, m->path, NULL, m->tok, c->chat_template, NULL, err);
}

static um_status open_weights(um_model *m, const um_config *c, const um_store *files, um_err *err) {
    if (c->load_format != UM_LOAD_DUMMY) return um_model_open_weights(m, c, files, err);
    um_warn("%s: the weights are random numbers (load_format dummy); answers mean nothing", m->path);
    return um_model_open_random_weights(m, c, err);
}

static um_status open_model(um_model **out, const um_config *c, extent how_far, um_err *err) {
    *out = NULL;
    um_status checked = um_config_check(c, err);
    if (checked) return checked;
    um_model *m = UM_NEW(um_model);
    m->languages = um_languages_new();
    um_store *files = NULL;
    double start = um_now();
    um_status s = find_facts(m, c, how_far >= OPEN_FILES, &files, err);
    if (!s && how_far == OPEN_WEIGHTS) s = open_weights(m, c, files, err);
    else if (!s && how_far != OPEN_FILES) m->n_params = um_arch_params(&m->arch);
    if (!s && how_far == OPEN_DEVICE) s = open_devices(m, c, files, err);
    if (!s && how_far == OPEN_FILES) s = check_files(m, c, files, err);
    for (int32_t i = 0; i < m->n_adapters && how_far != OPEN_FILES; i++) um_lora_close_file(&m->lora[i]);
    if (!s && (how_far == OPEN_FILES || (how_far == OPEN_WEIGHTS && files && um_store_stays(files)))) m->files = files;
    else um_store_close(files); /* the backend has copied the weights */
    m->load_seconds = um_now() - start;
    if (s) {
        um_model_close(m);
        m = NULL;
    }
    *out = m;
    return s;
}

um_status um_model_open(um_model **out, const um_config *c, um_err *err) {
    return open_model(out, c, OPEN_WEIGHTS, err);
}

um_status um_model_open_text(um_model **out, const um_config *c, um_err *err) {
    return open_model(out, c, OPEN_TEXT, err);
}

um_status um_model_open_device(um_model **out, const um_config *c, um_err *err) {
    return open_model(out, c, OPEN_DEVICE, err);
}

um_status um_model_open_files(um_model **out, const um_config *c, um_err *err) {
    return open_model(out, c, OPEN_FILES, err);
}

static void close_device(um_model *m) {
    if (!m->device) return;
    um_model_unload(m);
    m->backend->close(m->device);
}

/* Returns whether a thread that hangs uses the model. */
static bool is_stuck(const um_model *m) {
    bool is = false;
    for (int32_t i = 0; i < UM_MAX(m->devices.n, 1); i++) {
        const um_model *on = i && i < m->devices.n ? m->on[i] : m;
        is |= on && on->device && on->backend->is_stuck && on->backend->is_stuck(on->device);
    }
    return is;
}

void um_model_close(um_model *m) {
    if (!m || is_stuck(m)) return;
    for (int32_t i = 1; i < m->devices.n; i++) {
        if (!is_first_on_device(m, i)) continue;
        close_device(m->on[i]);
        um_free(m->on[i]);
    }
    close_device(m);
    um_ranks_backend_free(m->group);
    um_free((void *)m->launch.facts);
    um_languages_free(m->languages);
    um_store_close(m->files);
    um_adapters_close(m);
    um_chat_close(m->chat);
    um_tok_close(m->tok);
    um_card_free(&m->card);
    um_free(m->path);
    um_free(m);
}

/* ---- Text and ids ------------------------------------------------------------------------------------------------ */

static um_status return_ids(um_ids *v, um_status s, int32_t **ids, size_t *n) {
    if (s) um_ids_free(v);
    *ids = v->data;
    *n = s ? 0 : v->n;
    return s;
}

um_status um_model_encode(const um_model *m, const char *text, size_t len, bool special, int32_t **ids, size_t *n,
                          um_err *err) {
    um_ids v = {0};
    um_status s =
        um_tok_encode(m->tok, (um_str){text, len}, special ? UM_PARSE_ALL : UM_PARSE_NOT_SPECIAL, false, &v, err);
    return return_ids(&v, s, ids, n);
}

um_status um_model_encode_prompt(const um_model *m, const char *text, size_t len, int special_in_content, bool around,
                                 int32_t **ids, size_t *n, um_err *err) {
    um_ids v = {0};
    um_status s = um_prompt_encode(m->tok, (um_str){text, len}, special_in_content, around, &v, err);
    return return_ids(&v, s, ids, n);
}

static um_status return_text(um_buf *b, um_status s, char **text, size_t *len) {
    *text = NULL;
    if (len) *len = s ? 0 : b->len;
    if (s) um_buf_free(b);
    else *text = um_buf_take(b);
    return s;
}

static um_status check_ids(const um_model *m, const int32_t *ids, size_t n, int32_t least, um_err *err) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] < least || ids[i] >= m->arch.vocab)
            return um_fail(err, UM_ERANGE, "id %d at index %zu: expected 0 to %d", ids[i], i, m->arch.vocab - 1);
    return UM_OK;
}

um_status um_model_decode(const um_model *m, const int32_t *ids, size_t n, bool special, char **text, size_t *len,
                          um_err *err) {
    um_buf b = {0};
    um_status s = check_ids(m, ids, n, 0, err);
    if (!s) um_tok_decode(m->tok, ids, n, !special, &b);
    return return_text(&b, s, text, len);
}

/* Stores `at` as the end of the ids whose text the stream has just completed. n ids have been pushed, and the ends of
 * the first `known` ids are stored already. Returns the new number of stored ends. */
static size_t store_ends(const um_stream *s, size_t at, size_t *end, size_t known, size_t n) {
    while (known + (s->n_pushed - s->n_out) < n) end[known++] = at;
    return known;
}

um_status um_model_decode_each(const um_model *m, const int32_t *ids, size_t n, bool special, char **text, size_t *end,
                               um_err *err) {
    um_buf b = {0};
    um_stream stream;
    um_status s = check_ids(m, ids, n, -1, err);
    um_stream_init(&stream, m->tok, !special);
    for (size_t i = 0, known = 0; i < n && !s; i++) {
        bool ends = i + 1 == n || ids[i + 1] < 0;
        if (ids[i] >= 0) um_stream_push(&stream, ids[i], &b);
        known = store_ends(&stream, b.len, end, known, i + 1);
        if (!ends) continue;
        um_stream_flush(&stream, &b);
        known = store_ends(&stream, b.len, end, known, i + 1);
        end[i] = b.len; /* the bytes of an incomplete character belong to the last id */
    }
    return return_text(&b, s, text, NULL);
}

const char *um_model_token_bytes(const um_model *m, int32_t id, size_t *n) {
    um_str b = um_tok_bytes(m->tok, id);
    *n = b.n;
    return b.p;
}

um_status um_model_render_chat(const um_model *m, const um_chat_request *c, char **text, size_t *len, int32_t **ids,
                               size_t *n_ids, um_err *err) {
    um_buf b = {0};
    um_ids v = {0};
    um_status s = UM_OK;
    if (!m->chat) s = um_fail(err, UM_ETEMPLATE, "%s has no chat template: give the prompt as text", m->path);
    if (!s) s = um_chat_render(m->chat, c, text ? &b : NULL, ids ? &v : NULL, err);
    if (s) {
        um_ids_free(&v);
        v = (um_ids){0};
    }
    if (ids) *ids = v.data;
    if (n_ids) *n_ids = v.n;
    if (text) return return_text(&b, s, text, len);
    return s;
}

um_status um_model_render(const um_model *m, const um_message *msg, size_t n, char **text, size_t *len, um_err *err) {
    um_chat_request c;
    um_chat_init(&c);
    c.messages = msg;
    c.n_messages = n;
    return um_model_render_chat(m, &c, text, len, NULL, NULL, err);
}
