/* Pre-tokenizers: steps that split pieces, and two kinds of steps that rewrite them. Nearly all steps are a STEP_SPLIT,
 * which finds matches and treats them and the text between them in one of five ways. They differ in the matcher. */
#include "text/tok.h"

typedef enum { CUT_REMOVED, CUT_ISOLATED, CUT_WITH_PREVIOUS, CUT_WITH_NEXT, CUT_CONTIGUOUS } behavior;
typedef enum { STEP_SPLIT, STEP_PREFIX, STEP_META } step_kind;

typedef struct um_pretok_step {
    step_kind kind;
    um_pattern pattern;         /* STEP_SPLIT: the pattern to match, */
    bool (*is_match)(uint32_t); /* or the class of characters to match, if not NULL */
    behavior how;
    bool invert;
    um_str meta;                  /* STEP_META: the replacement of a space */
    bool meta_always, meta_first; /* prepend it to every piece, or to the input's first piece only */
} um_pretok_step;

#define GPT2_REGEX "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* \w of Rust's regex crate, which the pre-tokenizer Whitespace uses: Alphabetic (L, Nl, most marks and the circled
 * letters), marks, decimal digits, connector punctuation and the two joiners. */
#define RUST_WORD                                                                                                      \
    "\\p{L}\\p{Nl}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}" \
    "\\x{1f170}-\\x{1f189}"

/* ---- Pieces ------------------------------------------------------------------------------------------------------ */

void um_pieces_push(um_pieces *p, size_t off, size_t len) {
    if (p->n == p->cap) {
        p->cap = p->cap ? p->cap * 2 : 64;
        p->cut = (um_piece *)um_realloc(p->cut, um_mul(p->cap, sizeof *p->cut));
    }
    p->cut[p->n++] = (um_piece){off, len};
}

void um_pieces_free(um_pieces *p) {
    um_free(p->cut);
    um_free(p->spare);
    um_buf_free(&p->buf[0]);
    um_buf_free(&p->buf[1]);
    memset(p, 0, sizeof *p);
}

const um_piece *um_pieces_swap(um_pieces *p, size_t *n) {
    um_piece *source = p->cut;
    size_t cap = p->cap;
    *n = p->n;
    p->cut = p->spare;
    p->cap = p->spare_cap;
    p->n = 0;
    p->spare = source;
    p->spare_cap = cap;
    return source;
}

um_buf *um_pieces_other(um_pieces *p) {
    um_buf *b = p->buf[0].data == p->text && p->text ? &p->buf[1] : &p->buf[0];
    um_buf_clear(b);
    um_buf_reserve(b, 1); /* gives an empty text a data pointer too */
    return b;
}

/* ---- Loading ----------------------------------------------------------------------------------------------------- */

typedef struct loader {
    um_pretok *t;
    um_arena *a;
    const char *where;
    um_err *err;
} loader;

static um_pretok_step *step_add(um_pretok *t, step_kind kind) {
    t->step = (um_pretok_step *)um_realloc(t->step, um_mul(t->n + 1, sizeof *t->step));
    t->step[t->n] = (um_pretok_step){.kind = kind};
    return &t->step[t->n++];
}

static void class_add(um_pretok *t, bool (*is_match)(uint32_t), behavior how) {
    um_pretok_step *s = step_add(t, STEP_SPLIT);
    s->is_match = is_match;
    s->how = how;
}

static um_status load_behavior(loader *l, const json_t *json, behavior *how) {
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const char *name = NULL;
    um_status st = um_json_get_str(json, "behavior", l->where, &name, l->err);
    if (st || !name) return st;
    for (size_t i = 0; i < UM_LEN(names); i++)
        if (um_streq(names[i], name)) {
            *how = (behavior)i;
            return UM_OK;
        }
    return um_fail(l->err, UM_EUNSUPPORTED, "%s: pre-tokenizer behavior \"%.60s\" is not known", l->where, name);
}

