/* unmask inspect: describes a checkpoint folder without reading its weights. */
#include <math.h>

#include "cli/cli.h"
#include "cli/printer.h"
#include "engine/engine.h"
#include "model/checkpoint.h"

typedef struct inspect_options {
    bool json;
} inspect_options;

static const um_option rows[] = {
    {"json", NULL, UM_OPT_BOOL, UM_FIELD(inspect_options, json), 0, 0, NULL, "false", NULL, NULL, "Output",
     "print a JSON object"},
};

/* The parts of a checkpoint folder that could be read. */
typedef struct folder {
    char *path;
    um_tok *tok;   /* NULL: no readable tokenizer */
    um_chat *chat; /* NULL: no chat template */
    um_store *weights;
    um_arch arch;
    um_model *adapted; /* model with the adapters of --lora, without weights; or NULL */
    um_model *planned; /* model on an open device, without weights; NULL: --device was not given */
    um_memory_plan plan;
} folder;

static const char *attention_name(um_see see) {
    switch (see) {
    case UM_SEE_FULL: return "full";
    case UM_SEE_CAUSAL: return "causal";
    case UM_SEE_BLOCK_CAUSAL: return "block-causal";
    }
    return "unknown";
}

/* ---- Family and tokens ------------------------------------------------------------------------------------------- */

static void put_family(um_printer *s, const folder *f) {
    const um_arch *a = &f->arch;
    um_printer_str(s, "path", f->path);
    um_printer_str(s, "family", a->family->name);
    um_printer_str(s, "family_summary", a->family->summary);
    um_printer_str(s, "recognised_by", a->rule);
    um_printer_str(s, "architecture", a->architecture);
    um_printer_str(s, "model_type", a->model_type);
    um_printer_str(s, "declared_dtype", a->declared_dtype);
    um_printer_str(s, "attention", attention_name(a->see));
    um_printer_int(s, "shift", a->shift, a->shift ? "(row i-1 predicts position i)" : "(row i predicts position i)");
}

static void put_id(um_printer *s, const folder *f, const char *role, int32_t id, const char *from) {
    um_str token = f->tok && id >= 0 ? um_tok_bytes(f->tok, id) : (um_str){NULL, 0};
    um_buf text = {0}, line = {0};
    if (id < 0) return;
    um_buf_append(&text, token.p, token.n);
    um_buf_printf(&line, "%d%s%s, from %s", id, token.n ? " " : "", token.n ? text.data : "", from);
    um_printer_item(s, role, line.data);
    if (s->json) {
        um_printer_int(s, "id", id, NULL);
        um_printer_str(s, "token", token.n ? text.data : NULL);
        um_printer_str(s, "from", from);
    }
    um_printer_item_end(s);
    um_buf_free(&text);
    um_buf_free(&line);
}

static void put_special_ids(um_printer *s, const folder *f) {
    const um_arch *a = &f->arch;
    um_printer_list(s, "ids");
    put_id(s, f, "mask", a->mask_id, a->mask_from);
    for (int32_t i = 0; i < a->n_stop; i++) put_id(s, f, "stop", a->stop[i], a->stop_from[i]);
    put_id(s, f, "pad", a->pad_id, a->pad_from);
    put_id(s, f, "bos", a->bos_id, a->bos_from);
    um_printer_list_end(s);
}

/* ---- Sizes ------------------------------------------------------------------------------------------------------- */

static int32_t count_dense(const um_arch *a) {
    int32_t n = 0;
    for (int32_t i = 0; i < a->n_layers; i++) n += !um_arch_is_moe(a, i);
    return n;
}

static void put_experts(um_printer *s, const um_arch *a) {
    static const char *const scores[] = {[UM_SCORE_SOFTMAX] = "softmax", [UM_SCORE_SIGMOID] = "sigmoid"};
    static const char *const biases[] = {
        [UM_BIAS_NONE] = "none", [UM_BIAS_CHOICE] = "of the choice", [UM_BIAS_SCORE] = "of choice and weights"};
    const um_expert_route *r = &a->route;
    um_printer_group(s, "experts");
    um_printer_int(s, "routed", r->n_experts, NULL);
    um_printer_int(s, "per_token", r->top_k, NULL);
    um_printer_int(s, "width", a->expert_ff, NULL);
    um_printer_int(s, "shared_width", a->shared_ff, a->shared_ff ? NULL : "(none)");
    um_printer_int(s, "dense_layers", count_dense(a), NULL);
    um_printer_str(s, "score", scores[r->score]);
    um_printer_str(s, "correction_bias", biases[r->bias]);
    um_printer_int(s, "groups", r->n_group, r->n_group == 1 ? "(none)" : NULL);
    um_printer_int(s, "groups_kept", r->topk_group, NULL);
    um_printer_bool(s, "normalised", r->normalize);
    um_printer_number(s, "scale", (double)r->scale);
    um_printer_int(s, "pool", r->capacity, r->capacity ? "experts shared by a routing block" : "(none)");
    um_printer_int(s, "routing_block", a->route_block, a->route_block ? NULL : "(none)");
    um_printer_group_end(s);
}

