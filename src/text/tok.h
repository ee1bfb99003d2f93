/* The rooms inside the tokenizer, one file a stage. Text flows downwards through them:
 *
 *   added.c    cuts out added tokens            tok.c      the pipeline itself and the public functions
 *   norm.c     rewrites what is left            pattern.c  literals and expressions, of which known.c runs some by hand
 *   pretok.c   cuts it into pieces              unicode.c, classes_table.c  what characters are
 *   cuts.c     cuts those further               vocab.c    token strings <-> ids
 *   bpe.c      turns a piece into ids           merges.c   what bpe.c merges
 *   decode.c   ids back to text, stream.c the same bit by bit, cleanup.c spaces in front of punctuation
 *
 * load.c opens a folder: one of format_*.c says what its vocabulary files mean, in the terms of tokenizer.json; jread.c
 * reads their large parts; special.c reads the files beside them; then every stage is built once and after that only
 * read. What changes while encoding lives in the caller's um_scan. */
#ifndef UM_TOK_H
#define UM_TOK_H

#include <jansson.h>

#include "text/text.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UM_TOK_ID_MAX     (1 << 21) /* ids of a vocabulary */
#define UM_TOK_MERGES_MAX (1 << 22)
#define UM_TOK_BYTES_MAX  65535 /* of one token */
#define UM_TOK_ADDED_MAX  16384
#define UM_TOK_FILE_MAX   ((size_t)64 << 20)
#define UM_TOK_NEST_MAX   16 /* Sequence inside Sequence */
#define UM_JSON_NEST_MAX  64

void um_ids_append(um_ids *v, const um_ids *more);

/* ---- Characters (unicode.c) -------------------------------------------------------------------------------------- */

/* Letter, number, white space or none of them, in Unicode 16 whatever the libraries know (classes_table.c). */
typedef enum { UM_CLASS_OTHER, UM_CLASS_LETTER, UM_CLASS_NUMBER, UM_CLASS_SPACE } um_class;
extern const uint8_t um_class_page[0x1100];
extern const uint64_t um_class_bits[]; /* pages of 8 */
static inline um_class um_class_of(uint32_t cp) {
    return (um_class)(um_class_bits[um_class_page[cp >> 8] * 8u + (cp >> 5 & 7)] >> (cp & 31) * 2 & 3);
}
bool um_is_space(uint32_t cp);  /* the 25 White_Space code points */
bool um_is_word(uint32_t cp);   /* \w: letter, mark, decimal digit, connector punctuation */
bool um_is_number(uint32_t cp); /* Nd, Nl, No */
bool um_is_punct(uint32_t cp);  /* ASCII punctuation and P* */
/* Whole text in lower or upper case, appended to out: full mappings, no locale, no context. */
void um_to_lower(um_str s, um_buf *out);
void um_to_upper(um_str s, um_buf *out);
/* Code point at p[0..n), n > 0, in text known to be valid; *len its bytes. */
uint32_t um_cp_at(const char *p, size_t n, int *len);
/* Code point that ends at p[n), n > 0. */
uint32_t um_cp_before(const char *p, size_t n, int *len);
/* Appends bytes as text: each maximal invalid part becomes one U+FFFD. */
void um_utf8_repair(um_str bytes, um_buf *out);
/* The byte table of byte-level vocabularies: the code point that stands for a byte, and back (-1: none). */
uint32_t um_byte_stand_in(uint8_t byte);
int um_stand_in_byte(uint32_t cp);
/* Token string to the bytes it stands for; false, nothing appended, when a character is outside the table. */
bool um_stand_in_decode(um_str token, um_buf *out);
void um_stand_in_encode(um_str bytes, um_buf *out);

/* ---- Patterns (pattern.c) ---------------------------------------------------------------------------------------- */

/* A literal, one of the known expressions, or a regular expression run by PCRE2 after it was rewritten to mean what it
 * means to Oniguruma. */
typedef struct um_pattern {
    um_str literal;
    const struct um_known *known;
    struct pcre2_real_code_8 *code;
} um_pattern;