static um_status load_split(loader *l, const json_t *json) {
    um_pretok_step *s = step_add(l->t, STEP_SPLIT);
    s->how = CUT_ISOLATED;
    um_status st = um_pattern_load(&s->pattern, json_object_get(json, "pattern"), l->a, l->where, l->err);
    if (!st) st = load_behavior(l, json, &s->how);
    if (!st) st = um_json_get_bool(json, "invert", l->where, &s->invert, l->err);
    return st;
}

static um_status load_byte_level(loader *l, const json_t *json) {
    bool prefix = true, regex = true;
    um_status st = um_json_get_bool(json, "add_prefix_space", l->where, &prefix, l->err);
    if (!st) st = um_json_get_bool(json, "use_regex", l->where, &regex, l->err);
    if (st) return st;
    if (prefix) step_add(l->t, STEP_PREFIX);
    l->t->byte_level = true;
    if (!regex) return UM_OK;
    um_pretok_step *s = step_add(l->t, STEP_SPLIT);
    s->how = CUT_ISOLATED;
    return um_pattern_regex(&s->pattern, UM_STR(GPT2_REGEX), l->where, l->err);
}

static um_status load_digits(loader *l, const json_t *json) {
    bool individual = false;
    um_status st = um_json_get_bool(json, "individual_digits", l->where, &individual, l->err);
    class_add(l->t, um_is_number, individual ? CUT_ISOLATED : CUT_CONTIGUOUS);
    return st;
}

static um_status load_whitespace(loader *l, const json_t *json) {
    (void)json;
    um_pretok_step *s = step_add(l->t, STEP_SPLIT);
    s->how = CUT_REMOVED;
    s->invert = true;
    return um_pattern_regex(&s->pattern, UM_STR("[" RUST_WORD "]+|[^" RUST_WORD "\\s]+"), l->where, l->err);
}

static um_status load_whitespace_split(loader *l, const json_t *json) {
    (void)json;
    class_add(l->t, um_is_space, CUT_REMOVED);
    return UM_OK;
}

static um_status load_punctuation(loader *l, const json_t *json) {
    behavior how = CUT_ISOLATED;
    um_status st = load_behavior(l, json, &how);
    class_add(l->t, um_is_punct, how);
    return st;
}

static um_status load_bert(loader *l, const json_t *json) {
    (void)json;
    class_add(l->t, um_is_space, CUT_REMOVED);
    class_add(l->t, um_is_punct, CUT_ISOLATED);
    return UM_OK;
}

static um_status load_char(loader *l, const json_t *json, const char *key, um_str *out) {
    const json_t *s = json_object_get(json, key);
    int len = 0;
    if (json_is_string(s) && json_string_length(s)) um_cp_at(json_string_value(s), json_string_length(s), &len);
    if (len == 0 || (size_t)len != json_string_length(s))
        return um_fail(l->err, UM_EPARSE, "%s: pre-tokenizer: \"%s\" must be one character", l->where, key);
    *out = (um_str){um_arena_strndup(l->a, json_string_value(s), (size_t)len), (size_t)len};
    return UM_OK;
}

static um_status load_delimiter(loader *l, const json_t *json) {
    um_pretok_step *s = step_add(l->t, STEP_SPLIT);
    s->how = CUT_REMOVED;
    return load_char(l, json, "delimiter", &s->pattern.literal);
}

static um_status load_metaspace(loader *l, const json_t *json) {
    bool legacy = true, split = true;
    const char *scheme = NULL;
    um_str meta;
    um_status st = load_char(l, json, "replacement", &meta);
    if (!st) st = um_json_get_bool(json, "add_prefix_space", l->where, &legacy, l->err);
    if (!st) st = um_json_get_str(json, "prepend_scheme", l->where, &scheme, l->err);
    if (!st) st = um_json_get_bool(json, "split", l->where, &split, l->err);
    if (st) return st;
    if (!scheme) scheme = legacy ? "always" : "never";
    if (!um_streq(scheme, "always") && !um_streq(scheme, "first") && !um_streq(scheme, "never"))
        return um_fail(l->err, UM_EUNSUPPORTED, "%s: Metaspace: prepend_scheme \"%.60s\" is not known", l->where,
                       scheme);
    um_pretok_step *s = step_add(l->t, STEP_META);
    s->meta = meta;
    s->meta_always = um_streq(scheme, "always");
    s->meta_first = um_streq(scheme, "first");
    if (!split) return UM_OK;
    s = step_add(l->t, STEP_SPLIT);
    s->pattern.literal = meta;
    s->how = CUT_WITH_NEXT;
    return UM_OK;
}