/* Prints the kinds of layers of a model that has several. */
static void put_kinds(um_printer *s, const um_arch *a) {
    um_printer_list(s, "layer_kinds");
    for (int32_t i = 0; i < a->n_kinds; i++) {
        const um_arch_kind *k = &a->kind[i];
        int32_t n = 0;
        for (int32_t layer = 0; layer < a->n_layers; layer++) n += a->of_layer[layer] == i;
        um_printer_item(s, k->window ? "with a window" : "without a window", NULL);
        um_printer_int(s, "layers", n, NULL);
        um_printer_int(s, "kv_heads", k->n_kv_heads, NULL);
        um_printer_int(s, "head_dim", k->head_dim, NULL);
        um_printer_int(s, "turned_dims", 2 * k->rope_pairs, NULL);
        um_printer_number(s, "rope_theta", k->rope_theta);
        um_printer_int(s, "window", k->window, k->window ? NULL : "(none)");
        um_printer_item_end(s);
    }
    um_printer_list_end(s);
}

static void put_sizes(um_printer *s, const um_arch *a) {
    um_printer_group(s, "sizes");
    um_printer_int(s, "layers", a->n_layers, NULL);
    um_printer_int(s, "hidden", a->hidden, NULL);
    um_printer_int(s, "heads", a->n_heads, NULL);
    um_printer_int(s, "kv_heads", a->n_kv_heads, NULL);
    um_printer_int(s, "head_dim", a->head_dim, NULL);
    um_printer_int(s, "rotated_dims", a->rope_dim, NULL);
    um_printer_int(s, "feed_forward", a->n_ff, a->n_ff ? NULL : "(no dense layer)");
    if (a->route.n_experts) put_experts(s, a);
    um_printer_int(s, "vocabulary", a->vocab, "rows");
    um_printer_str(s, "norm", a->layer_norm ? "mean and deviation" : "root mean square");
    um_printer_bool(s, "tied_head", a->tied);
    um_printer_bool(s, "qk_norm", a->qk_norm);
    um_printer_bool(s, "qkv_bias", a->qkv_bias);
    um_printer_number(s, "rope_theta", a->rope_theta);
    if (a->yarn.factor > 0) {
        um_printer_number(s, "rope_stretch", a->yarn.factor);
        um_printer_int(s, "positions_before", a->yarn.original, NULL);
        um_printer_number(s, "query_growth", a->query_beta);
    }
    um_printer_int(s, "positions", a->max_position, NULL);
    um_printer_int(s, "block_size", a->block, a->block ? NULL : "(none)");
    if (um_arch_window(a)) put_kinds(s, a);
    um_printer_count(s, "parameters", um_arch_params(a), NULL);
    um_printer_count(s, "active_parameters", um_arch_active_params(a), "per token, with the whole embedding and head");
    um_printer_count(s, "active_without_tables", um_arch_active_params(a) - um_arch_embedding_params(a),
                     "per token, without embedding and head");
    um_printer_group_end(s);
}

