/* requests: converts a line of a request file to a um_request. Needs no engine and no model, so it can be fuzzed alone.
 */
#ifndef UM_CLI_REQUESTS_H
#define UM_CLI_REQUESTS_H

#include "server/body/body.h"

typedef struct um_request_line {
    int64_t number;         /* set by the caller: the id of a line without one */
    bool raw;               /* set by the caller: "prompt" is sent as it is */
    bool has_template;      /* set by the caller: the model has a chat template */
    um_buf id;              /* the id as JSON ("\"a\"", "7"); len 0 if the line has no usable id */
    um_request request;     /* strings and arrays are borrowed from the body */
    um_body body;           /* parsed by the tables of the server */
    bool step_map, timings; /* optional parts of the result */
    um_message message;     /* the message of a "prompt" for the chat template */
} um_request_line;

/* Parses a line into q, which must be zeroed or hold an earlier line. Parameters that the line does not have are taken
 * from `defaults`; step_map and timings keep their values. A "prompt" becomes the message of a user if the model has a
 * chat template, unless q->raw is set. Messages, tools and template variables are checked later,
 * when they are rendered. Errors: UM_EPARSE, UM_EINVAL, UM_ERANGE; even then q->id is set if the line has a usable id.
 */
um_status um_request_line_parse(um_request_line *q, um_str line, const um_request *defaults, um_err *err);
void um_request_line_free(um_request_line *q);

/* Reads the JSON file of an option ("--tools") for a um_chat_request; out->data is "" if the file is empty. UM_EINVAL,
 * also if the file can't be read: the message names the option. */
um_status um_chat_file(const char *flag, const char *path, um_buf *out, um_err *err);

/* Parses a line that must be a JSON object. The caller releases *root with json_decref. */
um_status um_line_object(struct json_t **root, um_str line, um_err *err);
/* Clears out and writes the "id" of an object to it as JSON. UM_EINVAL if it is missing, or neither a string nor an
 * integer. */
um_status um_line_id(const struct json_t *root, um_buf *out, um_err *err);
/* Does the same for a line whose id may be missing or null: the number of the line is its id then. */
um_status um_line_id_or_number(const struct json_t *root, int64_t number, um_buf *out, um_err *err);
/* Gets a string of an object, borrowed. UM_EINVAL if it is missing or contains U+0000. */
um_status um_line_text(const struct json_t *root, const char *key, const char **out, um_err *err);

#endif
