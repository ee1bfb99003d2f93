/* The slash commands of a conversation. */
#include "cli/chat.h"

static void cmd_help(um_conversation *t, char *arguments);

static void cmd_reset(um_conversation *t, char *arguments) {
    (void)arguments;
    um_history_reset(&t->history);
    fprintf(stderr, "[new conversation]\n");
}

static void cmd_set(um_conversation *t, char *arguments) {
    um_err err;
    char *name = strtok_r(arguments, " \t=", &arguments), *value = strtok_r(NULL, " \t", &arguments);
    um_status s = name && value ? um_client_request_set(&t->client_request, t->client, name, value, &err)
                                : um_fail(&err, UM_EINVAL, "expected /set NAME VALUE, as in /set temperature 0.7");
    if (s) um_conversation_print_error(t, &err);
    else fprintf(stderr, "[%s is %s]\n", name, value);
}

static bool is_given(const um_client_request *q, const um_option *row) {
    for (size_t i = 0; i < q->n_given; i++)
        if (q->given[i] == row) return true;
    return false;
}

static void cmd_params(um_conversation *t, char *arguments) {
    (void)arguments;
    um_option_set sets[UM_OPTION_SETS_MAX];
    size_t n = um_request_option_sets(sets, &t->client_request.request);
    um_buf text = {0};
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < sets[i].n; k++) {
            const um_option *row = &sets[i].rows[k];
            um_buf_printf(&text, "  %-26s ", row->name);
            if (t->client->knows_defaults || is_given(&t->client_request, row))
                um_option_get_text(row, sets[i].base, &text);
            else um_buf_puts(&text, "server's default");
            um_buf_putc(&text, '\n');
        }
    }
    fputs(text.data, stderr);
    um_buf_free(&text);
}

static void cmd_stats(um_conversation *t, char *arguments) {
    (void)arguments;
    um_buf text = {0};
    um_buf_printf(&text, "  answers        %lld, %.0f tokens", (long long)t->answers, t->tokens);
    if (t->passes) um_buf_printf(&text, " in %lld passes", (long long)t->passes);
    um_buf_printf(&text, "\n  speed          %.1f tokens/s", t->seconds > 0 ? t->tokens / t->seconds : 0);
    if (t->passes) um_buf_printf(&text, ", %.2f tokens/forward", t->tokens / (double)t->passes);
    um_buf_putc(&text, '\n');
    t->client->put_stats(t->client, &text);
    fputs(text.data, stderr);
    um_buf_free(&text);
}

static void cmd_quit(um_conversation *t, char *arguments) {
    (void)arguments;
    t->quit = true;
}

static const struct {
    const char *name, *help;
    void (*run)(um_conversation *t, char *arguments);
} commands[] = {
    {"/help", "list the commands", cmd_help},
    {"/reset", "start a new conversation", cmd_reset},
    {"/set", "NAME VALUE: change a parameter, as in /set buffer_size 4", cmd_set},
    {"/params", "list the parameters and their values", cmd_params},
    {"/stats", "print statistics of the answers so far, and the memory in use", cmd_stats},
    {"/quit", "quit, like Ctrl-D", cmd_quit},
};

static void cmd_help(um_conversation *t, char *arguments) {
    (void)arguments;
    for (size_t i = 0; i < UM_LEN(commands); i++) fprintf(stderr, "  %-10s %s\n", commands[i].name, commands[i].help);
    fprintf(stderr, "  //         start a message with a slash\n"
                    "  \\          at the end of a line: the message goes on with the next line\n"
                    "  \"\"\"        before and after a message of several lines\n"
                    "Ctrl-C stops an answer. Its text so far stays in the conversation. At the prompt it clears the\n"
                    "line; on an empty line, or twice, it quits. Ctrl-D quits.\n");
    if (t->editor) fprintf(stderr, "Up, Down and Ctrl-R find earlier messages. A pasted text is one message.\n");
}

void um_conversation_run_command(um_conversation *t, char *line) {
    char *arguments = line + strcspn(line, " \t");
    const char *names[UM_LEN(commands)];
    um_err err;
    if (*arguments) *arguments++ = '\0';
    for (size_t i = 0; i < UM_LEN(commands); i++) {
        names[i] = commands[i].name;
        if (!um_streq(line, names[i])) continue;
        commands[i].run(t, arguments);
        return;
    }
    const char *near = um_nearest(line, names, UM_LEN(commands));
    um_fail(&err, UM_EINVAL, "unknown command %.40s; %s%s", line, near ? "did you mean " : "/help lists them",
            near ? near : "");
    um_conversation_print_error(t, &err);
}
