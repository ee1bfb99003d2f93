/* report: the parts that the reports of eval and bench share: conditions and speed. */
#ifndef UM_CLI_REPORT_H
#define UM_CLI_REPORT_H

#include "cli/cli.h"
#include "cli/speed.h"

typedef struct um_machine {
    char cpu[96];
    int cores; /* CPU cores that this process may use */
} um_machine;
void um_machine_get(um_machine *m);

/* Writes an object with every option and its value. */
void um_report_options(um_jw *w, const um_config *c);
/* Appends the options that differ from their defaults, as in "--max-tokens 64 --temperature 0"; "none" if there are
 * none. Leaves out --model, because every report names the model. */
void um_report_changes(um_buf *out, const um_config *c);

/* Columns of reports in text. */
#define UM_REPORT_COLUMNS 80
/* Appends a label, padded to `indent` columns, and a text, and a newline. Breaks the text between words, so that lines
 * fit UM_REPORT_COLUMNS; further lines are indented. */
void um_report_line(um_buf *out, const char *label, int indent, const char *text);
/* Does the same for a text in the format of printf. */
void um_report_linef(um_buf *out, const char *label, int indent, const char *format, ...) UM_PRINTF(4, 5);

typedef struct um_spread {
    double min, median, max;
} um_spread;
/* Computes the spread of values [n], n >= 1. Sorts them. */
um_spread um_spread_of(double *values, size_t n);

/* Write the speed of requests and of the steps that served them (docs/queue.md explains the names), as text and as
 * members of a JSON object. */
extern const double um_report_quantiles[4]; /* 0.5, 0.9, 0.95, 0.99 */
void um_report_speed(um_buf *out, const um_metrics *m, const um_rates *r);
void um_report_put_speed(um_jw *w, const um_metrics *m, const um_rates *r);

#endif
