/* A server that is a model and nothing else, for what reads requests: bodies need no worker and no loop. */
#ifndef UM_TESTS_SERVER_ALONE_H
#define UM_TESTS_SERVER_ALONE_H

#include <stdlib.h>

#include "server/body.h"

struct um_server {
    um_server_config config;
    um_config engine;
    um_model *model;
};

const um_server_config *um_server_get_config(const um_server *s) { return &s->config; }
um_model *um_server_model(um_server *s) { return s->model; }
um_backend *um_server_backend(um_server *s) { return (void)s, NULL; }
const char *um_server_model_name(const um_server *s) { return (void)s, "tiny"; }
int32_t um_backend_size(const um_backend *b) { return (void)b, 0; }
um_worker_view um_backend_worker(const um_backend *b, int32_t i) { return (void)b, (void)i, (um_worker_view){0}; }

/* "tiny" is served, with an adapter "pirate". */
bool um_server_has_model(const um_server *s, const char *name, const char **adapter) {
    (void)s;
    *adapter = um_streq(name, "pirate") ? "pirate" : NULL;
    return *adapter || um_streq(name, "tiny");
}

static void alone_open(um_server *s, const char *folder) {
    um_err err;
    *s = (um_server){0};
    um_config_init(&s->engine);
    s->engine.model = folder;
    s->config.engine = &s->engine;
    if (um_model_open_text(&s->model, &s->engine, &err)) {
        fprintf(stderr, "%s\n", err.msg);
        abort();
    }
}

static void alone_close(um_server *s) { um_model_close(s->model); }

#endif
