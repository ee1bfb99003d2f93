/* inspect: what a checkpoint folder is, without reading its weights. */
#include <math.h>

#include "cli/cli.h"
#include "cli/sheet.h"
#include "decode/decode.h"
#include "model/model.h"

typedef struct inspect_options {
    const char *model;
    char model_name[32];
    int32_t mask_token_id;
    const char *lora;
    bool lora_merge, json;
} inspect_options;

#define O(field) UM_FIELD(inspect_options, field)
static const um_option rows[] = {
    {"model", "model_path", UM_OPT_STR, O(model), 0, 0, NULL, NULL, NULL, "DIR", "Model",
     "folder of a checkpoint, or its hub name in the local Hugging Face cache"},
    {"model_name", NULL, UM_OPT_NAME, O(model_name), 0, 0, NULL, "auto", "auto", "NAME", "Model",
     "family to use in place of the detected one"},
    {"mask_token_id", NULL, UM_OPT_INT, O(mask_token_id), 0, 16777215, NULL, "auto", "-1", "N", "Model",
     "id of the mask token; auto is the checkpoint's"},
    {"lora", "lora_path,lora_modules", UM_OPT_STR, O(lora), 0, 0, NULL, NULL, NULL, "NAME=DIR,...", "Model",
     "LoRA adapters to look at, and to check against the checkpoint"},
    {"lora_merge", "pre_merge_lora", UM_OPT_BOOL, O(lora_merge), 0, 0, NULL, "false", NULL, NULL, "Model",
     "check that the adapter can be merged, not that it can be chosen for a request"},
    {"json", NULL, UM_OPT_BOOL, O(json), 0, 0, NULL, "false", NULL, NULL, "Output", "print a JSON object"},
};

/* A folder as far as it could be read. */
typedef struct folder {
    char *path;
    um_tok *tok;   /* NULL: there is none that can be read */
    um_chat *chat; /* NULL: no template */
    um_safetensors *weights;
    um_arch arch;
    um_model *adapted; /* holds the adapters; NULL: none are asked for */
} folder;

static const char *attention_name(um_see see) {
    switch (see) {
    case UM_SEE_FULL: return "full";
    case UM_SEE_CAUSAL: return "causal";
    case UM_SEE_BLOCK_CAUSAL: return "block-causal";
    }
    return "unknown";
}

/* ---- What it is -------------------------------------------------------------------------------------------------- */

static void put_family(um_sheet *s, const folder *f) {
    const um_arch *a = &f->arch;
    um_sheet_str(s, "path", f->path);
    um_sheet_str(s, "family", a->family->name);
    um_sheet_str(s, "family_summary", a->family->summary);
    um_sheet_str(s, "recognised_by", a->rule);
    um_sheet_str(s, "architecture", a->architecture);
    um_sheet_str(s, "model_type", a->model_type);
    um_sheet_str(s, "declared_dtype", a->declared_dtype);
    um_sheet_str(s, "attention", attention_name(a->see));
    um_sheet_int(s, "shift", a->shift, a->shift ? "(row i-1 predicts position i)" : "(row i predicts position i)");
}

static void put_id(um_sheet *s, const folder *f, const char *role, int32_t id, const char *from) {
    um_str token = f->tok && id >= 0 ? um_tok_bytes(f->tok, id) : (um_str){NULL, 0};
    um_buf text = {0}, line = {0};
    if (id < 0) return;
    um_buf_append(&text, token.p, token.n);
    um_buf_printf(&line, "%d%s%s, from %s", id, token.n ? " " : "", token.n ? text.data : "", from);
    um_sheet_item(s, role, line.data);
    if (s->json) {
        um_sheet_int(s, "id", id, NULL);
        um_sheet_str(s, "token", token.n ? text.data : NULL);
        um_sheet_str(s, "from", from);
    }
    um_sheet_item_end(s);
    um_buf_free(&text);
    um_buf_free(&line);
}

