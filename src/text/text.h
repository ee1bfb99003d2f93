/* text: between characters and token ids: tokenizer, chat template, streaming detokenizer.
 *
 * A um_tok and a um_template are immutable once open and may be used from any thread; scratch comes from the caller.
 * Text is UTF-8 with a length and may contain U+0000. */
#ifndef UM_TEXT_H
#define UM_TEXT_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_tok um_tok;

typedef struct um_ids {
    int32_t *data;
    size_t n, cap;
} um_ids;
void um_ids_push(um_ids *v, int32_t id);
void um_ids_free(um_ids *v);

/* Opens the tokenizer of a checkpoint folder. The vocabulary is the first of tokenizer.json, vocab.json with
 * merges.txt, tokenizer.model (SentencePiece) and *.tiktoken; tokenizer_config.json, special_tokens_map.json and
 * added_tokens.json stand beside it. Errors: UM_ENOENT (names the files looked for), UM_EPARSE, UM_EUNSUPPORTED (names
 * the type and the file). */
um_status um_tok_open(um_tok **out, const char *dir, um_err *err);
void um_tok_close(um_tok *t);
int32_t um_tok_size(const um_tok *t); /* 1 + highest id */

/* Which added tokens are recognised in text. */
typedef enum { UM_PARSE_NONE, UM_PARSE_PLAIN, UM_PARSE_ALL } um_parse; /* none; those not special; all */
/* Text to ids, appended to out. `add_special` adds what the post-processor or
 * add_bos_token and add_eos_token say; a text that begins with BOS gets no second one. Errors: UM_EINVAL with the byte
 * of invalid UTF-8; UM_ELIMIT when a pattern gives up. */
um_status um_tok_encode(const um_tok *t, um_str text, um_parse parse, bool add_special, um_ids *out, um_err *err);
/* Ids to text, appended to out. Unknown ids are skipped. */
void um_tok_decode(const um_tok *t, const int32_t *id, size_t n, bool skip_special, um_buf *out);
um_str um_tok_bytes(const um_tok *t, int32_t id); /* raw bytes of a token; empty for holes */
bool um_tok_exists(const um_tok *t, int32_t id);
bool um_tok_is_special(const um_tok *t, int32_t id);
int32_t um_tok_find(const um_tok *t, um_str token); /* id or -1; added tokens first */
/* A named special token of the side files ("eos_token", "mask_token", "bos_token", …): its id, or -1. */
int32_t um_tok_special_id(const um_tok *t, const char *name);
um_str um_tok_special_text(const um_tok *t, const char *name); /* p NULL when unset */

/* Incremental decode: push ids in order, receive text that can no longer change: never half a character. The pieces
 * joined, flush included, equal um_tok_decode of all ids. Zero-initialise through um_stream_init. */
#define UM_CLEAN_RULES 10
typedef struct um_stream {
    const um_tok *tok;
    bool skip_special, first;
    char held[4];
    int n_held;
    int32_t pending;                  /* token that waits for its successor, or -1 */
    size_t n_pushed;                  /* tokens, those that are skipped among them */
    size_t n_out;                     /* the first so many have given their text, or held bytes of a character */
    int32_t n_strip;                  /* characters that may still be taken off the front */
    uint8_t cleaning[UM_CLEAN_RULES]; /* clean_up_tokenization_spaces: bytes that wait in each of its replacements */
} um_stream;
void um_stream_init(um_stream *s, const um_tok *t, bool skip_special);
void um_stream_push(um_stream *s, int32_t id, um_buf *out);
void um_stream_flush(um_stream *s, um_buf *out);

/* Chat templates: a subset of Jinja2 as Hugging Face runs it. */
typedef struct um_template um_template;
/* Compiles source. Errors: UM_ETEMPLATE with line, column and the construct that is not supported. */
um_status um_template_new(um_template **out, um_str source, um_err *err);
void um_template_free(um_template *t);
/* Renders with `vars`, a JSON object (messages, tools, add_generation_prompt, bos_token, …). Errors: UM_ETEMPLATE with
 * the line of the tag and the template's own message. */
um_status um_template_render(const um_template *t, const struct json_t *vars, um_buf *out, um_err *err);

/* The template goes through the parts of a message's content; else it takes the content for a string. */
bool um_template_reads_parts(const um_template *t);

/* The chat templates of a folder and the tokenizer's special tokens. `given`: what the operator names, a file, a
 * template's source, the name of one of the folder's or of a built-in one; NULL. `builtin`: the built-in template that
 * a folder without one gets, or NULL. *out is NULL, UM_OK, when there is none at all. A broken template of the folder
 * is a warning now and an error when it is used. t outlives *out. Errors: UM_ENOENT, UM_EIO, UM_EPARSE, UM_ETEMPLATE.
 */
typedef struct um_chat um_chat;
#define UM_CHAT_BUILTIN_NAMES "llada, llada2, qwen2_5, dream, qwen3"
um_status um_chat_open(um_chat **out, const char *dir, const um_tok *t, const char *given, const char *builtin,
                       um_err *err);
void um_chat_close(um_chat *c);
/* Where the template of ordinary requests comes from: a path, "built-in qwen3", "given as text". */
const char *um_chat_where(const um_chat *c);
const char *um_chat_source(const um_chat *c); /* its text */
/* A conversation becomes a prompt, appended to out and ids, either of which may be NULL. Any thread. Errors: UM_EINVAL
 * and UM_EPARSE for what is wrong with the request, UM_ETEMPLATE with the template's name, line and message. */
um_status um_chat_render(const um_chat *c, const um_chat_request *q, um_buf *out, um_ids *ids, um_err *err);
/* A raw prompt becomes ids, with `around` those of the post-processor included; level: UM_SPECIAL_*, AUTO being PARSE.
 */
um_status um_prompt_encode(const um_tok *t, um_str text, int level, bool around, um_ids *ids, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
