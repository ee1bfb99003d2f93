/* The setup of a server, for tests of bodies, which need neither workers nor an event loop. */
#ifndef UM_TESTS_SERVER_ALONE_H
#define UM_TESTS_SERVER_ALONE_H

#include <stdlib.h>

#include "server/body/body.h"

/* The served model is "tiny", with an adapter "pirate". */
const char *um_setup_model_name(const um_setup *s) { return (void)s, "tiny"; }
bool um_setup_has_model(const um_setup *s, const char *name, const char **adapter) {
    (void)s;
    *adapter = um_streq(name, "pirate") ? "pirate" : NULL;
    return *adapter || um_streq(name, "tiny");
}

typedef struct alone {
    um_setup setup;
    um_server_config config;
    um_config engine;
    um_capacity capacity; /* as before a worker is ready */
} alone;

static void alone_open(alone *a, const char *folder) {
    um_err err;
    um_model_info info;
    *a = (alone){0};
    um_config_init(&a->engine);
    a->engine.model = folder;
    a->config.engine = &a->engine;
    a->setup.config = &a->config;
    if (um_model_open_text(&a->setup.model, &a->engine, &err)) {
        fprintf(stderr, "%s\n", err.msg);
        abort();
    }
    um_model_get_info(a->setup.model, &info);
    a->capacity = (um_capacity){.max_len = info.max_position, .tokens = INT64_MAX};
}

static void alone_close(alone *a) { um_model_close(a->setup.model); }

#endif
