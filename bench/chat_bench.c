/* Measures the speed of chat templates. Prints numbers; there is no pass or fail.
 *
 *   chat_bench [folder]        (default: build/data/tokenizers, with chat/NAME.jsonl and NAME/tokenizer.json)
 *
 * For each built-in template it measures compiling the template; rendering the conversations of its test vectors that
 * do not fail, from JSON values to text; and whole requests, from JSON text to ids: normalizing, protecting, rendering,
 * encoding. It uses one thread. A result is the time of one conversation, averaged over all of the file: the median of
 * several windows (timing.c), with the fastest and the slowest in brackets. */
#include <stdlib.h>

#include "bench.h"
#include "text/chat.h"

enum { WINDOWS = 7 };
#define WINDOW_SECONDS 0.06

enum { ROWS_MAX = 64 };

static void stop(const char *what) {
    fprintf(stderr, "chat_bench: %s\n", what);
    exit(1);
}

/* Measures op, whose calls process `amount` items each, and prints the time of one item. */
static void report(const char *name, const char *what, void (*op)(void *arg, int round), void *arg, double amount) {
    const double us = 1e6 / amount;
    um_measured t;
    um_measure(&(um_measure_task){op, arg}, 1, WINDOWS, WINDOW_SECONDS, &t);
    printf("%-8s %-8s %8.1f us [%.1f..%.1f]\n", name, what, t.median * us, t.min * us, t.max * us);
    fflush(stdout);
}

/* ---- Measured functions ------------------------------------------------------------------------------------------ */

typedef struct set {
    const um_chat_builtin *builtin;
    um_tok *tok;
    um_chat *chat;
    um_template *tmpl;
    size_t n;
    json_t *vars[ROWS_MAX];
    um_chat_request request[ROWS_MAX];
    char *text[ROWS_MAX][2]; /* messages, tools */
    um_buf out;
    um_ids ids;
} set;

static void compile(void *arg, int round) {
    (void)round;
    set *s = (set *)arg;
    um_template *t;
    if (um_template_new(&t, s->builtin->source, NULL)) stop(s->builtin->name);
    um_template_free(t);
}

static void render(void *arg, int round) {
    (void)round;
    set *s = (set *)arg;
    for (size_t i = 0; i < s->n; i++) {
        um_buf_clear(&s->out);
        if (um_template_render(s->tmpl, s->vars[i], &s->out, NULL)) stop("a conversation does not render");
    }
}

static void request(void *arg, int round) {
    (void)round;
    set *s = (set *)arg;
    for (size_t i = 0; i < s->n; i++) {
        s->ids.n = 0;
        if (um_chat_render(s->chat, &s->request[i], NULL, &s->ids, NULL)) stop("a request fails");
    }
}

/* ---- Conversations ----------------------------------------------------------------------------------------------- */

static json_t *variables_of(const set *s, const json_t *row) {
    json_t *vars = json_copy(json_object_get(row, "special")), *tools = json_object_get(row, "tools");
    if (s->builtin->default_system)
        json_object_set_new(vars, "default_system", json_string(s->builtin->default_system));
    json_object_set(vars, "messages", json_object_get(row, "messages"));
    json_object_set(vars, "tools", tools ? tools : json_null());
    json_object_update(vars, json_object_get(row, "kwargs"));
    return vars;
}

static void free_row(set *s, size_t i) {
    json_decref(s->vars[i]);
    free(s->text[i][0]);
    free(s->text[i][1]);
}

static void add_row(set *s, const json_t *row) {
    um_err err;
    um_chat_request *q = &s->request[s->n];
    json_t *tools = json_object_get(row, "tools");
    s->text[s->n][0] = json_dumps(json_object_get(row, "messages"), 0);
    s->text[s->n][1] = tools ? json_dumps(tools, 0) : NULL;
    um_chat_init(q);
    q->messages_json = s->text[s->n][0];
    q->tools_json = s->text[s->n][1];
    s->vars[s->n] = variables_of(s, row);
    bool good =
        !um_template_render(s->tmpl, s->vars[s->n], &s->out, &err) && !um_chat_render(s->chat, q, NULL, &s->ids, &err);
    if (good) s->n++;
    else free_row(s, s->n);
}

static void read_rows(set *s, const char *path) {
    um_buf text = {0};
    um_err err;
    if (um_file_read(path, (size_t)16 << 20, &text, &err)) stop(err.msg);
    for (char *line = text.data, *end; (end = strchr(line, '\n')) && s->n < ROWS_MAX; line = end + 1) {
        json_t *row;
        if (um_json_parse(&row, line, (size_t)(end - line), path, &err)) stop(err.msg);
        add_row(s, row);
        json_decref(row);
    }
    um_buf_free(&text);
}

static void bench(const char *folder, const char *name, const char *vectors, const char *vocabulary) {
    set s = {.builtin = um_chat_builtin_find(name)};
    char path[512];
    um_err err;
    snprintf(path, sizeof path, "%s/%s", folder, vocabulary);
    if (um_tok_open(&s.tok, path, &err)) stop(err.msg);
    if (um_chat_open(&s.chat, "/nonexistent", s.tok, name, NULL, &err)) stop(err.msg);
    if (um_template_new(&s.tmpl, s.builtin->source, &err)) stop(err.msg);
    snprintf(path, sizeof path, "%s/chat/%s.jsonl", folder, vectors);
    read_rows(&s, path);
    report(name, "compile", compile, &s, 1);
    report(name, "render", render, &s, (double)s.n);
    report(name, "request", request, &s, (double)s.n);
    for (size_t i = 0; i < s.n; i++) free_row(&s, i);
    um_template_free(s.tmpl);
    um_chat_close(s.chat);
    um_tok_close(s.tok);
    um_buf_free(&s.out);
    um_ids_free(&s.ids);
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : "build/data/tokenizers";
    printf("%s; one thread\n%-8s %-8s %8s\n", um_bench_machine(), "template", "what",
           "median [best..worst], one conversation");
    bench(folder, "llada", "llada", "llada");
    bench(folder, "llada2", "llada2", "llada2");
    bench(folder, "qwen2_5", "qwen2_5", "qwen2_5");
    bench(folder, "dream", "qwen2_5_base_dream", "dream");
    bench(folder, "qwen3", "qwen3", "qwen3");
    return 0;
}