static void put_memory(um_printer *s, const um_arch *a) {
    static const um_dtype types[] = {UM_F32, UM_BF16}, packed[] = {UM_Q8, UM_Q4};
    int64_t longest = UM_MIN(a->max_position, UM_POSITIONS_MAX);
    um_printer_group(s, "memory");
    for (size_t i = 0; i < UM_LEN(types); i++) {
        const int64_t kv = (int64_t)um_arch_window_kv_bytes(a, types[i], false),
                      near = (int64_t)um_arch_window_kv_bytes(a, types[i], true), window = um_arch_window(a);
        um_printer_group(s, um_dtype_name(types[i]));
        um_printer_bytes(s, "weights", um_arch_params(a) * (int64_t)um_dtype_size(types[i]));
        um_printer_bytes(s, "kv_per_token", kv);
        if (near) um_printer_bytes(s, "kv_per_token_in_window", near);
        um_printer_bytes(s, "kv_of_longest_request", kv * longest + near * UM_MIN(longest, window - 1 + a->block));
        um_printer_group_end(s);
    }
    for (size_t i = 0; i < UM_LEN(packed); i++) {
        um_printer_group(s, um_dtype_name(packed[i]));
        um_printer_bytes(s, "weights", (int64_t)um_weights_bytes(um_arch_params(a), packed[i]));
        um_printer_group_end(s);
    }
    um_printer_group_end(s);
}

/* Prints the memory of one of n ranks. */
static void put_rank(um_printer *s, const um_arch *a, int32_t n, bool expert_parallel) {
    static const um_dtype types[] = {UM_F32, UM_BF16, UM_Q8, UM_Q4};
    const um_arch own = um_arch_of_rank(a, n, expert_parallel);
    const int64_t params = um_arch_rank_params(a, n, expert_parallel);
    um_printer_group(s, "rank");
    um_printer_int(s, "of", n, NULL);
    if (expert_parallel) um_printer_int(s, "experts", a->route.n_experts / n, NULL);
    for (size_t i = 0; i < UM_LEN(types); i++) {
        um_printer_group(s, um_dtype_name(types[i]));
        um_printer_bytes(s, "weights", (int64_t)um_weights_bytes(params, types[i]));
        if (i < 2) um_printer_bytes(s, "kv_per_token", (int64_t)um_arch_kv_bytes(&own, types[i]));
        um_printer_group_end(s);
    }
    um_printer_group_end(s);
}

/* ---- What fits --------------------------------------------------------------------------------------------------- */

static int64_t whole(double v) { return (int64_t)UM_MAX(v, 0); }

/* Prints how an engine with the given options would divide the memory of its device. Pages can be more than the engine
 * takes, which has no more than its requests can use. */
static void put_plan(um_printer *s, const folder *f, const um_config *c) {
    const um_memory_plan *p = &f->plan;
    const int64_t pages = whole(p->available / p->page), engines = UM_MAX(c->data_parallel_size, 1);
    um_device_info d;
    char name[UM_DEVICE_NAME_MAX];
    f->planned->backend->info(f->planned->device, &d);
    um_model_device_name(f->planned, name);
    um_printer_group(s, "fits");
    um_printer_str(s, "device", name);
    um_printer_str(s, "device_name", d.name);
    um_printer_str(s, "dtype", um_dtype_name(f->planned->dtype));
    if (!p->is_host) um_printer_bytes(s, "memory", whole(p->memory));
    um_printer_bytes(s, "free", whole(p->free));
    if (!p->is_host) um_printer_bytes(s, "may_be_used", whole(p->most));
    um_printer_bytes(s, "weights", whole(p->weights));
    if (!p->is_host) um_printer_bytes(s, "activations", whole(p->workspace));
    um_printer_bytes(s, "page", whole(p->page));
    um_printer_int(s, "page_size", p->page_size, "tokens");
    um_printer_int(s, "pages", pages, engines > 1 ? "that fit, for each engine" : "that fit");
    um_printer_int(s, "tokens", pages * p->page_size, "of prompts and answers");
    um_printer_int(s, "request_tokens", p->tokens_of_request, "of a request of full length");
    um_printer_int(s, "requests", pages / p->pages_of_request, "of full length");
    um_printer_group_end(s);
}

/* ---- Decoding ---------------------------------------------------------------------------------------------------- */

/* Prints the parameters of a strategy with their defaults. */
static void put_strategy(um_printer *s, const char *name) {
    const um_strategy *strategy;
    if (um_strategy_find(&strategy, name, NULL)) return;
    um_printer_group(s, strategy->name);
    for (const um_params *p = strategy->params; p < strategy->params + UM_PARAMS_MAX && p->rows; p++)
        for (size_t i = 0; i < p->n; i++) um_printer_str(s, p->rows[i].name, p->rows[i].def);
    um_printer_group_end(s);
}

