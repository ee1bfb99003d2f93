/* unmask run: answers one prompt. */
#include <unistd.h>

#include "cli/client.h"
#include "cli/constraint.h"
#include "cli/requests.h"
#include "cli/result_file.h"
#include "model/model.h"

typedef struct run_options {
    um_remote_options remote;
    um_constraint_options constraint;
    bool raw, json, step_map, view, show_prompt, quiet;
    const char *system, *tools, *chat_template_kwargs, *stop, *adapter, *profile, *prompt;
    int32_t delay;
} run_options;

#define O(field) UM_FIELD(run_options, field)
static const um_option rows[] = {
    UM_REMOTE_ROWS(run_options, remote, "Server"),
    {"adapter", NULL, UM_OPT_STR, O(adapter), 0, 0, NULL, NULL, NULL, "NAME", "Model", "use this adapter of --lora"},
    {"prompt", "p", UM_OPT_STR, O(prompt), 0, 0, NULL, NULL, NULL, "TEXT", "Prompt",
     "the prompt, in place of the words after the options"},
    {"system", NULL, UM_OPT_STR, O(system), 0, 0, NULL, NULL, NULL, "TEXT", "Prompt",
     "system message before the prompt"},
    {"tools", NULL, UM_OPT_STR, O(tools), 0, 0, NULL, NULL, NULL, "FILE", "Prompt",
     "JSON array of tool definitions for the chat template"},
    {"chat_template_kwargs", NULL, UM_OPT_STR, O(chat_template_kwargs), 0, 0, NULL, NULL, NULL, "JSON", "Prompt",
     "variables for the chat template, as in {\"enable_thinking\": false}"},
    {"raw", NULL, UM_OPT_BOOL, O(raw), 0, 0, NULL, "false", NULL, NULL, "Prompt", UM_RAW_HELP},
    {"show_prompt", NULL, UM_OPT_BOOL, O(show_prompt), 0, 0, NULL, "false", NULL, NULL, "Prompt",
     "print the complete text that the model gets to standard error"},
    {"stop", NULL, UM_OPT_STR, O(stop), 0, 0, NULL, NULL, NULL, "TEXT", "Limits",
     "end the answer before this text; \\n, \\t and \\\\ are escapes"},
    UM_CONSTRAINT_ROWS(run_options, constraint),
    {"view", NULL, UM_OPT_BOOL, O(view), 0, 0, NULL, "true", NULL, NULL, "Output",
     "draw the answer on a terminal while it is denoised; otherwise its text is streamed"},
    {"delay", NULL, UM_OPT_INT, O(delay), 0, 60000, NULL, "0", NULL, "MS", "Output",
     "pause in milliseconds after each drawn pass"},
    {"json", NULL, UM_OPT_BOOL, O(json), 0, 0, NULL, "false", NULL, NULL, "Output",
     "print a JSON object with the answer, its token ids and statistics"},
    {"step_map", NULL, UM_OPT_BOOL, O(step_map), 0, 0, NULL, "false", NULL, NULL, "Output",
     "add the forward pass that wrote each token to the JSON object"},
    UM_PROFILE_ROW(O(profile), "Output"),
    {"quiet", "q", UM_OPT_BOOL, O(quiet), 0, 0, NULL, "false", NULL, NULL, "Output",
     "print no model facts before the answer and no statistics after it"},
};

/* ---- Prompt ------------------------------------------------------------------------------------------------------ */

/* Copies a stop string and replaces its escapes. */
static um_status read_stop(const char *text, um_buf *out, um_err *err) {
    for (const char *p = text; *p; p++) {
        if (*p != '\\') {
            um_buf_putc(out, *p);
            continue;
        }
        p++;
        if (*p != 'n' && *p != 't' && *p != '\\')
            return um_fail(err, UM_EINVAL,
                           "--stop: expected \\n, \\t or \\\\, found \"\\%.1s\"; write \\\\ for a backslash", p);
        um_buf_putc(out, *p == 'n' ? '\n' : *p == 't' ? '\t' : '\\');
    }
    return UM_OK;
}

/* The prompt of a request: a text, or messages for the chat template. */
typedef struct prompt {
    um_buf text, tools, stop;
    um_cli_constraint constraint;
    const char *stops[1];
    um_message message[2];
    um_chat_request chat;
} prompt;

static um_status check_messages(const prompt *p, um_err *err) {
    size_t n = p->text.data ? strlen(p->text.data) : 0;
    if (n == p->text.len) return UM_OK;
    return um_fail(err, UM_EINVAL, "the prompt has U+0000 at byte %zu, which chat templates don't support; use --raw",
                   n);
}

