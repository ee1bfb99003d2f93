/* /v1/models: the model under each of its served names, and its adapters, which requests choose as models. */
#include <time.h>

#include "server/api/apis.h"
#include "server/respond/access.h"
#include "server/respond/reply.h"

typedef struct entry {
    const char *id, *root, *parent; /* parent: name of the model, for an adapter; else NULL */
    const char *const *example;     /* [n_examples] of the model's card */
    int32_t n_examples;
} entry;

/* The limit is null until a worker is ready and has reported it. */
static void put_max_len(um_worker_pool *b, um_jw *w) {
    for (int32_t i = 0; i < um_worker_pool_size(b); i++) {
        const um_msg_ready *ready = um_worker_pool_get_status(b, i).ready;
        if (!ready) continue;
        um_jw_int(w, ready->max_model_len);
        return;
    }
    um_jw_null(w);
}

static void put_examples(const entry *e, um_jw *w) {
    um_jw_key(w, "examples");
    um_jw_begin_array(w);
    for (int32_t i = 0; i < e->n_examples; i++) um_jw_cstr(w, e->example[i]);
    um_jw_end_array(w);
}

/* Writes the members that entries have for Anthropic's clients. */
static void put_anthropic_members(um_service *s, const entry *e, um_jw *w) {
    char created[32];
    time_t started = (time_t)s->started;
    struct tm utc;
    strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&started, &utc));
    um_jw_put_cstr(w, "type", "model");
    um_jw_put_cstr(w, "display_name", e->id);
    um_jw_put_cstr(w, "created_at", created);
}

static void put_entry(um_service *s, um_exchange *x, const entry *e, um_jw *w) {
    um_jw_begin_object(w);
    if (um_client_is_anthropic(x)) put_anthropic_members(s, e, w);
    um_jw_put_cstr(w, "id", e->id);
    um_jw_put_cstr(w, "object", "model");
    um_jw_put_int(w, "created", (int64_t)s->started);
    um_jw_put_cstr(w, "owned_by", "unmask");
    um_jw_put_cstr(w, "root", e->root);
    um_jw_put_cstr(w, "parent", e->parent);
    um_jw_key(w, "max_model_len");
    put_max_len(s->workers, w);
    if (e->n_examples) put_examples(e, w);
    um_jw_key(w, "permission");
    um_jw_begin_array(w);
    um_jw_end_array(w);
    um_jw_end_object(w);
}

/* Returns the *n entries that the key may use. The caller frees the array with um_free. */
static entry *list_entries(um_service *s, const um_key *key, size_t *n) {
    um_model_info info;
    const um_name_list *names = &s->setup.names;
    um_model_get_info(s->setup.model, &info);
    entry *e = UM_NEW_ARRAY(entry, names->n + (size_t)info.n_adapters + um_adapter_list_size(s->setup.late));
    *n = 0;
    for (size_t i = 0; i < names->n; i++)
        if (um_key_may_use(key, names->word[i]))
            e[(*n)++] = (entry){names->word[i], info.path, NULL, info.example, info.n_examples};
    for (int32_t i = 0; i < info.n_adapters; i++)
        if (um_key_may_use(key, info.adapter[i].name))
            e[(*n)++] = (entry){info.adapter[i].name, info.adapter[i].path, um_setup_model_name(&s->setup), NULL, 0};
    for (size_t i = 0; i < um_adapter_list_size(s->setup.late); i++) {
        const char *name, *path;
        um_adapter_list_get(s->setup.late, i, &name, &path);
        if (um_key_may_use(key, name)) e[(*n)++] = (entry){name, path, um_setup_model_name(&s->setup), NULL, 0};
    }
    return e;
}

static void get_models(um_service *s, um_exchange *x, const char *id) {
    (void)id;
    um_buf body = {0};
    um_jw w;
    size_t n;
    entry *e = list_entries(s, um_access_record_key(x), &n);
    um_jw_init(&w, &body);
    um_jw_begin_object(&w);
    um_jw_put_cstr(&w, "object", "list");
    um_jw_key(&w, "data");
    um_jw_begin_array(&w);
    for (size_t i = 0; i < n; i++) put_entry(s, x, &e[i], &w);
    um_jw_end_array(&w);
    if (um_client_is_anthropic(x)) {
        um_jw_put_cstr(&w, "first_id", n ? e[0].id : NULL); /* a key may allow none */
        um_jw_put_cstr(&w, "last_id", n ? e[n - 1].id : NULL);
        um_jw_put_bool(&w, "has_more", false);
    }
    um_jw_end_object(&w);
    um_reply_json(x, 200, &body);
    um_buf_free(&body);
    um_free(e);
}

static void get_model(um_service *s, um_exchange *x, const char *id) {
    um_buf body = {0};
    um_jw w;
    size_t n;
    entry *e = list_entries(s, um_access_record_key(x), &n);
    um_jw_init(&w, &body);
    for (size_t i = 0; i < n && body.len == 0; i++)
        if (um_streq(e[i].id, id)) put_entry(s, x, &e[i], &w);
    if (body.len) um_reply_json(x, 200, &body);
    else
        um_reply_error(x, 404, "model", "model_not_found",
                       "no model \"%.200s\" is served here; /v1/models lists the models", id);
    um_buf_free(&body);
    um_free(e);
}

static const um_endpoint rows[] = {
    {"GET", "/v1/models", get_models, 0, "OpenAI", "the model and its adapters"},
    {"GET", "/models", get_models, 0, "llama.cpp", "the same"},
    {"GET", "/v1/models/{rest}", get_model, 0, "OpenAI", "one model or adapter by its name"},
};
const um_endpoint_set um_models_endpoints = {rows, UM_LEN(rows)};
