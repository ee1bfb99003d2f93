/* The encoding pipeline, decoding of whole lists, and the small public functions. */
#include "text/tok.h"

#define TEXT_MAX ((size_t)1 << 30) /* positions of symbols are 32 bits */

/* ---- Ids --------------------------------------------------------------------------------------------------------- */

void um_ids_push(um_ids *v, int32_t id) {
    if (v->n == v->cap) {
        v->cap = v->cap ? v->cap * 2 : 64;
        v->data = (int32_t *)um_realloc(v->data, um_mul(v->cap, sizeof *v->data));
    }
    v->data[v->n++] = id;
}

void um_ids_append(um_ids *v, const um_ids *more) {
    for (size_t i = 0; i < more->n; i++) um_ids_push(v, more->data[i]);
}

void um_ids_free(um_ids *v) {
    um_free(v->data);
    *v = (um_ids){NULL, 0, 0};
}

/* ---- Properties of tokens ---------------------------------------------------------------------------------------- */

int32_t um_tok_size(const um_tok *t) { return t->size; }

bool um_tok_exists(const um_tok *t, int32_t id) {
    if (id < 0 || id >= t->size) return false;
    return t->added_of[id] >= 0 || (id < t->vocab.size && t->vocab.token[id].p);
}

bool um_tok_is_special(const um_tok *t, int32_t id) {
    return id >= 0 && id < t->size && t->added_of[id] >= 0 && t->added[t->added_of[id]].special;
}

um_str um_tok_bytes(const um_tok *t, int32_t id) { return um_tok_exists(t, id) ? t->bytes[id] : (um_str){NULL, 0}; }

um_str um_tok_text(const um_tok *t, int32_t id) {
    if (id >= 0 && id < t->size && t->added_of[id] >= 0) return t->added[t->added_of[id]].text;
    return id >= 0 && id < t->vocab.size ? t->vocab.token[id] : (um_str){NULL, 0};
}

int32_t um_tok_find(const um_tok *t, um_str token) {
    int32_t added = um_vocab_find(&t->added_names, token);
    return added >= 0 ? t->added[added].id : um_vocab_find(&t->vocab, token);
}

static const um_named *find_named(const um_tok *t, const char *name) {
    for (size_t i = 0; i < t->n_named; i++)
        if (um_streq(t->named[i].name, name)) return &t->named[i];
    return NULL;
}

int32_t um_tok_special_id(const um_tok *t, const char *name) {
    const um_named *n = find_named(t, name);
    return n ? n->id : -1;
}

um_str um_tok_special_text(const um_tok *t, const char *name) {
    const um_named *n = find_named(t, name);
    return n ? n->text : (um_str){NULL, 0};
}

/* ---- Encoding ---------------------------------------------------------------------------------------------------- */

#define WORDS_MAX 65536 /* most slots in the cache of pieces */
#define WORDS_MIN 1024  /* bytes of the shortest text that uses the cache */
#define WORD_MAX  255   /* bytes of the longest piece that is cached */

/* A cache entry: a piece and its ids, because most words of a text repeat. `p` points into the text of the pieces
 * and `out` is an index into the output, so the entry owns no memory. */
typedef struct word {
    const char *p;
    size_t out;
    uint32_t len, n, round;
} word;

/* The state of one encode call. */
typedef struct encoder {
    const um_tok *t;
    um_parse parse;
    uint32_t guard;
    um_ids *out;
    um_err *err;
    um_match_state scan;
    um_pieces pieces;
    um_bpe_scratch bpe;
    um_buf norm[2], bare, word;
    word *words; /* [n_words] a power of two */
    size_t n_words;
    uint32_t round; /* number of the text; entries of earlier texts are invalid */
} encoder;

static void encoder_free(encoder *e) {
    um_scan_free(&e->scan);
    um_pieces_free(&e->pieces);
    um_bpe_scratch_free(&e->bpe);
    um_buf_free(&e->norm[0]);
    um_buf_free(&e->norm[1]);
    um_buf_free(&e->bare);
    um_buf_free(&e->word);
    um_free(e->words);
}

