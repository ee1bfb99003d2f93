/* report: what eval and bench say about the conditions of a measurement. */
#ifndef UM_CLI_REPORT_H
#define UM_CLI_REPORT_H

#include "cli/cli.h"
#include "engine/metrics.h"

typedef struct um_machine {
    char cpu[96];
    int cores; /* that this process may use */
} um_machine;
void um_machine_get(um_machine *m);

/* Writes an object of every option and its value. */
void um_report_options(um_jw *w, const um_config *c);
/* Appends the options that differ from their defaults, "--max-tokens 64 --temperature 0"; "none" when all are defaults.
 * The model, which every report names anyway, is left out. */
void um_report_changes(um_buf *out, const um_config *c);

/* Least, middle and greatest of values [n], n >= 1; sorts them. */
typedef struct um_spread {
    double min, median, max;
} um_spread;
um_spread um_spread_of(double *values, size_t n);

/* What requests and the steps that served them say of speed (docs/queue.md explains the names): lines for people, and
 * the members of a JSON object. */
extern const double um_report_quantiles[4]; /* 0.5, 0.9, 0.95, 0.99 */
void um_report_speed(um_buf *out, const um_metrics *m, const um_rates *r);
void um_report_put_speed(um_jw *w, const um_metrics *m, const um_rates *r);

#endif
