/* chat: a conversation. Every turn hands the whole history over to who answers. */
#include "cli/chat.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/requests.h"
#include "model/model.h"

typedef struct chat_options {
    um_remote_options remote;
    const char *system, *tools, *chat_template_kwargs, *adapter;
    bool view, quiet;
    int32_t delay;
} chat_options;

#define O(field) UM_FIELD(chat_options, field)
static const um_option rows[] = {
    UM_REMOTE_ROWS(chat_options, remote, "Server"),
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

void um_talk_complain(um_talk *t, const um_err *err) {
    um_cli_error(t->self, err);
    if (!t->tty) t->status = UM_EXIT_FAILED;
}

/* ---- One turn ---------------------------------------------------------------------------------------------------- */

static void show_numbers(um_talk *t, const um_result *r) {
    t->answers++;
    t->tokens += (double)r->n_tokens;
    t->seconds += r->total_seconds;
    t->passes += r->nfe;
    if (!t->quiet && isatty(STDERR_FILENO)) um_view_summary(stderr, r, um_cli_colour(STDERR_FILENO));
}

static um_status ask_once(um_talk *t, um_reply *reply, um_err *err) {
    t->conversation.messages = t->history.message;
    t->conversation.n_messages = t->history.n;
    t->question.can_shrink = um_history_can_shrink(&t->history);
    if (t->answerer->showing.view) um_view_reset(t->answerer->showing.view);
    return t->answerer->ask(t->answerer, &t->question, reply, err);
}

/* Drops the oldest turns until the conversation fits. The last question stays, whatever its length. */
static um_status ask_shrinking(um_talk *t, um_reply *reply, um_err *err) {
    size_t dropped = 0;
    um_status s;
    while ((s = ask_once(t, reply, err)) == UM_ELIMIT && t->question.can_shrink) {
        um_reply_free(reply);
        um_history_shrink(&t->history);
        dropped++;
    }
    if (dropped)
        fprintf(stderr, "[the conversation got too long: its first %zu turn%s left out from here on]\n", dropped,
                dropped == 1 ? " is" : "s are");
    return s;
}

/* What was settled of an answer that broke off stays. */
static void ask(um_talk *t, const char *text) {
    um_reply reply = {0};
    um_err err;
    um_history_push(&t->history, "user", text);
    um_cli_clear_interrupt();
    um_status s = ask_shrinking(t, &reply, &err);
    um_cli_clear_interrupt();
    if ((!s || reply.text.len) && !t->answerer->showing.view) putchar('\n');
    fflush(stdout); /* the answer stands before what is said of it */
    if (s) um_talk_complain(t, &err);
    else show_numbers(t, &reply.result);
    /* A question without an answer would make two of a kind stand next to each other, which templates refuse. */
    if (reply.text.len) um_history_push(&t->history, "assistant", reply.text.data);
    else um_history_pop(&t->history);
    um_reply_free(&reply);
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

/* The next line without its newline; NULL at the end, or when the program is to end. Ctrl-C gives the line up: the
 * terminal has thrown it away already. */
static char *read_line(const um_talk *t, char **line, size_t *cap) {
    for (;;) {
        if (t->tty) fputs(um_cli_colour(STDERR_FILENO) ? "\x1b[1m> \x1b[m" : "> ", stderr);
        errno = 0;
        ssize_t n = getline(line, cap, stdin);
        if (n > 0) {
            if ((*line)[n - 1] == '\n') (*line)[n - 1] = '\0';
            return *line;
        }
        bool again = errno == EINTR && um_cli_interrupted() && !um_cli_terminated() && t->tty;
        if (t->tty) fputc('\n', stderr);
        if (!again) return NULL;
        clearerr(stdin);
        um_cli_clear_interrupt();
    }
}

static void converse(um_talk *t) {
    char *line = NULL;
    size_t cap = 0;
    while (!t->quit && !um_cli_terminated() && !ferror(stdout) && read_line(t, &line, &cap)) {
        if (line[strspn(line, " \t")] == '\0') continue;
        if (line[0] == '/' && line[1] != '/') um_talk_command(t, line);
        else ask(t, line + (line[0] == '/'));
    }
    free(line); /* getline's */
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

typedef struct chat {
    um_talk talk;
    um_session session; /* of a model of one's own */
    um_buf tools;
} chat;

static um_status open_local(chat *c, um_config *config, bool quiet, um_err *err) {
    um_cli_size_for_one(config, SIZE_MAX);
    um_status s = um_cli_open(&c->session, config, quiet, err);
    if (s) return s;
    if (!c->session.model->chat)
        return um_fail(err, UM_EUNSUPPORTED,
                       "%s has no chat template, so it can't hold a conversation; use 'unmask run'", config->model);
    um_request_init(c->session.engine, &c->talk.question.request);
    c->talk.answerer = um_answerer_local(&c->session);
    return UM_OK;
}

static um_status open_remote(chat *c, const chat_options *o, const um_config *config, const um_args *args, bool quiet,
                             um_err *err) {
    um_status s = um_remote_check(args, err);
    um_request_init_config(config, &c->talk.question.request);
    um_question_take_given(&c->talk.question, args);
    return s ? s : um_answerer_remote(&c->talk.answerer, &o->remote, quiet, err);
}

static void set_conversation(chat *c, const chat_options *o, const um_config *config) {
    um_talk *t = &c->talk;
    um_chat_init(&t->conversation);
    t->conversation.special_in_content = config->special_in_content;
    t->conversation.tools_json = o->tools ? c->tools.data : NULL;
    t->conversation.kwargs_json = o->chat_template_kwargs;
    t->question.request.adapter = o->adapter;
    t->question.request.chat = &t->conversation;
    if (o->system) um_history_push(&t->history, "system", o->system);
    t->history.n_system = t->history.n;
}

static um_showing make_showing(const chat_options *o) {
    um_showing s = {.safe = isatty(STDOUT_FILENO), .delay_ms = o->delay};
    if (o->view && um_cli_can_draw(STDOUT_FILENO)) s.view = um_view_new(STDOUT_FILENO);
    else s.plain = stdout;
    return s;
}

static um_status begin(chat *c, const chat_options *o, um_config *config, const um_args *args, um_err *err) {
    um_talk *t = &c->talk;
    bool quiet = o->quiet || !isatty(STDERR_FILENO);
    um_status s = UM_OK;
    if (args->n_words)
        s = um_fail(err, UM_EINVAL, "unexpected \"%.80s\": chat reads what you type; 'unmask run' takes a prompt",
                    args->word[0]);
    if (!s && o->tools) s = um_chat_file(o->tools, &c->tools, err);
    if (!s) s = o->remote.url ? open_remote(c, o, config, args, quiet, err) : open_local(c, config, quiet, err);
    if (s) return s;
    set_conversation(c, o, config);
    t->answerer->showing = make_showing(o);
    t->quiet = o->quiet;
    t->tty = isatty(STDIN_FILENO);
    if (t->tty && !o->quiet) fprintf(stderr, "Type a message, or /help. Ctrl-C stops an answer, Ctrl-D leaves.\n");
    return UM_OK;
}

static void end(chat *c) {
    if (c->talk.answerer) um_view_free(c->talk.answerer->showing.view);
    um_answerer_free(c->talk.answerer);
    um_history_free(&c->talk.history);
    um_buf_free(&c->tools);
    um_cli_close(&c->session);
}

static int run(const um_command *self, int argc, char **argv) {
    chat_options o;
    um_config config;
    um_args args;
    um_err err;
    chat c = {.talk = {.self = self}};
    um_args_parse(&args, self, argc, argv, &o, &config);
    c.talk.status = args.exit;
    if (args.done) goto done;
    if (begin(&c, &o, &config, &args, &err)) {
        c.talk.status = um_cli_error(self, &err);
        goto done;
    }
    um_cli_catch_signals();
    converse(&c.talk);
done:
    end(&c);
    um_args_free(&args);
    return c.talk.status;
}

const um_command um_cmd_chat = {
    .name = "chat",
    .summary = "hold a conversation",
    .usage = "unmask chat (--model DIR | --url URL) [options]",
    .description = "Reads a message a line and prints answers, from a terminal or from a pipe. Lines that start with a "
                   "slash are commands, /help lists them. When the conversation gets longer than the model allows, its "
                   "oldest turns are left out, with a notice. Ctrl-C stops an answer, Ctrl-D leaves. With --url a "
                   "running server answers: `unmask serve`, or any other of the OpenAI kind. Parameters that are given "
                   "are sent to it, the rest are its own.",
    .examples = "  unmask chat --model models/tiny-block\n"
                "  unmask chat --model models/tiny-block --buffer-size 4 --delay 40\n"
                "  printf 'What is 12 + 30?\\n/quit\\n' | unmask chat --model models/tiny-block\n"
                "  unmask chat --url http://127.0.0.1:8000\n",
    .options = rows,
    .n_options = UM_LEN(rows),
    .engine_options = true,
    .defaults = {{"max_num_reqs", "1"}},
    .run = run,
};