static void fill_messages(const run_options *o, prompt *p, um_request *r) {
    um_chat_init(&p->chat);
    if (o->system) p->message[p->chat.n_messages++] = (um_message){"system", o->system};
    p->message[p->chat.n_messages++] = (um_message){"user", p->text.data};
    p->chat.messages = p->message;
    p->chat.tools_json = o->tools ? p->tools.data : NULL;
    p->chat.kwargs_json = o->chat_template_kwargs;
    p->chat.special_in_content = r->special_in_content;
    r->chat = &p->chat;
}

/* s NULL: a server answers, which is assumed to have a chat template. */
static um_status fill_request(const run_options *o, const um_session *s, prompt *p, um_request *r, um_err *err) {
    um_model_info info = {.has_chat_template = true};
    if (s) um_model_get_info(s->model, &info);
    r->adapter = o->adapter;
    um_cli_constraint_apply(&p->constraint, r);
    if (p->stop.len) {
        p->stops[0] = p->stop.data;
        r->stop = p->stops;
        r->n_stop = 1;
    }
    if (o->raw || !info.has_chat_template) {
        const char *option = o->system ? "--system" : o->tools ? "--tools" : "--chat-template-kwargs";
        if (o->system || o->tools || o->chat_template_kwargs)
            return um_fail(err, UM_EINVAL, "%s needs a chat template, %s", option,
                           o->raw ? "which --raw turns off" : "and this model has none");
        r->text = p->text.data;
        r->text_len = p->text.len;
        return UM_OK;
    }
    fill_messages(o, p, r);
    return check_messages(p, err);
}

static um_status read_prompt(const run_options *o, const um_args *args, um_buf *text, um_err *err) {
    if (!o->prompt) return um_cli_text(args, text, err);
    um_buf_puts(text, o->prompt);
    return um_cli_no_words(args, "--prompt is the prompt already", err);
}

static um_status show_prompt(const um_session *s, const um_request *r, um_err *err) {
    char *text = NULL;
    size_t n = r->text_len;
    um_buf safe = {0};
    um_status st = r->chat ? um_model_render_chat(s->model, r->chat, &text, &n, NULL, NULL, err) : UM_OK;
    if (!st) um_cli_put_safe(&safe, text ? text : r->text, n);
    if (!st) fprintf(stderr, "%s\n", safe.len ? safe.data : "");
    um_buf_free(&safe);
    um_free(text);
    return st;
}

/* ---- Answer ------------------------------------------------------------------------------------------------------ */

/* The answer as JSON. It is written during the final event, while the arrays of the result are valid. */
typedef struct json_answer {
    um_result_extras extras;
    um_buf text;
} json_answer;

static void write_json(void *arg, const um_result *r) {
    json_answer *a = (json_answer *)arg;
    um_jw w;
    um_jw_init(&w, &a->text);
    um_jw_begin_object(&w);
    um_result_put(&w, r, &a->extras);
    um_jw_put_int(&w, "denoise_tokens", r->denoise_tokens);
    um_jw_put_int(&w, "denoise_passes", r->denoise_passes);
    um_jw_end_object(&w);
    um_buf_putc(&a->text, '\n');
}

/* Prints the end of the answer, which the view or the streamed text has shown already, and the statistics. */
static int print_response(const run_options *o, const um_client_response *response, const json_answer *json,
                          bool drawn) {
    const um_result *r = &response->result;
    if (o->json) um_cli_write(&json->text);
    else if (!drawn) putchar('\n');
    um_cli_flush(); /* print the answer before the statistics on stderr */
    if (!o->quiet && isatty(STDERR_FILENO)) um_view_summary(stderr, r, um_cli_colour(STDERR_FILENO));
    const char *failure = um_cli_failure_of(r->finish);
    if (failure) fprintf(stderr, "unmask run: %s\n", failure);
    if (r->finish == UM_FINISH_ABORTED && um_cli_interrupted()) return um_cli_signal_exit();
    return failure || r->finish == UM_FINISH_ABORTED ? UM_EXIT_FAILED : UM_EXIT_OK;
}

/* The client, and the request for it. */
typedef struct run_state {
    um_session session; /* local model; unused with --url */
    um_client *client;
    um_client_request client_request;
} run_state;

static int answer(const um_command *self, const run_options *o, run_state *k, prompt *p) {
    um_session *s = o->remote.url ? NULL : &k->session;
    um_request *request = &k->client_request.request;
    um_client_response response = {0};
    um_err err;
    bool draw = !o->json && o->view && um_cli_can_draw(STDOUT_FILENO);
    json_answer json = {.extras = {.tok = s ? s->model->tok : NULL, .step_map = o->step_map, .timings = true}};
    um_client_output show = {
        .on_terminal = isatty(STDOUT_FILENO), .delay_ms = o->delay, .finished = write_json, .arg = &json};
    um_status st = fill_request(o, s, p, request, &err);
    if (!st && o->show_prompt) st = show_prompt(s, request, &err);
    if (draw) show.view = um_view_new(STDOUT_FILENO);
    else if (!o->json) show.file = stdout;
    k->client->output = show;
    if (!st && s) st = um_cli_profile_start(s->router, o->profile, &err);
    if (!st) st = k->client->send(k->client, &k->client_request, &response, &err);
    if (!st && s) st = um_cli_profile_stop(s->router, o->profile, o->quiet, &err);
    if (st && response.text.len && show.file) putchar('\n');
    um_cli_flush();
    int status = st ? um_cli_error(self, &err) : print_response(o, &response, &json, draw);
    um_buf_free(&json.text);
    um_view_free(show.view);
    um_client_response_free(&response);
    return status;
}

