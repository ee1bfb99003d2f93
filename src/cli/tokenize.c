/* unmask tokenize: converts a text or a conversation to token ids, and ids to text. Needs only the tokenizer's files.
 */
#include <unistd.h>

#include "cli/cli.h"
#include "cli/requests.h"
#include "model/checkpoint.h"

typedef struct tokenize_options {
    const char *model, *system, *messages, *tools, *chat_template, *chat_template_kwargs;
    int32_t special_in_content;
    bool chat, generation_prompt, continue_final_message, decode, special, text, ids, json;
} tokenize_options;

#define O(field) UM_FIELD(tokenize_options, field)
static const um_option rows[] = {
    {"model", "m,model_path", UM_OPT_STR, O(model), 0, 0, NULL, NULL, NULL, "DIR", "Model",
     "folder with a tokenizer, name of a bundled model (tiny-block, tiny-full), or name of a model in the local "
     "Hugging Face cache (ORG/NAME)"},
    {"decode", NULL, UM_OPT_BOOL, O(decode), 0, 0, NULL, "false", NULL, NULL, "Text",
     "convert token ids to text: the arguments are ids"},
    {"special", NULL, UM_OPT_BOOL, O(special), 0, 0, NULL, "true", NULL, NULL, "Text",
     "with --decode: include special tokens in the text"},
    {"special_in_content", NULL, UM_OPT_CHOICE, O(special_in_content), 0, 0, "auto|parse|text|strict|reject", "auto",
     NULL, "LEVEL", "Text",
     "what to do with text that spells a special token: convert it to the token (parse), keep it as text in messages "
     "of users and tools (text) or in nearly all messages (strict), or refuse the input (reject); auto means text "
     "for messages and parse for raw prompts"},
    {"chat", NULL, UM_OPT_BOOL, O(chat), 0, 0, NULL, "false", NULL, NULL, "Conversation",
     "apply the chat template to the text as a user message"},
    {"system", NULL, UM_OPT_STR, O(system), 0, 0, NULL, NULL, NULL, "TEXT", "Conversation",
     "system message, with --chat"},
    {"messages", NULL, UM_OPT_STR, O(messages), 0, 0, NULL, NULL, NULL, "FILE", "Conversation",
     "file with a JSON array of messages, instead of a text"},
    {"tools", NULL, UM_OPT_STR, O(tools), 0, 0, NULL, NULL, NULL, "FILE", "Conversation",
     "file with a JSON array of tool definitions"},
    {"chat_template", NULL, UM_OPT_STR, O(chat_template), 0, 0, NULL, NULL, NULL, "FILE", "Conversation",
     "chat template to use instead of the model's own: a file, the text of a template, or a "
     "name: " UM_CHAT_BUILTIN_NAMES},
    {"chat_template_kwargs", NULL, UM_OPT_STR, O(chat_template_kwargs), 0, 0, NULL, NULL, NULL, "JSON", "Conversation",
     "variables for the chat template, as in {\"enable_thinking\": false}"},
    {"generation_prompt", NULL, UM_OPT_BOOL, O(generation_prompt), 0, 0, NULL, "true", NULL, NULL, "Conversation",
     "add the start of the assistant's turn after the last message"},
    {"continue_final_message", NULL, UM_OPT_BOOL, O(continue_final_message), 0, 0, NULL, "false", NULL, NULL,
     "Conversation", "leave the last message open, so that the assistant continues it"},
    {"text", NULL, UM_OPT_BOOL, O(text), 0, 0, NULL, "false", NULL, NULL, "Output",
     "print only the text that the template makes of a conversation"},
    {"ids", NULL, UM_OPT_BOOL, O(ids), 0, 0, NULL, "false", NULL, NULL, "Output", "print only the ids, on one line"},
    {"json", NULL, UM_OPT_BOOL, O(json), 0, 0, NULL, "false", NULL, NULL, "Output",
     "print a JSON object with ids, pieces, positions of special tokens, and the text of a conversation"},
};

/* The state of the command. */
typedef struct job {
    tokenize_options o;
    um_args args;
    char *path;
    um_tok *tok;
    um_buf text, messages, tools;
    um_ids ids;
} job;

static bool is_conversation(const job *j) { return j->o.chat || j->o.messages; }

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static um_status check_options(const job *j, um_err *err) {
    const tokenize_options *o = &j->o;
    const struct {
        const char *name;
        bool given;
    } chat_only[] = {{"--system", o->system},
                     {"--tools", o->tools},
                     {"--chat-template", o->chat_template},
                     {"--chat-template-kwargs", o->chat_template_kwargs},
                     {"--text", o->text},
                     {"--continue-final-message", o->continue_final_message}};
    for (size_t i = 0; i < UM_LEN(chat_only) && !is_conversation(j); i++)
        if (chat_only[i].given) return um_fail(err, UM_EINVAL, "%s needs --chat or --messages", chat_only[i].name);
    if (o->decode && is_conversation(j)) return um_fail(err, UM_EINVAL, "--decode takes ids, not a conversation");
    if (o->messages && (o->chat || o->system || j->args.n_words))
        return um_fail(err, UM_EINVAL, "--messages is the whole conversation; leave out --chat, --system and TEXT");
    return UM_OK;
}