/* Scratch of one encode or decode call: what PCRE2 needs while it matches. */
typedef struct um_scan {
    struct pcre2_real_match_data_8 *data;
    struct pcre2_real_match_context_8 *context;
    struct pcre2_real_jit_stack_8 *stack;
} um_scan;

#define UM_QWEN_REGEX                                                                                                  \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\r\n]*|\\s*[\r\n]+|"        \
    "\\s+(?!\\S)|\\s+"
/* The expression if it is one of those that families use, else NULL (known.c). */
const struct um_known *um_known_find(um_str regex);
/* The end of the piece that begins at s[at], at < s.n. Such an expression leaves nothing out: pieces touch. */
size_t um_known_end(const struct um_known *k, um_str s, size_t at);

/* um_pattern_regex without the known expressions. */
um_status um_pattern_pcre(um_pattern *p, um_str regex, const char *where, um_err *err);
/* Compiles `regex`. `where` names the file. UM_EUNSUPPORTED: a construct that PCRE2 reads differently. */
um_status um_pattern_regex(um_pattern *p, um_str regex, const char *where, um_err *err);
/* Reads {"String": s} or {"Regex": r}; the literal is copied into a. */
um_status um_pattern_load(um_pattern *p, const json_t *json, um_arena *a, const char *where, um_err *err);
void um_pattern_free(um_pattern *p);
/* The first match that is not empty in s from `from` on: *start, *end. *found tells. UM_ELIMIT when PCRE2 gives up. */
um_status um_pattern_next(const um_pattern *p, um_scan *scan, um_str s, size_t from, size_t *start, size_t *end,
                          bool *found, um_err *err);
/* Appends s with every match replaced. */
um_status um_pattern_replace(const um_pattern *p, um_scan *scan, um_str s, um_str by, um_buf *out, um_err *err);
void um_scan_free(um_scan *scan);

/* ---- Large JSON (jread.c) ---------------------------------------------------------------------------------------- */

/* A place in a text of JSON that is known to be UTF-8. Errors are UM_EPARSE with file, line and column. */
typedef struct um_jread {
    const char *path;
    um_str text;
    size_t at;
    um_err *err;
} um_jread;
um_status um_jread_fail(const um_jread *r, size_t at, const char *expected);
char um_jread_peek(um_jread *r);         /* the next character that is no white space; 0 at the end */
bool um_jread_take(um_jread *r, char c); /* skips c if it is next */
/* The string that stands here; it lives in the text or, if it holds escapes, in scratch. */
um_status um_jread_string(um_jread *r, um_buf *scratch, um_str *out);
um_status um_jread_int(um_jread *r, int64_t *out);
/* Goes behind a value without checking it. `nest` lists and objects are open around it; UM_ELIMIT above
 * UM_JSON_NEST_MAX. */
um_status um_jread_skip(um_jread *r, int nest);
/* A file of moderate size, as a tree. `flags` are jansson's. */
um_status um_json_read(json_t **out, um_str text, const char *path, int flags, um_err *err);

/* ---- Vocabulary (vocab.c) ---------------------------------------------------------------------------------------- */

typedef struct um_vocab {
    um_str *token; /* [size] by id, as spelled in the file, NUL behind; p NULL: a hole */
    int32_t size, n;
    size_t cap;                 /* of token */
    struct um_vocab_slot *slot; /* [mask + 1] open addressing */
    uint32_t mask;
    um_arena *arena; /* of the strings */
    char *room;
    size_t n_room;
} um_vocab;
/* An empty vocabulary; strings are copied into a. */
void um_vocab_init(um_vocab *v, um_arena *a);
/* UM_EPARSE when the id is another token's or out of range. A text that is there already moves to the new id. */
um_status um_vocab_add(um_vocab *v, um_str text, int64_t id, const char *where, um_err *err);
/* Adds an object token -> id. */
um_status um_vocab_read(um_vocab *v, um_jread *r);
void um_vocab_free(um_vocab *v);
int32_t um_vocab_find(const um_vocab *v, um_str token); /* id or -1 */
/* Has memory fetched that finding this token will read: first the table, then, when that is there, the token. */
void um_vocab_expect(const um_vocab *v, um_str token);
void um_vocab_expect_token(const um_vocab *v, um_str token);
uint64_t um_hash(um_str s);

