/* Prints the lines of `unmask bench ops` as text and JSON. */
#include "cli/bench_ops.h"

#define INDENT 10 /* columns of the labels of the report */

const char um_ops_timed_window[] =
    "an operation as a pass calls it, with the packing of activations; without making weights";

static double share_of_limit(const um_ops_row *r) { return um_ratio(r->limit, r->seconds.median); }

/* Returns what limits a line. */
static const char *limit_name(const um_ops_row *r) {
    return r->limit <= 0 ? "unknown" : r->reads ? "reading" : "products";
}

/* ---- Text -------------------------------------------------------------------------------------------------------- */

void um_ops_put_header(um_buf *out, const um_ops_header *h) {
    static const um_dtype types[] = {UM_F32, UM_BF16, UM_Q8, UM_Q4};
    um_buf rates = {0};
    um_report_line(out, "timed", INDENT, um_ops_timed_window);
    um_report_linef(out, "machine", INDENT, "%s, %d cores, %s, %d threads", h->machine.cpu, h->machine.cores, h->isa,
                    h->threads);
    um_report_linef(out, "program", INDENT, "unmask %s, commit %s", um_version(), h->commit);
    um_buf_printf(&rates, "memory is read at %.1f GB/s", h->read_bytes / 1e9);
    for (size_t i = 0; i < UM_LEN(types); i++) {
        const struct um_ops_peak *p = &h->peak[types[i]];
        if (p->instruction)
            um_buf_printf(&rates, "; %s: %.1f GFLOP/s (%s)", um_dtype_name(types[i]), p->operations / 1e9,
                          p->instruction);
        else um_buf_printf(&rates, "; %s: unknown", um_dtype_name(types[i]));
    }
    um_report_line(out, "measured", INDENT, rates.data);
    um_buf_free(&rates);
}

void um_ops_put_title(um_buf *out, const um_ops_bench *b) {
    um_buf_printf(out, "\n%s (%s)\n", b->shape->name, b->shape->model);
    um_buf_printf(out, "%6s %9s %8s %8s %7s %6s %8s %8s %s\n", "rows", "us median", "min", "max", "GFLOP/s", "GB/s",
                  "limit us", "of limit", "bound by");
}

void um_ops_put_heading(um_buf *out, const um_ops_row *r) {
    um_buf_printf(out, "  %s, %s: %s\n", r->operation, r->type, r->what);
}

void um_ops_put_row(um_buf *out, const um_ops_row *r) {
    const um_measured *t = &r->seconds;
    um_buf_printf(out, "%6d %9.1f %8.1f %8.1f", r->rows, 1e6 * t->median, 1e6 * t->min, 1e6 * t->max);
    if (r->operations > 0) um_buf_printf(out, " %7.1f", 1e-9 * r->operations / t->median);
    else um_buf_printf(out, " %7s", "-");
    um_buf_printf(out, " %6.1f %8.1f %7.1f%% %s%s\n", 1e-9 * r->bytes / t->median, 1e6 * r->limit,
                  1e2 * share_of_limit(r), limit_name(r), t->waited > UM_MEASURE_WAITED_MAX ? " *" : "");
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void put_conditions(um_jw *w, const um_ops_bench *b, const um_ops_row *r) {
    const um_ops_header *h = b->header;
    const struct um_ops_peak *p = &h->peak[r->product];
    um_jw_put_cstr(w, "version", um_version());
    um_jw_put_cstr(w, "commit", h->commit);
    um_jw_put_cstr(w, "timed", um_ops_timed_window);
    um_jw_put_cstr(w, "cpu", h->machine.cpu);
    um_jw_put_int(w, "cores", h->machine.cores);
    um_jw_put_cstr(w, "isa", h->isa);
    um_jw_put_int(w, "threads", h->threads);
    um_jw_put_double(w, "read_bytes_per_second", h->read_bytes);
    if (p->instruction) um_jw_put_cstr(w, "instruction", p->instruction);
    else um_jw_put_null(w, "instruction");
    if (p->instruction) um_jw_put_double(w, "peak_operations_per_second", p->operations);
    else um_jw_put_null(w, "peak_operations_per_second");
}

void um_ops_put_json(um_buf *out, const um_ops_bench *b, const um_ops_row *r) {
    um_jw w;
    um_jw_init(&w, out);
    um_jw_begin_object(&w);
    put_conditions(&w, b, r);
    um_jw_put_cstr(&w, "shape", b->shape->name);
    um_jw_put_cstr(&w, "operation", r->operation);
    um_jw_put_cstr(&w, "type", r->type);
    um_jw_put_cstr(&w, "sizes", r->what);
    um_jw_put_int(&w, "rows", r->rows);
    um_jw_key(&w, "us");
    um_jw_begin_object(&w);
    um_jw_put_double(&w, "median", 1e6 * r->seconds.median);
    um_jw_put_double(&w, "min", 1e6 * r->seconds.min);
    um_jw_put_double(&w, "max", 1e6 * r->seconds.max);
    um_jw_end_object(&w);
    um_jw_put_int(&w, "windows", b->windows);
    um_jw_put_double(&w, "waited", r->seconds.waited);
    um_jw_put_double(&w, "operations", r->operations);
    um_jw_put_double(&w, "bytes", r->bytes);
    um_jw_put_double(&w, "limit_us", 1e6 * r->limit);
    um_jw_put_cstr(&w, "limited_by", limit_name(r));
    um_jw_put_double(&w, "share_of_limit", share_of_limit(r));
    um_jw_end_object(&w);
    um_buf_putc(out, '\n');
}
