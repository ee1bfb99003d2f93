/* /v1/conversations: lists of items that requests to /v1/responses continue. The items of such a request and of its
 * response are added to the list. Conversations are in the store of results, and expire like them. */
#include <jansson.h>
#include <time.h>

#include "server/api/apis.h"
#include "server/api/responses.h"
#include "server/generate/intake.h"
#include "server/respond/access.h"
#include "server/respond/reply.h"

#define ITEMS_AT_ONCE_MAX 20 /* as in OpenAI's API */

/* ---- Stored conversations ---------------------------------------------------------------------------------------- */

/* Finds a conversation. If there is none, responds with 404 and returns NULL. */
static um_stored *find(um_service *s, um_exchange *x, const char *id) {
    bool is_ours = strncmp(id, UM_CONVERSATION_PREFIX, strlen(UM_CONVERSATION_PREFIX)) == 0;
    um_stored *e = is_ours ? um_stored_find(s->setup.results, id, um_access_record_key(x)) : NULL;
    if (!e)
        um_reply_error(x, 404, "conversation_id", NULL, "there is no conversation \"%.100s\"; it may have expired", id);
    return e;
}

static json_t *parse(const um_buf *text) {
    json_t *v = NULL;
    um_json_parse_exact(&v, text->data, text->len, "conversation", NULL);
    return v;
}

static um_buf text_of(const json_t *v) {
    um_buf text = {0};
    um_json_put_exact(v, &text);
    return text;
}

/* Replaces the items. */
static void set_items(um_stored *e, const json_t *items) {
    um_buf json = {0}, text = text_of(items);
    um_buf_append(&json, e->json.data, e->json.len);
    um_stored_update(e, &json, &text);
}

void um_conversation_add_items(um_stored *e, const json_t *added) {
    json_t *items = parse(&e->items);
    json_array_extend(items, (json_t *)(uintptr_t)added);
    set_items(e, items);
    json_decref(items);
}

static void reply(um_exchange *x, const json_t *v) {
    um_buf text = text_of(v);
    um_reply_json(x, 200, &text);
    um_buf_free(&text);
}

/* ---- Bodies ------------------------------------------------------------------------------------------------------ */

/* Checks the members of a body. "items" are replaced by the items as they are stored. */
static um_status check_members(json_t *root, const char *names, um_err *err) {
    const char *key;
    json_t *value, *items = json_object_get(root, "items"), *metadata = json_object_get(root, "metadata");
    um_str at;
    json_object_foreach(root, key, value) {
        if (um_word_index(names, '|', key, &at) < 0)
            return um_fail_param(err, UM_EINVAL, key, "unknown field \"%.80s\"", key);
    }
    um_status st = json_is_null(metadata) ? UM_OK : um_metadata_check(metadata, err);
    if (st) return um_fail_about(err, st, "metadata");
    if (!items || json_is_null(items)) return UM_OK;
    if (json_array_size(items) > ITEMS_AT_ONCE_MAX)
        return um_fail_param(err, UM_ERANGE, "items", "%zu items, at most %d at once", json_array_size(items),
                             ITEMS_AT_ONCE_MAX);
    json_t *stored = json_array();
    st = um_fail_about(err, um_response_items_read(stored, items, err), "items");
    json_object_set_new(root, "items", stored);
    return st;
}

static um_status read_create(um_intake *r, um_err *err) { return check_members(r->root, "items|metadata", err); }

static um_status read_items(um_intake *r, um_err *err) {
    um_status st = check_members(r->root, "items", err);
    if (st || json_array_size(json_object_get(r->root, "items"))) return st;
    return um_fail_param(err, UM_EINVAL, "items", "expected at least one item");
}

/* Returns the conversation of the request's path; um_free. */
static char *id_of_path(um_exchange *x) {
    static const char before[] = "/conversations/";
    const char *id = strstr(um_exchange_path(x), before) + strlen(before);
    return um_strndup(id, strcspn(id, "/"));
}

/* ---- Conversations ----------------------------------------------------------------------------------------------- */

static json_t *object_of(const char *id, const json_t *metadata) {
    json_t *v = json_pack("{s:s, s:s, s:I}", "id", id, "object", "conversation", "created_at", (json_int_t)time(NULL));
    if (json_is_object(metadata)) json_object_set(v, "metadata", (json_t *)(uintptr_t)metadata);
    else json_object_set_new(v, "metadata", json_object());
    return v;
}

static void create(um_intake *r) {
    char id[64];
    const json_t *given = json_object_get(r->root, "items");
    um_make_id(UM_CONVERSATION_PREFIX, id);
    um_stored *e = um_stored_add(r->service->setup.results, id, r->capacity.owner);
    json_t *object = object_of(id, json_object_get(r->root, "metadata")), *none = json_array();
    um_buf json = text_of(object), items = text_of(json_is_array(given) ? given : none);
    um_stored_set_items(e, &items);
    um_stored_finish(e, 200, &json);
    reply(r->x, object);
    json_decref(object);
    json_decref(none);
}

static void post_conversation(um_service *s, um_exchange *x, const char *id) {
    static const um_intake_handler handler = {.read = read_create, .respond = create};
    (void)id;
    um_intake_start(s, x, &handler, NULL);
}

static void get_conversation(um_service *s, um_exchange *x, const char *id) {
    const um_stored *e = find(s, x, id);
    if (e) um_reply_json(x, 200, &e->json);
}

