/* chat: a conversation. Every turn renders the whole history with the model's template. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/requests.h"
#include "engine/engine.h"

typedef struct chat_options {
    const char *system, *tools, *chat_template_kwargs, *adapter;
    bool view, quiet;
    int32_t delay;
} chat_options;

#define O(field) UM_FIELD(chat_options, field)
static const um_option rows[] = {
    {"adapter", NULL, UM_OPT_STR, O(adapter), 0, 0, NULL, NULL, NULL, "NAME", "Model",
     "answer through this adapter of --lora"},
    {"system", NULL, UM_OPT_STR, O(system), 0, 0, NULL, NULL, NULL, "TEXT", "Prompt",
     "system message at the start of the conversation"},
    {"tools", NULL, UM_OPT_STR, O(tools), 0, 0, NULL, NULL, NULL, "FILE", "Prompt",
     "a JSON array of tool definitions for the chat template; calls are shown, not made"},
    {"chat_template_kwargs", NULL, UM_OPT_STR, O(chat_template_kwargs), 0, 0, NULL, NULL, NULL, "JSON", "Prompt",
     "variables for the chat template, as in {\"enable_thinking\": false}"},
    {"view", NULL, UM_OPT_BOOL, O(view), 0, 0, NULL, "true", NULL, NULL, "Output",
     "on a terminal, draw answers while they are denoised; else their text streams"},
    {"delay", NULL, UM_OPT_INT, O(delay), 0, 60000, NULL, "0", NULL, "MS", "Output",
     "pause after each pass that is drawn, in milliseconds"},
    {"quiet", NULL, UM_OPT_BOOL, O(quiet), 0, 0, NULL, "false", NULL, NULL, "Output",
     "no facts at the start, no numbers after answers"},
};

typedef struct chat {
    const um_command *self;
    const chat_options *options;
    um_session session;
    um_ask ask;
    um_request request; /* parameters of the next answer */
    um_chat_request conversation;
    um_buf tools;
    um_message *message;
    size_t n_messages, cap_messages, n_system; /* the system message is never dropped */
    bool tty;                                  /* a person types */
    bool quit;
    int status;
    double tokens, seconds; /* of all answers */
    int64_t passes;
} chat;

static void complain(chat *c, const um_err *err) {
    um_cli_error(c->self, err);
    if (!c->tty) c->status = UM_EXIT_FAILED; /* a person has seen it and goes on */
}

/* ---- History ----------------------------------------------------------------------------------------------------- */

static void push_message(chat *c, const char *role, const char *text) {
    if (c->n_messages == c->cap_messages) {
        c->cap_messages = UM_MAX(2 * c->cap_messages, (size_t)16);
        c->message = (um_message *)um_realloc(c->message, um_mul(c->cap_messages, sizeof(um_message)));
    }
    c->message[c->n_messages++] = (um_message){role, um_strdup(text)};
}

/* Takes n messages out, from index `at` on. */
static void drop_messages(chat *c, size_t at, size_t n) {
    if (n == 0) return;
    for (size_t i = at; i < at + n; i++) um_free((void *)c->message[i].content);
    memmove(c->message + at, c->message + at + n, (c->n_messages - at - n) * sizeof(um_message));
    c->n_messages -= n;
}

/* Tokens that the model may be fed so that an answer still fits. */
static int64_t room_for_history(const chat *c) {
    const um_engine *e = c->session.engine;
    int64_t longest = UM_MIN(e->max_len, UM_MAX(1, e->config.max_num_batched_tokens - UM_CHAT_WINDOW));
    int32_t answer = c->request.sampling.max_tokens;
    if (answer == 0) answer = um_arch_answer_tokens(&c->session.model->arch);
    return longest - UM_MIN(answer, longest / 4);
}

/* Drops the oldest turns until the conversation fits. The last question stays, whatever its length. */
static um_status fit_history(chat *c, um_err *err) {
    size_t dropped = 0;
    for (;;) {
        um_ids ids = {0};
        c->conversation.messages = c->message;
        c->conversation.n_messages = c->n_messages;
        um_status s = um_chat_render(c->session.model->chat, &c->conversation, NULL, &ids, err);
        bool fits = (int64_t)ids.n <= room_for_history(c);
        um_ids_free(&ids);
        if (s) return s;
        if (fits || c->n_messages < c->n_system + 3) break;
        drop_messages(c, c->n_system, 2); /* a question and its answer */
        dropped++;
    }
    if (dropped)
        fprintf(stderr, "[the conversation got too long: its first %zu turn%s left out from here on]\n", dropped,
                dropped == 1 ? " is" : "s are");
    return UM_OK;
}

/* ---- One turn ---------------------------------------------------------------------------------------------------- */

