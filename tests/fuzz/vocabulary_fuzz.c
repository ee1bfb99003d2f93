/* Fuzzes the vocabulary files of slow tokenizers, and the side files. A tokenizer that loads must encode and decode.
 * The input is a list of files. Each begins with a byte that chooses one of UM_N_FILES and two bytes with the length of
 * the text that follows. */
#include <stdlib.h>

#include "text/tok.h"

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    abort();
}

static void try_text(const um_tok *t, um_str text) {
    um_ids ids = {0};
    um_buf out = {0}, joined = {0};
    um_stream s;
    um_err err;
    if (um_tok_encode(t, text, UM_PARSE_ALL, true, &ids, &err) == UM_OK) {
        um_tok_decode(t, ids.data, ids.n, false, &out);
        um_stream_init(&s, t, false);
        for (size_t i = 0; i < ids.n; i++) um_stream_push(&s, ids.data[i], &joined);
        um_stream_flush(&s, &joined);
        bool same = out.len == joined.len && (out.len == 0 || memcmp(out.data, joined.data, out.len) == 0);
        if (!same && um_decoder_byte(&t->dec, UM_STR("<0x41>")) < 0) fail("a stream differs from the whole");
    }
    um_ids_free(&ids);
    um_buf_free(&out);
    um_buf_free(&joined);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    um_tok_files f;
    um_tok *t;
    um_err err;
    um_log_set_level(UM_LOG_ERROR);
    um_tok_files_init(&f, "fuzz");
    while (size >= 3) {
        size_t n = UM_MIN((size_t)(data[1] | data[2] << 8), size - 3);
        f.text[data[0] % UM_N_FILES] = (um_str){(const char *)data + 3, n};
        data += 3 + n;
        size -= 3 + n;
    }
    if (um_tok_build(&t, &f, &err) == UM_OK) {
        try_text(t,
                 UM_STR("Hello, world!  it's 123\n\n caf\xC3\xA9 \xE4\xBD\xA0 \xF0\x9F\x91\x8D aaaaaaaaaaaaaaaa<s>"));
        um_tok_close(t);
    }
    um_tok_files_free(&f);
    return 0;
}
