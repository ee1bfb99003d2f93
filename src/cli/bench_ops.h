/* bench_ops: measures single operations of the cpu backend in the shapes of released models. bench_ops.c has the
 * options and goes through shapes and types, bench_ops_rows.c measures an operation at each number of rows,
 * bench_ops_report.c prints. */
#ifndef UM_CLI_BENCH_OPS_H
#define UM_CLI_BENCH_OPS_H

#include "cli/report.h"
#include "model/model.h"
#include "ops/ops.h"

enum { UM_OPS_TYPES = UM_Q4 + 1, UM_OPS_ROWS_MAX = 16 };

/* A line of the report: an operation at one number of rows. */
typedef struct um_ops_row {
    const char *operation, *type;
    char what[48];            /* the sizes, for people: "4096 to 12288" */
    int32_t rows;             /* of the left operand; queries of attention */
    double operations, bytes; /* of a call: additions and multiplications; bytes that it reads or writes */
    um_dtype product;         /* type whose instruction does the operations */
    um_measured seconds;      /* of a call */
    double limit;             /* the least seconds; 0: no rate is known */
    bool reads;               /* memory is the limit, not the instruction */
} um_ops_row;

/* What all lines of a report have in common. */
typedef struct um_ops_header {
    um_machine machine;
    const char *commit, *isa;
    int threads;
    double read_bytes; /* per second */
    struct um_ops_peak {
        double operations;       /* per second; 0: not known */
        const char *instruction; /* or NULL */
    } peak[UM_OPS_TYPES];
} um_ops_header;

/* The measurement of one shape in one type. */
typedef struct um_ops_bench {
    const um_ops *ops;
    um_dev *dev; /* of the arithmetic that the type needs */
    const um_ops_header *header;
    const um_released *shape;
    um_arch arch;
    um_dtype type; /* of the matrices */
    bool first;    /* the first type of the shape: the only one with operations on activations, which are fp32 */
    int32_t rows[UM_OPS_ROWS_MAX], n_rows, context;
    bool quick;
    int windows;
    double window_seconds;
    /* Called with each measured line. */
    void (*report)(void *arg, const struct um_ops_bench *b, const um_ops_row *r);
    void *arg;
} um_ops_bench;

/* ---- bench_ops_rows.c ---- */
typedef struct um_ops_operation {
    const char *name;
    /* Measures all lines of the operation. Does nothing if the model or the type has no such operation. Errors:
     * UM_ENOMEM. */
    um_status (*measure)(um_ops_bench *b, um_err *err);
} um_ops_operation;
extern const um_ops_operation um_ops_operations[]; /* name NULL ends the list */
/* Fills in the sizes of a device for the operations of b. */
um_dev_config um_ops_device(const um_ops_bench *b, const um_config *c);

/* ---- bench_ops_report.c ---- */
extern const char um_ops_timed_window[]; /* says what lies inside the timed window */
/* Append the header of the report, the title of a shape with the names of the columns, a line, and a line as a JSON
 * object with a newline. */
void um_ops_put_header(um_buf *out, const um_ops_header *h);
void um_ops_put_title(um_buf *out, const um_ops_bench *b);
/* Appends the line before the rows of an operation, a type and sizes. */
void um_ops_put_heading(um_buf *out, const um_ops_row *r);
void um_ops_put_row(um_buf *out, const um_ops_row *r);
void um_ops_put_json(um_buf *out, const um_ops_bench *b, const um_ops_row *r);

#endif