/* ---- Added tokens (added.c) -------------------------------------------------------------------------------------- */

typedef struct um_added {
    um_str text;
    int32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
} um_added;

/* A byte trie of the contents of one matcher. */
typedef struct um_trie {
    struct um_trie_node *node;
    uint32_t n, cap;
    uint32_t root[256]; /* node of a first byte, 0 = none */
} um_trie;

typedef struct um_hit {
    size_t start, end; /* white space that the token absorbs included */
    int32_t added;     /* index into the list */
} um_hit;

void um_trie_add(um_trie *t, um_str key, int32_t added);
void um_trie_free(um_trie *t);
/* Longest token that starts exactly at s[at], among those that `parse` allows; -1 or its index, *end behind it. */
int32_t um_trie_match(const um_trie *t, const um_added *list, um_parse parse, um_str s, size_t at, size_t *end);
/* A special token (if `only` >= 0: the one with this id) starts exactly at s[at]. */
bool um_trie_is_special(const um_trie *t, const um_added *list, um_str s, size_t at, int32_t only);
/* Next token at or behind `from`, with single_word, lstrip and rstrip applied; text before `done` belongs to an earlier
 * token. `guard`: a token of one character directly before this code point does not count (0: none). */
bool um_added_next(const um_trie *t, const um_added *list, um_parse parse, uint32_t guard, um_str s, size_t done,
                   um_hit *hit);

/* ---- Normalizers (norm.c) ---------------------------------------------------------------------------------------- */

typedef struct um_normalizer {
    struct um_norm_step *step;
    size_t n;
} um_normalizer;
um_status um_norm_load(um_normalizer *n, const json_t *json, um_arena *a, const char *where,
                       um_err *err); /* null is fine */
void um_norm_free(um_normalizer *n);
/* *out points into s or into one of the two buffers, which the caller keeps and frees. */
um_status um_norm_apply(const um_normalizer *n, um_scan *scan, um_str s, um_buf buf[2], um_str *out, um_err *err);

/* ---- Pre-tokenizers (pretok.c) ----------------------------------------------------------------------------------- */

typedef struct um_cut {
    size_t off, len;
} um_cut;

/* A list of pieces over one text. */
typedef struct um_pieces {
    const char *text; /* the piece list refers to this: the input or buf[] */
    um_cut *cut;
    size_t n, cap;
    um_cut *spare; /* the other half of a step: source and target are exchanged */
    size_t spare_cap;
    um_buf buf[2];
} um_pieces;
void um_pieces_push(um_pieces *p, size_t off, size_t len);
/* Makes the present list (*n pieces) the source of a step and starts an empty one. */
const um_cut *um_pieces_turn(um_pieces *p, size_t *n);
/* The buffer that the present text does not live in, emptied. */
um_buf *um_pieces_other(um_pieces *p);
void um_pieces_free(um_pieces *p);

typedef struct um_pretok {
    struct um_pretok_step *step;
    size_t n;
    bool byte_level; /* pieces are taken byte by byte, through the byte table */
} um_pretok;
um_status um_pretok_load(um_pretok *t, const json_t *json, um_arena *a, const char *where, um_err *err);
void um_pretok_free(um_pretok *t);
/* Cuts s; at_start: s begins where the whole input begins. */
um_status um_pretok_run(const um_pretok *t, um_scan *scan, um_str s, bool at_start, um_pieces *out, um_err *err);

/* ---- Models (bpe.c, wordlevel.c) --------------------------------------------------------------------------------- */

typedef struct um_bpe_pair {
    uint64_t key; /* um_pair_key; UINT64_MAX: free */
    uint32_t rank;
    int32_t id; /* of the result */
} um_bpe_pair;