static void put_defaults(um_printer *s, const um_arch *a) {
    um_printer_group(s, "decoding");
    um_printer_words(s, "strategies", a->family->strategies, '|');
    um_printer_str(s, "default_strategy", a->default_strategy);
    um_printer_str(s, "sampler", a->family->sampler);
    um_printer_number(s, "accept_threshold", a->family->accept_threshold);
    um_printer_number(s, "temperature", isnan(a->temperature) ? 0 : (double)a->temperature);
    um_printer_int(s, "answer_tokens", um_arch_answer_tokens(a), "limit, unless --max-tokens is set");
    put_strategy(s, a->default_strategy);
    um_printer_int(s, "mask_id", a->mask_id, NULL);
    um_printer_ints(s, "stop_ids", a->stop, (size_t)a->n_stop);
    um_printer_group_end(s);
}

static void put_tokenizer(um_printer *s, const folder *f) {
    static const char *const names[] = {"bos_token", "eos_token", "pad_token", "mask_token"};
    um_printer_group(s, "tokenizer");
    um_printer_int(s, "ids", um_tok_size(f->tok), NULL);
    for (size_t i = 0; i < UM_LEN(names); i++) {
        um_str text = um_tok_special_text(f->tok, names[i]);
        um_buf line = {0};
        if (text.p) um_buf_append(&line, text.p, text.n);
        um_printer_str(s, names[i], line.data);
        um_buf_free(&line);
    }
    um_printer_str(s, "chat_template", f->chat ? um_chat_origin(f->chat) : NULL);
    um_printer_group_end(s);
}

/* The tensors of one type. */
typedef struct stored_type {
    const char *name;
    int64_t tensors, elements;
} stored_type;

/* Counts the tensors of each type. Returns the number of types. */
static size_t count_types(const um_store *weights, stored_type *of) {
    size_t n = 0;
    for (size_t i = 0; i < um_store_count(weights); i++) {
        const um_tensor *t = um_store_at(weights, i);
        const um_format *f = um_tensor_format(t);
        const char *name = f ? f->name : um_store_type(t);
        size_t k = 0;
        while (k < n && !um_streq(of[k].name, name)) k++;
        if (k == n) of[n++] = (stored_type){.name = name};
        of[k].tensors++;
        of[k].elements += (int64_t)um_tensor_elements(t);
    }
    return n;
}

static void put_weights(um_printer *s, const folder *f) {
    const size_t n = um_store_count(f->weights);
    stored_type *of = UM_NEW_ARRAY(stored_type, n + 1);
    const size_t n_types = count_types(f->weights, of);
    int64_t elements = 0;
    for (size_t i = 0; i < n_types; i++) elements += of[i].elements;
    um_printer_group(s, "weights");
    um_printer_int(s, "tensors", (int64_t)n, NULL);
    um_printer_count(s, "elements", elements, NULL);
    um_printer_str(s, "stored_as", n_types == 1 ? of[0].name : n_types ? "mixed" : NULL);
    um_printer_list(s, "types");
    for (size_t i = 0; i < n_types; i++) {
        um_printer_item(s, of[i].name, NULL);
        um_printer_int(s, "tensors", of[i].tensors, NULL);
        um_printer_count(s, "elements", of[i].elements, NULL);
        um_printer_item_end(s);
    }
    um_printer_list_end(s);
    um_printer_group_end(s);
    um_free(of);
}

