/* Output files of `unmask bench serve`: a CSV table and plots. */
#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/load.h"

/* ---- CSV --------------------------------------------------------------------------------------------------------- */

/* Appends a quoted text. Doubles its quotes and replaces newlines by spaces. */
static void put_text(um_buf *out, const char *text) {
    um_buf_puts(out, ",\"");
    for (const char *p = text; *p; p++) {
        if (*p == '"') um_buf_putc(out, '"');
        um_buf_putc(out, *p == '\n' || *p == '\r' ? ' ' : *p);
    }
    um_buf_putc(out, '"');
}

/* Appends a time, or an empty cell if it is negative. */
static void put_time(um_buf *out, double seconds) {
    if (seconds < 0) um_buf_putc(out, ',');
    else um_buf_printf(out, ",%.6f", seconds);
}

static void put_record(const um_load_record *r, um_buf *out) {
    const double times[] = {r->due, r->sent, r->first_snapshot, r->first_text, r->end};
    const int64_t counts[] = {
        r->status, r->chunks, r->usage.prompt_tokens, r->usage.cached_tokens, r->usage.completion_tokens, r->usage.nfe};
    for (size_t i = 0; i < UM_LEN(times); i++) put_time(out, times[i]);
    um_buf_printf(out, ",%s", um_load_outcomes[r->outcome]);
    for (size_t i = 0; i < UM_LEN(counts); i++) um_buf_printf(out, ",%lld", (long long)counts[i]);
    um_buf_printf(out, ",%s", r->finish ? um_finish_name(r->finish) : "");
    put_text(out, r->error ? r->error : "");
    um_buf_putc(out, '\n');
}

void um_load_put_csv(const um_load_report *r, um_buf *out) {
    um_buf_puts(out,
                "unit,value,run,request,due,sent,first_snapshot,first_text,end,outcome,status,chunks,prompt_tokens,"
                "cached_tokens,completion_tokens,nfe,finish,error\n");
    for (size_t i = 0; i < r->n; i++) {
        const um_load_point *p = &r->point[i];
        for (size_t k = 0; k < p->n_runs; k++) {
            for (size_t j = 0; j < p->run[k].n; j++) {
                um_buf_printf(out, "%s,%g,%zu,%zu", r->unit, p->value, k, j);
                put_record(&p->run[k].record[j], out);
            }
        }
    }
}

/* ---- Plots ------------------------------------------------------------------------------------------------------- */

static void put_points(const um_load_report *r, um_buf *out) {
    um_buf_puts(out, "$points << END\n");
    for (size_t i = 0; i < r->n; i++) {
        const um_load_summary *s = &r->point[i].summary;
        const um_histogram *ttft = &s->times[UM_LOAD_TTFT], *total = &s->times[UM_LOAD_TOTAL];
        double tokens[UM_LOAD_RUNS_MAX], requests[UM_LOAD_RUNS_MAX];
        for (size_t k = 0; k < s->n_rates; k++) {
            tokens[k] = s->rates[k].tokens;
            requests[k] = s->rates[k].requests;
        }
        um_buf_printf(out, "%g %g %g %g %g %g %g\n", r->point[i].value, 1e3 * um_histogram_quantile(ttft, 0.5),
                      1e3 * um_histogram_quantile(ttft, 0.99), 1e3 * um_histogram_quantile(total, 0.5),
                      1e3 * um_histogram_quantile(total, 0.99), um_spread_of(tokens, s->n_rates).median,
                      um_spread_of(requests, s->n_rates).median);
    }
    um_buf_puts(out, "END\n");
}

#define CDF_STEPS 100

/* Appends a gnuplot data block with the distribution of the time to the first text, one data set per point. Two blank
 * lines separate data sets. */
static void put_shares(const um_load_report *r, um_buf *out) {
    um_buf_puts(out, "$shares << END\n");
    for (size_t i = 0; i < r->n; i++) {
        const um_histogram *h = &r->point[i].summary.times[UM_LOAD_TTFT];
        um_buf_printf(out, "%s\"%g\"\n", i ? "\n\n" : "", r->point[i].value);
        for (int k = 1; k <= CDF_STEPS && h->n; k++)
            um_buf_printf(out, "%g %g\n", 1e3 * um_histogram_quantile(h, (double)k / CDF_STEPS), (double)k / CDF_STEPS);
    }
    um_buf_puts(out, "END\n");
}

static void put_script(const um_load_report *r, um_buf *out) {
    const char *x = um_streq(r->unit, "request_rate") ? "requests per second" : r->unit;
    put_points(r, out);
    put_shares(r, out);
    um_buf_printf(
        out,
        "set terminal svg size 720,480 font 'sans,13'\nset grid\nset xrange [0:*]\nset yrange [0:*]\nset key left top\n"
        "set xlabel '%s'\n"
        "set output 'latency.svg'\nset ylabel 'milliseconds'\n"
        "plot $points using 1:2 with linespoints title 'first text, p50', "
        "'' using 1:3 with linespoints title 'first text, p99', "
        "'' using 1:4 with linespoints title 'whole answer, p50', "
        "'' using 1:5 with linespoints title 'whole answer, p99'\n"
        "set output 'throughput.svg'\nset ylabel 'tokens/s'\nset y2label 'requests/s'\nset y2tics\n"
        "set y2range [0:*]\n"
        "plot $points using 1:6 with linespoints title 'tokens/s', "
        "'' using 1:7 axes x1y2 with linespoints title 'requests/s'\n"
        "unset y2label\nunset y2tics\nset key right bottom\n"
        "set output 'ttft.svg'\nset xlabel 'milliseconds to the first text'\n"
        "set ylabel 'share of requests'\nset yrange [0:1]\n"
        "plot for [i=0:%zu] $shares index i using 1:2 with steps title columnheader(1)\n",
        x, r->n - 1);
}

/* Runs gnuplot in the folder. *drawn is false if gnuplot is not installed. */
static um_status run_gnuplot(const char *dir, bool *drawn, um_err *err) {
    extern char **environ;
    char program[] = "gnuplot", script[] = "plot.gp", *argv[] = {program, script, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, dir);
    int failed = posix_spawnp(&pid, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    *drawn = !failed;
    if (failed == ENOENT) return UM_OK;
    if (failed) return um_fail(err, UM_EIO, "gnuplot: %s", strerror(failed));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return UM_OK;
    return um_fail(err, UM_EIO, "gnuplot failed on %s/plot.gp; see its messages above", dir);
}

um_status um_load_plot(const um_load_report *r, const char *dir, bool *drawn, um_err *err) {
    um_buf script = {0};
    *drawn = false;
    if (mkdir(dir, 0777) && errno != EEXIST)
        return um_fail(err, UM_EIO, "--plot: can't create %s: %s", dir, strerror(errno));
    char *path = um_path_join(dir, "plot.gp");
    put_script(r, &script);
    um_status st = um_file_replace(path, (um_str){script.data, script.len}, err);
    if (!st) st = run_gnuplot(dir, drawn, err);
    um_free(path);
    um_buf_free(&script);
    return st;
}