static void put_special_ids(um_sheet *s, const folder *f) {
    const um_arch *a = &f->arch;
    um_sheet_list(s, "ids");
    put_id(s, f, "mask", a->mask_id, a->mask_from);
    for (int32_t i = 0; i < a->n_stop; i++) put_id(s, f, "stop", a->stop[i], a->stop_from[i]);
    put_id(s, f, "pad", a->pad_id, a->pad_from);
    put_id(s, f, "bos", a->bos_id, a->bos_from);
    um_sheet_list_end(s);
}

/* ---- How large it is --------------------------------------------------------------------------------------------- */

static int32_t count_dense(const um_arch *a) {
    int32_t n = 0;
    for (int32_t i = 0; i < a->n_layers; i++) n += !um_arch_is_moe(a, i);
    return n;
}

static void put_experts(um_sheet *s, const um_arch *a) {
    static const char *const scores[] = {[UM_SCORE_SOFTMAX] = "softmax", [UM_SCORE_SIGMOID] = "sigmoid"};
    static const char *const biases[] = {
        [UM_BIAS_NONE] = "none", [UM_BIAS_CHOICE] = "of the choice", [UM_BIAS_SCORE] = "of choice and weights"};
    const um_route *r = &a->route;
    um_sheet_group(s, "experts");
    um_sheet_int(s, "routed", r->n_experts, NULL);
    um_sheet_int(s, "per_token", r->top_k, NULL);
    um_sheet_int(s, "width", a->expert_ff, NULL);
    um_sheet_int(s, "shared_width", a->shared_ff, a->shared_ff ? NULL : "(none)");
    um_sheet_int(s, "dense_layers", count_dense(a), NULL);
    um_sheet_str(s, "score", scores[r->score]);
    um_sheet_str(s, "correction_bias", biases[r->bias]);
    um_sheet_int(s, "groups", r->n_group, r->n_group == 1 ? "(none)" : NULL);
    um_sheet_int(s, "groups_kept", r->topk_group, NULL);
    um_sheet_bool(s, "normalised", r->normalize);
    um_sheet_number(s, "scale", (double)r->scale);
    um_sheet_int(s, "pool", r->capacity, r->capacity ? "experts that a routing block shares" : "(none)");
    um_sheet_int(s, "routing_block", a->route_block, a->route_block ? NULL : "(none)");
    um_sheet_group_end(s);
}

static void put_sizes(um_sheet *s, const um_arch *a) {
    um_sheet_group(s, "sizes");
    um_sheet_int(s, "layers", a->n_layers, NULL);
    um_sheet_int(s, "hidden", a->hidden, NULL);
    um_sheet_int(s, "heads", a->n_heads, NULL);
    um_sheet_int(s, "kv_heads", a->n_kv_heads, NULL);
    um_sheet_int(s, "head_dim", a->head_dim, NULL);
    um_sheet_int(s, "rotated_dims", a->rope_dim, NULL);
    um_sheet_int(s, "feed_forward", a->n_ff, a->n_ff ? NULL : "(no dense layer)");
    if (a->route.n_experts) put_experts(s, a);
    um_sheet_int(s, "vocabulary", a->vocab, "rows");
    um_sheet_str(s, "norm", a->layer_norm ? "mean and deviation" : "root mean square");
    um_sheet_bool(s, "tied_head", a->tied);
    um_sheet_bool(s, "qk_norm", a->qk_norm);
    um_sheet_bool(s, "qkv_bias", a->qkv_bias);
    um_sheet_number(s, "rope_theta", a->rope_theta);
    um_sheet_int(s, "positions", a->max_position, NULL);
    um_sheet_int(s, "block_size", a->block, a->block ? NULL : "(none)");
    um_sheet_int(s, "parameters", um_arch_params(a), NULL);
    um_sheet_int(s, "active_parameters", um_arch_active_params(a), "for a token, embedding and head in full");
    um_sheet_int(s, "active_without_tables", um_arch_active_params(a) - um_arch_table_params(a), NULL);
    um_sheet_group_end(s);
}

