/* Opens a tokenizer: finds the files of a folder, reads the vocabulary in its format and builds the stages. */
#include <dirent.h>
#include <stdlib.h>

#include "text/tok.h"

/* ---- Stages ------------------------------------------------------------------------------------------------------ */

static um_status load_bpe(um_tok *t, const um_parts *p, const json_t *model, um_err *err) {
    um_status st = um_bpe_load(&t->bpe, &t->vocab, model, t->pre.byte_level, &t->arena, p->path, err);
    if (st) return st;
    um_merging m;
    um_merging_begin(&m, &t->bpe, &t->vocab, err);
    st = p->read_merges(p, &m);
    um_merging_end(&m);
    if (!st) um_bpe_finish(&t->bpe, &t->vocab);
    return st;
}

static um_status load_model(um_tok *t, const um_parts *p, um_err *err) {
    const json_t *model = json_object_get(p->stages, "model");
    const char *type = json_string_value(json_object_get(model, "type"));
    if (!type && json_object_get(model, "merges")) type = "BPE";
    if (!type) return um_fail(err, UM_EPARSE, "%s: \"model\" must be an object with a \"type\"", p->path);
    t->is_wordlevel = um_streq(type, "WordLevel");
    if (!t->is_wordlevel && !um_streq(type, "BPE"))
        return um_fail(err, UM_EUNSUPPORTED, "%s: model of type \"%.60s\" is not supported; BPE and WordLevel are",
                       p->path, type);
    um_status st = p->read_vocab(p, &t->vocab, &t->arena, err);
    if (st) return st;
    if (t->is_wordlevel) return um_wordlevel_load(&t->wordlevel, &t->vocab, model, t->pre.byte_level, p->path, err);
    return load_bpe(t, p, model, err);
}

static um_status load_stages(um_tok *t, const um_parts *p, um_err *err) {
    const json_t *json = p->stages;
    const char *where = p->path;
    if (!json_is_object(json)) return um_fail(err, UM_EPARSE, "%s: expected a JSON object", where);
    const char *version = json_string_value(json_object_get(json, "version"));
    if (!version) um_warn("%s: no \"version\", 1.0 is assumed", where);
    else if (!um_streq(version, "1.0"))
        return um_fail(err, UM_EUNSUPPORTED, "%s: version \"%.20s\" is not supported, only 1.0 is", where, version);
    um_status st = um_norm_load(&t->norm, json_object_get(json, "normalizer"), &t->arena, where, err);
    if (!st) st = um_pretok_load(&t->pre, json_object_get(json, "pre_tokenizer"), &t->arena, where, err);
    if (!st) st = um_post_load(&t->post, json_object_get(json, "post_processor"), where, err);
    if (!st) st = um_decoder_load(&t->dec, json_object_get(json, "decoder"), &t->arena, where, err);
    if (!st) st = load_model(t, p, err);
    um_vocab_init(&t->added_names, &t->arena);
    if (!st) st = um_added_load(t, json_object_get(json, "added_tokens"), where, err);
    return st;
}

/* ---- Derived tables ---------------------------------------------------------------------------------------------- */

static um_status build_tries(um_tok *t, um_err *err) {
    um_match_state scan = {0};
    um_buf buf[2] = {{0}, {0}};
    um_status st = UM_OK;
    for (size_t i = 0; i < t->n_added && !st; i++) {
        um_added *a = &t->added[i];
        um_str key = a->text;
        if (a->normalized) st = um_norm_apply(&t->norm, &scan, a->text, buf, &key, err);
        if (!st) um_trie_add(&t->trie[a->normalized], key, (int32_t)i);
        t->has_normalized_special |= a->normalized && a->special;
    }
    um_buf_free(&buf[0]);
    um_buf_free(&buf[1]);
    um_scan_free(&scan);
    return st;
}

/* Appends the bytes that the decoder writes for a token of the model. */
static void token_bytes(const um_tok *t, um_str text, um_buf *out) {
    int byte = um_decoder_byte(&t->dec, text);
    if (byte >= 0) um_buf_putc(out, (char)byte);
    else if (t->dec.mode == UM_STREAM_BYTES) {
        if (!um_byte_chars_decode(text, out)) um_buf_append(out, text.p, text.n);
    } else um_decoder_token(&t->dec, text, false, false, out);
}

static void build_bytes(um_tok *t) {
    um_buf b = {0};
    for (int32_t id = 0; id < t->vocab.size; id++) {
        if (!t->vocab.token[id].p) continue;
        um_buf_clear(&b);
        token_bytes(t, t->vocab.token[id], &b);
        t->bytes[id] = (um_str){um_arena_strndup(&t->arena, b.data ? b.data : "", b.len), b.len};
    }
    um_buf_free(&b);
}

