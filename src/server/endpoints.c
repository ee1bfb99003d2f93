/* The list of all endpoints, and the search in it. */
#include "server/endpoints.h"

#include "server/api/apis.h"
#include "server/batch/batch.h"

const um_endpoint_set *const um_endpoints[] = {
    &um_batches_endpoints,
    &um_files_endpoints,
    &um_chat_endpoints,
    &um_completions_endpoints,
    &um_messages_endpoints,
    &um_responses_endpoints,
    &um_conversations_endpoints,
    &um_native_endpoints,
    &um_results_endpoints,
    &um_tokens_endpoints,
    &um_score_endpoints,
    &um_sglang_endpoints,
    &um_llama_endpoints,
    &um_models_endpoints,
    &um_sleep_endpoints,
    &um_adapters_endpoints,
    &um_runtime_endpoints,
    &um_ops_endpoints,
    &um_options_endpoints,
    &um_page_endpoints,
    &um_metrics_endpoints,
    &um_openapi_endpoints,
    NULL,
};

const um_api *const um_apis[] = {
    &um_api_chat,    &um_api_completions, &um_api_native,    &um_api_sglang, &um_api_llama,
    &um_api_results, &um_api_messages,    &um_api_responses, NULL,
};

/* Returns whether a path matches the pattern of a row. *id is the part that "{id}" or "{rest}" matched; with a second
 * name in braces, all from the first to the second. */
static bool path_matches(const char *pattern, const char *path, um_str *id) {
    *id = (um_str){0};
    while (*pattern) {
        if (um_streq(pattern, "{rest}")) {
            *id = um_str_of(path);
            return id->n > 0;
        }
        if (*pattern == '{') {
            const char *from = id->p ? id->p : path;
            size_t n = strcspn(path, "/");
            if (n == 0) return false;
            pattern += strcspn(pattern, "}") + 1;
            path += n;
            *id = (um_str){from, (size_t)(path - from)};
        } else if (*pattern++ != *path++) {
            return false;
        }
    }
    return *path == '\0';
}

/* An endpoint that takes GET also takes HEAD. */
static bool takes(const um_endpoint *e, um_str method) {
    um_str own = um_str_of(e->method);
    return um_str_eq(own, method) || (um_str_eq(method, UM_STR("HEAD")) && um_str_eq(own, UM_STR("GET")));
}

static void allow(um_endpoint_match *m, const char *method) {
    size_t n = strlen(m->allow);
    if (strstr(m->allow, method)) return;
    snprintf(m->allow + n, sizeof m->allow - n, "%s%s", n ? ", " : "", method);
}

/* Returns whether a row has exactly this path. A path with "{id}" is a pattern, also if a client sends it. */
static bool is_listed(const char *path) {
    if (strchr(path, '{')) return false;
    for (const um_endpoint_set *const *set = um_endpoints; *set; set++)
        for (const um_endpoint *e = (*set)->rows; e < (*set)->rows + (*set)->n; e++)
            if (um_streq(e->path, path)) return true;
    return false;
}

/* A row with exactly the path comes before rows with "{id}". */
void um_endpoint_find(um_endpoint_match *m, um_str method, const char *path) {
    *m = (um_endpoint_match){0};
    bool exactly = is_listed(path);
    um_str id = {0};
    for (const um_endpoint_set *const *set = um_endpoints; *set; set++) {
        for (const um_endpoint *e = (*set)->rows; e < (*set)->rows + (*set)->n; e++) {
            if (exactly ? !um_streq(e->path, path) : !path_matches(e->path, path, &id)) continue;
            if (!m->path) m->path = e->path;
            allow(m, e->method);
            if (um_streq(e->method, "GET")) allow(m, "HEAD");
            if (m->endpoint || !takes(e, method)) continue;
            m->endpoint = e;
            m->id = id.p ? um_strndup(id.p, id.n) : NULL;
        }
    }
    if (*m->allow) allow(m, "OPTIONS");
}
