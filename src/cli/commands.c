/* The table of subcommands. */
#include "cli/cli.h"

const um_command *const um_commands[] = {&um_cmd_run,
                                         &um_cmd_chat,
                                         &um_cmd_generate,
                                         &um_cmd_score,
                                         &um_cmd_eval,
                                         &um_cmd_inspect,
                                         &um_cmd_list,
                                         &um_cmd_quantize,
                                         &um_cmd_tokenize,
                                         &um_cmd_bench,
                                         &um_cmd_bench_engine,
                                         &um_cmd_bench_ops,
                                         &um_cmd_bench_serve,
                                         &um_cmd_serve,
                                         &um_cmd_worker,
                                         &um_cmd_health,
                                         &um_cmd_check_plugin,
                                         &um_cmd_help,
                                         NULL};

const um_command *um_command_find(const char *name) {
    for (const um_command *const *c = um_commands; *c; c++)
        if (um_streq((*c)->name, name)) return *c;
    return NULL;
}

const um_command *um_command_match(int n, char *const *words, int *used) {
    um_buf two = {0};
    if (n > 1) um_buf_printf(&two, "%s %s", words[0], words[1]);
    const um_command *c = two.len ? um_command_find(two.data) : NULL;
    um_buf_free(&two);
    *used = c ? 2 : 1;
    return c || n < 1 ? c : um_command_find(words[0]);
}
