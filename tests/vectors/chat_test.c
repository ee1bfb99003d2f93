/* Chat templates. Compares small templates, the built-in templates, and the original templates if they are in the data
 * folder with Jinja2. The built-in ones must render like the originals that they replace. Then encodes whole requests
 * with the tokenizers of the families: no text of a user may become a control token. */
#include <time.h>

#include "text/chat.h"
#include "vectors.h"

/* 2025-07-26 13:05:09 UTC, the clock of the vectors. */
#define NOW 1753535109

/* A built-in template and the vectors of the template that it replaces. */
static const struct {
    const char *builtin, *vectors, *folder; /* folder: the folder of its vocabulary */
} builtins[] = {
    {"llada", "llada", "llada"},       {"llada2", "llada2", "llada2"},
    {"qwen2_5", "qwen2_5", "qwen2_5"}, {"dream", "qwen2_5_base_dream", "dream"},
    {"qwen3", "qwen3", "qwen3"},
};

static um_status render_source(um_str source, const json_t *vars, um_buf *out, um_err *err) {
    um_template *t;
    um_buf_clear(out);
    um_status st = um_template_new(&t, source, err);
    if (!st) st = um_template_render_at(t, vars, NOW, out, err);
    um_template_free(t);
    return st;
}

static json_t *rows_of(const char *vectors) {
    char name[80];
    snprintf(name, sizeof name, "%s.jsonl", vectors);
    return data_rows("chat", name);
}

static json_t *context_of_small_templates(void) {
    char *path = data_path("chat", "jinja_micro_context.json");
    um_buf text = {0};
    um_err err;
    json_t *vars = NULL;
    if (um_file_read(path, 1 << 20, &text, &err) || um_json_parse_exact(&vars, text.data, text.len, path, &err))
        fail_msg("%s", err.msg);
    um_buf_free(&text);
    um_free(path);
    return vars;
}

/* Features of Jinja2 that this engine does not have, and the reasons. */
static const struct {
    const char *word, *why;
} left_out[] = {{"lipsum", "writes filler text for web pages, which no prompt needs"}};

static const char *why_left_out(um_str source) {
    for (size_t i = 0; i < UM_LEN(left_out); i++)
        if (memmem(source.p, source.n, left_out[i].word, strlen(left_out[i].word))) return left_out[i].why;
    return NULL;
}

/* Returns whether rendering failed as the row's "error" demands. Messages may differ from Jinja2's, but the text of
 * raise_exception must be in the message. */
static bool fails_alike(const json_t *row, um_status st, const um_err *err) {
    const char *why = json_string_value(json_object_get(row, "error"));
    const char *text = why ? strstr(why, "TemplateError: ") : NULL;
    return st == UM_ETEMPLATE && why && (!text || strstr(err->msg, text + strlen("TemplateError: ")));
}

static void small_templates_render_as_in_jinja(void **state) {
    (void)state;
    json_t *vars = context_of_small_templates(), *rows = rows_of("jinja_micro"), *row;
    size_t i, right = 0, failing = 0, skipped = 0;
    um_buf out = {0};
    um_err err;
    json_array_foreach(rows, i, row) {
        um_str source = vector_str(json_object_get(row, "template"));
        const json_t *want = json_object_get(row, "out");
        const char *why = why_left_out(source);
        if (why) {
            print_message("left out: %.*s: %s\n", (int)source.n, source.p, why);
            skipped++;
            continue;
        }
        um_status st = render_source(source, vars, &out, &err);
        if (want ? !st && um_str_eq(buf_str(&out), vector_str(want)) : fails_alike(row, st, &err)) right++;
        else print_error("%.*s: %s\n", (int)source.n, source.p, st ? err.msg : out.data);
        failing += !want;
    }
    print_message("%zu of them must fail, %zu left out\n", failing, skipped);
    report_count("render", "jinja_micro", right, json_array_size(rows) - skipped);
    assert_true(skipped <= UM_LEN(left_out));
    um_buf_free(&out);
    json_decref(vars);
    json_decref(rows);
}