/* ---- Text to ids ------------------------------------------------------------------------------------------------- */

static um_status open_chat(const job *j, um_chat **chat, um_err *err) {
    const um_family *family = um_family_of_checkpoint(j->path);
    um_status s = um_checkpoint_chat(chat, j->path, j->tok, j->o.chat_template, family ? family->chat : NULL, err);
    if (s) return j->o.chat_template ? s : um_cli_explain_model_error(err);
    if (*chat) return UM_OK;
    return um_fail(
        err, UM_ETEMPLATE,
        "%s has no chat template, and no config.json of a model family with one; set one with --chat-template",
        j->path);
}

static um_status render(job *j, const um_chat *chat, um_err *err) {
    um_message message[2];
    um_chat_request r;
    um_buf text = {0};
    um_chat_init(&r);
    if (j->o.system) message[r.n_messages++] = (um_message){"system", j->o.system};
    message[r.n_messages++] = (um_message){"user", j->text.data};
    if (j->o.messages) r.messages_json = j->messages.data;
    else r.messages = message;
    r.tools_json = j->o.tools ? j->tools.data : NULL;
    r.kwargs_json = j->o.chat_template_kwargs;
    r.continue_final_message = j->o.continue_final_message;
    r.add_generation_prompt = j->o.generation_prompt && !r.continue_final_message;
    r.special_in_content = j->o.special_in_content;
    um_status s = um_chat_render(chat, &r, &text, &j->ids, err);
    um_buf_free(&j->text);
    j->text = text;
    return s;
}

static um_status encode_chat(job *j, um_err *err) {
    um_chat *chat = NULL;
    um_status s = open_chat(j, &chat, err);
    if (!s && !j->o.messages && strlen(j->text.data ? j->text.data : "") != j->text.len)
        s = um_fail(err, UM_EINVAL, "a message on the command line can't have U+0000; use --messages");
    if (!s) s = render(j, chat, err);
    um_chat_close(chat);
    return s;
}

/* ---- Ids to text ------------------------------------------------------------------------------------------------- */

/* Reads ids separated by white space, commas or brackets, so that "[1, 2]" can be pasted. */
static um_status read_ids(job *j, um_err *err) {
    for (const char *p = j->text.data ? j->text.data : ""; *p;) {
        size_t n = strspn(p, "0123456789");
        if (n == 0 && !strchr(" \t\r\n,[]", *p))
            return um_fail(err, UM_EINVAL, "--decode: expected ids, found \"%.20s\"", p);
        int64_t id = 0;
        for (size_t i = 0; i < n && id <= INT32_MAX; i++) id = id * 10 + (p[i] - '0');
        if (n && (id >= um_tok_size(j->tok) || !um_tok_exists(j->tok, (int32_t)id)))
            return um_fail(err, UM_ERANGE, "--decode: %.*s is not a token of %s", (int)UM_MIN(n, (size_t)20), p,
                           j->path);
        if (n) um_ids_push(&j->ids, (int32_t)id);
        p += n ? n : 1;
    }
    return UM_OK;
}

static um_status decode(job *j, um_err *err) {
    um_status s = read_ids(j, err);
    um_buf_clear(&j->text);
    if (!s) um_tok_decode(j->tok, j->ids.data, j->ids.n, !j->o.special, &j->text);
    return s;
}

static um_status convert(job *j, um_err *err) {
    um_status s = um_cli_check_model(j->o.model, err);
    if (!s) s = check_options(j, err);
    if (!s)
        s = j->o.messages ? um_chat_file("--messages", j->o.messages, &j->messages, err)
                          : um_cli_text(&j->args, &j->text, err);
    if (!s && j->o.tools) s = um_chat_file("--tools", j->o.tools, &j->tools, err);
    if (s) return s;
    if (um_model_find(&j->path, j->o.model, err) || um_checkpoint_tok(&j->tok, j->path, err))
        return um_cli_explain_model_error(err);
    if (j->o.decode) return decode(j, err);
    if (is_conversation(j)) return encode_chat(j, err);
    return um_prompt_encode(j->tok, (um_str){j->text.data, j->text.len}, j->o.special_in_content, true, &j->ids, err);
}

/* ---- Output ------------------------------------------------------------------------------------------------------ */

static void put_numbers(um_jw *w, const char *key, const job *j, bool special) {
    um_jw_key(w, key);
    um_jw_begin_array(w);
    for (size_t i = 0; i < j->ids.n; i++) {
        if (!special) um_jw_int(w, j->ids.data[i]);
        else if (um_tok_is_special(j->tok, j->ids.data[i])) um_jw_int(w, (int64_t)i);
    }
    um_jw_end_array(w);
}