/* Returns s without guards. The result may be in e->bare. */
static um_str without_guard(encoder *e, um_str s) {
    char g[4];
    size_t n = e->guard ? (size_t)um_utf8_put(e->guard, g) : 0;
    if (n == 0 || !memmem(s.p, s.n, g, n)) return s;
    um_buf_clear(&e->bare);
    um_pattern p = {.literal = {g, n}};
    um_pattern_replace(&p, &e->scan, s, UM_STR(""), &e->bare, NULL); /* a literal can't fail */
    return (um_str){e->bare.data, e->bare.len};
}

/* Encodes a word of a word-level model. A guarded word can still equal a special token of the vocabulary; it then
 * becomes the unknown token. */
static um_status encode_word(encoder *e, um_str piece) {
    const um_wordlevel *w = &e->t->wordlevel;
    um_status st = um_wordlevel_encode(w, &e->t->vocab, &e->word, piece, e->out, e->err);
    if (!st && e->guard && w->unk_id >= 0 && um_tok_is_special(e->t, e->out->data[e->out->n - 1]))
        e->out->data[e->out->n - 1] = w->unk_id;
    return st;
}

static void make_words(encoder *e, size_t bytes) {
    e->n_words = 256;
    while (e->n_words < bytes / 4 && e->n_words < WORDS_MAX) e->n_words *= 2;
    e->words = UM_NEW_ARRAY(word, e->n_words);
}

/* Encodes one part by BPE, through the cache. */
static void encode_part(encoder *e, um_str piece) {
    if (!e->words || piece.n > WORD_MAX) {
        um_bpe_encode(&e->t->bpe, &e->t->vocab, &e->bpe, piece, e->out);
        return;
    }
    word *w = &e->words[um_hash(piece) & (e->n_words - 1)];
    if (w->round == e->round && w->len == piece.n && memcmp(w->p, piece.p, piece.n) == 0) {
        for (uint32_t i = 0; i < w->n; i++) um_ids_push(e->out, e->out->data[w->out + i]);
        return;
    }
    size_t before = e->out->n;
    um_bpe_encode(&e->t->bpe, &e->t->vocab, &e->bpe, piece, e->out);
    *w = (word){piece.p, before, (uint32_t)piece.n, (uint32_t)(e->out->n - before), e->round};
}

static void encode_piece(encoder *e, um_str piece) {
    for (size_t at = 0, end; at < piece.n; at = end) {
        end = um_cuts_next(&e->t->bpe.cuts, piece, at);
        encode_part(e, (um_str){piece.p + at, end - at});
    }
}

/* Splits normalized text without added tokens into pieces and encodes them. */
static um_status encode_text(encoder *e, um_str s, bool at_start) {
    um_status st = um_pretok_run(&e->t->pre, &e->scan, s, at_start, &e->pieces, e->err);
    if (!e->words && s.n >= WORDS_MIN) make_words(e, s.n);
    e->round++;
    for (size_t i = 0; i < e->pieces.n && !st; i++) {
        um_str piece = {e->pieces.text + e->pieces.cut[i].off, e->pieces.cut[i].len};
        if (e->t->is_wordlevel) st = encode_word(e, piece);
        else encode_piece(e, piece);
    }
    return st;
}

/* Finds the added tokens of one trie, pushes their ids and calls `part` for the text between them. */
static um_status encode_around(encoder *e, int matcher, uint32_t guard, um_str s, bool at_start,
                               um_status (*part)(encoder *, um_str, bool)) {
    um_hit hit;
    size_t done = 0;
    const um_tok *t = e->t;
    while (um_added_next(&t->trie[matcher], t->added, e->parse, guard, s, done, &hit)) {
        if (hit.start > done) {
            um_status st = part(e, (um_str){s.p + done, hit.start - done}, at_start && done == 0);
            if (st) return st;
        }
        um_ids_push(e->out, t->added[hit.added].id);
        done = hit.end;
    }
    return done < s.n ? part(e, (um_str){s.p + done, s.n - done}, at_start && done == 0) : UM_OK;
}

static um_status encode_bare(encoder *e, um_str s, bool at_start) {
    return encode_text(e, without_guard(e, s), at_start);
}

/* Normalizes text, finds the added tokens that match normalized text, and encodes the rest. Guards are removed before
 * the normalizer, unless special tokens are matched after it. */