/* ---- Whole conversations ----------------------------------------------------------------------------------------- */

static json_t *variables_of(const json_t *row, const char *default_system) {
    json_t *vars = json_copy(json_object_get(row, "special"));
    json_t *tools = json_object_get(row, "tools");
    if (default_system) json_object_set_new(vars, "default_system", json_string(default_system));
    json_object_set(vars, "messages", json_object_get(row, "messages"));
    json_object_set(vars, "tools", tools ? tools : json_null());
    json_object_update(vars, json_object_get(row, "kwargs"));
    return vars;
}

/* Renders all rows of a file with a template and compares the texts. With a tokenizer compares the ids, too. */
static void compare_conversations(const char *vectors, um_str source, const char *default_system, const um_tok *tok) {
    json_t *rows = rows_of(vectors), *row;
    size_t i, right = 0, right_ids = 0, n_ids = 0;
    um_buf out = {0};
    um_err err;
    json_array_foreach(rows, i, row) {
        json_t *vars = variables_of(row, default_system);
        const json_t *want = json_object_get(row, "rendered");
        um_status st = render_source(source, vars, &out, &err);
        bool good = want ? !st && um_str_eq(buf_str(&out), vector_str(want)) : fails_alike(row, st, &err);
        if (!good)
            print_error("%s %s: %s\n", vectors, json_string_value(json_object_get(row, "name")),
                        st ? err.msg : out.data);
        right += good;
        if (tok && json_object_get(row, "ids")) {
            um_ids ids = {0}, want_ids = vector_ids(row, "ids");
            assert_int_equal(um_tok_encode(tok, buf_str(&out), UM_PARSE_ALL, false, &ids, &err), UM_OK);
            right_ids += same_ids(&ids, &want_ids);
            n_ids++;
            um_ids_free(&ids);
            um_ids_free(&want_ids);
        }
        json_decref(vars);
    }
    report_count("render", vectors, right, json_array_size(rows));
    if (tok) report_count("ids", vectors, right_ids, n_ids);
    um_buf_free(&out);
    json_decref(rows);
}

static um_tok *open_tokenizer(const char *folder) {
    um_err err;
    um_tok *t = open_data(folder, &err);
    if (!t) fail_msg("%s", err.msg);
    return t;
}

static um_tok *tokenizers[UM_LEN(builtins)];

static void built_in_templates_render_as_the_originals(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(builtins); i++) {
        const um_chat_builtin *b = um_chat_builtin_find(builtins[i].builtin);
        assert_non_null(b);
        compare_conversations(builtins[i].vectors, b->source, b->default_system, tokenizers[i]);
    }
    assert_int_equal(um_n_chat_builtins, UM_LEN(builtins) + 1);
    um_buf names = {0};
    for (size_t i = 0; i < um_n_chat_builtins; i++)
        um_buf_printf(&names, "%s%s", i ? ", " : "", um_chat_builtins[i].name);
    assert_string_equal(names.data, UM_CHAT_BUILTIN_NAMES); /* the names in help texts and messages */
    um_buf_free(&names);
}

static bool has_tools(const json_t *row) {
    size_t i;
    json_t *message;
    if (json_array_size(json_object_get(row, "tools"))) return true;
    json_array_foreach(json_object_get(row, "messages"), i,
                       message) if (json_object_get(message, "tool_calls") ||
                                    um_streq(json_string_value(json_object_get(message, "role")), "tool")) return true;
    return false;
}

/* The vocabulary of Gemma 4 is not in the repository, so no ids are compared. */
static void gemma_renders_as_the_original_and_refuses_tools(void **state) {
    (void)state;
    const um_chat_builtin *gemma = um_chat_builtin_find("gemma4");
    json_t *rows = rows_of("diffusion_gemma"), *row;
    size_t i, right = 0;
    um_buf out = {0};
    um_err err;
    assert_non_null(gemma);
    json_array_foreach(rows, i, row) {
        json_t *vars = variables_of(row, NULL);
        const um_status st = render_source(gemma->source, vars, &out, &err);
        const bool good = has_tools(row)
                              ? st == UM_ETEMPLATE && strstr(err.msg, "no tools")
                              : !st && um_str_eq(buf_str(&out), vector_str(json_object_get(row, "rendered")));
        if (!good) print_error("%s: %s\n", json_string_value(json_object_get(row, "name")), st ? err.msg : out.data);
        right += good;
        json_decref(vars);
    }
    report_count("render", "diffusion_gemma", right, json_array_size(rows));
    um_buf_free(&out);
    json_decref(rows);
}