static void put_json(const job *j, um_buf *out) {
    um_jw w;
    um_jw_init(&w, out);
    um_jw_begin_object(&w);
    if (is_conversation(j) || j->o.decode) um_jw_put_str(&w, "text", (um_str){j->text.data, j->text.len});
    um_jw_put_int(&w, "n", (int64_t)j->ids.n);
    put_numbers(&w, "ids", j, false);
    um_jw_key(&w, "pieces");
    um_jw_begin_array(&w);
    for (size_t i = 0; i < j->ids.n; i++) {
        um_str piece = um_tok_bytes(j->tok, j->ids.data[i]);
        um_jw_str(&w, piece.p, piece.n);
    }
    um_jw_end_array(&w);
    put_numbers(&w, "special", j, true);
    um_jw_end_object(&w);
    um_buf_putc(out, '\n');
}

/* Appends the piece in quotes. Bytes that are not a character by themselves become \xHH. */
static void put_piece(um_str piece, um_buf *out) {
    um_buf_putc(out, '"');
    for (size_t i = 0; i < piece.n;) {
        uint32_t cp = 0;
        int n = um_utf8_next(piece.p + i, piece.n - i, &cp);
        if (n > 0 && cp == '\n') um_buf_puts(out, "\\n");
        else if (n > 0 && cp == '\t') um_buf_puts(out, "\\t");
        else if (n > 0 && (cp == '"' || cp == '\\')) um_buf_printf(out, "\\%c", (int)cp);
        else if (n > 0 && cp >= 0x20 && (cp < 0x7F || cp >= 0xA0)) um_cli_put_safe(out, piece.p + i, (size_t)n);
        else um_buf_printf(out, "\\x%02x", (unsigned char)piece.p[i]);
        i += cp < 0x20 || (cp >= 0x7F && cp < 0xA0) || n == 0 ? 1 : (size_t)n;
    }
    um_buf_putc(out, '"');
}

static void put_table(const job *j, um_buf *out) {
    for (size_t i = 0; i < j->ids.n; i++) {
        int32_t id = j->ids.data[i];
        um_buf_printf(out, "%6zu %8d  ", i, id);
        put_piece(um_tok_bytes(j->tok, id), out);
        um_buf_puts(out, um_tok_is_special(j->tok, id) ? "  special\n" : "\n");
    }
    um_buf_printf(out, "%zu token%s, %zu bytes\n", j->ids.n, j->ids.n == 1 ? "" : "s", j->text.len);
}

/* Appends the text unchanged, but without control characters if standard output is a terminal. */
static void put_text(const job *j, um_buf *out) {
    if (isatty(STDOUT_FILENO)) um_cli_put_safe(out, j->text.data ? j->text.data : "", j->text.len);
    else um_buf_append(out, j->text.data, j->text.len);
    if (j->o.decode) um_buf_putc(out, '\n');
}

static void print(const job *j) {
    um_buf out = {0};
    if (j->o.json) put_json(j, &out);
    else if (j->o.text || j->o.decode) put_text(j, &out);
    else if (j->o.ids) {
        for (size_t i = 0; i < j->ids.n; i++) um_buf_printf(&out, "%s%d", i ? " " : "", j->ids.data[i]);
        um_buf_putc(&out, '\n');
    } else put_table(j, &out);
    um_cli_write(&out);
    um_buf_free(&out);
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

static int run(const um_command *self, int argc, char **argv) {
    job j = {0};
    um_err err;
    um_args_parse(&j.args, self, argc, argv, &j.o, NULL);
    int status = j.args.exit;
    if (!j.args.done) {
        if (convert(&j, &err)) status = um_cli_error(self, &err);
        else print(&j);
    }
    um_ids_free(&j.ids);
    um_buf_free(&j.text);
    um_buf_free(&j.messages);
    um_buf_free(&j.tools);
    um_tok_close(j.tok);
    um_free(j.path);
    um_args_free(&j.args);
    return status;
}

const um_command um_cmd_tokenize = {
    .name = "tokenize",
    .summary = "convert a text or a conversation to token ids, and back",
    .usage = "unmask tokenize --model DIR [options] [TEXT | -]",
    .description =
        "Prints index, id and text of every token, and the number of tokens. The tokens are those that "
        "'unmask run --raw' feeds to the model; with --chat or --messages, those of 'unmask run' or 'unmask chat'. The "
        "folder needs a tokenizer, but no weights. Without TEXT, or with -, the command reads the text from standard "
        "input and removes one newline at its end.",
    .examples = "  unmask tokenize --model models/tiny-block \"What is 12 + 30?\"\n"
                "  unmask tokenize --model models/tiny-block --chat --system \"Be brief.\" \"Hello\"\n"
                "  unmask tokenize --model models/tiny-block --chat --chat-template qwen3 --text \"Hello\"\n"
                "  unmask tokenize --model models/tiny-block --ids \"12 + 30\" | "
                "unmask tokenize --model models/tiny-block --decode\n",
    .options = rows,
    .n_options = UM_LEN(rows),
    .run = run,
};
