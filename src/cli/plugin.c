/* --plugin: loads libraries with samplers before any other option is read, because they bring options. */
#include <malloc.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "decode/decode.h"

/* Returns the value of the argument i if it is --plugin, else NULL. */
static const char *plugin_value(int argc, char **argv, int i) {
    static const char flag[] = "--plugin";
    const size_t n = sizeof flag - 1;
    if (strncmp(argv[i], flag, n) != 0) return NULL;
    if (argv[i][n] == '=') return argv[i] + n + 1;
    return argv[i][n] == '\0' && i + 1 < argc ? argv[i + 1] : NULL;
}

/* Loads the libraries of a list with commas. */
static um_status load_list(const char *list, um_err *err) {
    um_status st = UM_OK;
    for (const char *p = list; *p && !st; p += strcspn(p, ","), p += *p == ',') {
        um_buf path = {0};
        um_buf_append(&path, p, strcspn(p, ","));
        if (path.len) st = um_load_plugin(path.data, err);
        um_buf_free(&path);
    }
    return st;
}

um_status um_cli_load_plugins(int argc, char **argv, um_err *err) {
    const char *list = getenv("UNMASK_PLUGIN");
    for (int i = 1; i < argc && !um_streq(argv[i], "--"); i++) {
        const char *value = plugin_value(argc, argv, i);
        if (value) list = value;
    }
    if (!list || !*list) return UM_OK;
    setenv("UNMASK_PLUGIN", list, 1); /* for the workers of a server */
    return load_list(list, err);
}

/* ---- unmask check-plugin ----------------------------------------------------------------------------------------- */

/* Sanitizers replace malloc, and count for themselves. */
extern size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

/* Returns the bytes that malloc has handed out. */
static size_t allocated(void) {
    return __sanitizer_get_current_allocated_bytes ? __sanitizer_get_current_allocated_bytes() : mallinfo2().uordblks;
}

static bool check(const um_sampler *s) {
    um_err err;
    um_status st = um_check_sampler(s->def, &err); /* what is allocated once is allocated now */
    const size_t before = allocated();
    if (!st) st = um_check_sampler(s->def, &err);
    const size_t after = allocated();
    if (!st && after > before) st = um_fail(&err, UM_EINVAL, "sampler %s: it keeps memory that it allocates", s->name);
    if (st) printf("%s\n", err.msg);
    else printf("sampler %s: keeps all rules\n", s->name);
    return st == UM_OK;
}

static int run(const um_command *self, int argc, char **argv) {
    um_args a;
    um_err err;
    const um_sampler *s;
    size_t first = 0;
    bool good = true;
    um_args_parse(&a, self, argc, argv, NULL, NULL);
    if (!a.done && a.n_words != 1) {
        um_fail(&err, UM_EINVAL, "expected one FILE");
        a.exit = um_cli_error(self, &err);
    } else if (!a.done) {
        while (um_sampler_at(first)) first++;
        if (um_load_plugin(a.word[0], &err)) a.exit = um_cli_error(self, &err);
        else
            for (size_t i = first; (s = um_sampler_at(i)); i++) good = check(s) && good;
        if (!good) a.exit = UM_EXIT_FAILED;
    }
    const int status = a.exit;
    um_args_free(&a);
    return status;
}

const um_command um_cmd_check_plugin = {
    .name = "check-plugin",
    .summary = "test the samplers of a plugin",
    .usage = "unmask check-plugin FILE",
    .description = "Loads a shared library with samplers, as --plugin does, and tries each on made-up blocks: the same "
                   "blocks get the same decision each time, whatever other blocks are decided with them; only "
                   "decisions are written; no memory is kept. Prints a line for each sampler. Exit status: 0 all rules "
                   "are kept, 1 a rule is broken, 2 the file is no plugin.",
    .examples = "  cc -shared -fPIC -Iinclude -o build/annealed.so examples/plugins/annealed.c\n"
                "  unmask check-plugin build/annealed.so\n",
    .arguments = "FILE",
    .run = run,
};
