/* multipart: the parts of a multipart/form-data body (RFC 7578), as uploads are sent. Pure; every part borrows from the
 * body. A body is input: what is not as the RFC says is refused with the byte where it is not. */
#ifndef UM_MULTIPART_H
#define UM_MULTIPART_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UM_PARTS_MAX     32
#define UM_PART_HEAD_MAX ((size_t)8192) /* bytes of a part's headers */

typedef struct um_part {
    char name[128], filename[256]; /* filename "": it has none */
    um_str data;
} um_part;

typedef struct um_multipart {
    um_str body;
    size_t at;         /* behind the boundary of the next part */
    char boundary[75]; /* "\r\n--" and the one of the content type */
    size_t n_boundary;
    int n_parts;
    bool ended;
} um_multipart;

/* UM_EINVAL when the content type is another one or names no boundary, UM_EPARSE when the body does not begin with it.
 */
um_status um_multipart_open(um_multipart *m, const char *content_type, um_str body, um_err *err);
/* The next part; *more is false behind the last one. UM_EPARSE, UM_ELIMIT. */
um_status um_multipart_next(um_multipart *m, um_part *out, bool *more, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