static const struct {
    const char *type;
    um_status (*load)(loader *, const json_t *);
} kinds[] = {
    {"Split", load_split},
    {"ByteLevel", load_byte_level},
    {"Digits", load_digits},
    {"Whitespace", load_whitespace},
    {"WhitespaceSplit", load_whitespace_split},
    {"Punctuation", load_punctuation},
    {"BertPreTokenizer", load_bert},
    {"CharDelimiterSplit", load_delimiter},
    {"Metaspace", load_metaspace},
};

static um_status load_any(loader *l, const json_t *json, int nest) {
    if (nest > UM_TOK_NEST_MAX) return um_fail(l->err, UM_ELIMIT, "%s: pre-tokenizers are nested too deeply", l->where);
    const char *type = json_string_value(json_object_get(json, "type"));
    if (!type)
        return um_fail(l->err, UM_EPARSE, "%s: pre_tokenizer must be an object with a \"type\", or null", l->where);
    if (um_streq(type, "Sequence")) {
        const json_t *list = json_object_get(json, "pretokenizers"), *item;
        size_t i;
        if (!json_is_array(list))
            return um_fail(l->err, UM_EPARSE, "%s: pre_tokenizer: \"pretokenizers\" must be a list", l->where);
        json_array_foreach(list, i, item) {
            um_status st = load_any(l, item, nest + 1);
            if (st) return st;
        }
        return UM_OK;
    }
    if (l->t->byte_level) /* in the reference, later steps see the characters of the byte table */
        return um_fail(l->err, UM_EUNSUPPORTED, "%s: pre-tokenizer \"%.60s\" behind ByteLevel is not supported",
                       l->where, type);
    for (size_t k = 0; k < UM_LEN(kinds); k++)
        if (um_streq(kinds[k].type, type)) return kinds[k].load(l, json);
    return um_fail(l->err, UM_EUNSUPPORTED, "%s: pre-tokenizer of type \"%.60s\" is not supported", l->where, type);
}

um_status um_pretok_load(um_pretok *t, const json_t *json, um_arena *a, const char *where, um_err *err) {
    memset(t, 0, sizeof *t);
    if (!json || json_is_null(json)) return UM_OK;
    loader l = {t, a, where, err};
    return load_any(&l, json, 0);
}

void um_pretok_free(um_pretok *t) {
    for (size_t i = 0; i < t->n; i++) um_pattern_free(&t->step[i].pattern);
    um_free(t->step);
    t->step = NULL;
    t->n = 0;
}

/* ---- Cutting ----------------------------------------------------------------------------------------------------- */

/* Receives the alternating matches and non-matches of one piece. Joins, splits or drops them as the behavior says. */
typedef struct cutter {
    um_pieces *out;
    const um_pretok_step *step;
    size_t start, end; /* the piece being assembled, if open */
    bool open, last_match;
} cutter;

static void cutter_flush(cutter *c) {
    if (c->open) um_pieces_push(c->out, c->start, c->end - c->start);
    c->open = false;
}

static bool joins(const cutter *c, bool is_match) {
    if (!c->open) return false;
    switch (c->step->how) {
    case CUT_WITH_PREVIOUS: return is_match && !c->last_match;
    case CUT_WITH_NEXT: return !is_match && c->last_match;
    case CUT_CONTIGUOUS: return is_match == c->last_match;
    default: return false;
    }
}

static void cutter_add(cutter *c, size_t start, size_t end, bool is_match) {
    if (start == end) return;
    is_match ^= c->step->invert;
    if (c->step->how == CUT_REMOVED && is_match) {
        cutter_flush(c);
        return;
    }
    if (!joins(c, is_match)) {
        cutter_flush(c);
        c->open = true;
        c->start = start;
    }
    c->end = end;
    c->last_match = is_match;
}