/* Refuses options that need a local model. */
static um_status check_remote(const run_options *o, const um_args *args, um_err *err) {
    const char *local = o->show_prompt ? "show-prompt" : o->step_map ? "step-map" : o->profile ? "profile" : NULL;
    if (local) return um_fail(err, UM_EINVAL, "--%s needs a local model: use --model instead of --url", local);
    return um_remote_check(args, err);
}

static um_status open_client(run_state *k, const run_options *o, um_config *config, size_t prompt_bytes, um_err *err) {
    bool facts = !o->quiet && isatty(STDERR_FILENO);
    if (o->remote.url) return um_client_remote(&k->client, &o->remote, !facts, err);
    um_cli_set_single_request_sizes(config, prompt_bytes);
    um_status st = um_cli_open(&k->session, config, o->quiet, facts, err);
    if (st) return st;
    um_request_init(k->session.engine, &k->client_request.request);
    k->client = um_client_local(&k->session);
    return UM_OK;
}

/* Prints examples in place of the missing prompt. Ignores errors, because the prompt is reported as missing already. */
static void print_examples(const run_options *o, const char *model) {
    um_client *server = NULL;
    um_err ignored;
    if (!o->remote.url) um_cli_print_examples_of(model);
    else if (!um_client_remote(&server, &o->remote, true, &ignored)) server->print_examples(server);
    um_client_free(server);
}

static int run(const um_command *self, int argc, char **argv) {
    run_options o;
    um_config config;
    um_args args;
    run_state k = {0};
    prompt p = {0};
    um_err err;
    um_args_parse(&args, self, argc, argv, &o, &config);
    int status = args.exit;
    if (args.done) goto done;
    um_request_init_config(&config, &k.client_request.request);
    um_client_request_mark_given(&k.client_request, &args);
    um_status st = o.remote.url ? check_remote(&o, &args, &err) : um_cli_check_engine_model(&config, &err);
    bool has_no_prompt = false;
    if (!st) {
        st = read_prompt(&o, &args, &p.text, &err);
        if (!st && p.text.len == 0) st = um_fail(&err, UM_EINVAL, "the prompt is empty");
        has_no_prompt = st == UM_EINVAL;
    }
    if (!st && o.tools) st = um_chat_file("--tools", o.tools, &p.tools, &err);
    if (!st && o.stop) st = read_stop(o.stop, &p.stop, &err);
    if (!st) st = um_cli_constraint_read(&p.constraint, &o.constraint, &config, &err);
    if (!st) st = um_cli_profile_check(o.profile, &err);
    if (!st) st = open_client(&k, &o, &config, p.text.len + p.tools.len + (o.system ? strlen(o.system) : 0), &err);
    if (!st) um_cli_catch_signals();
    status = st ? um_cli_error(self, &err) : answer(self, &o, &k, &p);
    if (st && has_no_prompt) print_examples(&o, config.model);
done:
    um_client_free(k.client);
    um_cli_close(&k.session);
    um_buf_free(&p.text);
    um_buf_free(&p.tools);
    um_buf_free(&p.stop);
    um_cli_constraint_free(&p.constraint);
    um_args_free(&args);
    return status;
}

const um_command um_cmd_run = {
    .name = "run",
    .summary = "answer one prompt",
    .usage = "unmask run (--model DIR | --url URL) [options] [-p PROMPT | PROMPT | -]",
    .description =
        "The words of PROMPT are joined by spaces. Without PROMPT, or with -, the command reads the prompt from "
        "standard input and removes one newline at its end. If the model has a chat template, the command applies it. "
        "On a terminal it draws the answer while it is denoised; elsewhere it writes only the answer to standard "
        "output. Ctrl-C stops the answer. With --url a running server answers: `unmask serve` or another server with "
        "OpenAI's API. The command sends it the parameters that you set; the others have the server's defaults.",
    .examples = "  unmask run --model models/tiny-block \"What is 12 + 30?\"\n"
                "  echo \"What is 12 + 30?\" | unmask run --model models/tiny-block --json\n"
                "  unmask run --model models/tiny-full --max-tokens 64 --steps 32 --delay 50 \"Sort these numbers: 42, "
                "7, 19, 3.\"\n",
    .options = rows,
    .n_options = UM_LEN(rows),
    .engine_options = true,
    .defaults = {{"max_num_reqs", "1"}},
    .run = run,
};