/* Places where a piece may be cut before it is merged (cuts.c). */
typedef struct um_cuts {
    bool at_lines, at_meta; /* around line ends; before U+2581 */
    uint32_t before[64];    /* but not behind these characters */
    size_t n_before;
} um_cuts;
void um_cuts_find(um_cuts *c, const um_vocab *v);
/* The end of the part of s that begins at `at`. */
size_t um_cuts_next(const um_cuts *c, um_str s, size_t at);

#define UM_CHARS 0x3000 /* all alphabets and U+2581 */
typedef struct um_byte_pair {
    uint32_t rank;
    int32_t id;
} um_byte_pair;

typedef struct um_bpe {
    um_bpe_pair *pair; /* [mask + 1] open addressing */
    int shift;         /* of the multiplicative hash */
    size_t mask, n_pairs, n_ranks;
    um_byte_pair *byte_pair;  /* [256 * 256] byte-level: the same for two bytes, or NULL */
    int32_t *char_id;         /* [UM_CHARS] otherwise: symbols of the first characters, or NULL */
    int32_t byte_id[256];     /* byte-level: symbol of a byte, or -1 */
    int32_t fallback_id[256]; /* byte_fallback: <0xHH>, or -1 */
    int32_t unk_id;           /* -1: unknown characters are dropped */
    bool byte_level, byte_fallback, fuse_unk, ignore_merges;
    um_str prefix, suffix; /* continuing_subword_prefix, end_of_word_suffix */
    um_cuts cuts;
} um_bpe;

typedef struct um_bpe_scratch {
    int32_t *id, *to; /* [cap] symbols, and what each becomes with its right neighbour */
    uint32_t *rank, *prev, *next;
    size_t cap;
    struct um_bpe_queue *queue;
    um_buf text;
} um_bpe_scratch;

static inline uint64_t um_pair_key(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}
static inline size_t um_pair_slot(const um_bpe *b, uint64_t key) {
    return (size_t)((key * 0x9E3779B97F4A7C15u) >> b->shift);
}

/* Everything but the merges; `model` is the object of tokenizer.json. */
um_status um_bpe_load(um_bpe *b, const um_vocab *v, const json_t *model, bool byte_level, um_arena *a,
                      const char *where, um_err *err);
void um_bpe_finish(um_bpe *b, const um_vocab *v); /* what is derived from the merges */
void um_bpe_free(um_bpe *b);
/* A piece to ids; it may be cut at b->cuts before. */
void um_bpe_encode(const um_bpe *b, const um_vocab *v, um_bpe_scratch *s, um_str piece, um_ids *out);
void um_bpe_scratch_free(um_bpe_scratch *s);

/* Fills the table of pairs, once, behind um_bpe_load (merges.c). */
typedef struct um_merging {
    um_bpe *b;
    const um_vocab *v;
    uint32_t rank; /* of the next merge */
    int32_t last;  /* id of the last result */
    const char *path;
    bool is_lines; /* path holds a merge a line, not JSON */
    struct um_merge *batch;
    size_t n_batch;
    um_buf joined;
    um_err *err;
} um_merging;
void um_merging_begin(um_merging *m, um_bpe *b, const um_vocab *v, um_err *err);
um_status um_merging_read_json(um_merging *m, um_jread *r); /* a list of "a b" and ["a", "b"] */
um_status um_merging_read_lines(um_merging *m, um_str text, const char *path);
/* No file lists them: every token merges from any two tokens that it can be cut into. score [size] orders them, the
 * highest first, NaN: not a result; NULL: by id. */
um_status um_merging_imply(um_merging *m, const float *score, const char *path);
void um_merging_end(um_merging *m);

typedef struct um_wordlevel {
    int32_t unk_id; /* -1: an unknown word is an error */
    bool byte_level;
} um_wordlevel;
um_status um_wordlevel_load(um_wordlevel *w, const um_vocab *v, const json_t *model, bool byte_level, const char *where,
                            um_err *err);
