/* Fuzzes the messages from rank 0 to ranks in other processes. A message gives an error with words, or a batch whose
 * tokens, spans and rows are within the sizes of passes. Each message is read as one with whole rows, too. */
#include <stdlib.h>

#include "ops/ranks/group.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool claim) {
    if (!claim) abort();
}

static void read_message(const uint8_t *data, size_t size, bool whole) {
    const um_network net = {.vocab = 100, .n_adapters = 2};
    const um_forward_config c = {.max_tokens = 16,
                                 .max_rows = 8,
                                 .max_spans = 4,
                                 .n_saved = 3,
                                 .n_blends = 5,
                                 .page_size = 4,
                                 .n_pages = 10,
                                 .n_scratch_pages = 2};
    um_remote *m = um_remote_new(NULL, &net, &c, false, whole);
    char *aligned = (char *)um_alloc(size + 1);
    const um_batch *b;
    um_err err = {0};
    memcpy(aligned, data, size);
    if (um_remote_batch(m, (um_str){aligned, size}, &b, &err)) {
        require(err.code < 0 && err.msg[0]);
    } else {
        int32_t n = 0;
        for (int32_t t = 0; t < b->n_tokens; t++) require(b->id[t] >= 0 && b->id[t] < net.vocab);
        for (int32_t i = 0; i < b->n_spans; n += b->span[i++].n) {
            const um_span *s = &b->span[i];
            require(s->first == n && s->n > 0 && s->adapter >= -1 && s->adapter < net.n_adapters);
            require(s->blend == 0 || (s->blend > 0 && s->blend - 1 + s->n <= c.n_blends));
        }
        require(n == b->n_tokens);
        for (int32_t i = 0; i < b->n_rows; i++) {
            const um_row *r = &b->row[i];
            require(r->src[0] >= -3 && r->src[0] < b->n_tokens && r->n_top >= 0 && r->n_top <= UM_TOP_MAX);
            for (int32_t k = 0; k < r->n_edit; k++) require(r->edit[k].id >= 0 && r->edit[k].id < net.vocab);
            for (int32_t k = 0; k < r->n_own; k++) require(r->own[k].id >= 0 && r->own[k].id < net.vocab);
        }
    }
    um_free(aligned);
    um_remote_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    read_message(data, size, false);
    read_message(data, size, true);
    return 0;
}
