/* Builds a tokenizer from the files of a checkpoint folder. */
#include <stdlib.h>

#include "text/tok.h"

/* ---- Added tokens ------------------------------------------------------------------------------------------------ */

static um_added *added_find(const um_tok *t, um_str text) {
    for (size_t i = 0; i < t->n_added; i++)
        if (um_str_eq(t->added[i].text, text)) return &t->added[i];
    return NULL;
}

static um_added *added_by_id(const um_tok *t, int32_t id) {
    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].id == id) return &t->added[i];
    return NULL;
}

static um_status added_push(um_tok *t, const um_added *a, const char *where, um_err *err) {
    if (t->n_added >= UM_TOK_ADDED_MAX)
        return um_fail(err, UM_ELIMIT, "%s: more than %d added tokens", where, UM_TOK_ADDED_MAX);
    if (t->n_added == t->cap_added) {
        t->cap_added = t->cap_added ? t->cap_added * 2 : 64;
        t->added = (um_added *)um_realloc(t->added, um_mul(t->cap_added, sizeof *t->added));
    }
    t->added[t->n_added] = *a;
    t->added[t->n_added++].text.p = um_arena_strndup(&t->arena, a->text.p, a->text.n);
    return UM_OK;
}

/* Fields of an entry except its id. `text` is borrowed from json. */
static um_status added_read(um_added *a, const json_t *json, const char *where, um_err *err) {
    const json_t *content = json_object_get(json, "content");
    if (!json_is_string(content))
        return um_fail(err, UM_EPARSE, "%s: an added token must have a string \"content\"", where);
    *a = (um_added){.text = {json_string_value(content), json_string_length(content)}, .id = -1};
    if (a->text.n > UM_TOK_BYTES_MAX)
        return um_fail(err, UM_ELIMIT, "%s: added token of %zu bytes, at most %d are allowed", where, a->text.n,
                       UM_TOK_BYTES_MAX);
    um_status st = um_json_get_bool(json, "special", where, &a->special, err);
    a->normalized = !a->special;
    if (!st) st = um_json_get_bool(json, "single_word", where, &a->single_word, err);
    if (!st) st = um_json_get_bool(json, "lstrip", where, &a->lstrip, err);
    if (!st) st = um_json_get_bool(json, "rstrip", where, &a->rstrip, err);
    return st ? st : um_json_get_bool(json, "normalized", where, &a->normalized, err);
}

/* The id that counts: the model's, when the content is one of its tokens. An id taken by another string can't be right
 * either way. */
static um_status added_settle_id(const um_tok *t, um_added *a, const char *where, um_err *err) {
    int32_t own = um_vocab_find(&t->vocab, a->text);
    if (own >= 0) {
        if (own != a->id)
            um_warn("%s: added token \"%.60s\" has the id %d in the vocabulary, not %d", where, a->text.p, own, a->id);
        a->id = own;
        return UM_OK;
    }
    if (a->id < t->vocab.size && t->vocab.token[a->id].p)
        return um_fail(err, UM_EPARSE, "%s: added token \"%.60s\" has the id %d, which is \"%.60s\" in the vocabulary",
                       where, a->text.p, a->id, t->vocab.token[a->id].p);
    return UM_OK;
}

static um_status load_added(um_tok *t, const json_t *list, const char *where, um_err *err) {
    const json_t *item;
    size_t i;
    json_array_foreach(list, i, item) {
        um_added a;
        int32_t id = -1;
        um_status st = added_read(&a, item, where, err);
        if (!st) st = um_json_get_int32(item, "id", where, 0, UM_TOK_ID_MAX - 1, &id, err);
        if (st) return st;
        if (a.text.n == 0 || added_find(t, a.text)) continue;
        if (id < 0) return um_fail(err, UM_EPARSE, "%s: added token \"%.60s\" has no id", where, a.text.p);
        a.id = id;
        if ((st = added_settle_id(t, &a, where, err))) return st;
        const um_added *other = added_by_id(t, a.id);
        if (other)
            return um_fail(err, UM_EPARSE, "%s: added tokens \"%.60s\" and \"%.60s\" share the id %d", where,
                           other->text.p, a.text.p, a.id);
        if ((st = added_push(t, &a, where, err))) return st;
    }
    return UM_OK;
}

/* ---- Side files -------------------------------------------------------------------------------------------------- */

static const char *const special_names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                            "pad_token", "cls_token", "mask_token"};

