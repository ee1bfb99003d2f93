/* report: what eval and bench say about the conditions of a measurement. */
#ifndef UM_CLI_REPORT_H
#define UM_CLI_REPORT_H

#include "cli/cli.h"

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

/* a / b, 0 when b is 0. */
double um_ratio(double a, double b);

#endif
