/* Reads tokenizer.model, a SentencePiece model. It is a protobuf message, of which a few fields are needed. Only BPE
 * models are supported. Their merges are derived from the pieces and their scores. */
#include <math.h>

#include "text/tok.h"

/* ---- Protobuf ---------------------------------------------------------------------------------------------------- */

typedef struct proto {
    const uint8_t *p, *end;
} proto;

typedef struct field {
    uint32_t number;
    uint64_t value; /* of varints and fixed numbers */
    proto bytes;    /* of strings and messages */
} field;

static bool read_varint(proto *m, uint64_t *out) {
    *out = 0;
    for (int shift = 0; shift < 64 && m->p < m->end; shift += 7) {
        uint8_t b = *m->p++;
        *out |= (uint64_t)(b & 0x7F) << shift;
        if (!(b & 0x80)) return true;
    }
    return false;
}

static bool read_fixed(proto *m, size_t n, uint64_t *out) {
    if ((size_t)(m->end - m->p) < n) return false;
    *out = 0;
    for (size_t i = 0; i < n; i++) *out |= (uint64_t)m->p[i] << (8 * i);
    m->p += n;
    return true;
}

/* Reads the next field. Returns false at the end of the message and, with m->p < m->end, at an invalid field. */
static bool read_field(proto *m, field *f) {
    uint64_t tag, n;
    proto at = *m;
    *f = (field){0};
    if (m->p == m->end || !read_varint(&at, &tag)) return false;
    bool ok;
    f->number = (uint32_t)(tag >> 3);
    switch (tag & 7) {
    case 0: ok = read_varint(&at, &f->value); break;
    case 1: ok = read_fixed(&at, 8, &f->value); break;
    case 5: ok = read_fixed(&at, 4, &f->value); break;
    case 2:
        ok = read_varint(&at, &n) && n <= (uint64_t)(at.end - at.p);
        if (ok) f->bytes = (proto){at.p, at.p + n};
        if (ok) at.p += n;
        break;
    default: ok = false; break;
    }
    if (ok) *m = at;
    return ok;
}

/* ---- Pieces ------------------------------------------------------------------------------------------------------ */

enum { PIECE_NORMAL = 1, PIECE_UNKNOWN, PIECE_CONTROL, PIECE_USER, PIECE_UNUSED, PIECE_BYTE };

typedef struct piece {
    um_str text;
    float score;
    uint64_t type;
} piece;

static um_status fail_at(const um_parts *p, const proto *m, um_err *err) {
    const uint8_t *start = (const uint8_t *)p->files->text[UM_FILE_SPM].p;
    return um_fail(err, UM_EPARSE, "%s: byte %zu: not a field of a SentencePiece model", p->path,
                   (size_t)(m->p - start));
}

static um_status read_piece(const um_parts *p, proto m, piece *out, um_err *err) {
    field f;
    *out = (piece){.text = {"", 0}, .type = PIECE_NORMAL};
    while (read_field(&m, &f)) {
        uint32_t bits = (uint32_t)f.value;
        if (f.number == 1 && f.bytes.p)
            out->text = (um_str){(const char *)f.bytes.p, (size_t)(f.bytes.end - f.bytes.p)};
        else if (f.number == 2) memcpy(&out->score, &bits, sizeof bits);
        else if (f.number == 3) out->type = f.value;
    }
    if (m.p < m.end) return fail_at(p, &m, err);
    size_t good = um_utf8_check(out->text.p, out->text.n);
    if (good < out->text.n)
        return um_fail(err, UM_EPARSE, "%s: a piece is not valid UTF-8, from its byte %zu on", p->path, good);
    return UM_OK;
}