/* added_tokens_decoder of tokenizer_config.json: tokenizer.json wins where the two differ. */
static um_status merge_added(um_tok *t, const json_t *object, const char *where, um_err *err) {
    json_t *o = (json_t *)object;
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it)) {
        um_added a;
        char *end;
        long id = strtol(json_object_iter_key(it), &end, 10);
        if (*end || end == json_object_iter_key(it) || id < 0 || id >= UM_TOK_ID_MAX)
            return um_fail(err, UM_EPARSE, "%s: added_tokens_decoder: \"%.60s\" is not an id", where,
                           json_object_iter_key(it));
        um_status st = added_read(&a, json_object_iter_value(it), where, err);
        if (st) return st;
        a.id = (int32_t)id;
        um_added *same = added_find(t, a.text);
        if (same) same->special |= a.special;
        if (same || a.text.n == 0) continue;
        um_str own = um_vocab_find(&t->vocab, a.text) == a.id ? (um_str){0} : um_tok_text(t, a.id);
        const um_added *other = added_by_id(t, a.id);
        if (other) own = other->text;
        if (own.p) {
            um_warn("%s: added_tokens_decoder gives the id %d to \"%.60s\", which is \"%.60s\" in tokenizer.json",
                    where, a.id, a.text.p, own.p);
            continue;
        }
        if ((st = added_settle_id(t, &a, where, err))) return st;
        if ((st = added_push(t, &a, where, err))) return st;
    }
    return UM_OK;
}

/* A special token named by a side file: a string, or an object with "content". p NULL: absent. */
static um_str named_text(const json_t *value) {
    if (json_is_object(value)) value = json_object_get(value, "content");
    if (!json_is_string(value) || json_string_length(value) == 0) return (um_str){NULL, 0};
    return (um_str){json_string_value(value), json_string_length(value)};
}

/* Marks a named token as special. A token of the model that the list of added tokens lacks becomes one, as in the
 * reference, so that text can spell it. */
static um_status mark_special(um_tok *t, um_str text, const char *where, um_err *err) {
    um_added *a = added_find(t, text);
    if (a) {
        a->special = true;
        return UM_OK;
    }
    um_added add = {.text = text, .id = um_vocab_find(&t->vocab, text), .special = true};
    return add.id < 0 ? UM_OK : added_push(t, &add, where, err);
}

static um_status add_named(um_tok *t, const char *name, const json_t *value, const char *where, um_err *err) {
    um_str text = named_text(value);
    if (!text.p) return UM_OK;
    for (size_t i = 0; i < t->n_named; i++)
        if (um_streq(t->named[i].name, name)) return UM_OK;
    if (t->n_named == UM_TOK_NAMED_MAX)
        return um_fail(err, UM_ELIMIT, "%s: more than %d named special tokens", where, UM_TOK_NAMED_MAX);
    um_named *n = &t->named[t->n_named++];
    n->name = um_arena_strndup(&t->arena, name, strlen(name));
    n->text = (um_str){um_arena_strndup(&t->arena, text.p, text.n), text.n};
    n->id = -1; /* found when every token is known */
    return mark_special(t, text, where, err);
}

static um_status add_extra(um_tok *t, const json_t *list, const char *where, um_err *err) {
    const json_t *item;
    size_t i;
    if (!json_is_array(list) || json_array_size(list) == 0) return UM_OK;
    if (!t->extra_special) t->extra_special = json_array();
    json_array_foreach(list, i, item) {
        um_str text = named_text(item);
        if (!text.p) continue;
        json_array_append_new(t->extra_special, json_stringn(text.p, text.n));
        um_status st = mark_special(t, text, where, err);
        if (st) return st;
    }
    return UM_OK;
}

static um_status add_specials(um_tok *t, const json_t *json, const char *where, um_err *err) {
    for (size_t i = 0; i < UM_LEN(special_names); i++) {
        um_status st = add_named(t, special_names[i], json_object_get(json, special_names[i]), where, err);
        if (st) return st;
    }
    um_status st = add_extra(t, json_object_get(json, "additional_special_tokens"), where, err);
    json_t *extra = json_object_get(json, "extra_special_tokens");
    if (!st) st = add_extra(t, extra, where, err);
    if (!json_is_object(extra)) return st;
    for (void *it = json_object_iter(extra); it && !st; it = json_object_iter_next(extra, it))
        st = add_named(t, json_object_iter_key(it), json_object_iter_value(it), where, err);
    return st;
}