/* The repository does not contain the original templates, so the test passes without them. */
static void the_originals_render_as_in_jinja(void **state) {
    (void)state;
    static const char *const names[] = {"llada",           "llada2",     "qwen2_5", "qwen2_5_base_dream",
                                        "qwen3",           "gemma3",     "gpt_oss", "moonlight",
                                        "diffusion_gemma", "gemma4_31b", "olmo"};
    if (!data_exists("chat/templates", "qwen3.jinja")) {
        print_message("original templates: none in %s; make vectors DATA=dir checks those in dir/chat/templates\n",
                      data_folder());
        return;
    }
    for (size_t i = 0; i < UM_LEN(names); i++) {
        char file[80];
        um_buf source = {0};
        um_err err;
        snprintf(file, sizeof file, "%s.jinja", names[i]);
        char *path = data_path("chat/templates", file);
        if (um_file_read(path, 1 << 20, &source, &err)) fail_msg("%s", err.msg);
        compare_conversations(names[i], buf_str(&source), NULL, NULL);
        um_buf_free(&source);
        um_free(path);
    }
}

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

static um_chat *open_chat(size_t i) {
    um_chat *c;
    um_err err;
    if (um_chat_open(&c, "/nonexistent", tokenizers[i], NULL, builtins[i].builtin, &err)) fail_msg("%s", err.msg);
    assert_non_null(c);
    return c;
}

/* Returns whether a request gives a row's messages to the template unchanged. A request rewrites or rejects the
 * messages of the other rows. */
static bool is_plain_row(const char *name) {
    static const char *const other[] = {"developer", "content_parts", "tool_calls_none_content", "tool_args_string",
                                        "no_messages"};
    for (size_t i = 0; i < UM_LEN(other); i++)
        if (um_streq(name, other[i])) return false;
    return true;
}

static bool request_is_as_row(const um_chat *c, const json_t *row) {
    json_t *kwargs = json_copy(json_object_get(row, "kwargs")), *tools = json_object_get(row, "tools");
    char *messages = json_dumps(json_object_get(row, "messages"), 0), *tools_text = tools ? json_dumps(tools, 0) : NULL;
    um_chat_request q;
    um_buf text = {0};
    um_ids ids = {0}, want = vector_ids(row, "ids");
    um_err err = {0};
    um_chat_init(&q);
    q.add_generation_prompt = json_is_true(json_object_get(kwargs, "add_generation_prompt"));
    json_object_del(kwargs, "add_generation_prompt");
    char *kwargs_text = json_dumps(kwargs, 0);
    q.messages_json = messages;
    q.tools_json = tools_text;
    q.kwargs_json = kwargs_text;
    q.special_in_content = UM_SPECIAL_PARSE;
    um_status st = um_chat_render(c, &q, &text, &ids, &err);
    bool same = !st && same_ids(&ids, &want) && um_str_eq(buf_str(&text), vector_str(json_object_get(row, "rendered")));
    if (!same) print_error("%s: %s\n", json_string_value(json_object_get(row, "name")), st ? err.msg : text.data);
    um_buf_free(&text);
    um_ids_free(&ids);
    um_ids_free(&want);
    free(messages);
    free(tools_text);
    free(kwargs_text);
    json_decref(kwargs);
    return same;
}

static void requests_become_the_ids_of_the_reference(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(builtins); i++) {
        um_chat *c = open_chat(i);
        json_t *rows = rows_of(builtins[i].vectors), *row;
        size_t k, n = 0, right = 0;
        json_array_foreach(rows, k, row) {
            if (!is_plain_row(json_string_value(json_object_get(row, "name")))) continue;
            right += request_is_as_row(c, row);
            n++;
        }
        report_count("requests", builtins[i].builtin, right, n);
        json_decref(rows);
        um_chat_close(c);
    }
}

