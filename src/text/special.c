/* Loads added tokens, and the special tokens that side files name. */
#include <stdlib.h>

#include "text/tok.h"

/* ---- The list of added tokens ------------------------------------------------------------------------------------ */

static um_added *added_find(const um_tok *t, um_str text) {
    int32_t i = um_vocab_find(&t->added_names, text);
    return i < 0 ? NULL : &t->added[i];
}

static um_added *added_by_id(const um_tok *t, int32_t id) {
    return (size_t)id < t->n_added_of && t->added_of[id] >= 0 ? &t->added[t->added_of[id]] : NULL;
}

void um_added_reach(um_tok *t, size_t n) {
    if (n <= t->n_added_of) return;
    n = UM_MAX(n, t->n_added_of * 2);
    t->added_of = (int32_t *)um_realloc(t->added_of, um_mul(n, sizeof *t->added_of));
    memset(t->added_of + t->n_added_of, 0xFF, (n - t->n_added_of) * sizeof *t->added_of);
    t->n_added_of = n;
}

static um_status added_push(um_tok *t, const um_added *a, const char *where, um_err *err) {
    if (t->n_added >= UM_TOK_ADDED_MAX)
        return um_fail(err, UM_ELIMIT, "%s: more than %d added tokens", where, UM_TOK_ADDED_MAX);
    if (t->n_added == t->cap_added) {
        t->cap_added = t->cap_added ? t->cap_added * 2 : 64;
        t->added = (um_added *)um_realloc(t->added, um_mul(t->cap_added, sizeof *t->added));
    }
    int32_t index = (int32_t)t->n_added;
    um_status st = um_vocab_add(&t->added_names, a->text, index, where, err);
    if (st) return st;
    um_added_reach(t, (size_t)a->id + 1);
    t->added_of[a->id] = index;
    t->added[index] = *a;
    t->added[index].text = t->added_names.token[index];
    t->n_added++;
    return UM_OK;
}

/* Reads the fields of an entry except its id. a->text points into json. */
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

/* Determines the id of an added token. If the model has a token with this content, the model's id wins. It is an error
 * if the id belongs to another token of the model. */
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

um_status um_added_load(um_tok *t, const json_t *list, const char *where, um_err *err) {
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

/* Loads added_tokens.json, an object content -> id. The other side files tell later which tokens are special. */
um_status um_added_load_map(um_tok *t, const json_t *object, const char *where, um_err *err) {
    json_t *o = (json_t *)object;
    if (!json_is_object(object)) return um_fail(err, UM_EPARSE, "%s: expected an object token -> id", where);
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it)) {
        um_added a = {.text = {json_object_iter_key(it), json_object_iter_key_len(it)}};
        int64_t id = 0;
        um_status st = um_json_get_int(o, a.text.p, where, 0, UM_TOK_ID_MAX - 1, &id, err);
        a.id = (int32_t)id;
        if (st) return st;
        if (a.text.n == 0 || added_find(t, a.text)) continue;
        if ((st = added_settle_id(t, &a, where, err))) return st;
        const um_added *other = added_by_id(t, a.id);
        if (other)
            return um_fail(err, UM_EPARSE, "%s: added tokens \"%.60s\" and \"%.60s\" share the id %d", where,
                           other->text.p, a.text.p, a.id);
        if ((st = added_push(t, &a, where, err))) return st;
    }
    return UM_OK;
}

/* Loads added_tokens_decoder of tokenizer_config.json. If it contradicts the vocabulary file, the latter wins. */
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
        if (same && same->id != a.id)
            um_warn("%s: added_tokens_decoder gives \"%.60s\" the id %d, but it has the id %d", where, a.text.p, a.id,
                    same->id);
        if (same || a.text.n == 0) continue;
        um_str own = um_vocab_find(&t->vocab, a.text) == a.id ? (um_str){0} : um_tok_text(t, a.id);
        const um_added *other = added_by_id(t, a.id);
        if (other) own = other->text;
        if (own.p) {
            um_warn("%s: added_tokens_decoder gives the id %d to \"%.60s\", which belongs to \"%.60s\"", where, a.id,
                    a.text.p, own.p);
            continue;
        }
        if ((st = added_settle_id(t, &a, where, err))) return st;
        if ((st = added_push(t, &a, where, err))) return st;
    }
    return UM_OK;
}

/* Returns the text of a special token in a side file: a string, or an object with "content". p NULL: missing. */
static um_str named_text(const json_t *value) {
    if (json_is_object(value)) value = json_object_get(value, "content");
    if (!json_is_string(value) || json_string_length(value) == 0) return (um_str){NULL, 0};
    return (um_str){json_string_value(value), json_string_length(value)};
}

/* Marks a named token as special. A token that only the model has becomes an added token, as in the reference, so that
 * it is recognized in text. */
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
    n->id = -1; /* set when all tokens are known */
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

um_status um_special_load(um_tok *t, const json_t *json, const char *where, um_err *err) {
    bool listed = t->extra_special != NULL; /* by a file that takes precedence */
    for (size_t i = 0; i < UM_LEN(special_names); i++) {
        um_status st = add_named(t, special_names[i], json_object_get(json, special_names[i]), where, err);
        if (st) return st;
    }
    json_t *extra = json_object_get(json, "extra_special_tokens");
    um_status st = listed ? UM_OK : add_extra(t, json_object_get(json, "additional_special_tokens"), where, err);
    if (!st && !listed) st = add_extra(t, extra, where, err);
    if (!json_is_object(extra)) return st;
    for (void *it = json_object_iter(extra); it && !st; it = json_object_iter_next(extra, it))
        st = add_named(t, json_object_iter_key(it), json_object_iter_value(it), where, err);
    return st;
}

um_status um_config_load(um_tok *t, const json_t *config, const char *where, um_err *err) {
    if (!json_is_object(config)) return um_fail(err, UM_EPARSE, "%s: expected a JSON object", where);
    const json_t *added = json_object_get(config, "added_tokens_decoder");
    um_status st = json_is_object(added) ? merge_added(t, added, where, err) : UM_OK;
    if (!st) st = um_special_load(t, config, where, err);
    if (!st) st = um_json_get_bool(config, "split_special_tokens", where, &t->split_special, err);
    return st ? st : um_json_get_bool(config, "clean_up_tokenization_spaces", where, &t->clean_up, err);
}

um_status um_config_around(um_tok *t, const json_t *config, const char *where, um_err *err) {
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
