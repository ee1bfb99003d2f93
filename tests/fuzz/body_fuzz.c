/* Fuzzes JSON bodies of requests. The first byte chooses the API. An accepted body must have prompts, and its
 * parameters must be accepted again. A rejected body must give an error message and name the field. */
#include "../server/scripted.h"

#include <jansson.h>

#include "engine/options.h"
#include "server/api/apis.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool claim) {
    if (!claim) abort();
}

/* Sets the accepted parameters in a new body. Each must be accepted again. */
static void check_parameters(um_body *b) {
    um_body again = {.arena = {0}};
    um_arena_init(&again.arena, 0);
    um_request_init_config(&engine_config, &again.checked);
    for (uint32_t i = 0; i < b->generate.n_set; i++) {
        const um_pair *p = &b->generate.set[i];
        require(p->name.p && p->value.p && strlen(p->value.p) == p->value.n);
        require(um_body_set(&again, p->name.p, p->value.p, NULL) == UM_OK);
    }
    require(again.generate.n_set == b->generate.n_set);
    um_arena_free(&again.arena);
}

static void check_accepted(um_body *b) {
    const um_msg_generate *g = &b->generate;
    require(b->n_prompts > 0 && g->n >= 1 && g->n <= UM_ANSWERS_MAX && g->n_stop <= UM_STOPS_MAX);
    for (size_t i = 0; i < b->n_prompts; i++) require(b->prompt[i].n_ids > 0 && b->prompt[i].ids[0] >= 0);
    for (uint32_t i = 0; i < g->n_stop; i++) require(g->stop[i].n > 0);
    for (uint32_t i = 0; i < g->n_stop_ids; i++) require(g->stop_ids[i] >= 0);
    for (uint32_t i = 0; i < g->n_bias; i++) require(g->bias_id[i] >= 0 && g->bias[i] <= 100);
    require(b->stream || !b->include_usage);
    check_parameters(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const um_api *const apis[] = {&um_api_chat, &um_api_completions, &um_api_messages, &um_api_responses};
    json_t *root = NULL;
    um_body b = {0};
    um_err err = {0};
    if (!server) {
        um_log_set_level(UM_LOG_ERROR);
        open_server();
    }
    if (size < 1 || um_json_parse_exact(&root, (const char *)data + 1, size - 1, "body", NULL)) return 0;
    if (!json_is_object(root)) {
        json_decref(root);
        return 0;
    }
    um_capacity capacity = um_capacity_get(&server->service);
    if (um_api_read(apis[data[0] % UM_LEN(apis)], &server->service.setup, &capacity, root, &b, &err) == UM_OK)
        check_accepted(&b);
    else require(err.msg[0] && (err.param[0] || json_object_get(b.root, ""))); /* the name of a field may be empty */
    um_body_free(&b);
    return 0;
}
