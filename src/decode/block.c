/* The block buffer. */
#include "decode/decode.h"

const char *um_block_status_name(um_block_status s) {
    static const char *const name[] = {"DUMMY", "ACTIVE", "TO_CACHE", "IN_CACHE"};
    return name[s];
}

um_status um_req_resolve_block_size(um_req *r, int32_t otherwise, um_err *err) {
    um_decoding *d = &r->how;
    if (d->block_size == 0) d->block_size = otherwise;
    if (d->block_size <= UM_BLOCK_MAX) return UM_OK;
    return um_fail_param(err, UM_ERANGE, "block_size", "%d is outside 1..%d", d->block_size, UM_BLOCK_MAX);
}

static um_block dummy_block(const um_buffer *b, int32_t id, um_block_type type) {
    int32_t start = b->anchor + id * b->block_len;
    return (um_block){.id = id,
                      .start = start,
                      .len = b->block_len,
                      .n_masks = UM_MAX(0, UM_MIN(b->block_len, b->limit - start)),
                      .status = UM_BLOCK_DUMMY,
                      .type = type};
}

void um_buffer_init(um_buffer *b, int32_t n, int32_t block_len, int32_t anchor, int32_t limit, int32_t n_prompt) {
    assert(n >= 1 && n <= UM_BUFFER_MAX && block_len >= 1 && block_len <= UM_BLOCK_MAX && anchor <= n_prompt);
    *b = (um_buffer){.n = n, .block_len = block_len, .anchor = anchor, .limit = limit};
    int32_t first = (n_prompt - anchor) / block_len, tail = (n_prompt - anchor) % block_len;
    for (int32_t i = 0; i < n; i++) b->block[i] = dummy_block(b, first + i, UM_BLOCK_IN_CONTEXT);
    if (tail == 0) return;
    um_buffer_grow(b);
    b->block[0].editable_start = tail;
    b->block[0].n_masks -= tail;
}

void um_buffer_grow(um_buffer *b) {
    assert(b->run < b->n && b->block[b->run].status == UM_BLOCK_DUMMY);
    b->block[b->run++].status = UM_BLOCK_ACTIVE;
}

void um_buffer_shift(um_buffer *b, bool out) {
    assert(b->run > 0 && b->block[0].status == UM_BLOCK_IN_CACHE);
    int32_t id = b->block[b->n - 1].id + 1;
    memmove(&b->block[0], &b->block[1], (size_t)(b->n - 1) * sizeof(b->block[0]));
    b->block[b->n - 1] = dummy_block(b, id, out ? UM_BLOCK_OUT_OF_CONTEXT : UM_BLOCK_IN_CONTEXT);
    b->run--;
}

bool um_buffer_complete(const um_buffer *b) {
    for (int32_t i = 0; i < b->run; i++)
        if (b->block[i].n_masks > 0) return false;
    return true;
}

int32_t um_buffer_first_active(const um_buffer *b) {
    int32_t i = 0;
    while (i < b->run && b->block[i].status != UM_BLOCK_ACTIVE) i++;
    return i;
}
