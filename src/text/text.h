/* text: the tokenizer, chat templates and the streaming detokenizer. Converts between text and token ids.
 *
 * A um_tok and a um_template never change after they are opened, so any thread may use them. Mutable state lives in the
 * call or in the caller's um_stream. Text is UTF-8 with a length and may contain U+0000. */
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

/* Opens the tokenizer of a checkpoint folder. The vocabulary comes from the first of these that exists: tokenizer.json,
 * vocab.json with merges.txt, tokenizer.model (SentencePiece), *.tiktoken. tokenizer_config.json,
 * special_tokens_map.json and added_tokens.json are optional side files. Errors: UM_ENOENT (names the files looked
 * for), UM_EPARSE, UM_EUNSUPPORTED (names the type and the file), UM_ELIMIT. */
um_status um_tok_open(um_tok **out, const char *dir, um_err *err);
/* Builds a tokenizer from the texts of tokenizer.json, tokenizer_config.json and special_tokens_map.json. The last two
 * are optional (p NULL). `dir` is used in messages only. */
um_status um_tok_parse(um_tok **out, um_str tokenizer, um_str config, um_str special_map, const char *dir, um_err *err);
/* Creates a tokenizer of the words "t0", "t1", … with the ids 0 to size - 1, for models without a checkpoint. */
um_status um_tok_numbered(um_tok **out, int32_t size, um_err *err);
void um_tok_close(um_tok *t);
int32_t um_tok_size(const um_tok *t); /* 1 + highest id */

/* The rule by which the byte-level tokenizers of a kind cut text into words. GGUF files name it in the key
 * "tokenizer.ggml.pre". */
typedef struct um_tok_rule {
    const char *regex; /* matches the words */
    bool nfc;          /* text is normalized to NFC before */
} um_tok_rule;
/* Finds the rule with this name ("qwen2"). */
bool um_tok_rule_find(um_str name, um_tok_rule *out);
/* Appends all names, separated by ", ", to an empty buffer. */
void um_tok_rules_list(um_buf *out);

/* The added tokens that encoding recognizes in text: none, the ones that are not special, or all. */
typedef enum { UM_PARSE_NONE, UM_PARSE_NOT_SPECIAL, UM_PARSE_ALL } um_parse;
/* Encodes text and appends the ids to out. `add_special` adds the tokens of the post-processor, or of add_bos_token and
 * add_eos_token; a text that already begins with BOS gets no second BOS. Errors: UM_EINVAL for invalid UTF-8 (names the
 * byte offset) and for an unknown word if the tokenizer has no unknown token; UM_ELIMIT for text that is too long or a
 * regular expression that exceeds its match limit. */
um_status um_tok_encode(const um_tok *t, um_str text, um_parse parse, bool add_special, um_ids *out, um_err *err);
/* Decodes ids and appends the text to out. Unknown ids are skipped. */
void um_tok_decode(const um_tok *t, const int32_t *id, size_t n, bool skip_special, um_buf *out);
um_str um_tok_bytes(const um_tok *t, int32_t id); /* raw bytes of a token; empty for an unknown id */
bool um_tok_exists(const um_tok *t, int32_t id);
bool um_tok_is_special(const um_tok *t, int32_t id);
int32_t um_tok_find(const um_tok *t, um_str token); /* id or -1; added tokens first */
/* Returns the id of a special token that a side file names ("eos_token", "mask_token", "bos_token", …), or -1. */
int32_t um_tok_special_id(const um_tok *t, const char *name);
um_str um_tok_special_text(const um_tok *t, const char *name); /* p NULL when unset */

/* A streaming decoder. The caller pushes ids in order and receives text that later ids can't change. A character is
 * never split. All the text received, including the flush, equals um_tok_decode of all ids. Initialize it with
 * um_stream_init. */
#define UM_CLEAN_RULES 10
typedef struct um_stream {
    const um_tok *tok;
    bool skip_special, first;
    char held[4]; /* bytes of an unfinished character */
    int n_held;
    int32_t pending;                  /* token held back until the next one arrives, or -1 */
    size_t n_pushed;                  /* ids pushed, including skipped ones */
    size_t n_out;                     /* leading ids already decoded; their last bytes may still be held back */
    int32_t n_strip;                  /* copies of the decoder's Strip text that may still be removed from the front */
    uint8_t cleaning[UM_CLEAN_RULES]; /* bytes that each rule of cleanup.c holds back */
} um_stream;
void um_stream_init(um_stream *s, const um_tok *t, bool skip_special);
void um_stream_push(um_stream *s, int32_t id, um_buf *out);
void um_stream_flush(um_stream *s, um_buf *out);

/* A compiled chat template: a subset of Jinja2 as Hugging Face runs it. */
typedef struct um_template um_template;
/* Compiles source. Errors: UM_ETEMPLATE (names the line, the column and the unsupported construct), UM_ELIMIT. */
um_status um_template_new(um_template **out, um_str source, um_err *err);
void um_template_free(um_template *t);
/* Renders with `vars`, a JSON object (messages, tools, add_generation_prompt, bos_token, …), and appends the text to
 * out. Errors: UM_ETEMPLATE with the line number and the reason, which may be the text that the template passed to
 * raise_exception. */
um_status um_template_render(const um_template *t, const struct json_t *vars, um_buf *out, um_err *err);

/* Returns true if the template iterates over the parts of a message's content. If false, content must be a string. */
bool um_template_reads_parts(const um_template *t);

/* The chat templates of a checkpoint folder. um_chat_open loads them. `given` overrides the template for all requests:
 * the name of a template of the folder or of a built-in one, template source, or the path of a file. NULL: no override.
 * `builtin` names the built-in template to use if the folder has no default template and the tokenizer has that
 * template's turn-end token. NULL: no built-in template. *out is NULL, with UM_OK, if no template is found. If the
 * folder's default template does not compile, opening only logs a warning; requests that use it fail. t must outlive
 * *out. Errors: UM_ENOENT, UM_EIO, UM_EPARSE, UM_ETEMPLATE. */
typedef struct um_chat um_chat;
#define UM_CHAT_BUILTIN_NAMES "llada, llada2, gemma4, qwen2_5, dream, qwen3"
um_status um_chat_open(um_chat **out, const char *dir, const um_tok *t, const char *given, const char *builtin,
                       um_err *err);
/* Does the same for a checkpoint without a folder. `own` is what chat_template of its tokenizer_config.json would be: a
 * string, a list, or NULL. `where` names the checkpoint in messages. */
um_status um_chat_open_own(um_chat **out, const char *where, const struct json_t *own, const um_tok *t,
                           const char *given, const char *builtin, um_err *err);
void um_chat_close(um_chat *c);
/* Returns the origin of the default template: a path, "built-in qwen3" or "given as text". */
const char *um_chat_origin(const um_chat *c);
/* Returns the source of the default template. */
const char *um_chat_source(const um_chat *c);
/* Renders a conversation and appends its text to out and its token ids to ids. Either may be NULL. Any thread may call
 * it. Errors: UM_EINVAL, UM_EPARSE and UM_ERANGE for an invalid request; UM_ETEMPLATE with the template's origin, line
 * and message. */
um_status um_chat_render(const um_chat *c, const um_chat_request *q, um_buf *out, um_ids *ids, um_err *err);
/* Encodes a raw prompt and appends its ids. `around` also adds the post-processor's tokens. `level` is UM_SPECIAL_*;
 * AUTO means PARSE. */
um_status um_prompt_encode(const um_tok *t, um_str text, int level, bool around, um_ids *ids, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
