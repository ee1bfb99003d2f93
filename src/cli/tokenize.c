/* tokenize: the ids that a text becomes, one a line. */
#include "cli/cli.h"
#include "model/model.h"

typedef struct tokenize_options {
    const char *model, *system;
    bool chat, special, ids, json;
} tokenize_options;

#define O(field) UM_FIELD(tokenize_options, field)
static const um_option rows[] = {
    {"model", "model_path", UM_OPT_STR, O(model), 0, 0, NULL, NULL, NULL, "DIR", "Model",
     "folder of a checkpoint, or its hub name in the local Hugging Face cache"},
    {"chat", NULL, UM_OPT_BOOL, O(chat), 0, 0, NULL, "false", NULL, NULL, "Text",
     "put the text through the chat template as a user's message"},
    {"system", NULL, UM_OPT_STR, O(system), 0, 0, NULL, NULL, NULL, "TEXT", "Text", "system message, with --chat"},
    {"special", NULL, UM_OPT_BOOL, O(special), 0, 0, NULL, "true", NULL, NULL, "Text",
     "text that spells a special token becomes that token, as in a raw prompt"},
    {"ids", NULL, UM_OPT_BOOL, O(ids), 0, 0, NULL, "false", NULL, NULL, "Output", "print the ids alone, on one line"},
    {"json", NULL, UM_OPT_BOOL, O(json), 0, 0, NULL, "false", NULL, NULL, "Output",
     "print a JSON object with ids and pieces"},
};

static um_status encode_chat(const tokenize_options *o, const char *path, const um_tok *tok, const um_buf *text,
                             um_ids *ids, um_err *err) {
    um_chat *chat = NULL;
    um_message message[2];
    size_t n = 0;
    if (o->system) message[n++] = (um_message){"system", o->system};
    message[n++] = (um_message){"user", text->data};
    um_status s = um_chat_open(&chat, path, tok, err);
    if (s) return um_cli_blame_model(err);
    if (!chat) s = um_fail(err, UM_ETEMPLATE, "%s has no chat template; leave out --chat", path);
    else if (strlen(text->data) != text->len) s = um_fail(err, UM_EINVAL, "a chat message can't hold U+0000");
    else s = um_chat_encode(chat, message, n, true, ids, err);
    um_chat_close(chat);
    return s;
}

static um_status encode(const tokenize_options *o, const char *path, const um_tok *tok, const um_buf *text, um_ids *ids,
                        um_err *err) {
    if (o->chat) return encode_chat(o, path, tok, text, ids, err);
    if (o->system) return um_fail(err, UM_EINVAL, "--system needs --chat");
    return um_tok_encode(tok, (um_str){text->data, text->len}, o->special ? UM_PARSE_ALL : UM_PARSE_PLAIN, true, ids,
                         err);
}

/* ---- Output ------------------------------------------------------------------------------------------------------ */

static void put_json(const um_tok *tok, const um_ids *ids, um_buf *out) {
    um_jw w;
    um_jw_init(&w, out);
    um_jw_begin_object(&w);
    um_jw_key(&w, "n");
    um_jw_int(&w, (int64_t)ids->n);
    um_jw_key(&w, "ids");
    um_jw_begin_array(&w);
    for (size_t i = 0; i < ids->n; i++) um_jw_int(&w, ids->data[i]);
    um_jw_end_array(&w);
    um_jw_key(&w, "pieces");
    um_jw_begin_array(&w);
    for (size_t i = 0; i < ids->n; i++) {
        um_str piece = um_tok_bytes(tok, ids->data[i]);
        um_jw_str(&w, piece.p, piece.n);
    }
    um_jw_end_array(&w);
    um_jw_end_object(&w);
    um_buf_putc(out, '\n');
}

/* The piece in quotes; bytes that are no characters by themselves are written \xHH. */
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

static void put_text(const um_tok *tok, const um_ids *ids, um_buf *out) {
    for (size_t i = 0; i < ids->n; i++) {
        int32_t id = ids->data[i];
        um_buf_printf(out, "%6zu %8d  ", i, id);
        put_piece(um_tok_bytes(tok, id), out);
        um_buf_puts(out, um_tok_is_special(tok, id) ? "  special\n" : "\n");
    }
}

static void print(const tokenize_options *o, const um_tok *tok, const um_ids *ids) {
    um_buf out = {0};
    if (o->json) {
        put_json(tok, ids, &out);
    } else if (o->ids) {
        for (size_t i = 0; i < ids->n; i++) um_buf_printf(&out, "%s%d", i ? " " : "", ids->data[i]);
        um_buf_putc(&out, '\n');
    } else {
        put_text(tok, ids, &out);
    }
    if (out.len) fwrite(out.data, 1, out.len, stdout);
    um_buf_free(&out);
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

static int run(const um_command *self, int argc, char **argv) {
    tokenize_options o;
    um_args args;
    um_tok *tok = NULL;
    um_buf text = {0};
    um_ids ids = {0};
    char *path = NULL;
    um_err err;
    um_args_parse(&args, self, argc, argv, &o, NULL);
    int status = args.exit;
    if (args.done) goto done;
    um_status s = um_cli_need_model(o.model, &err);
    if (!s) s = um_cli_text(&args, &text, &err);
    if (!s && (um_model_find(&path, o.model, &err) || um_tok_open(&tok, path, &err))) s = um_cli_blame_model(&err);
    if (!s) s = encode(&o, path, tok, &text, &ids, &err);
    if (s) status = um_cli_error(self, &err);
    else print(&o, tok, &ids);
done:
    um_ids_free(&ids);
    um_buf_free(&text);
    um_tok_close(tok);
    um_free(path);
    um_args_free(&args);
    return status;
}

const um_command um_cmd_tokenize = {
    .name = "tokenize",
    .summary = "the token ids of a text",
    .usage = "unmask tokenize --model DIR [options] [TEXT | -]",
    .description =
        "Prints place, id and piece of every token, exactly as 'unmask run --raw' (with --chat: 'unmask run') "
        "would feed them. Without TEXT, or with -, the text is standard input less one newline at its end.",
    .examples = "  unmask tokenize --model models/tiny-block \"What is 12 + 30?\"\n"
                "  unmask tokenize --model models/tiny-block --chat --system \"Be brief.\" \"Hello\"\n"
                "  echo \"12 + 30\" | unmask tokenize --model models/tiny-full --json\n",
    .options = rows,
    .n_options = UM_LEN(rows),
    .run = run,
};