um_status um_wordlevel_encode(const um_wordlevel *w, const um_vocab *v, um_buf *scratch, um_str piece, um_ids *out,
                              um_err *err);

/* ---- Post-processors (post.c) ------------------------------------------------------------------------------------ */

/* Ids around a text that stands alone. */
typedef struct um_post {
    um_ids before, after;
} um_post;
um_status um_post_load(um_post *p, const json_t *json, const char *where, um_err *err);
void um_post_free(um_post *p);

/* ---- Decoders (decode.c) ----------------------------------------------------------------------------------------- */

/* How a decoder can be run token by token. */
typedef enum {
    UM_STREAM_BYTES, /* ByteLevel: bytes, then UTF-8 */
    UM_STREAM_WORDS, /* no decoder: joined by spaces */
    UM_STREAM_STEPS, /* each token through the steps; runs of byte tokens are collected */
    UM_STREAM_LAST   /* the last token is written differently: one token is held back */
} um_stream_mode;

typedef struct um_decoder {
    struct um_decoder_step *step;
    size_t n;
    um_stream_mode mode;
    int32_t strip_front; /* characters that a Strip behind Fuse takes off the whole text */
    um_str strip;
} um_decoder;
um_status um_decoder_load(um_decoder *d, const json_t *json, um_arena *a, const char *where, um_err *err);
void um_decoder_free(um_decoder *d);
/* The list of token strings in p becomes text, appended to out. */
void um_decoder_run(const um_decoder *d, um_pieces *p, um_buf *out);
/* One token through the steps that look at one token, for streams; first and last tell its place in the list. */
void um_decoder_token(const um_decoder *d, um_str token, bool first, bool last, um_buf *out);
/* Takes up to *left of the characters to strip off what out holds from `from` on; *left becomes 0 at the first other.
 */
void um_decoder_strip_front(const um_decoder *d, um_buf *out, size_t from, int32_t *left);
/* The byte that a byte-fallback token `<0xHH>` stands for, if the decoder has that step; else -1. */
int um_decoder_byte(const um_decoder *d, um_str token);
/* The byte of a string `<0xHH>`, else -1. */
int um_byte_token(um_str token);

/* ---- Clean-up (cleanup.c) ---------------------------------------------------------------------------------------- */

/* Takes the spaces out that clean_up_tokenization_spaces means, of what out holds from `from` on. What may still become
 * a match is held back until more text or the end comes. `held` begins as zeros. */
void um_clean_text(uint8_t held[UM_CLEAN_RULES], um_buf *out, size_t from);
void um_clean_end(uint8_t held[UM_CLEAN_RULES], um_buf *out);

/* ---- The tokenizer (load.c, tok.c) ------------------------------------------------------------------------------- */

#define UM_TOK_NAMED_MAX 64
typedef struct um_named {
    const char *name; /* "eos_token" */
    um_str text;
    int32_t id; /* -1: not in the vocabulary */
} um_named;

struct um_tok {
    um_arena arena; /* every string below */
    um_vocab vocab; /* of the model, without added tokens */
    bool is_wordlevel, has_normalized_special;
    um_bpe bpe;
    um_wordlevel wordlevel;
    um_added *added;
    size_t n_added, cap_added;
    um_vocab added_names; /* content -> index into added */
    um_trie trie[2];      /* by `normalized` */
    um_normalizer norm;
    um_pretok pre;
    um_post post;
    um_decoder dec;
    int32_t size;      /* 1 + highest id */
    um_str *bytes;     /* [size] */
    int32_t *added_of; /* [n_added_of >= size] index into added, or -1 */
    size_t n_added_of;
    um_named named[UM_TOK_NAMED_MAX];
    size_t n_named;
    json_t *extra_special; /* additional_special_tokens as a list of strings, or NULL */
    bool split_special;    /* text never spells a special token */
    bool clean_up;         /* clean_up_tokenization_spaces (cleanup.c) */
};

/* Builds a tokenizer from the texts of tokenizer.json, tokenizer_config.json and special_tokens_map.json; the latter
 * two may be absent (p NULL). `dir` is for messages. */