static void update(um_stored *e, um_exchange *x, json_t *root) {
    um_err err = {0};
    json_t *object = parse(&e->json), *metadata = json_object_get(root, "metadata");
    um_buf items = {0}, json;
    if (check_members(root, "metadata", &err) || !metadata) {
        if (!err.code) um_fail_param(&err, UM_EINVAL, "metadata", "the field is missing");
        um_reply_err(x, &err);
        json_decref(object);
        return;
    }
    if (json_is_null(metadata)) json_object_set_new(object, "metadata", json_object());
    else json_object_set(object, "metadata", metadata);
    um_buf_append(&items, e->items.data, e->items.len);
    json = text_of(object);
    um_stored_update(e, &json, &items);
    reply(x, object);
    json_decref(object);
}

static void post_update(um_service *s, um_exchange *x, const char *id) {
    um_stored *e = find(s, x, id);
    json_t *root = e ? um_read_object(x) : NULL;
    if (root) update(e, x, root);
    json_decref(root);
}

static void delete_conversation(um_service *s, um_exchange *x, const char *id) {
    um_stored *e = find(s, x, id);
    if (e) um_stored_delete_reply(e, "conversation.deleted", x);
}

/* ---- Items ------------------------------------------------------------------------------------------------------- */

static void reply_added(um_exchange *x, json_t *added) {
    const json_t *first = json_array_get(added, 0), *last = json_array_get(added, json_array_size(added) - 1);
    json_t *list = json_pack("{s:s, s:O, s:O?, s:O?, s:b}", "object", "list", "data", added, "first_id",
                             json_object_get(first, "id"), "last_id", json_object_get(last, "id"), "has_more", 0);
    reply(x, list);
    json_decref(list);
}

static void add_items(um_intake *r) {
    char *id = id_of_path(r->x);
    um_stored *e = find(r->service, r->x, id);
    json_t *added = json_object_get(r->root, "items");
    um_buf text = text_of(added);
    if (e && text.len + e->items.len > UM_CONVERSATION_BYTES_MAX) {
        um_reply_error(r->x, 413, "items", NULL, "the conversation would have %zu bytes of items, at most %zu",
                       text.len + e->items.len, UM_CONVERSATION_BYTES_MAX);
    } else if (e) {
        um_conversation_add_items(e, added);
        reply_added(r->x, added);
    }
    um_buf_free(&text);
    um_free(id);
}

static void post_items(um_service *s, um_exchange *x, const char *id) {
    static const um_intake_handler handler = {.read = read_items, .respond = add_items};
    if (find(s, x, id)) um_intake_start(s, x, &handler, NULL);
}

static void get_items(um_service *s, um_exchange *x, const char *id) {
    const um_stored *e = find(s, x, id);
    if (e) um_response_items_reply(e, x);
}

/* Finds the item of a path "ID/items/ITEM" in a conversation: its index in *items; json_decref(*items). If there is
 * none, responds with 404 and returns NULL. */
static um_stored *find_item(um_service *s, um_exchange *x, const char *path, json_t **items, size_t *i) {
    char *id = um_strndup(path, strcspn(path, "/"));
    const char *wanted = strrchr(path, '/') + 1;
    um_stored *e = find(s, x, id);
    um_free(id);
    *items = e ? parse(&e->items) : NULL;
    for (*i = 0; *i < json_array_size(*items); ++*i)
        if (um_streq(json_string_value(json_object_get(json_array_get(*items, *i), "id")), wanted)) return e;
    if (e) um_reply_error(x, 404, "item_id", NULL, "the conversation has no item \"%.100s\"", wanted);
    return NULL;
}

static void get_item(um_service *s, um_exchange *x, const char *path) {
    json_t *items;
    size_t i;
    if (find_item(s, x, path, &items, &i)) reply(x, json_array_get(items, i));
    json_decref(items);
}

static void delete_item(um_service *s, um_exchange *x, const char *path) {
    json_t *items;
    size_t i;
    um_stored *e = find_item(s, x, path, &items, &i);
    if (e) {
        json_array_remove(items, i);
        set_items(e, items);
        um_reply_json(x, 200, &e->json);
    }
    json_decref(items);
}

/* ---- Endpoints --------------------------------------------------------------------------------------------------- */

static const um_endpoint endpoints[] = {
    {"POST", "/v1/conversations", post_conversation, 0, "OpenAI", "create a conversation"},
    {"GET", "/v1/conversations/{id}", get_conversation, 0, "OpenAI", "return a conversation without its items"},
    {"POST", "/v1/conversations/{id}", post_update, 0, "OpenAI", "replace the metadata of a conversation"},
    {"DELETE", "/v1/conversations/{id}", delete_conversation, 0, "OpenAI", "delete a conversation and its items"},
    {"POST", "/v1/conversations/{id}/items", post_items, 0, "OpenAI", "add items to a conversation"},
    {"GET", "/v1/conversations/{id}/items", get_items, 0, "OpenAI", "list the items of a conversation"},
    {"GET", "/v1/conversations/{id}/items/{item_id}", get_item, 0, "OpenAI", "return an item of a conversation"},
    {"DELETE", "/v1/conversations/{id}/items/{item_id}", delete_item, 0, "OpenAI", "delete an item of a conversation"},
};
const um_endpoint_set um_conversations_endpoints = {endpoints, UM_LEN(endpoints)};
