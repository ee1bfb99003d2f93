/* Fuzzes compressed request bodies. The first byte of the input chooses the coding and the limits, the rest is the
 * body. A text is never larger than its limits allow, and decoding twice gives the same text. */
#include <stdlib.h>

#include "server/http/coding.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool claim) {
    if (!claim) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    const um_coding coding = data[0] & 1 ? UM_CODING_ZSTD : UM_CODING_GZIP;
    const um_coding_limits limits = {(size_t)1 << (data[0] >> 3), data[0] & 2 ? 10 : 200};
    const um_str body = {(const char *)data + 1, size - 1};
    um_buf text = {0}, again = {0};
    um_err err = {.code = UM_OK};
    um_status st = um_coding_decode(coding, body, limits, &text, &err);
    require(text.len <= limits.bytes + 1);
    require(text.len <= UM_MAX(body.n * limits.ratio, UM_CODING_RATIO_FREE) + 1);
    if (st) require(err.code == st && err.msg[0]);
    else require(text.len <= limits.bytes);
    require(um_coding_decode(coding, body, limits, &again, NULL) == st);
    require(again.len == text.len && (!text.len || memcmp(again.data, text.data, text.len) == 0));
    um_buf_free(&text);
    um_buf_free(&again);
    return 0;
}
