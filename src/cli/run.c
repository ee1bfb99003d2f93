/* run: one prompt, one answer. */
#include <unistd.h>

#include "cli/answerer.h"
#include "cli/requests.h"
#include "cli/results.h"
#include "model/model.h"

typedef struct run_options {
    um_remote_options remote;
    bool raw, json, step_map, view, show_prompt, quiet;
    const char *system, *tools, *chat_template_kwargs, *stop, *adapter, *profile;
    int32_t delay;
} run_options;

#define O(field) UM_FIELD(run_options, field)
static const um_option rows[] = {
    UM_REMOTE_ROWS(run_options, remote, "Server"),
    {"adapter", NULL, UM_OPT_STR, O(adapter), 0, 0, NULL, NULL, NULL, "NAME", "Model",
     "answer through this adapter of --lora"},
    {"system", NULL, UM_OPT_STR, O(system), 0, 0, NULL, NULL, NULL, "TEXT", "Prompt",
     "system message in front of the prompt"},
    {"tools", NULL, UM_OPT_STR, O(tools), 0, 0, NULL, NULL, NULL, "FILE", "Prompt",
     "a JSON array of tool definitions for the chat template"},
    {"chat_template_kwargs", NULL, UM_OPT_STR, O(chat_template_kwargs), 0, 0, NULL, NULL, NULL, "JSON", "Prompt",
     "variables for the chat template, as in {\"enable_thinking\": false}"},
    {"raw", NULL, UM_OPT_BOOL, O(raw), 0, 0, NULL, "false", NULL, NULL, "Prompt",
     "feed the prompt as it is, without the model's chat template"},
    {"show_prompt", NULL, UM_OPT_BOOL, O(show_prompt), 0, 0, NULL, "false", NULL, NULL, "Prompt",
     "write the text that the model gets to standard error"},
    {"stop", NULL, UM_OPT_STR, O(stop), 0, 0, NULL, NULL, NULL, "TEXT", "Limits",
     "end the answer before this text; \\n, \\t and \\\\ are understood"},
    {"view", NULL, UM_OPT_BOOL, O(view), 0, 0, NULL, "true", NULL, NULL, "Output",
     "on a terminal, draw the answer while it is denoised; else its text streams"},
    {"delay", NULL, UM_OPT_INT, O(delay), 0, 60000, NULL, "0", NULL, "MS", "Output",
     "pause after each pass that is drawn, in milliseconds"},
    {"json", NULL, UM_OPT_BOOL, O(json), 0, 0, NULL, "false", NULL, NULL, "Output",
     "print a JSON object with the answer, its ids and its numbers"},
    {"step_map", NULL, UM_OPT_BOOL, O(step_map), 0, 0, NULL, "false", NULL, NULL, "Output",
     "add the forward pass that fixed each token to that object"},
    UM_PROFILE_ROW(O(profile), "Output"),
    {"quiet", NULL, UM_OPT_BOOL, O(quiet), 0, 0, NULL, "false", NULL, NULL, "Output",
     "no facts at the start, no numbers at the end"},
};

/* ---- Prompt ------------------------------------------------------------------------------------------------------ */

/* The stop string with its escapes replaced. */
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

/* A prompt as the engine takes it: the text itself, or messages for the chat template. */
typedef struct prompt {
    um_buf text, tools, stop;
    const char *stops[1];
    um_message message[2];
    um_chat_request chat;
} prompt;

