/* results: what `unmask generate` writes: a line of JSON for each request, and the file that a run can resume. */
#ifndef UM_CLI_RESULTS_H
#define UM_CLI_RESULTS_H

#include "base/base.h"
#include "text/text.h"

/* What a result says beside what every one says. What depends on the run and not on the request alone (seconds, keys
 * that were found in the cache) is said only when it is asked for: else the same requests give the same bytes. */
typedef struct um_result_extras {
    const um_tok *tok; /* spells the tokens of log-probabilities, which come when the result has them */
    bool step_map;     /* the pass that fixed each token */
    bool timings;
    um_str trace; /* JSON of an array; n 0 leaves it out */
} um_result_extras;
/* Members "token_ids", "text", "finish_reason" … of an object that is open. */
void um_result_put(um_jw *w, const um_result *r, const um_result_extras *x);
/* Appends {"id", "error": {"code", "message"}}; id NULL: {"id": null, "line": line, "error": …}. */
void um_error_line(um_buf *out, const char *id, int64_t line, const um_err *e);
/* Appends one entry of a trace. */
void um_trace_entry(um_jw *w, const um_trace *t);

typedef struct um_results {
    um_ledger ledger;
    int64_t n_answered, n_failed; /* in the lines that are kept */
} um_results;

/* Opens the output ("-" is standard output) without changing what is in it, and locks it against a second run.
 * UM_EINVAL, UM_EIO. */
um_status um_results_open(um_results *r, const char *path, um_err *err);
/* Whether both are one file. */
bool um_results_same(const um_results *r, const um_lines *in);
/* Reads the lines of an earlier run and marks their ids in the set as answered. A last line that is cut is not
 * kept. UM_EINVAL when the lines do not belong to these ids; UM_EIO. */
um_status um_results_resume(um_results *r, um_idset *ids, um_err *err);
/* Cuts the file behind the lines that stay; from here on it is written. */
um_status um_results_begin(um_results *r, um_err *err);
/* Writes a line and its newline at once. UM_EIO. */
um_status um_results_write(um_results *r, um_buf *line, um_err *err);
/* UM_EIO when the system only now says that it could not write. */
um_status um_results_close(um_results *r, um_err *err);

#endif
