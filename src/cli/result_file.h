/* result_file: the output of `unmask generate`: a JSON line for each request, in a file that a later run can resume. */
#ifndef UM_CLI_RESULT_FILE_H
#define UM_CLI_RESULT_FILE_H

#include "base/base.h"
#include "text/text.h"

/* Optional parts of a result. Values that differ from run to run (times, cache hits) are optional, so that by default
 * the same requests give the same bytes. */
typedef struct um_result_extras {
    const um_tok *tok; /* gives the text of tokens in log-probabilities */
    bool step_map;     /* the pass that wrote each token */
    bool timings;
    um_str trace; /* a JSON array; n 0 leaves it out */
} um_result_extras;
/* Writes the members "token_ids", "text", "finish_reason" and so on into an open object. */
void um_result_put(um_jw *w, const um_result *r, const um_result_extras *x);
/* Appends {"id", "error": {"code", "message"}}; id NULL: {"id": null, "line": line, "error": …}. */
void um_error_line(um_buf *out, const char *id, int64_t line, const um_err *e);
/* Writes an entry of a trace. */
void um_trace_entry(um_jw *w, const um_trace *t);

typedef struct um_result_file {
    um_ledger ledger;
    int64_t n_answered, n_failed; /* lines of an earlier run; failed requests count as answered too */
} um_result_file;

/* Opens the output ("-" is standard output) without changing its content, and locks it against a second run. UM_EINVAL,
 * UM_EIO. */
um_status um_result_file_open(um_result_file *r, const char *path, um_err *err);
/* Returns whether output and input are the same file. */
bool um_result_file_same(const um_result_file *r, const um_lines *in);
/* Reads the lines of an earlier run and marks their ids in the set as answered. Ignores an incomplete last line.
 * UM_EINVAL if a line's id is not in the set, or answered twice; UM_EIO. */
um_status um_result_file_resume(um_result_file *r, um_idset *ids, um_err *err);
/* Truncates the file after the lines that are kept, and makes it ready for writing. */
um_status um_result_file_begin(um_result_file *r, um_err *err);
/* Writes a line and its newline in one write. UM_EIO. */
um_status um_result_file_write(um_result_file *r, um_buf *line, um_err *err);
/* Closes the file. UM_EIO if the system reports a write error only now. */
um_status um_result_file_close(um_result_file *r, um_err *err);

#endif