/* Calls `each` for every piece. The id of a piece is its index. */
static um_status each_piece(const um_parts *p, um_status (*each)(void *, const piece *, int32_t, um_err *), void *arg,
                            um_err *err) {
    um_str text = p->files->text[UM_FILE_SPM];
    proto m = {(const uint8_t *)text.p, (const uint8_t *)text.p + text.n};
    field f;
    int32_t id = 0;
    while (read_field(&m, &f)) {
        piece piece;
        if (f.number != 1 || !f.bytes.p) continue;
        if (id >= UM_TOK_ID_MAX) return um_fail(err, UM_ELIMIT, "%s: more than %d pieces", p->path, UM_TOK_ID_MAX);
        um_status st = read_piece(p, f.bytes, &piece, err);
        if (!st) st = each(arg, &piece, id++, err);
        if (st) return st;
    }
    return m.p < m.end ? fail_at(p, &m, err) : UM_OK;
}

typedef struct vocab_reader {
    const um_parts *p;
    um_vocab *v;
} vocab_reader;

static um_status add_piece(void *arg, const piece *x, int32_t id, um_err *err) {
    const vocab_reader *r = (const vocab_reader *)arg;
    int32_t other = um_vocab_find(r->v, x->text);
    if (other >= 0)
        return um_fail(err, UM_EPARSE, "%s: pieces %d and %d are both \"%.*s\"", r->p->path, other, id,
                       (int)UM_MIN(x->text.n, 60), x->text.p);
    return um_vocab_add(r->v, x->text, id, r->p->path, err);
}

static um_status read_vocab(const um_parts *p, um_vocab *v, um_arena *a, um_err *err) {
    vocab_reader r = {p, v};
    um_vocab_init(v, a);
    return each_piece(p, add_piece, &r, err);
}

static um_status note_score(void *score, const piece *x, int32_t id, um_err *err) {
    (void)err;
    ((float *)score)[id] = x->type == PIECE_NORMAL ? x->score : NAN;
    return UM_OK;
}

static um_status read_merges(const um_parts *p, um_merging *m) {
    float *score = UM_NEW_ARRAY(float, (size_t)m->v->size + 1);
    um_status st = each_piece(p, note_score, score, m->err);
    if (!st) st = um_merging_imply(m, score, p->path);
    um_free(score);
    return st;
}

/* ---- Stages ------------------------------------------------------------------------------------------------------ */

/* The fields of trainer_spec and normalizer_spec, initialized to their defaults. */
typedef struct spec {
    uint64_t model_type;
    bool byte_fallback, dummy_prefix, remove_spaces, escape_spaces, has_charsmap;
    um_str name;
    int64_t special[3]; /* bos, eos, pad: ids, or -1 */
} spec;

static um_status read_trainer(const um_parts *p, proto m, spec *s, um_err *err) {
    field f;
    while (read_field(&m, &f)) {
        if (f.number == 3) s->model_type = f.value;
        else if (f.number == 35) s->byte_fallback = f.value;
        else if (f.number >= 41 && f.number <= 43) s->special[f.number - 41] = (int32_t)f.value;
    }
    return m.p < m.end ? fail_at(p, &m, err) : UM_OK;
}

static um_status read_normalizer(const um_parts *p, proto m, spec *s, um_err *err) {
    field f;
    while (read_field(&m, &f)) {
        if (f.number == 1 && f.bytes.p) s->name = (um_str){(const char *)f.bytes.p, (size_t)(f.bytes.end - f.bytes.p)};
        else if (f.number == 2) s->has_charsmap = f.bytes.p < f.bytes.end;
        else if (f.number == 3) s->dummy_prefix = f.value;
        else if (f.number == 4) s->remove_spaces = f.value;
        else if (f.number == 5) s->escape_spaces = f.value;
    }
    return m.p < m.end ? fail_at(p, &m, err) : UM_OK;
}

static um_status read_spec(const um_parts *p, spec *s, um_err *err) {
    um_str text = p->files->text[UM_FILE_SPM];
    proto m = {(const uint8_t *)text.p, (const uint8_t *)text.p + text.n};
    field f;
    *s = (spec){
        .model_type = 1, .dummy_prefix = true, .remove_spaces = true, .escape_spaces = true, .special = {1, 2, -1}};
    while (read_field(&m, &f)) {
        um_status st = UM_OK;
        if (f.number == 2 && f.bytes.p) st = read_trainer(p, f.bytes, s, err);
        if (f.number == 3 && f.bytes.p) st = read_normalizer(p, f.bytes, s, err);
        if (st) return st;
    }
    if (m.p < m.end) return fail_at(p, &m, err);
    if (s->model_type != 2)
        return um_fail(err, UM_EUNSUPPORTED, "%s: trainer_spec.model_type is %llu; only 2 (BPE) is supported", p->path,
                       (unsigned long long)s->model_type);
    if (s->has_charsmap && !um_str_eq(s->name, UM_STR("identity")))
        return um_fail(err, UM_EUNSUPPORTED,
                       "%s: the normalizer \"%.*s\" maps characters by a table, which is not supported", p->path,
                       (int)UM_MIN(s->name.n, 60), s->name.p);
    return UM_OK;
}

