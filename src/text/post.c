/* Post-processors, reduced to the ids that they add before and after a single text. */
#include "text/tok.h"

/* Adds ids around those that are already in p. */
static void wrap(um_post *p, um_ids *before, um_ids *after) {
    for (size_t i = 0; i < p->before.n; i++) um_ids_push(before, p->before.data[i]);
    um_ids_free(&p->before);
    p->before = *before;
    for (size_t i = 0; i < after->n; i++) um_ids_push(&p->after, after->data[i]);
    um_ids_free(after);
}

static um_status push_id(um_ids *to, const json_t *id, const char *where, um_err *err) {
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= UM_TOK_ID_MAX)
        return um_fail(err, UM_EPARSE, "%s: post_processor: a special token's id must be an integer from 0 to %d",
                       where, UM_TOK_ID_MAX - 1);
    um_ids_push(to, (int32_t)json_integer_value(id));
    return UM_OK;
}

static um_status template_special(const json_t *tokens, const json_t *item, um_ids *to, const char *where,
                                  um_err *err) {
    const char *name = json_string_value(json_object_get(item, "id"));
    const json_t *ids = json_object_get(json_object_get(tokens, name ? name : ""), "ids"), *id;
    size_t i;
    if (!name || !json_is_array(ids))
        return um_fail(err, UM_EPARSE, "%s: post_processor: special token \"%.60s\" is not in special_tokens", where,
                       name ? name : "");
    json_array_foreach(ids, i, id) {
        um_status st = push_id(to, id, where, err);
        if (st) return st;
    }
    return UM_OK;
}

static um_status template_items(const json_t *json, um_ids *before, um_ids *after, const char *where, um_err *err) {
    const json_t *single = json_object_get(json, "single"), *item;
    int sequences = 0;
    size_t i;
    json_array_foreach(single, i, item) {
        const json_t *special = json_object_get(item, "SpecialToken");
        if (json_object_get(item, "Sequence")) sequences++;
        else {
            um_status st = template_special(json_object_get(json, "special_tokens"), special,
                                            sequences ? after : before, where, err);
            if (st) return st;
        }
    }
    if (sequences != 1)
        return um_fail(err, UM_EPARSE,
                       "%s: post_processor: \"single\" must hold the text exactly once, it does %d times", where,
                       sequences);
    return UM_OK;
}

static um_status load_template(um_post *p, const json_t *json, const char *where, um_err *err) {
    um_ids before = {0}, after = {0};
    um_status st = template_items(json, &before, &after, where, err);
    wrap(p, &before, &after);
    return st;
}

/* {"cls": ["[CLS]", 101], "sep": ["[SEP]", 102]} */
static um_status load_bert(um_post *p, const json_t *json, const char *where, um_err *err) {
    um_ids before = {0}, after = {0};
    um_status st = push_id(&before, json_array_get(json_object_get(json, "cls"), 1), where, err);
    if (!st) st = push_id(&after, json_array_get(json_object_get(json, "sep"), 1), where, err);
    wrap(p, &before, &after);
    return st;
}

static um_status load_any(um_post *p, const json_t *json, int nest, const char *where, um_err *err) {
    if (nest > UM_TOK_NEST_MAX) return um_fail(err, UM_ELIMIT, "%s: post-processors are nested too deeply", where);
    const char *type = json_string_value(json_object_get(json, "type"));
    if (!type) return um_fail(err, UM_EPARSE, "%s: post_processor must be an object with a \"type\", or null", where);
    if (um_streq(type, "ByteLevel")) return UM_OK; /* affects offsets only */
    if (um_streq(type, "TemplateProcessing")) return load_template(p, json, where, err);
    if (um_streq(type, "BertProcessing") || um_streq(type, "RobertaProcessing")) return load_bert(p, json, where, err);
    if (!um_streq(type, "Sequence"))
        return um_fail(err, UM_EUNSUPPORTED, "%s: post-processor of type \"%.60s\" is not supported", where, type);
    const json_t *list = json_object_get(json, "processors"), *item;
    size_t i;
    if (!json_is_array(list))
        return um_fail(err, UM_EPARSE, "%s: post_processor: \"processors\" must be a list", where);
    json_array_foreach(list, i, item) {
        um_status st = load_any(p, item, nest + 1, where, err);
        if (st) return st;
    }
    return UM_OK;
}

um_status um_post_load(um_post *p, const json_t *json, const char *where, um_err *err) {
    memset(p, 0, sizeof *p);
    if (!json || json_is_null(json)) return UM_OK;
    return load_any(p, json, 0, where, err);
}

void um_post_free(um_post *p) {
    um_ids_free(&p->before);
    um_ids_free(&p->after);
}
