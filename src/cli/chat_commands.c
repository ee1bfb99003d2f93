/* What lines with a slash do. */
#include "cli/chat.h"

static void cmd_help(um_talk *t, char *rest);

static void cmd_reset(um_talk *t, char *rest) {
    (void)rest;
    um_history_reset(&t->history);
    fprintf(stderr, "[the conversation starts anew]\n");
}

static void cmd_set(um_talk *t, char *rest) {
    um_err err;
    char *name = strtok_r(rest, " \t=", &rest), *value = strtok_r(NULL, " \t", &rest);
    um_status s = name && value ? um_question_set(&t->question, name, value, &err)
                                : um_fail(&err, UM_EINVAL, "expected /set NAME VALUE, as in /set temperature 0.7");
    if (s) um_talk_complain(t, &err);
    else fprintf(stderr, "[%s is %s]\n", name, value);
}

static bool is_given(const um_question *q, const um_option *row) {
    for (size_t i = 0; i < q->n_given; i++)
        if (q->given[i] == row) return true;
    return false;
}

static void cmd_params(um_talk *t, char *rest) {
    (void)rest;
    um_option_set sets[UM_OPTION_SETS_MAX];
    size_t n = um_request_option_sets(sets, &t->question.request);
    um_buf text = {0};
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < sets[i].n; k++) {
            const um_option *row = &sets[i].rows[k];
            um_buf_printf(&text, "  %-26s ", row->name);
            if (t->answerer->knows_defaults || is_given(&t->question, row))
                um_option_get_text(row, sets[i].base, &text);
            else um_buf_puts(&text, "the server's");
            um_buf_putc(&text, '\n');
        }
    }
    fputs(text.data, stderr);
    um_buf_free(&text);
}

static void cmd_stats(um_talk *t, char *rest) {
    (void)rest;
    um_buf text = {0};
    um_buf_printf(&text, "  answers        %lld, %.0f tokens", (long long)t->answers, t->tokens);
    if (t->passes) um_buf_printf(&text, " in %lld passes", (long long)t->passes);
    um_buf_printf(&text, "\n  speed          %.1f tokens/s", t->seconds > 0 ? t->tokens / t->seconds : 0);
    if (t->passes) um_buf_printf(&text, ", %.2f tokens/pass", t->tokens / (double)t->passes);
    um_buf_putc(&text, '\n');
    t->answerer->put_stats(t->answerer, &text);
    fputs(text.data, stderr);
    um_buf_free(&text);
}

static void cmd_quit(um_talk *t, char *rest) {
    (void)rest;
    t->quit = true;
}

static const struct {
    const char *name, *help;
    void (*run)(um_talk *t, char *rest);
} commands[] = {
    {"/help", "this list", cmd_help},
    {"/reset", "forget the conversation", cmd_reset},
    {"/set", "NAME VALUE: change a parameter, as in /set buffer_size 4", cmd_set},
    {"/params", "parameters and their values", cmd_params},
    {"/stats", "what was done so far, and the memory in use", cmd_stats},
    {"/quit", "leave; Ctrl-D does the same", cmd_quit},
};

static void cmd_help(um_talk *t, char *rest) {
    (void)t;
    (void)rest;
    for (size_t i = 0; i < UM_LEN(commands); i++) fprintf(stderr, "  %-10s %s\n", commands[i].name, commands[i].help);
    fprintf(stderr, "  //         in front of a line that starts with a slash itself\n"
                    "Ctrl-C stops an answer, which stays as far as it came.\n");
}

void um_talk_command(um_talk *t, char *line) {
    char *rest = line + strcspn(line, " \t");
    const char *names[UM_LEN(commands)];
    um_err err;
    if (*rest) *rest++ = '\0';
    for (size_t i = 0; i < UM_LEN(commands); i++) {
        names[i] = commands[i].name;
        if (!um_streq(line, names[i])) continue;
        commands[i].run(t, rest);
        return;
    }
    const char *near = um_nearest(line, names, UM_LEN(commands));
    um_fail(&err, UM_EINVAL, "unknown command %.40s; %s%s", line, near ? "did you mean " : "/help lists them",
            near ? near : "");
    um_talk_complain(t, &err);
}