static um_status load_config(um_tok *t, const json_t *config, const char *where, um_err *err) {
    if (!json_is_object(config)) return um_fail(err, UM_EPARSE, "%s: expected a JSON object", where);
    const json_t *added = json_object_get(config, "added_tokens_decoder");
    um_status st = json_is_object(added) ? merge_added(t, added, where, err) : UM_OK;
    if (!st) st = add_specials(t, config, where, err);
    if (!st) st = um_json_get_bool(config, "split_special_tokens", where, &t->split_special, err);
    bool clean_up = false;
    if (!st) st = um_json_get_bool(config, "clean_up_tokenization_spaces", where, &clean_up, err);
    if (!st && clean_up)
        um_warn("%s: clean_up_tokenization_spaces is not applied: decoded text keeps spaces in front of punctuation",
                where);
    return st;
}

/* add_bos_token and add_eos_token, where the post-processor does not say it already. */
static um_status config_around(um_tok *t, const json_t *config, const char *where, um_err *err) {
    bool bos = false, eos = false;
    um_status st = um_json_get_bool(config, "add_bos_token", where, &bos, err);
    if (!st) st = um_json_get_bool(config, "add_eos_token", where, &eos, err);
    if (st || t->post.before.n || t->post.after.n) return st;
    int32_t id = um_tok_special_id(t, "bos_token");
    if (bos && id >= 0) um_ids_push(&t->post.before, id);
    id = um_tok_special_id(t, "eos_token");
    if (eos && id >= 0) um_ids_push(&t->post.after, id);
    return UM_OK;
}

/* ---- tokenizer.json ---------------------------------------------------------------------------------------------- */

static um_status load_model(um_tok *t, const json_t *model, const char *where, um_err *err) {
    const char *type = json_string_value(json_object_get(model, "type"));
    if (!type && json_object_get(model, "merges")) type = "BPE";
    if (!type) return um_fail(err, UM_EPARSE, "%s: \"model\" must be an object with a \"type\"", where);
    t->is_wordlevel = um_streq(type, "WordLevel");
    if (!t->is_wordlevel && !um_streq(type, "BPE"))
        return um_fail(err, UM_EUNSUPPORTED, "%s: model of type \"%.60s\" is not supported; BPE and WordLevel are",
                       where, type);
    um_status st = um_vocab_load(&t->vocab, json_object_get(model, "vocab"), &t->arena, where, err);
    if (st) return st;
    if (t->is_wordlevel) return um_wordlevel_load(&t->wordlevel, &t->vocab, model, t->pre.byte_level, where, err);
    return um_bpe_load(&t->bpe, &t->vocab, model, t->pre.byte_level, &t->arena, where, err);
}

static um_status load_tokenizer(um_tok *t, const json_t *json, const char *where, um_err *err) {
    if (!json_is_object(json)) return um_fail(err, UM_EPARSE, "%s: expected a JSON object", where);
    const char *version = json_string_value(json_object_get(json, "version"));
    if (!version) um_warn("%s: no \"version\", 1.0 is assumed", where);
    else if (!um_streq(version, "1.0"))
        return um_fail(err, UM_EUNSUPPORTED, "%s: version \"%.20s\" is not supported, only 1.0 is", where, version);
    um_status st = um_norm_load(&t->norm, json_object_get(json, "normalizer"), &t->arena, where, err);
    if (!st) st = um_pretok_load(&t->pre, json_object_get(json, "pre_tokenizer"), &t->arena, where, err);
    if (!st) st = um_post_load(&t->post, json_object_get(json, "post_processor"), where, err);
    if (!st) st = um_decoder_load(&t->dec, json_object_get(json, "decoder"), &t->arena, where, err);
    if (!st) st = load_model(t, json_object_get(json, "model"), where, err);
    if (!st) st = load_added(t, json_object_get(json, "added_tokens"), where, err);
    return st;
}

/* ---- What is derived --------------------------------------------------------------------------------------------- */

