/* The internal interfaces of the tokenizer. Each stage has its own file. The stages of encoding, in order:
 *
 *   added.c    finds added tokens               tok.c      the pipeline and the public functions
 *   norm.c     normalizes the text between      pattern.c  literals and regular expressions; known.c matches the
 *   pretok.c   splits it into pieces                       common expressions without a regex engine
 *   cuts.c     splits long pieces further       unicode.c, classes_table.c  character properties
 *   bpe.c      encodes a piece                  vocab.c    token strings <-> ids
 *   post.c     ids before and after the text    merges.c   loads the merges of bpe.c
 *
 * The stages of decoding: decode.c decodes a list of tokens, stream.c decodes token by token, and cleanup.c removes the
 * spaces before punctuation.
 *
 * load.c opens a folder. One of format_*.c translates the vocabulary files into the terms of tokenizer.json, jread.c
 * parses their large parts, and special.c reads the side files. The stages are built once and never change afterwards.
 * Each encode or decode call keeps its mutable state in its own scratch, such as um_match_state. */
#ifndef UM_TOK_H
#define UM_TOK_H

#include <jansson.h>

#include "text/text.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UM_TOK_ID_MAX     (1 << 21) /* ids are below this */
#define UM_TOK_MERGES_MAX (1 << 22)
#define UM_TOK_BYTES_MAX  65535 /* bytes of a token */
#define UM_TOK_ADDED_MAX  16384
#define UM_TOK_FILE_MAX   ((size_t)64 << 20)
#define UM_TOK_NEST_MAX   16 /* nesting depth of Sequence */
#define UM_JSON_NEST_MAX  64

/* Appends the ids of `more` to v. */
void um_ids_append(um_ids *v, const um_ids *more);

/* ---- Characters (unicode.c) -------------------------------------------------------------------------------------- */

/* The class of a code point: letter, number, white space or other. The table in classes_table.c is that of Unicode 16,
 * independent of the Unicode versions of utf8proc and PCRE2. */
typedef enum { UM_CLASS_OTHER, UM_CLASS_LETTER, UM_CLASS_NUMBER, UM_CLASS_SPACE } um_class;
extern const uint8_t um_class_page[0x1100];
extern const uint64_t um_class_bits[]; /* 2 bits per code point, 8 words per page of 256 */
static inline um_class um_class_of(uint32_t cp) {
    return (um_class)(um_class_bits[um_class_page[cp >> 8] * 8u + (cp >> 5 & 7)] >> (cp & 31) * 2 & 3);
}
bool um_is_space(uint32_t cp);  /* the 25 White_Space code points */
bool um_is_word(uint32_t cp);   /* \w: letter, mark, decimal digit, connector punctuation */
bool um_is_number(uint32_t cp); /* Nd, Nl, No */
bool um_is_punct(uint32_t cp);  /* ASCII punctuation and P* */
/* Convert s to lower or upper case and append it to out. Full Unicode mappings, independent of locale and context. */
void um_to_lower(um_str s, um_buf *out);
void um_to_upper(um_str s, um_buf *out);
/* Returns the first code point of p[0..n) and its length in bytes (*len). n > 0; the text must be valid UTF-8. */
uint32_t um_cp_at(const char *p, size_t n, int *len);
/* Returns the last code point of p[0..n) and its length in bytes (*len). n > 0. */
uint32_t um_cp_before(const char *p, size_t n, int *len);
/* Appends bytes as UTF-8. Each maximal invalid part becomes one U+FFFD. */
void um_utf8_repair(um_str bytes, um_buf *out);
/* The byte table of byte-level vocabularies: the code point that represents a byte, and the byte that a code point
 * represents (-1: none). */
uint32_t um_byte_to_char(uint8_t byte);
int um_stand_in_byte(uint32_t cp);
/* Appends the bytes that the characters of a token represent. Returns false and appends nothing if a character is not
 * in the byte table. */
bool um_byte_chars_decode(um_str token, um_buf *out);
/* Appends the characters that represent the bytes. */
void um_byte_chars_encode(um_str bytes, um_buf *out);

/* ---- Patterns (pattern.c) ---------------------------------------------------------------------------------------- */