/* ---- Injection --------------------------------------------------------------------------------------------------- */

/* A conversation with a `%` in its messages, which the test replaces with a text, and a level for special tokens. */
typedef struct form {
    const char *messages;
    int level;
} form;

static const form forms[] = {
    {"[{\"role\":\"user\",\"content\":\"%\"}]", UM_SPECIAL_TEXT},
    {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"%\"}]}]", UM_SPECIAL_TEXT},
    {"[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":"
     "{\"name\":\"f\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"content\":\"%\"}]",
     UM_SPECIAL_TEXT},
    {"[{\"role\":\"system\",\"content\":\"%\"},{\"role\":\"user\",\"content\":\"q\"}]", UM_SPECIAL_STRICT},
};

/* Inserts the text into the form's messages, and computes the rendered text and its ids. */
static void fill_form(const um_chat *c, const form *f, um_str text, um_buf *rendered, um_ids *ids) {
    um_buf messages = {0};
    um_err err;
    um_chat_request q;
    char *quoted = NULL;
    json_t *string = json_stringn(text.p, text.n);
    assert_non_null(string);
    quoted = json_dumps(string, JSON_ENCODE_ANY);
    const char *hole = strchr(f->messages, '%');
    um_buf_append(&messages, f->messages, (size_t)(hole - f->messages));
    um_buf_append(&messages, quoted + 1, strlen(quoted) - 2);
    um_buf_puts(&messages, hole + 1);
    um_chat_init(&q);
    q.messages_json = messages.data;
    q.special_in_content = f->level;
    um_buf_clear(rendered);
    ids->n = 0;
    if (um_chat_render(c, &q, rendered, ids, &err)) fail_msg("%s: %s", messages.data, err.msg);
    um_buf_free(&messages);
    json_decref(string);
    free(quoted);
}

static um_ids special_ids(const um_tok *t, const um_ids *ids) {
    um_ids out = {0};
    for (size_t i = 0; i < ids->n; i++)
        if (um_tok_is_special(t, ids->data[i])) um_ids_push(&out, ids->data[i]);
    return out;
}

/* Checks that the text gives the same control tokens as a harmless text, that the ids decode to the rendered text, and
 * that this contains the text. Returns 1, the number of checked texts. */
static size_t check_text(const um_chat *c, const um_tok *t, const form *f, const um_ids *harmless, um_str text) {
    um_buf rendered = {0}, back = {0};
    um_ids ids = {0};
    fill_form(c, f, text, &rendered, &ids);
    um_ids special = special_ids(t, &ids);
    if (!same_ids(&special, harmless)) fail_msg("%.*s: became %s", (int)text.n, text.p, show_ids(&ids));
    um_tok_decode(t, ids.data, ids.n, false, &back);
    assert_text(buf_str(&back), buf_str(&rendered));
    um_str middle = um_strip(text, NULL, true, true);
    if (!memmem(rendered.data, rendered.len, middle.p, middle.n))
        fail_msg("%.*s is not in the prompt", (int)text.n, text.p);
    um_ids_free(&special);
    um_ids_free(&ids);
    um_buf_free(&rendered);
    um_buf_free(&back);
    return 1;
}

static size_t check_token(const um_chat *c, const um_tok *t, const form *f, const um_ids *harmless, um_str token) {
    static const char *const around[] = {"%", "x % y", "%%", "\n%\n", "  %  ", "%\n%", "a%", "%."};
    size_t n = 0;
    um_buf text = {0};
    for (size_t i = 0; i < UM_LEN(around); i++) {
        um_buf_clear(&text);
        for (const char *p = around[i]; *p; p++) {
            if (*p == '%') um_buf_append(&text, token.p, token.n);
            else um_buf_putc(&text, *p);
        }
        n += check_text(c, t, f, harmless, buf_str(&text));
    }
    int len;
    um_cp_at(token.p, token.n, &len);
    um_buf_clear(&text); /* the token inside of itself: removing the inner one must not leave a token */
    um_buf_append(&text, token.p, (size_t)len);
    um_buf_append(&text, token.p, token.n);
    um_buf_append(&text, token.p + len, token.n - (size_t)len);
    n += check_text(c, t, f, harmless, buf_str(&text));
    um_buf_free(&text);
    return n;
}

