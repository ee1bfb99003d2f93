/* multipart: a parser of multipart/form-data bodies (RFC 7578), the form in which browsers and curl upload files. Pure.
 * Parts borrow from the body. An invalid body is an error, whose message gives the position. */
#ifndef UM_MULTIPART_H
#define UM_MULTIPART_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UM_PARTS_MAX     32
#define UM_PART_HEAD_MAX ((size_t)8192) /* bytes of a part's headers */

typedef struct um_form_part {
    char name[128], filename[256]; /* filename "": none given */
    um_str data;
} um_form_part;

typedef struct um_multipart {
    um_str body;
    size_t at;         /* position in the body; between calls the end of a boundary */
    char boundary[75]; /* "\r\n--" and the boundary of the content type */
    size_t n_boundary;
    int n_parts;
    bool ended;
} um_multipart;

/* Starts parsing. UM_EINVAL for another content type or one without a boundary, UM_EPARSE if the body does not begin
 * with the boundary. */
um_status um_multipart_open(um_multipart *m, const char *content_type, um_str body, um_err *err);
/* Reads the next part. Sets *more to false if there is none. UM_EPARSE, UM_ELIMIT. */
um_status um_multipart_next(um_multipart *m, um_form_part *out, bool *more, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