/* A literal, a known expression, or a regular expression that PCRE2 runs. Regular expressions are rewritten first so
 * that PCRE2 matches them as Oniguruma does. */
typedef struct um_pattern {
    um_str literal;
    const struct um_known *known;
    struct pcre2_real_code_8 *code;
} um_pattern;

/* PCRE2's scratch memory for one encode or decode call. Starts zeroed and is allocated on first use. */
typedef struct um_match_state {
    struct pcre2_real_match_data_8 *data;
    struct pcre2_real_match_context_8 *context;
    struct pcre2_real_jit_stack_8 *stack;
} um_match_state;

#define UM_QWEN_REGEX                                                                                                  \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\r\n]*|\\s*[\r\n]+|"        \
    "\\s+(?!\\S)|\\s+"
/* Returns the entry of known.c for an expression that a model family uses, or NULL. */
const struct um_known *um_known_find(um_str regex);
/* Returns the end of the match that begins at s[at]. at < s.n. A known expression matches at every position, so each
 * match begins where the previous one ends. */
size_t um_known_end(const struct um_known *k, um_str s, size_t at);

/* Compiles `regex` for PCRE2, even if it is a known expression. Otherwise like um_pattern_regex. */
um_status um_pattern_pcre(um_pattern *p, um_str regex, const char *where, um_err *err);
/* Compiles `regex`. `where` names the file in messages. UM_EUNSUPPORTED: PCRE2 would match a construct differently. */
um_status um_pattern_regex(um_pattern *p, um_str regex, const char *where, um_err *err);
/* Loads a pattern from {"String": s} or {"Regex": r}. The literal is copied into the arena. */
um_status um_pattern_load(um_pattern *p, const json_t *json, um_arena *a, const char *where, um_err *err);
void um_pattern_free(um_pattern *p);
/* Finds the first non-empty match in s at or after `from`. Sets *found and, if true, *start and *end. UM_ELIMIT: PCRE2
 * exceeded its match limit. */
um_status um_pattern_next(const um_pattern *p, um_match_state *scan, um_str s, size_t from, size_t *start, size_t *end,
                          bool *found, um_err *err);
/* Appends s with every match replaced by `by`. */
um_status um_pattern_replace(const um_pattern *p, um_match_state *scan, um_str s, um_str by, um_buf *out, um_err *err);
void um_scan_free(um_match_state *scan);

/* ---- Large JSON (jread.c) ---------------------------------------------------------------------------------------- */

/* A read position in JSON text, which must be valid UTF-8. Errors are UM_EPARSE with file, line and column. */
typedef struct um_jread {
    const char *path;
    um_str text;
    size_t at;
    um_err *err;
} um_jread;
/* Returns UM_EPARSE: "FILE:LINE:COLUMN: expected ..." for the position `at`. */
um_status um_jread_fail(const um_jread *r, size_t at, const char *expected);
/* Skips white space and returns the next character, or 0 at the end. */
char um_jread_peek(um_jread *r);
/* Skips white space, and c if it follows. Returns true if it did. */
bool um_jread_take(um_jread *r, char c);
/* Reads a string. *out points into the text or, if the string contains escapes, into scratch. */
um_status um_jread_string(um_jread *r, um_buf *scratch, um_str *out);
um_status um_jread_int(um_jread *r, int64_t *out);
/* Skips a value without validating it. `nest` is the number of lists and objects around the value. UM_ELIMIT: nesting
 * is deeper than UM_JSON_NEST_MAX. */
um_status um_jread_skip(um_jread *r, int nest);
/* Parses a whole JSON text into a tree, with jansson's `flags`. For files without the large parts. */
um_status um_json_read(json_t **out, um_str text, const char *path, int flags, um_err *err);

/* ---- Vocabulary (vocab.c) ---------------------------------------------------------------------------------------- */

typedef struct um_vocab {
    um_str *token; /* [size] token strings by id, as the file spells them, NUL-terminated; p NULL: unused id */
    int32_t size, n;
    size_t cap;                 /* allocated entries of token */
    struct um_vocab_slot *slot; /* [mask + 1] open addressing */
    uint32_t mask;
    um_arena *arena; /* owns the strings */
    char *rest;      /* the unused end of the current block of strings */
    size_t n_rest;
} um_vocab;
/* Initializes an empty vocabulary, which copies its strings into the arena a. */
void um_vocab_init(um_vocab *v, um_arena *a);
/* Adds a token. If the text is already present, its token gets the new id. UM_EPARSE: the id is out of range or belongs
 * to another token. */
