/* unmask chat: a conversation. Each turn sends the whole history. */
#include "cli/chat.h"

#include <unistd.h>

#include "cli/constraint.h"
#include "cli/requests.h"
#include "model/model.h"

typedef struct chat_options {
    um_remote_options remote;
    um_constraint_options constraint;
    const char *system, *tools, *chat_template_kwargs, *adapter;
    bool view, quiet, history;
    int32_t delay;
} chat_options;

#define O(field) UM_FIELD(chat_options, field)
static const um_option rows[] = {
    UM_REMOTE_ROWS(chat_options, remote, "Server"),
    {"adapter", NULL, UM_OPT_STR, O(adapter), 0, 0, NULL, NULL, NULL, "NAME", "Model", "use this adapter of --lora"},
    {"system", NULL, UM_OPT_STR, O(system), 0, 0, NULL, NULL, NULL, "TEXT", "Prompt",
     "system message at the start of the conversation"},
    {"tools", NULL, UM_OPT_STR, O(tools), 0, 0, NULL, NULL, NULL, "FILE", "Prompt",
     "JSON array of tool definitions for the chat template; calls are shown, but not executed"},
    {"chat_template_kwargs", NULL, UM_OPT_STR, O(chat_template_kwargs), 0, 0, NULL, NULL, NULL, "JSON", "Prompt",
     "variables for the chat template, as in {\"enable_thinking\": false}"},
    UM_CONSTRAINT_ROWS(chat_options, constraint),
    {"view", NULL, UM_OPT_BOOL, O(view), 0, 0, NULL, "true", NULL, NULL, "Output",
     "draw answers on a terminal while they are denoised; otherwise their text is streamed"},
    {"delay", NULL, UM_OPT_INT, O(delay), 0, 60000, NULL, "0", NULL, "MS", "Output",
     "pause in milliseconds after each drawn pass"},
    {"history", NULL, UM_OPT_BOOL, O(history), 0, 0, NULL, "true", NULL, NULL, "Prompt",
     "on a terminal, keep the last 1000 messages for later sessions in unmask/history of $XDG_STATE_HOME or "
     "~/.local/state"},
    {"quiet", "q", UM_OPT_BOOL, O(quiet), 0, 0, NULL, "false", NULL, NULL, "Output",
     "print no model facts at the start and no statistics after answers"},
};

void um_conversation_print_error(um_conversation *t, const um_err *err) {
    um_cli_error(t->self, err);
    if (!t->tty) t->status = UM_EXIT_FAILED;
}

/* ---- One turn ---------------------------------------------------------------------------------------------------- */

static void show_statistics(um_conversation *t, const um_result *r) {
    t->answers++;
    t->tokens += (double)r->n_tokens;
    t->seconds += r->total_seconds;
    t->passes += r->nfe;
    if (!t->quiet && isatty(STDERR_FILENO)) um_view_summary(stderr, r, um_cli_colour(STDERR_FILENO));
}

static um_status send_history(um_conversation *t, um_client_response *response, um_err *err) {
    t->chat.messages = t->history.message;
    t->chat.n_messages = t->history.n;
    t->client_request.can_shrink = um_history_can_shrink(&t->history);
    if (t->client->output.view) um_view_reset(t->client->output.view);
    return t->client->send(t->client, &t->client_request, response, err);
}

/* Drops the oldest turns until the conversation fits. Keeps the last user message, however long it is. */
static um_status send_shrinking(um_conversation *t, um_client_response *response, um_err *err) {
    size_t dropped = 0;
    um_status s;
    while ((s = send_history(t, response, err)) == UM_ELIMIT && t->client_request.can_shrink) {
        um_client_response_free(response);
        um_history_shrink(&t->history);
        dropped++;
    }
    if (dropped)
        fprintf(stderr, "[the conversation is too long: dropped its first %zu turn%s]\n", dropped,
                dropped == 1 ? "" : "s");
    return s;
}

/* On a terminal Ctrl-C stops an answer only; without one nobody could type the next message. */
static void end_by_signal(um_conversation *t) {
    t->status = um_cli_signal_exit();
    t->quit = true;
}

/* Sends a message and shows the answer. If the answer breaks off, its settled text stays in the history. */
static void answer_message(um_conversation *t, const char *text) {
    um_client_response response = {0};
    um_err err;
    um_history_push(&t->history, "user", text);
    um_cli_clear_interrupt();
    um_status s = send_shrinking(t, &response, &err);
    if (um_cli_interrupted() && !t->tty) end_by_signal(t);
    um_cli_clear_interrupt();
    if ((!s || response.text.len) && !t->client->output.view) putchar('\n');
    um_cli_flush(); /* print the answer before errors and statistics on stderr */
    if (s) um_conversation_print_error(t, &err);
    else show_statistics(t, &response.result);
    /* Without an answer, two user messages would follow each other, which some templates refuse. */
    if (response.text.len) um_history_push(&t->history, "assistant", response.text.data);
    else um_history_pop(&t->history);
    um_client_response_free(&response);
}

/* ---- Conversation ------------------------------------------------------------------------------------------------ */

static void take_message(um_conversation *t, char *text) {
    if (text[strspn(text, " \t\n")] == '\0') return;
    if (text[0] == '/' && text[1] != '/') um_conversation_run_command(t, text);
    else answer_message(t, text + (text[0] == '/'));
}

