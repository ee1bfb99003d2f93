/* Writes the tokenizer in the metadata of a GGUF file as the text of a tokenizer.json and of a tokenizer_config.json.
 *
 * A GGUF file has the strings of all ids, a type for each, and the merges. It names the rule by which text is cut into
 * words, which also decides about the normalization, for which there is no key. The files do not store the flags of
 * added tokens; all tokenizers of the supported families have the same flags: matched before normalization, and without
 * the spaces around them. */
#include "model/gguf_model.h"

/* The types of tokens, with the numbers of the format. */
enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

#define TOKENS   "tokenizer.ggml.tokens"
#define TYPES    "tokenizer.ggml.token_type"
#define MERGES   "tokenizer.ggml.merges"
#define TEMPLATE "tokenizer.chat_template"
#define TOOLS    "tokenizer.chat_templates"

typedef struct vocabulary {
    const um_gguf *g;
    const char *where; /* path of the file, for messages */
    size_t n;          /* tokens */
    size_t n_merges;
    um_tok_rule rule;
} vocabulary;

static um_str token(const vocabulary *v, size_t id) { return um_gguf_array_string(v->g, TOKENS, id); }
static int64_t type(const vocabulary *v, size_t id) { return um_gguf_array_int(v->g, TYPES, id); }
static bool is_added(const vocabulary *v, size_t id) { return type(v, id) == CONTROL || type(v, id) == USER_DEFINED; }

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

/* The number of bytes of a word of the file that a message shows. */
static int shown(um_str s) { return (int)UM_MIN(s.n, (size_t)60); }

static um_status check_kind(vocabulary *v, um_err *err) {
    um_str model = {0}, pre = {0};
    if (!um_gguf_string(v->g, "tokenizer.ggml.model", &model))
        return um_fail(err, UM_EMODEL, "%s: tokenizer.ggml.model is missing: the file has no tokenizer", v->where);
    if (!um_str_eq(model, UM_STR("gpt2")))
        return um_fail(err, UM_EUNSUPPORTED,
                       "%s: tokenizer.ggml.model is \"%.*s\"; unmask reads \"gpt2\", byte-level BPE", v->where,
                       shown(model), model.p);
    if (!um_gguf_string(v->g, "tokenizer.ggml.pre", &pre))
        return um_fail(err, UM_EMODEL,
                       "%s: tokenizer.ggml.pre, which names the rule that cuts text into words, is missing; "
                       "convert the checkpoint again",
                       v->where);
    if (um_tok_rule_find(pre, &v->rule)) return UM_OK;
    um_buf known = {0};
    um_tok_rules_list(&known);
    um_status s = um_fail(err, UM_EUNSUPPORTED,
                          "%s: tokenizer.ggml.pre is \"%.*s\", an unknown rule to cut text into words; known are %s",
                          v->where, shown(pre), pre.p, known.data);
    um_buf_free(&known);
    return s;
}

static bool is_integer(um_gguf_type t) {
    return t != UM_GGUF_F32 && t != UM_GGUF_F64 && t != UM_GGUF_STRING && t != UM_GGUF_ARRAY;
}

static um_status check_lists(vocabulary *v, um_err *err) {
    um_gguf_type kind;
    size_t n_types;
    if (!um_gguf_array(v->g, TOKENS, &kind, &v->n) || kind != UM_GGUF_STRING)
        return um_fail(err, UM_EMODEL, "%s: " TOKENS " is missing or no list of strings", v->where);
    if (!um_gguf_array(v->g, TYPES, &kind, &n_types) || !is_integer(kind))
        return um_fail(err, UM_EMODEL, "%s: " TYPES " is missing or no list of integers", v->where);
    if (n_types != v->n)
        return um_fail(err, UM_EPARSE, "%s: " TYPES " has %zu entries for %zu tokens", v->where, n_types, v->n);
    if (!um_gguf_array(v->g, MERGES, &kind, &v->n_merges) || kind != UM_GGUF_STRING)
        return um_fail(err, UM_EMODEL, "%s: " MERGES " is missing or no list of strings", v->where);
    return UM_OK;
}

