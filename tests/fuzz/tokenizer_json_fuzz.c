/* Fuzzes tokenizer.json. A tokenizer that loads must encode and decode any text without a crash. Ids decoded as a
 * stream must give the same text as ids decoded as a whole. */
#include <stdlib.h>

#include "text/tok.h"

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    abort();
}

/* Only with byte fallback may the stream differ, because the stream does not wait for the end of a run of bytes. */
static void check_stream(const um_tok *t, const um_ids *ids, const um_buf *whole) {
    um_stream s;
    um_buf out = {0};
    um_stream_init(&s, t, false);
    for (size_t i = 0; i < ids->n; i++) {
        um_stream_push(&s, ids->data[i], &out);
        if (um_utf8_check(out.data ? out.data : "", out.len) < out.len) fail("a stream emits half a character");
    }
    um_stream_flush(&s, &out);
    bool same = out.len == whole->len && (out.len == 0 || memcmp(out.data, whole->data, out.len) == 0);
    bool waits = um_decoder_byte(&t->dec, UM_STR("<0x41>")) >= 0;
    if (!same && !waits) fail("a stream differs from the whole");
    um_buf_free(&out);
}

static void try_text(const um_tok *t, um_str text) {
    static const um_parse levels[] = {UM_PARSE_NONE, UM_PARSE_NOT_SPECIAL, UM_PARSE_ALL};
    um_err err;
    for (size_t i = 0; i < UM_LEN(levels); i++) {
        um_ids ids = {0};
        um_buf out = {0};
        if (um_tok_encode_guarded(t, text, levels[i], i == 2, i == 1 ? 0xFDD0 : 0, &ids, &err) == UM_OK) {
            for (size_t k = 0; k < ids.n; k++)
                if (levels[i] == UM_PARSE_NONE && k < ids.n && ids.data[k] < 0) fail("a negative id");
            um_tok_decode(t, ids.data, ids.n, false, &out);
            check_stream(t, &ids, &out);
        }
        um_ids_free(&ids);
        um_buf_free(&out);
    }
}

static void try_every_id(const um_tok *t) {
    um_ids ids = {0};
    um_buf out = {0};
    for (int32_t id = -1; id <= um_tok_size(t) && id < 1000; id++) um_ids_push(&ids, id);
    um_tok_decode(t, ids.data, ids.n, false, &out);
    check_stream(t, &ids, &out);
    um_ids_free(&ids);
    um_buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    um_tok *t;
    um_err err;
    um_log_set_level(UM_LOG_ERROR);
    um_str json = {(const char *)data, size};
    if (um_tok_parse(&t, json, (um_str){NULL, 0}, (um_str){NULL, 0}, "fuzz", &err)) return 0;
    if (um_tok_parse(&(um_tok *){NULL}, (um_str){"", 0}, json, (um_str){NULL, 0}, "fuzz", &err) == UM_OK)
        fail("an empty file is a tokenizer");
    size_t good = um_utf8_check(json.p, UM_MIN(json.n, 300));
    try_text(t, (um_str){json.p, good});
    try_text(t,
             UM_STR("Hello, world!  it's 123\n\n caf\xC3\xA9 e\xCC\x81 \xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x91\x8D "
                    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
    try_every_id(t);
    um_tok_close(t);
    return 0;
}
