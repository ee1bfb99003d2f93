/* coding: content codings of request bodies (Content-Encoding). gzip needs zlib and zstd needs libzstd; the program can
 * be built without either. Any thread. */
#ifndef UM_HTTP_CODING_H
#define UM_HTTP_CODING_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { UM_CODING_NONE, UM_CODING_GZIP, UM_CODING_ZSTD, UM_CODING_UNKNOWN } um_coding;

/* Reads the value of Content-Encoding; NULL: the header is missing. UNKNOWN: several codings, one that this build
 * lacks, or another one. */
um_coding um_coding_of(const char *header);
/* Returns the codings of this build, "gzip, zstd"; "identity" if there are none. */
const char *um_coding_names(void);

/* Limits of a decoded body. A body of up to UM_CODING_RATIO_FREE bytes may have any ratio. */
#define UM_CODING_RATIO_FREE ((size_t)64 << 10)
typedef struct um_coding_limits {
    size_t bytes; /* largest decoded size */
    size_t ratio; /* largest decoded size, as a multiple of the coded size */
} um_coding_limits;
/* Appends the decoded text to `out`. Memory grows with the decoded bytes, up to the limits. Errors: UM_EPARSE for data
 * that are damaged or end too soon, UM_ELIMIT for a text beyond the limits, UM_ENOMEM. */
um_status um_coding_decode(um_coding c, um_str in, um_coding_limits limits, um_buf *out, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