/* JSON is UTF-8. A key of the vocabulary is written as a C string. */
static um_status check_string(const vocabulary *v, const char *list, size_t i, um_str s, um_err *err) {
    if (um_utf8_check(s.p, s.n) < s.n)
        return um_fail(err, UM_EPARSE, "%s: %s[%zu] is not valid UTF-8", v->where, list, i);
    if (s.n && memchr(s.p, 0, s.n)) return um_fail(err, UM_EPARSE, "%s: %s[%zu] contains U+0000", v->where, list, i);
    return UM_OK;
}

static um_status check_strings(const vocabulary *v, um_err *err) {
    um_status s = UM_OK;
    for (size_t i = 0; i < v->n && !s; i++) {
        if (type(v, i) < NORMAL || type(v, i) > BYTE)
            return um_fail(err, UM_EPARSE, "%s: " TYPES "[%zu] is %lld, expected %d to %d", v->where, i,
                           (long long)type(v, i), NORMAL, BYTE);
        s = check_string(v, TOKENS, i, token(v, i), err);
    }
    for (size_t i = 0; i < v->n_merges && !s; i++)
        s = check_string(v, MERGES, i, um_gguf_array_string(v->g, MERGES, i), err);
    return s;
}

/* ---- tokenizer.json ---------------------------------------------------------------------------------------------- */

static void put_added(const vocabulary *v, um_jw *w) {
    um_jw_key(w, "added_tokens");
    um_jw_begin_array(w);
    for (size_t i = 0; i < v->n; i++) {
        if (!is_added(v, i)) continue;
        um_jw_begin_object(w);
        um_jw_put_int(w, "id", (int64_t)i);
        um_jw_put_str(w, "content", token(v, i));
        um_jw_put_bool(w, "normalized", false);
        um_jw_put_bool(w, "special", type(v, i) == CONTROL);
        um_jw_end_object(w);
    }
    um_jw_end_array(w);
}

/* Writes the stages around the model. The expression splits the text, so the byte-level stages only turn the bytes into
 * characters. */
static void put_stages(const vocabulary *v, um_jw *w) {
    static const char bytes[] = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}";
    um_jw_key(w, "normalizer");
    if (v->rule.nfc) {
        um_jw_begin_object(w);
        um_jw_put_cstr(w, "type", "NFC");
        um_jw_end_object(w);
    } else um_jw_null(w);
    um_jw_key(w, "pre_tokenizer");
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "type", "Sequence");
    um_jw_key(w, "pretokenizers");
    um_jw_begin_array(w);
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "type", "Split");
    um_jw_key(w, "pattern");
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "Regex", v->rule.regex);
    um_jw_end_object(w);
    um_jw_put_cstr(w, "behavior", "Isolated");
    um_jw_end_object(w);
    um_jw_raw(w, bytes, sizeof bytes - 1);
    um_jw_end_array(w);
    um_jw_end_object(w);
    um_jw_key(w, "decoder");
    um_jw_raw(w, bytes, sizeof bytes - 1);
}

/* Writes the vocabulary and the merges. Converters fill the ids that the tokenizer lacks with unused tokens, which are
 * left out: no answer may contain them. */
static void put_model(const vocabulary *v, um_jw *w) {
    um_buf key = {0};
    um_jw_key(w, "model");
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "type", "BPE");
    um_jw_key(w, "vocab");
    um_jw_begin_object(w);
    for (size_t i = 0; i < v->n; i++) {
        if (is_added(v, i) || type(v, i) == UNUSED) continue;
        um_str s = token(v, i);
        um_buf_clear(&key);
        um_buf_append(&key, s.p, s.n);
        um_jw_put_int(w, key.data, (int64_t)i);
    }
    um_jw_end_object(w);
    um_jw_key(w, "merges");
    um_jw_begin_array(w);
    for (size_t i = 0; i < v->n_merges; i++) {
        um_str s = um_gguf_array_string(v->g, MERGES, i);
        um_jw_str(w, s.p, s.n);
    }
    um_jw_end_array(w);
    um_jw_end_object(w);
    um_buf_free(&key);
}