um_status um_vocab_add(um_vocab *v, um_str text, int64_t id, const char *where, um_err *err);
/* Adds the tokens of a JSON object token -> id. */
um_status um_vocab_read(um_vocab *v, um_jread *r);
void um_vocab_free(um_vocab *v);
int32_t um_vocab_find(const um_vocab *v, um_str token); /* id or -1 */
/* Prefetch the memory that finding a token reads. um_vocab_expect fetches the hash table slot. um_vocab_expect_token
 * reads that slot and fetches the entry of `token` that it points to. */
void um_vocab_expect(const um_vocab *v, um_str token);
void um_vocab_expect_token(const um_vocab *v, um_str token);
uint64_t um_hash(um_str s);

/* ---- Added tokens (added.c) -------------------------------------------------------------------------------------- */

typedef struct um_added {
    um_str text;
    int32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
} um_added;

/* A byte trie over the texts of added tokens. */
typedef struct um_trie {
    struct um_trie_node *node;
    uint32_t n, cap;
    uint32_t root[256]; /* node of a first byte, 0 = none */
} um_trie;

typedef struct um_hit {
    size_t start, end; /* including the white space that lstrip and rstrip absorb */
    int32_t added;     /* index into the list */
} um_hit;

/* Adds a key for the added token with index `added`. The first of several tokens with the same key wins. */
void um_trie_add(um_trie *t, um_str key, int32_t added);
void um_trie_free(um_trie *t);
/* Finds the longest token that starts exactly at s[at]. Special tokens count only with UM_PARSE_ALL. Returns the
 * token's index in the list and sets *end to the offset after the token. Returns -1 if no token matches. */
int32_t um_trie_match(const um_trie *t, const um_added *list, um_parse parse, um_str s, size_t at, size_t *end);
/* Returns true if a special token starts exactly at s[at]. With `only` >= 0, only the token with this id counts. */
bool um_trie_is_special(const um_trie *t, const um_added *list, um_str s, size_t at, int32_t only);
/* Finds the next token at or after s[done], with single_word, lstrip and rstrip applied. lstrip absorbs no text before
 * `done`. A one-character token is ignored if the code point `guard` follows it directly (0: no guard). Returns false
 * if no token is left or `parse` is UM_PARSE_NONE. */
bool um_added_next(const um_trie *t, const um_added *list, um_parse parse, uint32_t guard, um_str s, size_t done,
                   um_hit *hit);

/* ---- Normalizers (norm.c) ---------------------------------------------------------------------------------------- */

typedef struct um_normalizer {
    struct um_norm_step *step;
    size_t n;
} um_normalizer;
/* Loads the "normalizer" of tokenizer.json. NULL or JSON null: text is not changed. */
um_status um_norm_load(um_normalizer *n, const json_t *json, um_arena *a, const char *where, um_err *err);
void um_norm_free(um_normalizer *n);
/* Normalizes s. *out points into s or into one of the two buffers, which the caller owns. */
um_status um_norm_apply(const um_normalizer *n, um_match_state *scan, um_str s, um_buf buf[2], um_str *out,
                        um_err *err);

/* ---- Pre-tokenizers (pretok.c) ----------------------------------------------------------------------------------- */

typedef struct um_piece {
    size_t off, len;
} um_piece;

/* A list of pieces over one text. */
typedef struct um_pieces {
    const char *text; /* the text that the pieces refer to: the input or one of buf[] */
    um_piece *cut;
    size_t n, cap;
    um_piece *spare; /* the list that the current step reads; um_pieces_swap swaps it with cut */
    size_t spare_cap;
    um_buf buf[2];
} um_pieces;
void um_pieces_push(um_pieces *p, size_t off, size_t len);
/* Begins a step: starts a new, empty list and returns the current list (*n pieces) for reading. */
const um_piece *um_pieces_swap(um_pieces *p, size_t *n);
/* Clears and returns the buffer that does not hold the current text. */
um_buf *um_pieces_other(um_pieces *p);
void um_pieces_free(um_pieces *p);