static void put_memory(um_sheet *s, const um_arch *a) {
    static const um_dtype types[] = {UM_F32, UM_BF16};
    int64_t longest = UM_MIN(a->max_position, UM_POSITIONS_MAX);
    um_sheet_group(s, "memory");
    for (size_t i = 0; i < UM_LEN(types); i++) {
        int64_t kv = (int64_t)um_arch_kv_bytes(a, types[i]);
        um_sheet_group(s, um_dtype_name(types[i]));
        um_sheet_bytes(s, "weights", um_arch_params(a) * (int64_t)um_dtype_size(types[i]));
        um_sheet_int(s, "kv_per_token", kv, "bytes");
        um_sheet_bytes(s, "kv_of_one_request", kv * longest);
        um_sheet_group_end(s);
    }
    um_sheet_group_end(s);
}

/* ---- How it decodes ---------------------------------------------------------------------------------------------- */

/* The rows that only this strategy reads, with their defaults. */
static void put_strategy(um_sheet *s, const char *name) {
    const um_strategy *strategy;
    if (um_strategy_find(&strategy, name, NULL)) return;
    um_sheet_group(s, strategy->name);
    for (const um_params *p = strategy->params; p < strategy->params + UM_PARAMS_MAX && p->rows; p++)
        for (size_t i = 0; i < p->n; i++) um_sheet_str(s, p->rows[i].name, p->rows[i].def);
    um_sheet_group_end(s);
}

static void put_defaults(um_sheet *s, const um_arch *a) {
    um_sheet_group(s, "decoding");
    um_sheet_words(s, "strategies", a->family->strategies, '|');
    um_sheet_str(s, "default_strategy", a->default_strategy);
    um_sheet_str(s, "sampler", a->family->sampler);
    um_sheet_number(s, "accept_threshold", a->family->accept_threshold);
    um_sheet_number(s, "temperature", isnan(a->temperature) ? 0 : (double)a->temperature);
    um_sheet_int(s, "answer_tokens", um_arch_answer_tokens(a), "at most, unless --max-tokens says otherwise");
    put_strategy(s, a->default_strategy);
    um_sheet_int(s, "mask_id", a->mask_id, NULL);
    um_sheet_ints(s, "stop_ids", a->stop, (size_t)a->n_stop);
    um_sheet_group_end(s);
}

static void put_tokenizer(um_sheet *s, const folder *f) {
    static const char *const names[] = {"bos_token", "eos_token", "pad_token", "mask_token"};
    um_sheet_group(s, "tokenizer");
    um_sheet_int(s, "ids", um_tok_size(f->tok), NULL);
    for (size_t i = 0; i < UM_LEN(names); i++) {
        um_str text = um_tok_special_text(f->tok, names[i]);
        um_buf line = {0};
        if (text.p) um_buf_append(&line, text.p, text.n);
        um_sheet_str(s, names[i], line.data);
        um_buf_free(&line);
    }
    um_sheet_str(s, "chat_template", f->chat ? um_chat_where(f->chat) : NULL);
    um_sheet_group_end(s);
}

static void put_weights(um_sheet *s, const folder *f) {
    size_t n = um_safetensors_count(f->weights);
    int64_t elements = 0;
    const char *type = NULL;
    for (size_t i = 0; i < n; i++) {
        const um_tensor *t = um_safetensors_at(f->weights, i);
        int64_t product = 1;
        for (int32_t d = 0; d < t->n_dims; d++) product *= t->dim[d];
        elements += product;
        if (!type) type = um_safetensors_dtype(t);
        else if (!um_streq(type, um_safetensors_dtype(t))) type = "mixed";
    }
    um_sheet_group(s, "weights");
    um_sheet_int(s, "tensors", (int64_t)n, NULL);
    um_sheet_int(s, "elements", elements, NULL);
    um_sheet_str(s, "stored_as", type);
    um_sheet_group_end(s);
}