static um_status finish(um_tok *t, um_err *err) {
    t->size = t->vocab.size;
    for (size_t i = 0; i < t->n_added; i++) t->size = UM_MAX(t->size, t->added[i].id + 1);
    t->bytes = UM_NEW_ARRAY(um_str, (size_t)t->size + 1);
    um_added_reach(t, (size_t)t->size + 1);
    build_bytes(t);
    for (size_t i = 0; i < t->n_added; i++) t->bytes[t->added[i].id] = t->added[i].text;
    for (size_t i = 0; i < t->n_named; i++) t->named[i].id = um_tok_find(t, t->named[i].text);
    return build_tries(t, err);
}

/* ---- Side files -------------------------------------------------------------------------------------------------- */

/* Loads the side files. If tokenizer_config.json lists the added tokens, the two older files are ignored, because some
 * checkpoints ship stale ones. */
static um_status load_side_files(um_tok *t, const um_parts *p, um_err *err) {
    const um_tok_files *f = p->files;
    const char *map_path = f->path[UM_FILE_SPECIAL_MAP], *added_path = f->path[UM_FILE_ADDED];
    bool listed = json_is_object(json_object_get(p->config, "added_tokens_decoder"));
    json_t *map = NULL, *added = NULL;
    um_status st = UM_OK;
    if (!listed && p->takes_added_map && f->text[UM_FILE_ADDED].p) {
        st = um_json_read(&added, f->text[UM_FILE_ADDED], added_path, 0, err);
        if (!st) st = um_added_load_map(t, added, added_path, err);
    }
    if (!st && p->config) st = um_config_load(t, p->config, f->path[UM_FILE_CONFIG], err);
    if (!st && !listed && f->text[UM_FILE_SPECIAL_MAP].p) {
        st = um_json_read(&map, f->text[UM_FILE_SPECIAL_MAP], map_path, 0, err);
        if (!st) st = um_special_load(t, map, map_path, err);
    }
    if (!st && p->named) st = um_special_load(t, p->named, p->path, err);
    json_decref(map);
    json_decref(added);
    return st;
}

/* ---- Building ---------------------------------------------------------------------------------------------------- */

static um_status read_format(um_parts *p, um_err *err) {
    const um_tok_files *f = p->files;
    if (f->text[UM_FILE_TOKENIZER].p) return um_format_json(p, err);
    if (f->text[UM_FILE_VOCAB].p && f->text[UM_FILE_MERGES].p) return um_format_slow(p, err);
    if (f->text[UM_FILE_SPM].p) return um_format_spm(p, err);
    if (f->text[UM_FILE_TIKTOKEN].p) return um_format_tiktoken(p, err);
    return um_fail(err, UM_ENOENT,
                   "no tokenizer in %s: looked for tokenizer.json, vocab.json with merges.txt, tokenizer.model and "
                   "*.tiktoken, or the tokenizer_file that tokenizer_config.json names",
                   f->dir);
}

static um_status build(um_tok *t, um_parts *p, um_err *err) {
    const um_tok_files *f = p->files;
    um_status st = UM_OK;
    if (f->text[UM_FILE_CONFIG].p)
        st = um_json_read(&p->config, f->text[UM_FILE_CONFIG], f->path[UM_FILE_CONFIG], JSON_DECODE_INT_AS_REAL, err);
    if (!st) st = read_format(p, err);
    if (!st) st = load_stages(t, p, err);
    if (!st) st = load_side_files(t, p, err);
    if (!st) st = finish(t, err);
    if (!st && p->config) st = um_config_around(t, p->config, f->path[UM_FILE_CONFIG], err);
    return st;
}

um_status um_tok_build(um_tok **out, const um_tok_files *files, um_err *err) {
    um_tok *t = UM_NEW(um_tok);
    um_parts p = {.files = files};
    um_arena_init(&t->arena, 0);
    um_status st = build(t, &p, err);
    json_decref(p.config);
    json_decref(p.stages);
    json_decref(p.named);
    *out = st ? NULL : t;
    if (st) um_tok_close(t);
    return st;
}

/* ---- Files of a folder ------------------------------------------------------------------------------------------- */

static const char *const file_names[UM_N_FILES] = {
    [UM_FILE_TOKENIZER] = "tokenizer.json",
    [UM_FILE_VOCAB] = "vocab.json",
    [UM_FILE_MERGES] = "merges.txt",
    [UM_FILE_SPM] = "tokenizer.model",
    [UM_FILE_TIKTOKEN] = "*.tiktoken",
    [UM_FILE_CONFIG] = "tokenizer_config.json",
    [UM_FILE_SPECIAL_MAP] = "special_tokens_map.json",
    [UM_FILE_ADDED] = "added_tokens.json",
};

void um_tok_files_init(um_tok_files *f, const char *dir) {
    *f = (um_tok_files){.dir = dir};
    for (int i = 0; i < UM_N_FILES; i++) f->path[i] = um_path_join(dir, file_names[i]);
}

void um_tok_files_free(um_tok_files *f) {
    for (int i = 0; i < UM_N_FILES; i++) {
        um_free(f->path[i]);
        um_buf_free(&f->read[i]);
    }
}