static void show_numbers(chat *c, const um_result *r) {
    c->tokens += (double)r->n_tokens;
    c->seconds += r->total_seconds;
    c->passes += r->nfe;
    fflush(stdout);
    if (!c->options->quiet && isatty(STDERR_FILENO)) um_view_summary(stderr, r, um_cli_colour(STDERR_FILENO));
}

static void ask(chat *c, const char *text) {
    um_reply reply = {0};
    um_err err;
    push_message(c, "user", text);
    um_cli_clear_interrupt();
    if (c->ask.view) um_view_reset(c->ask.view);
    um_status s = fit_history(c, &err);
    if (!s) s = um_ask_run(&c->ask, &c->request, &reply, &err);
    um_cli_clear_interrupt();
    if (s) {
        complain(c, &err);
        drop_messages(c, c->n_messages - 1, 1);
    } else {
        if (!c->ask.view) putchar('\n');
        show_numbers(c, &reply.result);
        /* A question without an answer would make two of a kind stand next to each other, which templates refuse. */
        if (reply.text.len) push_message(c, "assistant", reply.text.data);
        else drop_messages(c, c->n_messages - 1, 1);
    }
    um_reply_free(&reply);
}

/* ---- Commands ---------------------------------------------------------------------------------------------------- */

static void cmd_help(chat *c, char *rest);

static void cmd_reset(chat *c, char *rest) {
    (void)rest;
    drop_messages(c, c->n_system, c->n_messages - c->n_system);
    fprintf(stderr, "[the conversation starts anew]\n");
}

static void cmd_set(chat *c, char *rest) {
    um_err err;
    char *name = strtok_r(rest, " \t=", &rest), *value = strtok_r(NULL, " \t", &rest);
    um_status s = name && value ? um_request_set(&c->request, name, value, &err)
                                : um_fail(&err, UM_EINVAL, "expected /set NAME VALUE, as in /set temperature 0.7");
    if (s) complain(c, &err);
    else fprintf(stderr, "[%s is %s]\n", name, value);
}

static void cmd_params(chat *c, char *rest) {
    (void)rest;
    um_option_set sets[UM_DECODE_SETS_MAX];
    size_t n = um_decode_option_sets(sets, &c->request.decoding, &c->request.sampling);
    um_buf text = {0};
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < sets[i].n; k++) {
            um_buf_printf(&text, "  %-26s ", sets[i].rows[k].name);
            um_option_get_text(&sets[i].rows[k], sets[i].base, &text);
            um_buf_putc(&text, '\n');
        }
    }
    fputs(text.data, stderr);
    um_buf_free(&text);
}

static void cmd_stats(chat *c, char *rest) {
    (void)rest;
    um_stats s;
    um_engine_get_stats(c->session.engine, &s);
    fprintf(stderr,
            "  answers        %lld, %.0f tokens in %lld passes\n"
            "  speed          %.1f tokens/s, %.2f tokens/pass\n"
            "  time           %.2f s, of it %.2f s in forward passes\n"
            "  memory         weights %.1f MB, KV %.1f MB, workspace %.1f MB\n",
            (long long)s.requests, c->tokens, (long long)c->passes, c->seconds > 0 ? c->tokens / c->seconds : 0,
            c->passes ? c->tokens / (double)c->passes : 0, s.step_seconds, s.forward_seconds,
            (double)s.weight_bytes / 1e6, (double)s.kv_bytes / 1e6, (double)s.workspace_bytes / 1e6);
}

static void cmd_quit(chat *c, char *rest) {
    (void)rest;
    c->quit = true;
}

static const struct {
    const char *name, *help;
    void (*run)(chat *c, char *rest);
} commands[] = {
    {"/help", "this list", cmd_help},
    {"/reset", "forget the conversation", cmd_reset},
    {"/set", "NAME VALUE: change a parameter, as in /set buffer_size 4", cmd_set},
    {"/params", "parameters and their values", cmd_params},
    {"/stats", "what was done so far, and the memory in use", cmd_stats},
    {"/quit", "leave; Ctrl-D does the same", cmd_quit},
};

static void cmd_help(chat *c, char *rest) {
    (void)c;
    (void)rest;
    for (size_t i = 0; i < UM_LEN(commands); i++) fprintf(stderr, "  %-10s %s\n", commands[i].name, commands[i].help);
    fprintf(stderr, "  //         in front of a line that starts with a slash itself\n"
                    "Ctrl-C stops an answer, which stays as far as it came.\n");
}