typedef struct um_pretok {
    struct um_pretok_step *step;
    size_t n;
    bool byte_level; /* the model encodes bytes through the byte table */
} um_pretok;
/* Loads the "pre_tokenizer" of tokenizer.json. NULL or JSON null: text is not split. */
um_status um_pretok_load(um_pretok *t, const json_t *json, um_arena *a, const char *where, um_err *err);
void um_pretok_free(um_pretok *t);
/* Splits s into pieces. `at_start`: s is the beginning of the whole input. */
um_status um_pretok_run(const um_pretok *t, um_match_state *scan, um_str s, bool at_start, um_pieces *out, um_err *err);

/* ---- Models (bpe.c, wordlevel.c) --------------------------------------------------------------------------------- */

typedef struct um_bpe_pair {
    uint64_t key; /* um_pair_key; UINT64_MAX: unused slot */
    uint32_t rank;
    int32_t id; /* of the merged token */
} um_bpe_pair;

/* The positions at which a piece may be split before it is merged (cuts.c). */
typedef struct um_cuts {
    bool at_lines, at_meta; /* before and after runs of line feeds; before U+2581 */
    uint32_t before[64];    /* characters after which a U+2581 is no split position */
    size_t n_before;
} um_cuts;
void um_cuts_find(um_cuts *c, const um_vocab *v);
/* Returns the end of the part of s that begins at `at`. */
size_t um_cuts_next(const um_cuts *c, um_str s, size_t at);

#define UM_CHARS 0x3000 /* code points with a direct table: most alphabets and U+2581 */
typedef struct um_byte_pair {
    uint32_t rank;
    int32_t id;
} um_byte_pair;

typedef struct um_bpe {
    um_bpe_pair *pair; /* [mask + 1] open addressing */
    int shift;         /* of the multiplicative hash */
    size_t mask, n_pairs, n_ranks;
    um_byte_pair *byte_pair;  /* [256 * 256] byte-level models: the merge of two single bytes; or NULL */
    int32_t *char_id;         /* [UM_CHARS] other models: the token of each code point below UM_CHARS; or NULL */
    int32_t byte_id[256];     /* byte-level models: the token of a byte, or -1 */
    int32_t fallback_id[256]; /* byte_fallback: the token <0xHH>, or -1 */
    int32_t unk_id;           /* -1: unknown characters are dropped */
    bool byte_level, byte_fallback, fuse_unk, ignore_merges;
    um_str prefix, suffix; /* continuing_subword_prefix, end_of_word_suffix */
    um_cuts cuts;
} um_bpe;