static void put_adapters(um_sheet *s, const um_model *m) {
    um_sheet_list(s, "adapters");
    for (int32_t i = 0; i < m->n_adapters; i++) {
        const um_adapter_info *a = &m->adapter[i];
        um_sheet_item(s, a->name, a->path);
        um_sheet_str(s, "path", a->path);
        um_sheet_str(s, "made_for", a->base);
        um_sheet_int(s, "rank", a->rank, NULL);
        um_sheet_int(s, "parameters", a->n_params, NULL);
        um_sheet_bool(s, "merged", a->merged);
        um_sheet_item_end(s);
    }
    um_sheet_list_end(s);
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

/* Configuration alone is worth a look; so a tokenizer or weights that can't be read are said, not fatal. */
static um_status open_folder(folder *f, const inspect_options *o, um_err *err) {
    um_arch_source from = {.family = o->model_name, .mask_id = o->mask_token_id};
    um_err why;
    um_status s = um_model_find(&f->path, o->model, err);
    from.dir = f->path;
    if (!s) s = um_arch_load(&f->arch, &from, err); /* what it is not is said before what is missing */
    if (!s && um_safetensors_open(&f->weights, f->path, &why)) um_warn("%s", why.msg);
    if (!s && um_tok_open(&f->tok, f->path, &why)) um_warn("%s", why.msg);
    from.tok = f->tok;
    from.tensors = f->weights;
    if (!s) s = um_arch_load(&f->arch, &from, err);
    if (!s && f->tok) s = um_chat_open(&f->chat, f->path, f->tok, NULL, f->arch.family->chat, err);
    if (!s && o->lora && !f->weights)
        s = um_fail(err, UM_ENOENT, "%s has no weights that adapters could be checked against", f->path);
    if (!s && o->lora) s = um_model_sketch(&f->adapted, f->path, &f->arch, f->weights, o->lora, o->lora_merge, err);
    return s ? um_cli_blame_model(err) : UM_OK;
}

static void close_folder(folder *f) {
    um_model_close(f->adapted);
    um_safetensors_close(f->weights);
    um_chat_close(f->chat);
    um_tok_close(f->tok);
    um_free(f->path);
}

static void print_folder(const folder *f, bool json) {
    um_sheet s;
    um_sheet_begin(&s, json);
    put_family(&s, f);
    put_special_ids(&s, f);
    put_sizes(&s, &f->arch);
    put_memory(&s, &f->arch);
    put_defaults(&s, &f->arch);
    if (f->tok) put_tokenizer(&s, f);
    if (f->weights) put_weights(&s, f);
    if (f->adapted) put_adapters(&s, f->adapted);
    um_sheet_end(&s);
}

static int run(const um_command *self, int argc, char **argv) {
    inspect_options o;
    um_args args;
    folder f = {0};
    um_err err;
    um_args_parse(&args, self, argc, argv, &o, NULL);
    int status = args.exit;
    if (args.done) goto done;
    um_status s = UM_OK;
    if (args.n_words > 1)
        s = um_fail(&err, UM_EINVAL, "expected one folder, found \"%.80s\" behind \"%.80s\"", args.word[1],
                    args.word[0]);
    if (args.n_words == 1) o.model = args.word[0];
    if (!s) s = um_cli_need_model(o.model, &err);
    if (!s) s = open_folder(&f, &o, &err);
    if (s) status = um_cli_error(self, &err);
    else print_folder(&f, o.json);
done:
    close_folder(&f);
    um_args_free(&args);
    return status;
}

const um_command um_cmd_inspect = {
    .name = "inspect",
    .summary = "what a checkpoint is, without reading its weights",
    .usage = "unmask inspect [options] DIR",
    .description = "Prints family and how it was recognised, sizes, memory needed, decoding defaults and facts of the "
                   "tokenizer. Of the weights only the headers are read.",
    .examples = "  unmask inspect models/tiny-block\n"
                "  unmask inspect models/tiny-full --json\n"
                "  unmask inspect --model models/tiny-block --model-name sdar\n",
    .options = rows,
    .n_options = UM_LEN(rows),
    .arguments = "DIR",
    .run = run,
};
