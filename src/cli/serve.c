/* unmask serve: starts an HTTP server. This file makes its configuration from the options; the server is src/server. */
#include <malloc.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "engine/options.h"
#include "server/server.h"

/* Writes the engine's options as a YAML file, which worker processes read. */
static um_status write_engine_yaml(const um_config *c, um_buf *out, um_err *err) {
    um_option_set sets[UM_OPTION_SETS_MAX];
    um_arena strings;
    um_config copy = *c;
    um_arena_init(&strings, 0);
    um_settings s = {.sets = sets, .n_sets = um_config_option_sets(sets, &copy), .strings = &strings};
    um_settings_init(&s);
    um_status st = um_settings_print(&s, out, err);
    um_settings_free(&s);
    um_arena_free(&strings);
    return st;
}

/* An address or folder that can't be used is a usage error. */
static int exit_of(const um_err *err) { return err->code == UM_EIO ? UM_EXIT_USAGE : um_exit_of(err->code); }

/* Allocations of this size and above get pages of their own, which free returns to the system. Without this line glibc
 * raises the threshold after the first free, and the memory of large bodies stays with the process. */
#define OWN_PAGES_BYTES (128 << 10)

static int serve(const um_command *self, const um_server_config *c) {
    um_server *s = NULL;
    um_err err = {0};
    mallopt(M_MMAP_THRESHOLD, OWN_PAGES_BYTES);
    /* malloc_trim (body/held.c) does not shrink the arenas of other threads at their end. */
    mallopt(M_ARENA_MAX, 1);
    um_status st = um_cli_check_engine_model(c->engine, &err);
    if (!st) st = um_log_start_writer(&err);
    if (!st) st = um_server_new(&s, c, &err);
    /* um_server_run fails when no worker could start. */
    if (!st && (st = um_server_run(s, &err))) um_cli_explain_model_error(&err);
    um_server_free(s);
    um_log_stop_writer(UM_CLI_LOG_SECONDS);
    if (!st) return UM_EXIT_OK;
    um_cli_error(self, &err);
    return exit_of(&err);
}

/* An empty variable counts as unset elsewhere. Here it is most likely a secret that was not found, and a server without
 * keys would be open to all. */
static um_status check_keys(const um_server_config *c, um_err *err) {
    const char *key = getenv("UNMASK_API_KEY"), *file = getenv("UNMASK_API_KEY_FILE");
    if (!c->api_key && key && !*key)
        return um_fail(err, UM_EINVAL,
                       "UNMASK_API_KEY is empty; set it to a key, or unset it for a server without keys");
    if (!c->api_key_file && file && !*file)
        return um_fail(err, UM_EINVAL, "UNMASK_API_KEY_FILE is empty; set it to a file of keys, or unset it");
    return UM_OK;
}

/* Places for the adapters of --lora-dir, unless --max-loras says otherwise. */
#define LORA_PLACES 8

/* Where the options came from. */
typedef struct source {
    const um_command *command;
    int argc;
    char **argv;
} source;

static void set_places(const um_server_config *c, um_config *engine) {
    if (c->lora_dir && *c->lora_dir && !engine->max_loras) engine->max_loras = LORA_PLACES;
}

static um_status reread(void *arg, um_arena *strings, um_server_config *c, um_config *engine, um_err *err) {
    const source *from = arg;
    um_status st = um_args_read_again(from->command, from->argc, from->argv, strings, c, engine, err);
    if (!st) set_places(c, engine);
    return st;
}

static int run(const um_command *self, int argc, char **argv) {
    um_server_config c = {0};
    um_config engine = {0};
    um_buf yaml = {0};
    um_args args;
    um_err err = {0};
    source from = {self, argc, argv};
    um_args_parse(&args, self, argc, argv, &c, &engine);
    int status = args.exit;
    if (args.done) goto done;
    um_status st = args.n_words ? um_fail(&err, UM_EINVAL, "unexpected argument \"%.80s\"; name the model with --model",
                                          args.word[0])
                                : check_keys(&c, &err);
    set_places(&c, &engine);
    if (!st) st = write_engine_yaml(&engine, &yaml, &err);
    if (st) {
        status = um_cli_error(self, &err);
        goto done;
    }
    if (args.has_file) {
        c.reread = reread;
        c.reread_arg = &from;
    }
    c.engine = &engine;
    c.engine_yaml = yaml.data;
    status = serve(self, &c);
done:
    um_buf_free(&yaml);
    um_args_free(&args);
    return status;
}

const um_command um_cmd_serve = {
    .name = "serve",
    .summary = "serve a model over HTTP with OpenAI's API",
    .usage = "unmask serve --model DIR [--port N] [options]",
    .description =
        "Serves a model over HTTP/1.1: OpenAI's chat, completions, models, files and batches, and the endpoints of "
        "SGLang, llama.cpp, Diffulex and dLLM-Serve (`unmask list endpoints`). Each of the --data-parallel-size "
        "workers "
        "is a process with the whole model. SIGTERM, SIGINT and SIGHUP shut the server down: it waits for running "
        "requests, at most --shutdown-grace seconds. A second SIGTERM or SIGINT ends it at once. A server started with "
        "nohup ignores SIGHUP. With --config or --api-key-file, SIGHUP reads these files again instead, and the "
        "options "
        "that are marked with SIGHUP change while the server runs. docs/server.md explains how to operate a server.",
    .examples = "unmask serve --model models/tiny-block\n"
                "unmask serve --model models/tiny-block --port 8080 --in-process\n"
                "unmask serve --model models/tiny-block --data-parallel-size 2 --print-config\n",
    .options = um_server_options,
    .n_options = UM_SERVER_OPTIONS,
    .engine_options = true,
    .rejoins = true,
    .run = run,
};