/* Reads one file if it exists. */
static um_status read_file(um_tok_files *f, int which, um_err *err) {
    if (!um_file_exists(f->path[which])) return UM_OK;
    um_status st = um_file_read(f->path[which], UM_TOK_FILE_MAX, &f->read[which], err);
    um_buf_reserve(&f->read[which], 1); /* gives an empty file a non-NULL text too */
    f->text[which] = (um_str){f->read[which].data, f->read[which].len};
    return st;
}

static bool is_tiktoken(const char *name) {
    size_t n = strlen(name);
    return n > 9 && um_streq(name + n - 9, ".tiktoken");
}

/* Finds the folder's *.tiktoken file. The first by name wins, whatever the order of the directory's entries. */
static void find_tiktoken(um_tok_files *f) {
    DIR *d = opendir(f->dir);
    char *first = NULL;
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        if (!is_tiktoken(e->d_name) || (first && strcmp(e->d_name, first) > 0)) continue;
        um_free(first);
        first = um_strdup(e->d_name);
    }
    if (d) closedir(d);
    if (!first) return;
    um_free(f->path[UM_FILE_TIKTOKEN]);
    f->path[UM_FILE_TIKTOKEN] = um_path_join(f->dir, first);
    um_free(first);
}

/* Uses the file that tokenizer_file of the configuration names, in the same folder, as the tiktoken file. */
static um_status find_named_file(um_tok_files *f, um_err *err) {
    json_t *config = NULL;
    um_status st = UM_OK;
    if (f->text[UM_FILE_CONFIG].p)
        st = um_json_read(&config, f->text[UM_FILE_CONFIG], f->path[UM_FILE_CONFIG], JSON_DECODE_INT_AS_REAL, err);
    const char *name = json_string_value(json_object_get(config, "tokenizer_file"));
    if (name && *name && !strchr(name, '/')) {
        um_free(f->path[UM_FILE_TIKTOKEN]);
        f->path[UM_FILE_TIKTOKEN] = um_path_join(f->dir, name);
    }
    json_decref(config);
    return st;
}

/* Reads the files. The first vocabulary format that exists is read, later formats are ignored. */
static um_status read_files(um_tok_files *f, um_err *err) {
    um_status st = read_file(f, UM_FILE_CONFIG, err);
    if (!st) st = read_file(f, UM_FILE_TOKENIZER, err);
    bool found = f->text[UM_FILE_TOKENIZER].p;
    if (!st && !found && um_file_exists(f->path[UM_FILE_VOCAB]) && um_file_exists(f->path[UM_FILE_MERGES])) {
        found = true;
        st = read_file(f, UM_FILE_VOCAB, err);
        if (!st) st = read_file(f, UM_FILE_MERGES, err);
        if (!st) st = read_file(f, UM_FILE_ADDED, err);
    }
    if (!st && !found) st = read_file(f, UM_FILE_SPM, err);
    found = found || f->text[UM_FILE_SPM].p;
    if (!st && !found) {
        find_tiktoken(f);
        if (!um_file_exists(f->path[UM_FILE_TIKTOKEN])) st = find_named_file(f, err);
        if (!st) st = read_file(f, UM_FILE_TIKTOKEN, err);
    }
    return st ? st : read_file(f, UM_FILE_SPECIAL_MAP, err);
}

um_status um_tok_open(um_tok **out, const char *dir, um_err *err) {
    um_tok_files f;
    *out = NULL;
    um_tok_files_init(&f, dir);
    um_status st = read_files(&f, err);
    if (!st) st = um_tok_build(out, &f, err);
    um_tok_files_free(&f);
    return st;
}

um_status um_tok_parse(um_tok **out, um_str tokenizer, um_str config, um_str special_map, const char *dir,
                       um_err *err) {
    um_tok_files f;
    um_tok_files_init(&f, dir);
    f.text[UM_FILE_TOKENIZER] = tokenizer;
    f.text[UM_FILE_CONFIG] = config;
    f.text[UM_FILE_SPECIAL_MAP] = special_map;
    um_status st = um_tok_build(out, &f, err);
    um_tok_files_free(&f);
    return st;
}

um_status um_tok_config_load(json_t **out, const char *path, um_err *err) {
    *out = NULL;
    um_buf text = {0};
    if (!um_file_exists(path)) return UM_OK;
    um_status st = um_file_read(path, UM_TOK_FILE_MAX, &text, err);
    if (!st) st = um_json_read(out, (um_str){text.data, text.len}, path, JSON_DECODE_INT_AS_REAL, err);
    um_buf_free(&text);
    return st;
}

void um_tok_close(um_tok *t) {
    if (!t) return;
    json_decref(t->extra_special);
    um_norm_free(&t->norm);
    um_pretok_free(&t->pre);
    um_post_free(&t->post);
    um_decoder_free(&t->dec);
    um_bpe_free(&t->bpe);
    um_trie_free(&t->trie[0]);
    um_trie_free(&t->trie[1]);
    um_vocab_free(&t->vocab);
    um_vocab_free(&t->added_names);
    um_free(t->added);
    um_free(t->bytes);
    um_free(t->added_of);
    um_arena_free(&t->arena);
    um_free(t);
}