/* Ctrl-C at the prompt clears the line. The second one in a row, or one on an empty line, ends the program. */
static void run_conversation(um_conversation *t) {
    um_buf text = {0};
    um_line_result r = UM_LINE_READ;
    while (r != UM_LINE_END && !t->quit && !um_cli_terminated() && !ferror(stdout)) {
        r = um_conversation_read(t, &text);
        if (r == UM_LINE_READ) take_message(t, text.data);
        if (t->interrupts < 2) continue;
        t->status = UM_EXIT_INTERRUPTED;
        break;
    }
    if (um_cli_interrupted()) end_by_signal(t);
    um_buf_free(&text);
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

typedef struct chat {
    um_conversation conversation;
    um_session session; /* local model */
    um_buf tools;
    um_cli_constraint constraint;
} chat;

static um_status open_local(chat *c, um_config *config, bool quiet, um_err *err) {
    um_cli_set_single_request_sizes(config, SIZE_MAX);
    um_status s = um_cli_open(&c->session, config, quiet, !quiet && isatty(STDERR_FILENO), err);
    if (s) return s;
    if (!c->session.model->chat)
        return um_fail(err, UM_EUNSUPPORTED, "%s has no chat template, which a conversation needs; use 'unmask run'",
                       config->model);
    um_request_init(c->session.engine, &c->conversation.client_request.request);
    c->conversation.client = um_client_local(&c->session);
    return UM_OK;
}

static um_status open_remote(chat *c, const chat_options *o, const um_config *config, const um_args *args, bool quiet,
                             um_err *err) {
    um_status s = um_remote_check(args, err);
    um_request_init_config(config, &c->conversation.client_request.request);
    um_client_request_mark_given(&c->conversation.client_request, args);
    return s ? s : um_client_remote(&c->conversation.client, &o->remote, quiet, err);
}

static void set_conversation(chat *c, const chat_options *o, const um_config *config) {
    um_conversation *t = &c->conversation;
    um_chat_init(&t->chat);
    t->chat.special_in_content = config->special_in_content;
    t->chat.tools_json = o->tools ? c->tools.data : NULL;
    t->chat.kwargs_json = o->chat_template_kwargs;
    t->client_request.request.adapter = o->adapter;
    um_cli_constraint_apply(&c->constraint, &t->client_request.request);
    t->client_request.request.chat = &t->chat;
    if (o->system) um_history_push(&t->history, "system", o->system);
    t->history.n_system = t->history.n;
}

static um_client_output make_output(const chat_options *o) {
    um_client_output s = {.on_terminal = isatty(STDOUT_FILENO), .delay_ms = o->delay};
    if (o->view && um_cli_can_draw(STDOUT_FILENO)) s.view = um_view_new(STDOUT_FILENO);
    else s.file = stdout;
    return s;
}

static um_status begin(chat *c, const chat_options *o, um_config *config, const um_args *args, um_err *err) {
    um_conversation *t = &c->conversation;
    bool quiet = o->quiet || !isatty(STDERR_FILENO);
    um_status s = UM_OK;
    if (args->n_words)
        s = um_fail(
            err, UM_EINVAL,
            "unexpected argument \"%.80s\": chat reads messages from standard input; use 'unmask run' for a prompt",
            args->word[0]);
    if (!s && o->tools) s = um_chat_file("--tools", o->tools, &c->tools, err);
    if (!s) s = um_cli_constraint_read(&c->constraint, &o->constraint, config, err);
    if (!s) s = o->remote.url ? open_remote(c, o, config, args, quiet, err) : open_local(c, config, o->quiet, err);
    if (s) return s;
    set_conversation(c, o, config);
    t->client->output = make_output(o);
    t->quiet = o->quiet;
    um_conversation_open_input(t, o->history);
    if (t->tty && !o->quiet) {
        fprintf(stderr, "Type a message, or /help. Ctrl-C stops an answer, Ctrl-D quits.\n");
        t->client->print_examples(t->client);
    }
    return UM_OK;
}

static void end(chat *c) {
    if (c->conversation.client) um_view_free(c->conversation.client->output.view);
    um_client_free(c->conversation.client);
    um_history_free(&c->conversation.history);
    um_line_editor_free(c->conversation.editor);
    um_buf_free(&c->tools);
    um_cli_constraint_free(&c->constraint);
    um_cli_close(&c->session);
}

static int run(const um_command *self, int argc, char **argv) {
    chat_options o;
    um_config config;
    um_args args;
    um_err err;
    chat c = {.conversation = {.self = self}};
    um_args_parse(&args, self, argc, argv, &o, &config);
    c.conversation.status = args.exit;
    if (args.done) goto done;
    if (begin(&c, &o, &config, &args, &err)) {
        c.conversation.status = um_cli_error(self, &err);
        goto done;
    }
    um_cli_catch_signals();
    run_conversation(&c.conversation);
done:
    end(&c);
    um_args_free(&args);
    return c.conversation.status;
}

const um_command um_cmd_chat = {
    .name = "chat",
    .summary = "chat with a model",
    .usage = "unmask chat (--model DIR | --url URL) [options]",
    .description =
        "Reads one message per line, from a terminal or a pipe, and prints the answers. A line that ends with a "
        "backslash goes on with the next one; \"\"\" begins and ends a message of several lines. Lines that start with "
        "a slash are commands; /help lists them. On a terminal, if the program was built with libedit (unmask "
        "--version), lines can be edited, the arrow keys and Ctrl-R find earlier messages, and a pasted text is one "
        "message. If the conversation gets longer than the model allows, the "
        "command drops the oldest turns and says so. Ctrl-C stops an answer or clears the line; on an empty line, or "
        "twice, it quits with status 130. Ctrl-D quits. With --url a "
        "running server answers: `unmask serve` or another server with OpenAI's API. The command sends it "
        "the parameters that you set; the others have the server's defaults.",
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
