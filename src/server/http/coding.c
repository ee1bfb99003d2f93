/* Decodes request bodies. A few bytes can stand for millions, so that the size of the result is checked before each
 * piece is decoded. */
#include "server/http/coding.h"

#include <strings.h>

#ifdef UM_ZLIB
#include <zlib.h>
#endif
#ifdef UM_ZSTD
#include <zstd.h>
#endif

/* Bytes that are decoded at once. */
#define PIECE_BYTES ((size_t)64 << 10)

um_coding um_coding_of(const char *header) {
    if (!header || !*header || strcasecmp(header, "identity") == 0) return UM_CODING_NONE;
#ifdef UM_ZLIB
    if (strcasecmp(header, "gzip") == 0 || strcasecmp(header, "x-gzip") == 0) return UM_CODING_GZIP;
#endif
#ifdef UM_ZSTD
    if (strcasecmp(header, "zstd") == 0) return UM_CODING_ZSTD;
#endif
    return UM_CODING_UNKNOWN;
}

const char *um_coding_names(void) {
#if defined UM_ZLIB && defined UM_ZSTD
    return "gzip, zstd";
#elif defined UM_ZLIB
    return "gzip";
#elif defined UM_ZSTD
    return "zstd";
#else
    return "identity";
#endif
}

#if defined UM_ZLIB || defined UM_ZSTD
/* Checks the size so far, and reserves space for the next piece. Its last byte lies one behind the limit, so that a
 * text of exactly the limit can end. *room receives the number of bytes. */
static um_status make_room(um_buf *out, size_t begin, size_t coded, um_coding_limits limits, size_t *room,
                           um_err *err) {
    size_t n = out->len - begin, by_ratio = 0;
    if (!um_mul_ok(coded, limits.ratio, &by_ratio)) by_ratio = SIZE_MAX;
    by_ratio = UM_MAX(by_ratio, UM_CODING_RATIO_FREE);
    if (n > limits.bytes) return um_fail(err, UM_ELIMIT, "the decoded body is larger than %zu bytes", limits.bytes);
    if (n > by_ratio)
        return um_fail(err, UM_ELIMIT,
                       "the decoded body is larger than %zu times its %zu coded bytes (--max-body-ratio)", limits.ratio,
                       coded);
    *room = UM_MIN(PIECE_BYTES, UM_MIN(limits.bytes, by_ratio) - n + 1);
    um_buf_reserve(out, *room);
    return UM_OK;
}

static um_status fail_damaged(const char *coding, const char *why, um_err *err) {
    return um_fail(err, UM_EPARSE, "the body is not valid %s: %s", coding, why);
}
#endif

/* ---- gzip -------------------------------------------------------------------------------------------------------- */

#ifdef UM_ZLIB
#define GZIP_ONLY (15 + 16) /* the largest window, and a header of gzip */

/* Decodes the members of a gzip file: most have one, and others may follow. */
static um_status inflate_all(z_stream *z, um_buf *out, um_coding_limits limits, um_err *err) {
    const size_t begin = out->len, coded = z->avail_in;
    int code = Z_OK;
    for (;;) {
        size_t room;
        um_status st = make_room(out, begin, coded, limits, &room, err);
        if (st || (code == Z_STREAM_END && !z->avail_in)) return st;
        if (code == Z_STREAM_END && inflateReset(z) != Z_OK) return um_fail(err, UM_ENOMEM, "zlib: no memory");
        z->next_out = (Bytef *)out->data + out->len;
        z->avail_out = (uInt)room;
        code = inflate(z, Z_NO_FLUSH);
        out->len += room - z->avail_out;
        out->data[out->len] = '\0';
        if (code == Z_MEM_ERROR) return um_fail(err, UM_ENOMEM, "zlib: no memory");
        if (code == Z_BUF_ERROR || (code == Z_OK && !z->avail_in && z->avail_out))
            return fail_damaged("gzip", "it ends too soon", err);
        if (code != Z_OK && code != Z_STREAM_END) return fail_damaged("gzip", z->msg ? z->msg : "wrong data", err);
    }
}

static um_status decode_gzip(um_str in, um_coding_limits limits, um_buf *out, um_err *err) {
    z_stream z = {.next_in = (Bytef *)(uintptr_t)in.p, .avail_in = (uInt)in.n};
    if (in.n > UINT32_MAX)
        return um_fail(err, UM_ELIMIT, "a gzip body has at most 4 GiB, this one has %zu bytes", in.n);
    if (inflateInit2(&z, GZIP_ONLY) != Z_OK) return um_fail(err, UM_ENOMEM, "zlib: no memory");
    um_status st = inflate_all(&z, out, limits, err);
    inflateEnd(&z);
    return st;
}
#endif

/* ---- zstd -------------------------------------------------------------------------------------------------------- */

#ifdef UM_ZSTD
#define WINDOW_LOG_MAX 23 /* 8 MiB: the largest window of the content coding (RFC 9659) */

static um_status decode_frames(ZSTD_DCtx *z, um_str in, um_coding_limits limits, um_buf *out, um_err *err) {
    ZSTD_inBuffer from = {in.p, in.n, 0};
    const size_t begin = out->len;
    size_t left = 1; /* 0 at the end of a frame */
    for (;;) {
        size_t room;
        um_status st = make_room(out, begin, in.n, limits, &room, err);
        if (st || (left == 0 && from.pos == from.size)) return st;
        ZSTD_outBuffer to = {out->data + out->len, room, 0};
        left = ZSTD_decompressStream(z, &to, &from);
        if (ZSTD_isError(left)) return fail_damaged("zstd", ZSTD_getErrorName(left), err);
        out->len += to.pos;
        out->data[out->len] = '\0';
        if (left && from.pos == from.size && to.pos < room) return fail_damaged("zstd", "it ends too soon", err);
    }
}

static um_status decode_zstd(um_str in, um_coding_limits limits, um_buf *out, um_err *err) {
    ZSTD_DCtx *z = ZSTD_createDCtx();
    if (!z || ZSTD_isError(ZSTD_DCtx_setParameter(z, ZSTD_d_windowLogMax, WINDOW_LOG_MAX))) {
        ZSTD_freeDCtx(z);
        return um_fail(err, UM_ENOMEM, "zstd: no memory");
    }
    um_status st = decode_frames(z, in, limits, out, err);
    ZSTD_freeDCtx(z);
    return st;
}
#endif

um_status um_coding_decode(um_coding c, um_str in, um_coding_limits limits, um_buf *out, um_err *err) {
    switch (c) {
    case UM_CODING_NONE: um_buf_append(out, in.p, in.n); return UM_OK;
#ifdef UM_ZLIB
    case UM_CODING_GZIP: return decode_gzip(in, limits, out, err);
#endif
#ifdef UM_ZSTD
    case UM_CODING_ZSTD: return decode_zstd(in, limits, out, err);
#endif
    default: (void)limits; return um_fail(err, UM_EUNSUPPORTED, "unsupported Content-Encoding");
    }
}