static um_status build_tries(um_tok *t, um_err *err) {
    um_scan scan = {0};
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

/* Bytes of a model token as the decoder writes it, appended to out. */
static void token_bytes(const um_tok *t, um_str text, um_buf *out) {
    int byte = um_decoder_byte(&t->dec, text);
    if (byte >= 0) um_buf_putc(out, (char)byte);
    else if (t->dec.mode == UM_STREAM_BYTES) {
        if (!um_stand_in_decode(text, out)) um_buf_append(out, text.p, text.n);
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
    t->added_of = (int32_t *)um_alloc(um_mul((size_t)t->size + 1, sizeof(int32_t)));
    memset(t->added_of, 0xFF, ((size_t)t->size + 1) * sizeof(int32_t));
    build_bytes(t);
    for (size_t i = 0; i < t->n_added; i++) {
        t->added_of[t->added[i].id] = (int32_t)i;
        t->bytes[t->added[i].id] = t->added[i].text;
    }
    for (size_t i = 0; i < t->n_named; i++) t->named[i].id = um_tok_find(t, t->named[i].text);
    return build_tries(t, err);
}

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

typedef struct sources {
    json_t *tokenizer, *config, *special_map;
    char *tokenizer_path, *config_path, *special_map_path;
} sources;

static um_status build(um_tok *t, const sources *s, um_err *err) {
    um_status st = load_tokenizer(t, s->tokenizer, s->tokenizer_path, err);
    if (!st && s->config) st = load_config(t, s->config, s->config_path, err);
    bool lists = s->config && json_object_get(s->config, "added_tokens_decoder");
    if (!st && s->special_map && !lists) st = add_specials(t, s->special_map, s->special_map_path, err);
    if (!st) st = finish(t, err);
    if (!st && s->config) st = config_around(t, s->config, s->config_path, err);
    return st;
}

static um_status build_new(um_tok **out, const sources *s, um_err *err) {
    um_tok *t = UM_NEW(um_tok);
    um_arena_init(&t->arena, 0);
    um_status st = build(t, s, err);
    *out = st ? NULL : t;
    if (st) um_tok_close(t);
    return st;
}

static void sources_name(sources *s, const char *dir) {
    *s = (sources){.tokenizer_path = um_path_join(dir, "tokenizer.json"),
                   .config_path = um_path_join(dir, "tokenizer_config.json"),
                   .special_map_path = um_path_join(dir, "special_tokens_map.json")};
}

static void sources_free(sources *s) {
    json_decref(s->tokenizer);
    json_decref(s->config);
    json_decref(s->special_map);
    um_free(s->tokenizer_path);
    um_free(s->config_path);
    um_free(s->special_map_path);
}

/* tokenizer_config.json: model_max_length is often 10^30, which is no 64-bit integer; the other integers of the file
 * are keys, so reading every number as a double loses nothing. */
static um_status parse_config(json_t **out, um_str text, const char *path, um_err *err) {
    json_error_t e;
    *out = json_loadb(text.p, text.n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &e);
    return *out ? UM_OK : um_fail(err, UM_EPARSE, "%s:%d:%d: %s", path, e.line, e.column, e.text);
}

um_status um_tok_config_load(json_t **out, const char *path, um_err *err) {
    *out = NULL;
    um_buf text = {0};
    um_status st = um_file_exists(path) ? um_file_read(path, UM_TOK_FILE_MAX, &text, err) : UM_OK;
    if (!st && text.data) st = parse_config(out, (um_str){text.data, text.len}, path, err);
    um_buf_free(&text);
    return st;
}

um_status um_tok_open(um_tok **out, const char *dir, um_err *err) {
    sources s;
    um_status st = UM_OK;
    *out = NULL;
    sources_name(&s, dir);
    if (!um_file_exists(s.tokenizer_path))
        st = um_fail(err, UM_ENOENT, "no tokenizer in %s: looked for tokenizer.json", dir);
    if (!st) st = um_json_load(&s.tokenizer, s.tokenizer_path, err);
    if (!st) st = um_tok_config_load(&s.config, s.config_path, err);
    if (!st && um_file_exists(s.special_map_path)) st = um_json_load(&s.special_map, s.special_map_path, err);
    if (!st) st = build_new(out, &s, err);
    sources_free(&s);
    return st;
}

um_status um_tok_parse(um_tok **out, um_str tokenizer, um_str config, um_str special_map, const char *dir,
                       um_err *err) {
    sources s;
    *out = NULL;
    sources_name(&s, dir);
    um_status st = um_json_parse(&s.tokenizer, tokenizer.p, tokenizer.n, s.tokenizer_path, err);
    if (!st && config.p) st = parse_config(&s.config, config, s.config_path, err);
    if (!st && special_map.p) st = um_json_parse(&s.special_map, special_map.p, special_map.n, s.special_map_path, err);
    if (!st) st = build_new(out, &s, err);
    sources_free(&s);
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
    um_free(t->added);
    um_free(t->bytes);
    um_free(t->added_of);
    um_arena_free(&t->arena);
    um_free(t);
}
