/* The one list of subcommands. */
#include "cli/cli.h"

const um_command *const um_commands[] = {&um_cmd_run,     &um_cmd_chat, &um_cmd_generate, &um_cmd_eval,
                                         &um_cmd_inspect, &um_cmd_list, &um_cmd_tokenize, &um_cmd_bench,
                                         &um_cmd_help,    NULL};

const um_command *um_command_find(const char *name) {
    for (const um_command *const *c = um_commands; *c; c++)
        if (um_streq((*c)->name, name)) return *c;
    return NULL;
}