static void put_adapters(um_printer *s, const um_model *m) {
    um_printer_list(s, "adapters");
    for (int32_t i = 0; i < m->n_adapters; i++) {
        const um_adapter_info *a = &m->adapter[i];
        um_printer_item(s, a->name, a->path);
        um_printer_str(s, "path", a->path);
        um_printer_str(s, "made_for", a->base);
        um_printer_int(s, "rank", a->rank, NULL);
        um_printer_count(s, "parameters", a->n_params, NULL);
        um_printer_bool(s, "merged", a->merged);
        um_printer_item_end(s);
    }
    um_printer_list_end(s);
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

/* Opens a folder. An unreadable tokenizer or unreadable weights are only a warning, because the configuration alone is
 * useful too. */
static um_status open_folder(folder *f, const um_config *c, um_err *err) {
    um_arch_source from = {.family = c->model_name, .mask_id = c->mask_token_id};
    um_err why;
    um_status s = um_model_find(&f->path, c->model, err);
    from.dir = f->path;
    /* Loaded here only for its error, which must come before warnings about missing files. */
    if (!s) s = um_arch_load(&f->arch, &from, err);
    if (!s && um_checkpoint_weights(&f->weights, f->path, f->arch.family, &why)) um_warn("%s", why.msg);
    if (!s && um_checkpoint_tok(&f->tok, f->path, &why)) um_warn("%s", why.msg);
    from.tok = f->tok;
    from.tensors = f->weights;
    if (!s) s = um_arch_load(&f->arch, &from, err);
    if (!s) s = um_arch_check_ranks(&f->arch, c->tensor_parallel_size, c->enable_expert_parallel, err);
    if (!s && f->tok) s = um_checkpoint_chat(&f->chat, f->path, f->tok, c->chat_template, f->arch.family->chat, err);
    if (!s && c->lora && !f->weights)
        s = um_fail(err, UM_ENOENT, "%s has no weights to check the adapters against", f->path);
    if (!s && c->lora) s = um_model_sketch(&f->adapted, f->path, &f->arch, f->weights, c->lora, c->lora_merge, err);
    return s ? um_cli_explain_model_error(err) : UM_OK;
}

/* Divides the memory of the device. Returns UM_ENOMEM when the model does not fit; the plan can be printed then. */
static um_status plan(folder *f, const um_config *c, um_err *err) {
    um_status s = um_model_open_device(&f->planned, c, err);
    return s ? s : um_engine_plan_memory(f->planned, c, &f->plan, err);
}

/* Returns whether the user has set an option. */
static bool is_given(const um_args *a, const char *name) {
    for (size_t i = 0; i < a->n_given; i++)
        if (um_streq(a->given[i].row->name, name)) return true;
    return false;
}

static void close_folder(folder *f) {
    um_model_close(f->planned);
    um_model_close(f->adapted);
    um_store_close(f->weights);
    um_chat_close(f->chat);
    um_tok_close(f->tok);
    um_free(f->path);
}

static void print_folder(const folder *f, const um_config *c, bool json) {
    um_printer s;
    um_printer_begin(&s, json);
    put_family(&s, f);
    put_special_ids(&s, f);
    put_sizes(&s, &f->arch);
    put_memory(&s, &f->arch);
    if (c->tensor_parallel_size > 1) put_rank(&s, &f->arch, c->tensor_parallel_size, c->enable_expert_parallel);
    put_defaults(&s, &f->arch);
    if (f->tok) put_tokenizer(&s, f);
    if (f->weights) put_weights(&s, f);
    if (f->adapted) put_adapters(&s, f->adapted);
    if (f->planned) put_plan(&s, f, c);
    um_printer_end(&s);
}

static int run(const um_command *self, int argc, char **argv) {
    inspect_options o;
    um_config c;
    um_args args;
    folder f = {0};
    um_err err;
    um_args_parse(&args, self, argc, argv, &o, &c);
    int status = args.exit;
    if (args.done) goto done;
    um_status s = UM_OK;
    if (args.n_words > 1)
        s = um_fail(&err, UM_EINVAL, "expected one folder, found \"%.80s\" after \"%.80s\"", args.word[1],
                    args.word[0]);
    if (args.n_words == 1) c.model = args.word[0];
    if (!s) s = um_cli_check_model(c.model, &err);
    if (!s) s = open_folder(&f, &c, &err);
    if (!s && is_given(&args, "device")) s = plan(&f, &c, &err);
    if (!s || (s == UM_ENOMEM && f.planned)) print_folder(&f, &c, o.json);
    if (s) status = um_cli_error(self, &err);
done:
    close_folder(&f);
    um_args_free(&args);
    return status;
}

const um_command um_cmd_inspect = {
    .name = "inspect",
    .summary = "describe a checkpoint without reading its weights",
    .usage = "unmask inspect [options] DIR",
    .description =
        "Prints the model family and how it was recognised, sizes, the required memory, decoding defaults, and "
        "facts about the tokenizer. It reads only the headers of the weight files. With --device it also prints what "
        "fits into the memory of the device under the given options: weights, activations, KV pages, and how many "
        "requests of full length they hold.",
    .examples = "  unmask inspect models/tiny-block\n"
                "  unmask inspect models/tiny-full --json\n"
                "  unmask inspect models/tiny-block --device cpu --dtype bfloat16\n"
                "  unmask inspect --model models/tiny-block --model-name sdar\n",
    .options = rows,
    .n_options = UM_LEN(rows),
    .engine_options = true,
    .arguments = "DIR",
    .run = run,
};