static void command(chat *c, char *line) {
    char *rest = line + strcspn(line, " \t");
    const char *names[UM_LEN(commands)];
    um_err err;
    if (*rest) *rest++ = '\0';
    for (size_t i = 0; i < UM_LEN(commands); i++) {
        names[i] = commands[i].name;
        if (!um_streq(line, names[i])) continue;
        commands[i].run(c, rest);
        return;
    }
    const char *near = um_nearest(line, names, UM_LEN(commands));
    um_fail(&err, UM_EINVAL, "unknown command %.40s; %s%s", line, near ? "did you mean " : "/help lists them",
            near ? near : "");
    complain(c, &err);
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

/* The next line without its newline; NULL at the end, or when the program is to end. Ctrl-C gives the line up: the
 * terminal has thrown it away already. */
static char *read_line(chat *c, char **line, size_t *cap) {
    for (;;) {
        if (c->tty) fputs(um_cli_colour(STDERR_FILENO) ? "\x1b[1m> \x1b[m" : "> ", stderr);
        errno = 0;
        ssize_t n = getline(line, cap, stdin);
        if (n > 0) {
            if ((*line)[n - 1] == '\n') (*line)[n - 1] = '\0';
            return *line;
        }
        bool again = errno == EINTR && um_cli_interrupted() && !um_cli_terminated() && c->tty;
        if (c->tty) fputc('\n', stderr);
        if (!again) return NULL;
        clearerr(stdin);
        um_cli_clear_interrupt();
    }
}

static void converse(chat *c) {
    char *line = NULL;
    size_t cap = 0;
    while (!c->quit && !um_cli_terminated() && !ferror(stdout) && read_line(c, &line, &cap)) {
        if (line[strspn(line, " \t")] == '\0') continue;
        if (line[0] == '/' && line[1] != '/') command(c, line);
        else ask(c, line + (line[0] == '/'));
    }
    free(line); /* getline's */
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

static um_status begin(chat *c, const chat_options *o, um_config *config, um_err *err) {
    um_cli_size_pass(config, SIZE_MAX);
    um_status s = o->tools ? um_chat_file(o->tools, &c->tools, err) : UM_OK;
    if (!s) s = um_cli_open(&c->session, config, o->quiet || !isatty(STDERR_FILENO), err);
    if (s) return s;
    if (!c->session.model->chat)
        return um_fail(err, UM_EUNSUPPORTED,
                       "%s has no chat template, so it can't hold a conversation; use 'unmask run'", config->model);
    um_request_init(c->session.engine, &c->request);
    c->request.adapter = o->adapter;
    um_chat_init(&c->conversation);
    c->conversation.special_in_content = config->special_in_content;
    c->conversation.tools_json = o->tools ? c->tools.data : NULL;
    c->conversation.kwargs_json = o->chat_template_kwargs;
    c->request.chat = &c->conversation;
    bool draw = o->view && um_cli_can_draw(STDOUT_FILENO);
    c->ask = (um_ask){.session = &c->session, .safe = isatty(STDOUT_FILENO), .delay_ms = o->delay};
    if (draw) c->ask.view = um_view_new(c->session.model, STDOUT_FILENO);
    else c->ask.plain = stdout;
    if (o->system) push_message(c, "system", o->system);
    c->n_system = c->n_messages;
    c->tty = isatty(STDIN_FILENO);
    if (c->tty && !o->quiet) fprintf(stderr, "Type a message, or /help. Ctrl-C stops an answer, Ctrl-D leaves.\n");
    return UM_OK;
}

static int run(const um_command *self, int argc, char **argv) {
    chat_options o;
    um_config config;
    um_args args;
    um_err err;
    chat c = {.self = self, .options = &o};
    um_args_parse(&args, self, argc, argv, &o, &config);
    c.status = args.exit;
    if (args.done) goto done;
    um_status s = UM_OK;
    if (args.n_words)
        s = um_fail(&err, UM_EINVAL, "unexpected \"%.80s\": chat reads what you type; 'unmask run' takes a prompt",
                    args.word[0]);
    if (!s) s = begin(&c, &o, &config, &err);
    if (s) {
        c.status = um_cli_error(self, &err);
        goto done;
    }
    um_cli_catch_signals();
    converse(&c);
done:
    um_view_free(c.ask.view);
    drop_messages(&c, 0, c.n_messages);
    um_free(c.message);
    um_buf_free(&c.tools);
    um_cli_close(&c.session);
    um_args_free(&args);
    return c.status;
}

const um_command um_cmd_chat = {
    .name = "chat",
    .summary = "hold a conversation",
    .usage = "unmask chat --model DIR [options]",
    .description = "Reads a message a line and prints answers, from a terminal or from a pipe. Lines that start with a "
                   "slash are commands, /help lists them. When the conversation gets longer than the model allows, its "
                   "oldest turns are left out, with a notice. Ctrl-C stops an answer, Ctrl-D leaves.",
    .examples = "  unmask chat --model models/tiny-block\n"
                "  unmask chat --model models/tiny-block --buffer-size 4 --delay 40\n"
                "  printf 'What is 12 + 30?\\n/quit\\n' | unmask chat --model models/tiny-block\n",
    .options = rows,
    .n_options = UM_LEN(rows),
    .engine_options = true,
    .defaults = {{"max_num_reqs", "1"}},
    .run = run,
};
