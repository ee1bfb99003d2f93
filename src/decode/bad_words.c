/* Sequences of ids that an answer never has. An answer is not written from left to right, so each id of a sequence can
 * be the one that completes it: a row is banned from every id that would complete a sequence with the tokens that are
 * written around it. The tokens of one pass are checked again when they are written, because two of them can complete a
 * sequence together. The first token that a pass writes never does, so every pass makes progress. */
#include "decode/decode.h"

/* Returns whether the written tokens from `first` on are the n ids, except the token at `pos`, which is not compared.
 */
static bool has_others(const um_req *r, const int32_t *id, int32_t n, int32_t first, int32_t pos) {
    if (first < r->n_prompt || first + n > r->cap - r->n_suffix) return false;
    for (int32_t i = 0; i < n; i++)
        if (first + i != pos && (um_req_masked(r, first + i) || r->token[first + i] != id[i])) return false;
    return true;
}

int32_t um_req_bad_edits_max(const um_req *r) { return r->n_bad ? r->bad_end[r->n_bad - 1] : 0; }

int32_t um_req_list_bad(const um_req *r, int32_t pos, um_edit *out) {
    int32_t n = 0;
    for (int32_t s = 0, from = 0; s < r->n_bad; from = r->bad_end[s++])
        for (int32_t i = from; i < r->bad_end[s]; i++)
            if (has_others(r, r->bad + from, r->bad_end[s] - from, pos - (i - from), pos))
                out[n++] = (um_edit){.id = r->bad[i], .ban = true};
    return n;
}

bool um_req_is_bad(const um_req *r, int32_t pos, int32_t id) {
    for (int32_t s = 0, from = 0; s < r->n_bad; from = r->bad_end[s++])
        for (int32_t i = from; i < r->bad_end[s]; i++)
            if (r->bad[i] == id && has_others(r, r->bad + from, r->bad_end[s] - from, pos - (i - from), pos))
                return true;
    return false;
}