static um_status encode_section(encoder *e, um_str s, bool at_start) {
    bool keep = e->guard && e->t->has_normalized_special;
    if (!keep) s = without_guard(e, s);
    um_status st = um_norm_apply(&e->t->norm, &e->scan, s, e->norm, &s, e->err);
    if (st) return st;
    return encode_around(e, 1, keep ? e->guard : 0, s, at_start, keep ? encode_bare : encode_text);
}

static um_status check_text(um_str text, um_err *err) {
    if (text.n > TEXT_MAX)
        return um_fail(err, UM_ELIMIT, "text of %zu bytes is too long to encode, at most %zu are allowed", text.n,
                       TEXT_MAX);
    size_t good = um_utf8_check(text.p, text.n);
    if (good < text.n) return um_fail(err, UM_EINVAL, "text is not valid UTF-8 at byte %zu", good);
    return UM_OK;
}

/* Returns true if the text begins with BOS and BOS is the only id that the post-processor would add before it. */
static bool begins_with_bos(const um_tok *t, um_str text, um_parse parse) {
    um_hit hit;
    int32_t bos = um_tok_special_id(t, "bos_token");
    if (t->post.before.n != 1 || bos < 0 || t->post.before.data[0] != bos || text.n == 0) return false;
    return t->added_of[bos] >= 0 && um_added_next(&t->trie[0], t->added, parse, 0, text, 0, &hit) && hit.start == 0 &&
           t->added[hit.added].id == bos;
}

um_status um_tok_encode_guarded(const um_tok *t, um_str text, um_parse parse, bool add_special, uint32_t guard,
                                um_ids *out, um_err *err) {
    um_status st = check_text(text, err);
    if (st) return st;
    if (parse == UM_PARSE_ALL && t->split_special && !guard) parse = UM_PARSE_NOT_SPECIAL;
    encoder e = {.t = t, .parse = parse, .guard = guard, .out = out, .err = err};
    size_t before = out->n;
    if (add_special && !begins_with_bos(t, text, parse)) um_ids_append(out, &t->post.before);
    if (text.n) st = encode_around(&e, 0, guard, text, true, encode_section);
    if (add_special) um_ids_append(out, &t->post.after);
    if (st) out->n = before;
    encoder_free(&e);
    return st;
}

um_status um_tok_encode(const um_tok *t, um_str text, um_parse parse, bool add_special, um_ids *out, um_err *err) {
    return um_tok_encode_guarded(t, text, parse, add_special, 0, out, err);
}

/* ---- Decoding ---------------------------------------------------------------------------------------------------- */

static bool is_wanted(const um_tok *t, int32_t id, bool skip_special) {
    return um_tok_exists(t, id) && !(skip_special && um_tok_is_special(t, id));
}

/* Decodes through a stream. For byte-level tokenizers this costs no more than decoding the whole list at once. */
static void decode_stream(const um_tok *t, const int32_t *id, size_t n, bool skip_special, um_buf *out) {
    um_stream s;
    um_stream_init(&s, t, skip_special);
    for (size_t i = 0; i < n; i++) um_stream_push(&s, id[i], out);
    um_stream_flush(&s, out);
}

void um_tok_decode(const um_tok *t, const int32_t *id, size_t n, bool skip_special, um_buf *out) {
    if (t->dec.mode == UM_STREAM_BYTES) {
        decode_stream(t, id, n, skip_special, out);
        return;
    }
    um_pieces p = {0};
    um_buf text = {0};
    um_buf_reserve(&text, 1);
    for (size_t i = 0; i < n; i++) {
        if (!is_wanted(t, id[i], skip_special)) continue;
        um_str s = um_tok_text(t, id[i]);
        um_pieces_push(&p, text.len, s.n);
        um_buf_append(&text, s.p, s.n);
    }
    size_t from = out->len;
    p.text = text.data;
    um_decoder_run(&t->dec, &p, out);
    if (t->clean_up) {
        uint8_t held[UM_CLEAN_RULES] = {0};
        um_clean_text(held, out, from);
        um_clean_end(held, out);
    }
    um_pieces_free(&p);
    um_buf_free(&text);
}