typedef struct um_bpe_scratch {
    int32_t *id, *to; /* [cap] symbols, and the token that each forms with its right neighbor */
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

/* Loads everything except the merges from "model" of tokenizer.json. */
um_status um_bpe_load(um_bpe *b, const um_vocab *v, const json_t *model, bool byte_level, um_arena *a,
                      const char *where, um_err *err);
/* Builds the tables that are derived from the vocabulary and the merges. */
void um_bpe_finish(um_bpe *b, const um_vocab *v);
void um_bpe_free(um_bpe *b);
/* Encodes a piece and appends its ids. The caller may split the piece at b->cuts first: the ids are the same. */
void um_bpe_encode(const um_bpe *b, const um_vocab *v, um_bpe_scratch *s, um_str piece, um_ids *out);
void um_bpe_scratch_free(um_bpe_scratch *s);

/* The state of loading a model's merges into its pair table (merges.c). Used once per model, after um_bpe_load. */
typedef struct um_merging {
    um_bpe *b;
    const um_vocab *v;
    uint32_t rank; /* of the next merge */
    int32_t last;  /* id of the previous merge's result, or -1 */
    const char *path;
    bool is_lines; /* the file has one merge per line and is not JSON */
    struct um_merge *batch;
    size_t n_batch;
    um_buf joined;
    um_err *err;
} um_merging;
void um_merging_begin(um_merging *m, um_bpe *b, const um_vocab *v, um_err *err);
/* Reads a JSON list whose entries are "a b" or ["a", "b"]. */
um_status um_merging_read_json(um_merging *m, um_jread *r);
/* Reads the lines "a b" of merges.txt. */
um_status um_merging_read_lines(um_merging *m, um_str text, const char *path);
/* Derives the merges for a format that does not list them. A merge exists for every pair of tokens that together form a
 * token. The pair whose result has the highest score [size] merges first; a score of NaN excludes a token as a result.
 * score NULL: the lowest id merges first. */
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

/* The ids that the post-processor adds before and after a single text. */
typedef struct um_post {
    um_ids before, after;
} um_post;
um_status um_post_load(um_post *p, const json_t *json, const char *where, um_err *err);
void um_post_free(um_post *p);

/* ---- Decoders (decode.c) ----------------------------------------------------------------------------------------- */

/* How a stream runs the decoder token by token. */
typedef enum {
    UM_STREAM_BYTES, /* ByteLevel: tokens become bytes, complete characters are written */
    UM_STREAM_WORDS, /* no decoder: tokens are joined by spaces */
    UM_STREAM_STEPS, /* each token runs through the steps; byte tokens are joined to characters */
    UM_STREAM_LAST   /* BPEDecoder: the last token is decoded differently, so one token is held back */
} um_stream_mode;

typedef struct um_decoder {
    struct um_decoder_step *step;
    size_t n;
    um_stream_mode mode;
    int32_t strip_front; /* how often `strip` is removed from the front of the whole text: a Strip after Fuse */
    um_str strip;
} um_decoder;
/* Loads the "decoder" of tokenizer.json. NULL or JSON null: tokens are joined by spaces. */
um_status um_decoder_load(um_decoder *d, const json_t *json, um_arena *a, const char *where, um_err *err);
void um_decoder_free(um_decoder *d);
/* Decodes the list of token strings in p and appends the text to out. */
void um_decoder_run(const um_decoder *d, um_pieces *p, um_buf *out);
/* Runs one token through the steps that work on single tokens and appends the result, for streams. `first` and `last`
 * tell whether it is the first or last token of the text. */
void um_decoder_token(const um_decoder *d, um_str token, bool first, bool last, um_buf *out);
/* Removes up to *left copies of d->strip from the front of the text that out holds from `from` on, and subtracts them
 * from *left. Sets *left to 0 if other text remains. */
void um_decoder_strip_front(const um_decoder *d, um_buf *out, size_t from, int32_t *left);
/* Returns the byte of a token `<0xHH>` if the decoder has a ByteFallback step, else -1. */
int um_decoder_byte(const um_decoder *d, um_str token);
/* Returns the byte that a string `<0xHH>` names, else -1. */
int um_byte_token(um_str token);

/* ---- Clean-up (cleanup.c) ---------------------------------------------------------------------------------------- */

/* Applies clean_up_tokenization_spaces to the text that out holds from `from` on. The beginning of a possible match is
 * held back until later text or um_clean_end decides. `held` starts zeroed. */
void um_clean_text(uint8_t held[UM_CLEAN_RULES], um_buf *out, size_t from);
/* Appends the text that is still held back. */
void um_clean_end(uint8_t held[UM_CLEAN_RULES], um_buf *out);

/* ---- The tokenizer (load.c, tok.c) ------------------------------------------------------------------------------- */

#define UM_TOK_NAMED_MAX 64
typedef struct um_named {
    const char *name; /* "eos_token" */
    um_str text;
    int32_t id; /* -1: not in the vocabulary */
} um_named;

struct um_tok {
    um_arena arena; /* owns the strings below */
    um_vocab vocab; /* the model's own tokens, without added ones */
    bool is_wordlevel, has_normalized_special;
    um_bpe bpe;
    um_wordlevel wordlevel;
    um_added *added;
    size_t n_added, cap_added;
    um_vocab added_names; /* content -> index into added */
    um_trie trie[2];      /* added tokens matched before normalization, and after it */
    um_normalizer norm;
    um_pretok pre;
    um_post post;
    um_decoder dec;
    int32_t size;      /* 1 + highest id */
    um_str *bytes;     /* [size] the bytes of each token, see um_tok_bytes */
    int32_t *added_of; /* [n_added_of >= size] index into added, or -1 */
    size_t n_added_of;
    um_named named[UM_TOK_NAMED_MAX];
    size_t n_named;
    json_t *extra_special; /* additional_special_tokens as a list of strings, or NULL */
    bool split_special;    /* split_special_tokens: special tokens in text are not recognized */
    bool clean_up;         /* clean_up_tokenization_spaces (cleanup.c) */
};

/* Reads a JSON file such as tokenizer_config.json. Integers are read as doubles. *out is NULL, with UM_OK, if the file
 * does not exist. */
um_status um_tok_config_load(json_t **out, const char *path, um_err *err);
/* Encodes text in which the noncharacter `guard` (0: none) interrupts the spelling of protected tokens. The guards are
 * removed before the model sees the text. Otherwise like um_tok_encode, except that a guard turns split_special_tokens
 * off. */
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
/* The tokenizer files of a folder. */
typedef struct um_tok_files {
    const char *dir;
    char *path[UM_N_FILES];
    um_str text[UM_N_FILES]; /* p NULL: missing, or not needed */
    um_buf read[UM_N_FILES]; /* owns the texts that were read from files */
} um_tok_files;
void um_tok_files_init(um_tok_files *f, const char *dir);
void um_tok_files_free(um_tok_files *f);
/* Builds a tokenizer from the texts of the files. */
um_status um_tok_build(um_tok **out, const um_tok_files *files, um_err *err);

/* The vocabulary files, translated by a format: the stages in the terms of tokenizer.json, and functions that read the
 * two large parts. */
typedef struct um_parts {
    const um_tok_files *files;
    json_t *config;       /* tokenizer_config.json, or NULL */
    const char *path;     /* the file that error messages about the stages name */
    json_t *stages;       /* a tokenizer.json without vocabulary and merges */
    json_t *named;        /* special tokens of the vocabulary file, in the form of special_tokens_map.json, or NULL */
    bool takes_added_map; /* the format reads added_tokens.json */
    size_t vocab, merges; /* format_json.c: their offsets in the text, SIZE_MAX: missing */
    um_status (*read_vocab)(const struct um_parts *p, um_vocab *v, um_arena *a, um_err *err);
    um_status (*read_merges)(const struct um_parts *p, um_merging *m);
} um_parts;
/* Helpers of the formats without tokenizer.json. */
/* Returns tokenizer_class of tokenizer_config.json without its module path and without a final "Fast". */
um_str um_config_class(const json_t *config);
/* Reads add_prefix_space of tokenizer_config.json. */
um_status um_config_prefix(const um_parts *p, bool *prefix, um_err *err);
/* Returns the stages of Qwen's tokenizers. The caller owns the reference. */
json_t *um_qwen_stages(bool prefix);

um_status um_format_json(um_parts *p, um_err *err);     /* tokenizer.json */
um_status um_format_slow(um_parts *p, um_err *err);     /* vocab.json and merges.txt */
um_status um_format_spm(um_parts *p, um_err *err);      /* tokenizer.model of SentencePiece */
um_status um_format_tiktoken(um_parts *p, um_err *err); /* *.tiktoken */

/* Loads "added_tokens" of tokenizer.json. */
um_status um_added_load(um_tok *t, const json_t *list, const char *where, um_err *err);
/* Loads added_tokens.json. */
um_status um_added_load_map(um_tok *t, const json_t *object, const char *where, um_err *err);
/* Grows added_of to at least n entries. */
void um_added_reach(um_tok *t, size_t n);
/* Loads the named special tokens of special_tokens_map.json, or the same fields of tokenizer_config.json. */
um_status um_special_load(um_tok *t, const json_t *json, const char *where, um_err *err);
/* Loads the added tokens, the special tokens and the switches of tokenizer_config.json. */
um_status um_config_load(um_tok *t, const json_t *config, const char *where, um_err *err);
/* Applies add_bos_token and add_eos_token if the post-processor adds no ids. Call it when all token ids are known. */
um_status um_config_around(um_tok *t, const json_t *config, const char *where, um_err *err);

/* Returns the string of a token as decoders see it: an added token's content, else the spelling in the vocabulary. */
um_str um_tok_text(const um_tok *t, int32_t id);

#ifdef __cplusplus
}
#endif
#endif