static void split_class(cutter *c, const char *text, um_piece piece) {
    size_t end = piece.off + piece.len, done = piece.off;
    int len;
    for (size_t i = piece.off; i < end; i += (size_t)len) {
        if (!c->step->is_match(um_cp_at(text + i, end - i, &len))) continue;
        cutter_add(c, done, i, false);
        done = i + (size_t)len;
        cutter_add(c, i, done, true);
    }
    cutter_add(c, done, end, false);
}

static um_status split_pattern(cutter *c, um_match_state *scan, const char *text, um_piece piece, um_err *err) {
    um_str s = {text + piece.off, piece.len};
    size_t done = 0, start, end;
    for (;;) {
        bool found;
        um_status st = um_pattern_next(&c->step->pattern, scan, s, done, &start, &end, &found, err);
        if (st) return st;
        if (!found) break;
        cutter_add(c, piece.off + done, piece.off + start, false);
        cutter_add(c, piece.off + start, piece.off + end, true);
        done = end;
    }
    cutter_add(c, piece.off + done, piece.off + piece.len, false);
    return UM_OK;
}

/* Splits by a known expression. Its matches leave no text between them, so each match is a piece. */
static void split_known(const um_pretok_step *step, um_pieces *p, um_piece piece) {
    um_str s = {p->text + piece.off, piece.len};
    for (size_t at = 0, end; at < s.n; at = end) {
        end = um_known_end(step->pattern.known, s, at);
        um_pieces_push(p, piece.off + at, end - at);
    }
}

static um_status run_split(const um_pretok_step *step, um_match_state *scan, um_pieces *p, um_err *err) {
    size_t n;
    const um_piece *source = um_pieces_swap(p, &n);
    for (size_t i = 0; i < n; i++) {
        cutter c = {.out = p, .step = step};
        um_status st = UM_OK;
        if (step->is_match) split_class(&c, p->text, source[i]);
        else if (step->pattern.known && step->how == CUT_ISOLATED) split_known(step, p, source[i]);
        else st = split_pattern(&c, scan, p->text, source[i], err);
        if (st) return st;
        cutter_flush(&c);
    }
    return UM_OK;
}

static void run_prefix(um_pieces *p) {
    size_t n;
    um_buf *out = um_pieces_other(p);
    const um_piece *source = um_pieces_swap(p, &n);
    for (size_t i = 0; i < n; i++) {
        const char *s = p->text + source[i].off;
        size_t at = out->len;
        if (*s != ' ') um_buf_putc(out, ' ');
        um_buf_append(out, s, source[i].len);
        um_pieces_push(p, at, out->len - at);
    }
    p->text = out->data;
}

static void run_meta(const um_pretok_step *step, um_pieces *p, bool at_start) {
    size_t n;
    um_buf *out = um_pieces_other(p);
    const um_piece *source = um_pieces_swap(p, &n);
    for (size_t i = 0; i < n; i++) {
        um_str s = {p->text + source[i].off, source[i].len};
        bool has = *s.p == ' ' || (s.n >= step->meta.n && memcmp(s.p, step->meta.p, step->meta.n) == 0);
        bool first = at_start && i == 0 && source[i].off == 0;
        size_t at = out->len;
        if (!has && (step->meta_always || (step->meta_first && first))) um_buf_append(out, step->meta.p, step->meta.n);
        for (size_t k = 0; k < s.n; k++) {
            if (s.p[k] == ' ') um_buf_append(out, step->meta.p, step->meta.n);
            else um_buf_putc(out, s.p[k]);
        }
        um_pieces_push(p, at, out->len - at);
    }
    p->text = out->data;
}

um_status um_pretok_run(const um_pretok *t, um_match_state *scan, um_str s, bool at_start, um_pieces *p, um_err *err) {
    p->text = s.p;
    p->n = 0;
    if (s.n) um_pieces_push(p, 0, s.n);
    for (size_t i = 0; i < t->n; i++) {
        const um_pretok_step *step = &t->step[i];
        um_status st = UM_OK;
        if (step->kind == STEP_SPLIT) st = run_split(step, scan, p, err);
        else if (step->kind == STEP_PREFIX) run_prefix(p);
        else run_meta(step, p, at_start);
        if (st) return st;
    }
    return UM_OK;
}