static void put_tokenizer(const vocabulary *v, um_buf *out) {
    um_jw w;
    um_jw_init(&w, out);
    um_jw_begin_object(&w);
    um_jw_put_cstr(&w, "version", "1.0");
    put_added(v, &w);
    put_stages(v, &w);
    put_model(v, &w);
    um_jw_end_object(&w);
}

/* ---- tokenizer_config.json --------------------------------------------------------------------------------------- */

/* Writes the special tokens by name. An unused token stands for an id without a token in the tokenizer. */
static void put_special(const vocabulary *v, um_jw *w) {
    static const char *const names[][2] = {
        {"bos_token", "tokenizer.ggml.bos_token_id"},     {"eos_token", "tokenizer.ggml.eos_token_id"},
        {"unk_token", "tokenizer.ggml.unknown_token_id"}, {"sep_token", "tokenizer.ggml.seperator_token_id"},
        {"pad_token", "tokenizer.ggml.padding_token_id"}, {"cls_token", "tokenizer.ggml.cls_token_id"},
        {"mask_token", "tokenizer.ggml.mask_token_id"}};
    for (size_t i = 0; i < UM_LEN(names); i++) {
        int64_t id = -1;
        if (!um_gguf_int(v->g, names[i][1], &id) || id < 0 || (uint64_t)id >= v->n) continue;
        if (type(v, (size_t)id) != UNUSED) um_jw_put_str(w, names[i][0], token(v, (size_t)id));
    }
}

static void put_switch(const vocabulary *v, um_jw *w, const char *name, const char *key) {
    bool on;
    if (um_gguf_bool(v->g, key, &on)) um_jw_put_bool(w, name, on);
}

static void put_template(um_jw *w, const char *name, size_t len, um_str source) {
    um_jw_begin_object(w);
    um_jw_put_str(w, "name", (um_str){name, len});
    um_jw_put_str(w, "template", source);
    um_jw_end_object(w);
}

/* Writes the chat template, or the list of the named templates with the default one. */
static void put_templates(const vocabulary *v, um_jw *w) {
    um_str source = {0};
    um_gguf_type kind;
    size_t n = 0;
    bool has_default = um_gguf_string(v->g, TEMPLATE, &source);
    if (!um_gguf_array(v->g, TOOLS, &kind, &n) || kind != UM_GGUF_STRING) n = 0;
    if (!n && has_default) um_jw_put_str(w, "chat_template", source);
    if (!n) return;
    um_jw_key(w, "chat_template");
    um_jw_begin_array(w);
    if (has_default) put_template(w, "default", strlen("default"), source);
    for (size_t i = 0; i < n; i++) {
        um_str name = um_gguf_array_string(v->g, TOOLS, i);
        um_buf key = {0};
        um_buf_printf(&key, TEMPLATE ".%.*s", shown(name), name.p);
        if (um_gguf_string(v->g, key.data, &source)) put_template(w, name.p, name.n, source);
        um_buf_free(&key);
    }
    um_jw_end_array(w);
}

static void put_config(const vocabulary *v, um_buf *out) {
    um_jw w;
    um_jw_init(&w, out);
    um_jw_begin_object(&w);
    put_special(v, &w);
    put_switch(v, &w, "add_bos_token", "tokenizer.ggml.add_bos_token");
    put_switch(v, &w, "add_eos_token", "tokenizer.ggml.add_eos_token");
    um_jw_put_bool(&w, "clean_up_tokenization_spaces", false);
    put_templates(v, &w);
    um_jw_end_object(&w);
}

um_status um_gguf_tokenizer(const um_gguf *g, um_buf *tokenizer_json, um_buf *config_json, um_err *err) {
    vocabulary v = {.g = g, .where = um_gguf_path(g)};
    um_status s = check_kind(&v, err);
    if (!s) s = check_lists(&v, err);
    if (!s) s = check_strings(&v, err);
    if (s) return s;
    if (tokenizer_json) put_tokenizer(&v, tokenizer_json);
    put_config(&v, config_json);
    return UM_OK;
}