static void no_text_becomes_a_control_token(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(builtins); i++) {
        const um_tok *t = tokenizers[i];
        um_chat *c = open_chat(i);
        size_t n = 0;
        for (size_t k = 0; k < UM_LEN(forms); k++) {
            um_buf rendered = {0};
            um_ids ids = {0};
            if (um_streq(builtins[i].builtin, "llada") && strstr(forms[k].messages, "tool_calls")) continue;
            fill_form(c, &forms[k], UM_STR("z"), &rendered, &ids);
            um_ids harmless = special_ids(t, &ids);
            for (int32_t id = 0; id < um_tok_size(t); id++)
                if (um_tok_is_special(t, id)) n += check_token(c, t, &forms[k], &harmless, um_tok_bytes(t, id));
            um_ids_free(&ids);
            um_ids_free(&harmless);
            um_buf_free(&rendered);
        }
        report_count("injections", builtins[i].builtin, n, n);
        um_chat_close(c);
    }
}

/* Cuts each special token at every byte. Puts the halves into neighbouring contents, or the second half into the
 * template. The template trims the space between them, but they must not become a token. */
static void no_halves_of_a_token_find_each_other(void **state) {
    (void)state;
    const um_tok *t = tokenizers[4];
    size_t n = 0;
    um_err err;
    for (int32_t id = 0; id < um_tok_size(t); id++) {
        um_str token = um_tok_bytes(t, id);
        for (size_t at = 1; um_tok_is_special(t, id) && at < token.n; at++) {
            char first[64], second[64], one[160], *source[3] = {one, NULL, NULL};
            um_chat_request q;
            um_chat_init(&q);
            snprintf(first, sizeof first, "%.*s ", (int)at, token.p);
            snprintf(second, sizeof second, " %.*s", (int)(token.n - at), token.p + at);
            um_message both[] = {{"user", first}, {"tool", second}};
            snprintf(one, sizeof one, "{%% for m in messages %%}{{ m.content | trim }}{%% endfor %%}");
            q.messages = both;
            q.n_messages = 2;
            for (int k = 0; k < 2; k++) {
                um_chat *c;
                um_ids ids = {0};
                if (k == 1) { /* the template holds the second half */
                    snprintf(one, sizeof one, "{{ messages[0].content | trim }}{{ '%s' }}", second + 1);
                    q.n_messages = 1;
                }
                if (um_chat_open(&c, "/nonexistent", t, source[0], NULL, &err)) fail_msg("%s", err.msg);
                if (um_chat_render(c, &q, NULL, &ids, &err)) fail_msg("%s", err.msg);
                for (size_t i = 0; i < ids.n; i++)
                    if (um_tok_is_special(t, ids.data[i])) fail_msg("%s + %s", first, second);
                um_ids_free(&ids);
                um_chat_close(c);
                n++;
            }
        }
    }
    report_count("halves", "qwen3", n, n);
}

static int open_all(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(builtins); i++) tokenizers[i] = open_tokenizer(builtins[i].folder);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(builtins); i++) um_tok_close(tokenizers[i]);
    return 0;
}

int main(void) {
    setenv("TZ", "UTC", 1);
    tzset();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_templates_render_as_in_jinja),
        cmocka_unit_test(built_in_templates_render_as_the_originals),
        cmocka_unit_test(gemma_renders_as_the_original_and_refuses_tools),
        cmocka_unit_test(the_originals_render_as_in_jinja),
        cmocka_unit_test(requests_become_the_ids_of_the_reference),
        cmocka_unit_test(no_text_becomes_a_control_token),
        cmocka_unit_test(no_halves_of_a_token_find_each_other),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
