/* Reads vocab.json and merges.txt. They do not say how text is split; the tokenizer class that tokenizer_config.json
 * names determines that. */
#include "text/tok.h"

/* ---- Stages of a class: a tokenizer.json without vocabulary and merges ------------------------------------------- */

json_t *um_qwen_stages(bool prefix) {
    json_t *split =
        json_pack("{s:s, s:{s:s}, s:s}", "type", "Split", "pattern", "Regex", UM_QWEN_REGEX, "behavior", "Isolated");
    json_t *bytes = json_pack("{s:s, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", prefix, "use_regex", false);
    return json_pack("{s:s, s:{s:s}, s:{s:s}, s:{s:s, s:[o, o]}, s:{s:s}}", "version", "1.0", "model", "type", "BPE",
                     "normalizer", "type", "NFC", "pre_tokenizer", "type", "Sequence", "pretokenizers", split, bytes,
                     "decoder", "type", "ByteLevel");
}

static json_t *gpt2_stages(bool prefix) {
    return json_pack("{s:s, s:{s:s}, s:{s:s, s:b, s:b}, s:{s:s}}", "version", "1.0", "model", "type", "BPE",
                     "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", prefix, "use_regex", true, "decoder",
                     "type", "ByteLevel");
}

static const struct {
    const char *name; /* without a final "Fast" */
    json_t *(*stages)(bool prefix);
} classes[] = {
    {"Qwen2Tokenizer", um_qwen_stages},
    {"Qwen3Tokenizer", um_qwen_stages},
    {"DreamTokenizer", um_qwen_stages},
    {"GPT2Tokenizer", gpt2_stages},
};

/* ---- The configuration ------------------------------------------------------------------------------------------- */

um_str um_config_class(const json_t *config) {
    const json_t *value = json_object_get(config, "tokenizer_class");
    um_str s = json_is_string(value) ? (um_str){json_string_value(value), json_string_length(value)} : (um_str){"", 0};
    const char *dot = s.n ? (const char *)memrchr(s.p, '.', s.n) : NULL;
    if (dot) s = (um_str){dot + 1, s.n - (size_t)(dot + 1 - s.p)};
    if (s.n > 4 && memcmp(s.p + s.n - 4, "Fast", 4) == 0) s.n -= 4;
    return s;
}

static um_status fail_class(const um_parts *p, um_str name, um_err *err) {
    um_buf known = {0};
    for (size_t i = 0; i < UM_LEN(classes); i++)
        um_buf_printf(&known, "%s%s", i == 0 ? "" : (i + 1 < UM_LEN(classes) ? ", " : " and "), classes[i].name);
    um_status st = um_fail(
        err, UM_EUNSUPPORTED,
        "%s: tokenizer_class \"%.*s\" does not say how text is cut, which vocab.json and merges.txt need; %s do, "
        "or a tokenizer.json",
        p->files->path[UM_FILE_CONFIG], (int)UM_MIN(name.n, 60), name.p, known.data);
    um_buf_free(&known);
    return st;
}

um_status um_config_prefix(const um_parts *p, bool *prefix, um_err *err) {
    *prefix = false;
    if (!p->config) return UM_OK;
    return um_json_get_bool(p->config, "add_prefix_space", p->files->path[UM_FILE_CONFIG], prefix, err);
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

static um_status read_vocab(const um_parts *p, um_vocab *v, um_arena *a, um_err *err) {
    um_jread r = {p->path, p->files->text[UM_FILE_VOCAB], 0, err};
    size_t good = um_utf8_check(r.text.p, r.text.n);
    if (good < r.text.n) return um_jread_fail(&r, good, "valid UTF-8");
    um_vocab_init(v, a);
    um_status st = um_vocab_read(v, &r);
    if (!st && (um_jread_peek(&r) || r.at < r.text.n)) st = um_jread_fail(&r, r.at, "the end of the file");
    return st;
}

static um_status read_merges(const um_parts *p, um_merging *m) {
    return um_merging_read_lines(m, p->files->text[UM_FILE_MERGES], p->files->path[UM_FILE_MERGES]);
}

um_status um_format_slow(um_parts *p, um_err *err) {
    p->path = p->files->path[UM_FILE_VOCAB];
    p->read_vocab = read_vocab;
    p->read_merges = read_merges;
    p->takes_added_map = true;
    bool prefix;
    um_status st = um_config_prefix(p, &prefix, err);
    if (st) return st;
    um_str name = um_config_class(p->config);
    for (size_t i = 0; i < UM_LEN(classes) && !p->stages; i++)
        if (um_str_eq(name, um_str_of(classes[i].name))) p->stages = classes[i].stages(prefix);
    return p->stages ? UM_OK : fail_class(p, name, err);
}