static json_t *replace(const char *kind, const char *from, const char *to) {
    return json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", kind, from, "content", to);
}

static json_t *normalizer_of(const spec *s) {
    json_t *list = json_array();
    if (s->remove_spaces) {
        json_array_append_new(list, replace("Regex", "\\A +| +\\z", ""));
        json_array_append_new(list, replace("Regex", " +", " "));
    }
    const char *space = s->escape_spaces ? "\xE2\x96\x81" : " "; /* U+2581 */
    if (s->dummy_prefix) json_array_append_new(list, json_pack("{s:s, s:s}", "type", "Prepend", "prepend", space));
    if (s->escape_spaces) json_array_append_new(list, replace("String", " ", space));
    return json_pack("{s:s, s:o}", "type", "Sequence", "normalizers", list);
}

static json_t *decoder_of(const spec *s) {
    json_t *list =
        json_pack("[o, {s:s}, {s:s}]", replace("String", "\xE2\x96\x81", " "), "type", "ByteFallback", "type", "Fuse");
    if (s->dummy_prefix)
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip", "content", " ", "start", 1, "stop", 0));
    return json_pack("{s:s, s:o}", "type", "Sequence", "decoders", list);
}

typedef struct stage_maker {
    const spec *s;
    json_t *added, *model, *named;
} stage_maker;

/* Adds a piece to the stages. Control pieces become special tokens and user-defined pieces become added tokens. The
 * unknown piece and the control pieces with a role in trainer_spec become named special tokens. */
static um_status note_piece(void *arg, const piece *x, int32_t id, um_err *err) {
    static const char *const names[] = {"bos_token", "eos_token", "pad_token"};
    stage_maker *m = (stage_maker *)arg;
    (void)err;
    if (x->type == PIECE_UNKNOWN) {
        json_object_set_new(m->model, "unk_token", json_stringn(x->text.p, x->text.n));
        json_object_set_new(m->named, "unk_token", json_stringn(x->text.p, x->text.n));
    }
    for (size_t i = 0; i < UM_LEN(names); i++)
        if (m->s->special[i] == id && x->type == PIECE_CONTROL)
            json_object_set_new(m->named, names[i], json_stringn(x->text.p, x->text.n));
    if (x->type != PIECE_CONTROL && x->type != PIECE_USER) return UM_OK;
    json_t *entry = json_pack("{s:i, s:b, s:b}", "id", (int)id, "special", x->type == PIECE_CONTROL, "normalized", 0);
    json_object_set_new(entry, "content", json_stringn(x->text.p, x->text.n));
    json_array_append_new(m->added, entry);
    return UM_OK;
}

um_status um_format_spm(um_parts *p, um_err *err) {
    p->path = p->files->path[UM_FILE_SPM];
    p->read_vocab = read_vocab;
    p->read_merges = read_merges;
    spec s;
    um_status st = read_spec(p, &s, err);
    if (st) return st;
    stage_maker m = {&s, json_array(), NULL, json_object()};
    m.model = json_pack("{s:s, s:b, s:b}", "type", "BPE", "fuse_unk", 1, "byte_fallback", s.byte_fallback);
    p->named = m.named;
    p->stages = json_pack("{s:s, s:o, s:o, s:o, s:o}", "version", "1.0", "model", m.model, "normalizer",
                          normalizer_of(&s), "decoder", decoder_of(&s), "added_tokens", m.added);
    return each_piece(p, note_piece, &m, err);
}