um_status um_tok_parse(um_tok **out, um_str tokenizer, um_str config, um_str special_map, const char *dir, um_err *err);
/* Reads tokenizer_config.json; NULL, UM_OK, when there is none. Its integers come as doubles. */
um_status um_tok_config_load(json_t **out, const char *path, um_err *err);
/* um_tok_encode for text in which `guard` (a noncharacter, 0 = none) breaks up protected tokens; it never reaches ids.
 */
um_status um_tok_encode_guarded(const um_tok *t, um_str text, um_parse parse, bool add_special, uint32_t guard,
                                um_ids *out, um_err *err);
/* ---- Files and formats (load.c, format_*.c, special.c) ----------------------------------------------------------- */

enum {
    UM_FILE_TOKENIZER,
    UM_FILE_VOCAB,
    UM_FILE_MERGES,
    UM_FILE_SPM,
    UM_FILE_TIKTOKEN,
    UM_FILE_CONFIG,
    UM_FILE_SPECIAL_MAP,
    UM_FILE_ADDED,
    UM_N_FILES
};
/* The files of a folder that count. */
typedef struct um_tok_files {
    const char *dir;
    char *path[UM_N_FILES];
    um_str text[UM_N_FILES]; /* p NULL: not there */
    um_buf read[UM_N_FILES]; /* what text points into, when it was read from a file */
} um_tok_files;
void um_tok_files_init(um_tok_files *f, const char *dir);
void um_tok_files_free(um_tok_files *f);
um_status um_tok_build(um_tok **out, const um_tok_files *files, um_err *err);

/* What a format makes of its files: every stage in the terms of tokenizer.json, and how to read the two large parts. */
typedef struct um_parts {
    const um_tok_files *files;
    json_t *config;       /* tokenizer_config.json, or NULL */
    const char *path;     /* of the file that messages about the stages name */
    json_t *stages;       /* a tokenizer.json without vocabulary and merges */
    json_t *named;        /* special tokens that the vocabulary file names, like special_tokens_map.json, or NULL */
    bool takes_added_map; /* added_tokens.json belongs to the format */
    size_t vocab, merges; /* format_json.c: where they stand in the text, SIZE_MAX: nowhere */
    um_status (*read_vocab)(const struct um_parts *p, um_vocab *v, um_arena *a, um_err *err);
    um_status (*read_merges)(const struct um_parts *p, um_merging *m);
} um_parts;
/* What the slow formats share: the class and add_prefix_space of tokenizer_config.json, and the stages of Qwen's
 * tokenizers, a new reference. */
um_str um_config_class(const json_t *config);
um_status um_config_prefix(const um_parts *p, bool *prefix, um_err *err);
json_t *um_qwen_stages(bool prefix);

um_status um_format_json(um_parts *p, um_err *err);     /* tokenizer.json */
um_status um_format_slow(um_parts *p, um_err *err);     /* vocab.json and merges.txt */
um_status um_format_spm(um_parts *p, um_err *err);      /* tokenizer.model of SentencePiece */
um_status um_format_tiktoken(um_parts *p, um_err *err); /* *.tiktoken */

um_status um_added_load(um_tok *t, const json_t *list, const char *where, um_err *err); /* added_tokens */
um_status um_added_load_map(um_tok *t, const json_t *object, const char *where, um_err *err);
void um_added_reach(um_tok *t, size_t n); /* makes added_of at least n long */
/* Special tokens by name: special_tokens_map.json, or the same fields of the configuration. */
um_status um_special_load(um_tok *t, const json_t *json, const char *where, um_err *err);
um_status um_config_load(um_tok *t, const json_t *config, const char *where, um_err *err);
/* add_bos_token and add_eos_token, when every token is known. */
um_status um_config_around(um_tok *t, const json_t *config, const char *where, um_err *err);

/* String of a token as decoders see it: an added token's content, else the spelling in the vocabulary. */
um_str um_tok_text(const um_tok *t, int32_t id);

#ifdef __cplusplus
}
#endif
#endif