static um_status check_messages(const prompt *p, um_err *err) {
    size_t n = p->text.data ? strlen(p->text.data) : 0;
    if (n == p->text.len) return UM_OK;
    return um_fail(err, UM_EINVAL, "the prompt holds U+0000 at byte %zu, which a chat template can't carry; use --raw",
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

/* s NULL: a server answers, which has a template for all we know. */
static um_status fill_request(const run_options *o, const um_session *s, prompt *p, um_request *r, um_err *err) {
    um_model_info info = {.has_chat_template = true};
    if (s) um_model_get_info(s->model, &info);
    r->adapter = o->adapter;
    if (p->stop.len) {
        p->stops[0] = p->stop.data;
        r->stop = p->stops;
        r->n_stop = 1;
    }
    if (o->raw || !info.has_chat_template) {
        const char *option = o->system ? "--system" : o->tools ? "--tools" : "--chat-template-kwargs";
        if (o->system || o->tools || o->chat_template_kwargs)
            return um_fail(err, UM_EINVAL, "%s needs a chat template, %s", option,
                           o->raw ? "which --raw leaves out" : "and this model has none");
        r->text = p->text.data;
        r->text_len = p->text.len;
        return UM_OK;
    }
    fill_messages(o, p, r);
    return check_messages(p, err);
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

/* The answer as JSON, written while its arrays are there. */
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
}

/* The view and the streamed text show the answer themselves; what is left is its last newline. */
static int print_reply(const run_options *o, const um_reply *reply, const json_answer *json, bool drawn) {
    const um_result *r = &reply->result;
    if (o->json) puts(json->text.data);
    else if (!drawn) putchar('\n');
    fflush(stdout); /* the answer stands before its numbers where both go to one terminal */
    if (!o->quiet && isatty(STDERR_FILENO)) um_view_summary(stderr, r, um_cli_colour(STDERR_FILENO));
    if (r->finish == UM_FINISH_NO_PREDICTION)
        fputs("unmask run: the model predicts no token, its logits are no numbers: see --check-weights\n", stderr);
    return r->finish == UM_FINISH_ABORTED || r->finish == UM_FINISH_NO_PREDICTION ? UM_EXIT_FAILED : UM_EXIT_OK;
}

/* Who answers, and what belongs to him. */
typedef struct work {
    um_session session; /* of a model of one's own */
    um_answerer *answerer;
    um_question question;
} work;

static int answer(const um_command *self, const run_options *o, work *k, prompt *p) {
    um_session *s = o->remote.url ? NULL : &k->session;
    um_request *request = &k->question.request;
    um_reply reply = {0};
    um_err err;
    bool draw = !o->json && o->view && um_cli_can_draw(STDOUT_FILENO);
    json_answer json = {.extras = {.tok = s ? s->model->tok : NULL, .step_map = o->step_map, .timings = true}};
    um_showing show = {.safe = isatty(STDOUT_FILENO), .delay_ms = o->delay, .finished = write_json, .arg = &json};
    um_status st = fill_request(o, s, p, request, &err);
    if (!st && o->show_prompt) st = show_prompt(s, request, &err);
    if (draw) show.view = um_view_new(STDOUT_FILENO);
    else if (!o->json) show.plain = stdout;
    k->answerer->showing = show;
    if (!st && s) st = um_cli_profile_start(s->router, o->profile, &err);
    if (!st) st = k->answerer->ask(k->answerer, &k->question, &reply, &err);
    if (!st && s) st = um_cli_profile_stop(s->router, o->profile, o->quiet, &err);
    if (st && reply.text.len && show.plain) putchar('\n');
    fflush(stdout);
    int status = st ? um_cli_error(self, &err) : print_reply(o, &reply, &json, draw);
    um_buf_free(&json.text);
    um_view_free(show.view);
    um_reply_free(&reply);
    return status;
}

/* What only a model of one's own can do. */
static um_status check_remote(const run_options *o, const um_args *args, um_err *err) {
    const char *local = o->show_prompt ? "show-prompt" : o->step_map ? "step-map" : o->profile ? "profile" : NULL;
    if (local) return um_fail(err, UM_EINVAL, "--%s needs a model of one's own, by --model in place of --url", local);
    return um_remote_check(args, err);
}

static um_status open_answerer(work *k, const run_options *o, um_config *config, size_t prompt_bytes, um_err *err) {
    bool quiet = o->quiet || !isatty(STDERR_FILENO);
    if (o->remote.url) return um_answerer_remote(&k->answerer, &o->remote, quiet, err);
    um_cli_size_for_one(config, prompt_bytes);
    um_status st = um_cli_open(&k->session, config, quiet, err);
    if (st) return st;
    um_request_init(k->session.engine, &k->question.request);
    k->answerer = um_answerer_local(&k->session);
    return UM_OK;
}

static int run(const um_command *self, int argc, char **argv) {
    run_options o;
    um_config config;
    um_args args;
    work k = {0};
    prompt p = {0};
    um_err err;
    um_args_parse(&args, self, argc, argv, &o, &config);
    int status = args.exit;
    if (args.done) goto done;
    um_request_init_config(&config, &k.question.request);
    um_question_take_given(&k.question, &args);
    um_status st = o.remote.url ? check_remote(&o, &args, &err) : um_cli_need_model(config.model, &err);
    if (!st) st = um_cli_text(&args, &p.text, &err);
    if (!st && p.text.len == 0) st = um_fail(&err, UM_EINVAL, "the prompt is empty");
    if (!st && o.tools) st = um_chat_file(o.tools, &p.tools, &err);
    if (!st && o.stop) st = read_stop(o.stop, &p.stop, &err);
    if (!st) st = open_answerer(&k, &o, &config, p.text.len + p.tools.len + (o.system ? strlen(o.system) : 0), &err);
    if (!st) um_cli_catch_signals();
    status = st ? um_cli_error(self, &err) : answer(self, &o, &k, &p);
done:
    um_answerer_free(k.answerer);
    um_cli_close(&k.session);
    um_buf_free(&p.text);
    um_buf_free(&p.tools);
    um_buf_free(&p.stop);
    um_args_free(&args);
    return status;
}

const um_command um_cmd_run = {
    .name = "run",
    .summary = "answer one prompt",
    .usage = "unmask run (--model DIR | --url URL) [options] [PROMPT | -]",
    .description =
        "The words of PROMPT are joined by spaces; without any, or with -, the prompt is standard input less "
        "one newline at its end. It goes through the model's chat template where there is one. On a terminal "
        "the answer is drawn while it is denoised; elsewhere standard output gets the answer and nothing "
        "else. Ctrl-C ends the answer. With --url a running server answers, `unmask serve` or any other of the OpenAI "
        "kind; parameters that are given are sent to it, the rest are its own.",
    .examples = "  unmask run --model models/tiny-block \"What is 12 + 30?\"\n"
                "  echo \"What is 12 + 30?\" | unmask run --model models/tiny-block --json\n"
                "  unmask run --model models/tiny-full --max-tokens 64 --steps 32 --delay 50 \"Count from 3 to 9.\"\n",
    .options = rows,
    .n_options = UM_LEN(rows),
    .engine_options = true,
    .defaults = {{"max_num_reqs", "1"}},
    .run = run,
};
