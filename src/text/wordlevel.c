/* The word-level model: each piece is one token, or the unknown token. */
#include "text/tok.h"

um_status um_wordlevel_load(um_wordlevel *w, const um_vocab *v, const json_t *model, bool byte_level, const char *where,
                            um_err *err) {
    const char *unk = NULL;
    *w = (um_wordlevel){.unk_id = -1, .byte_level = byte_level};
    um_status st = um_json_get_str(model, "unk_token", where, &unk, err);
    if (!st && unk) w->unk_id = um_vocab_find(v, um_str_of(unk)); /* if missing, an unknown word is an error */
    return st;
}

um_status um_wordlevel_encode(const um_wordlevel *w, const um_vocab *v, um_buf *scratch, um_str piece, um_ids *out,
                              um_err *err) {
    if (w->byte_level) {
        um_buf_clear(scratch);
        um_byte_chars_encode(piece, scratch);
        piece = (um_str){scratch->data, scratch->len};
    }
    int32_t id = um_vocab_find(v, piece);
    if (id < 0) id = w->unk_id;
    if (id < 0)
        return um_fail(err, UM_EINVAL,
                       "\"%.*s\" is not a word of the vocabulary, and the tokenizer has no unknown token",
                       (int)UM_MIN(piece.n, 60), piece.p);
    um_ids_push(out, id);
    return UM_OK;
}
