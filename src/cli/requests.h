/* requests: one line of a request file to one um_request. Needs no engine and no model, so it can be fuzzed alone. */
#ifndef UM_CLI_REQUESTS_H
#define UM_CLI_REQUESTS_H

#include "server/body.h"

typedef struct um_request_line {
    um_buf id;              /* the id as JSON ("\"a\"", "7"); len 0 while the line has none that can be used */
    um_request request;     /* its strings and arrays belong to the body */
    um_body body;           /* as read by the tables that the server has, too */
    bool step_map, timings; /* what the result says beside the answer */
} um_request_line;

/* Parses a line into q, which is zero or was parsed before. Parameters that the line does not name are those of
 * `defaults`; step_map and timings are left as they are. Messages, tools and template variables are looked at when they
 * are rendered. Errors: UM_EPARSE, UM_EINVAL, UM_ERANGE; q->id is set when the line has a usable one all the same. */
um_status um_request_line_parse(um_request_line *q, um_str line, const um_request *defaults, um_err *err);
void um_request_line_free(um_request_line *q);

/* The text of a JSON file for a um_chat_request; out->data is "" for an empty one. UM_ENOENT, UM_EIO, UM_ELIMIT,
 * UM_EPARSE. */
um_status um_chat_file(const char *path, um_buf *out, um_err *err);

/* Parses any line of JSON that must be an object; *root is released with json_decref. */
um_status um_line_object(struct json_t **root, um_str line, um_err *err);
/* Writes the "id" of an object as JSON to out (cleared first). UM_EINVAL when there is none, or neither a string nor an
 * integer. */
um_status um_line_id(const struct json_t *root, um_buf *out, um_err *err);
/* Strings of an object that must be there, without U+0000; borrowed. */
um_status um_line_text(const struct json_t *root, const char *key, const char **out, um_err *err);

#endif
