/* The machine, options and speed of a report. */
#include "cli/report.h"

#include <stdarg.h>
#include <stdlib.h>

#include "engine/engine.h"

/* Reads "model name : X" of the first core. Processors other than x86 may not have this line; the name is then
 * "unknown". */
static void read_cpu_name(char *out, size_t size) {
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[256];
    snprintf(out, size, "unknown");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        snprintf(out, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        break;
    }
    if (f) fclose(f);
}

void um_machine_get(um_machine *m) {
    read_cpu_name(m->cpu, sizeof m->cpu);
    m->cores = um_cpu_count();
}

void um_report_options(um_jw *w, const um_config *c) {
    um_config copy = *c;
    um_option_set sets[UM_OPTION_SETS_MAX];
    size_t n = um_config_option_sets(sets, &copy);
    um_buf text = {0};
    um_jw_begin_object(w);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < sets[i].n; k++) {
            um_buf_clear(&text);
            um_option_get_text(&sets[i].rows[k], sets[i].base, &text);
            um_jw_put_cstr(w, sets[i].rows[k].name, text.data);
        }
    }
    um_jw_end_object(w);
    um_buf_free(&text);
}

static void put_change(const um_option *row, const char *value, um_buf *out) {
    bool off = row->type == UM_OPT_BOOL && um_streq(value, "false");
    um_buf_printf(out, "%s--%s", out->len ? " " : "", off ? "no-" : "");
    for (const char *p = row->name; *p; p++) um_buf_putc(out, *p == '_' ? '-' : *p);
    if (row->type != UM_OPT_BOOL) um_buf_printf(out, " %s", value);
}

void um_report_changes(um_buf *out, const um_config *c) {
    um_config now = *c, plain;
    um_option_set a[UM_OPTION_SETS_MAX], b[UM_OPTION_SETS_MAX];
    um_buf value = {0}, def = {0};
    size_t start = out->len;
    um_config_init(&plain);
    size_t n = um_config_option_sets(a, &now);
    (void)um_config_option_sets(b, &plain);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < a[i].n; k++) {
            um_buf_clear(&value);
            um_buf_clear(&def);
            um_option_get_text(&a[i].rows[k], a[i].base, &value);
            um_option_get_text(&b[i].rows[k], b[i].base, &def);
            if (!um_streq(a[i].rows[k].name, "model") && !um_streq(value.data, def.data))
                put_change(&a[i].rows[k], value.data, out);
        }
    }
    if (out->len == start) um_buf_puts(out, "none");
    um_buf_free(&value);
    um_buf_free(&def);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

um_spread um_spread_of(double *values, size_t n) {
    assert(n > 0);
    qsort(values, n, sizeof values[0], by_value);
    double middle = n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
    return (um_spread){values[0], middle, values[n - 1]};
}

void um_report_line(um_buf *out, const char *label, int indent, const char *text) {
    int column = indent;
    um_buf_printf(out, "%-*s", indent, label);
    for (const char *p = text; *p;) {
        int n = (int)strcspn(p, " ");
        bool first = column == indent;
        if (!first && column + 1 + n > UM_REPORT_COLUMNS) {
            um_buf_printf(out, "\n%*s", indent, "");
            column = indent;
            first = true;
        }
        um_buf_printf(out, "%s%.*s", first ? "" : " ", n, p);
        column += n + !first;
        p += n + strspn(p + n, " ");
    }
    um_buf_putc(out, '\n');
}

void um_report_linef(um_buf *out, const char *label, int indent, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = (char *)um_zalloc((size_t)UM_MAX(n, 0) + 1);
    va_start(args, format);
    (void)vsnprintf(text, (size_t)UM_MAX(n, 0) + 1, format, args);
    va_end(args);
    um_report_line(out, label, indent, text);
    um_free(text);
}

/* ---- Speed ------------------------------------------------------------------------------------------------------- */

typedef struct latency {
    const char *name, *key;
    const um_histogram *of;
} latency;

enum { N_LATENCIES = 3 };
static void latencies_of(const um_metrics *m, latency out[N_LATENCIES]) {
    out[0] = (latency){"in the queue", "queue_seconds", &m->queue};
    out[1] = (latency){"first token", "first_token_seconds", &m->first_token};
    out[2] = (latency){"whole answer", "total_seconds", &m->total};
}

const double um_report_quantiles[4] = {0.5, 0.9, 0.95, 0.99};

void um_report_speed(um_buf *out, const um_metrics *m, const um_rates *r) {
    latency w[N_LATENCIES];
    latencies_of(m, w);
    um_buf_printf(out, "prefill %.1f tokens/s, decode %.1f tokens/s; ", r->prefill_throughput, r->decode_throughput);
    um_buf_printf(out, "%.1f requests per step, %.2f %% of the steps' time outside of the forward pass\n",
                  r->requests_per_step, 1e2 * r->overhead);
    um_buf_printf(out, "mean over requests: %.2f tokens per forward; %.1f ms from the first step to the first token, ",
                  r->tpf, 1e3 * r->ttft);
    um_buf_printf(out, "then %.2f ms per token\n", 1e3 * r->tpot);
    um_buf_puts(out, "seconds since submission      mean       p50       p90       p95       p99\n");
    for (size_t i = 0; i < N_LATENCIES; i++) {
        um_buf_printf(out, "  %-22s %9.4f", w[i].name, um_histogram_mean(w[i].of));
        for (size_t k = 0; k < UM_LEN(um_report_quantiles); k++)
            um_buf_printf(out, " %9.4f", um_histogram_quantile(w[i].of, um_report_quantiles[k]));
        um_buf_putc(out, '\n');
    }
}

static void put_latency(um_jw *w, const latency *of) {
    um_jw_key(w, of->key);
    um_jw_begin_object(w);
    um_jw_put_seconds(w, "mean", um_histogram_mean(of->of));
    for (size_t k = 0; k < UM_LEN(um_report_quantiles); k++) {
        char key[8];
        snprintf(key, sizeof key, "p%.0f", 100 * um_report_quantiles[k]);
        um_jw_put_seconds(w, key, um_histogram_quantile(of->of, um_report_quantiles[k]));
    }
    um_jw_end_object(w);
}

void um_report_put_speed(um_jw *w, const um_metrics *m, const um_rates *r) {
    const struct {
        const char *key;
        double value;
    } rates[] = {{"tpf", r->tpf},
                 {"tpf_all", r->tpf_all},
                 {"ttft_seconds", r->ttft},
                 {"tpot_seconds", r->tpot},
                 {"run_tps", r->run_tps},
                 {"decode_tps", r->decode_tps},
                 {"run_seconds", m->run_seconds},
                 {"throughput", r->throughput},
                 {"prefill_throughput", r->prefill_throughput},
                 {"decode_throughput", r->decode_throughput},
                 {"requests_per_step", r->requests_per_step},
                 {"overhead", r->overhead}};
    latency all[N_LATENCIES];
    latencies_of(m, all);
    for (size_t i = 0; i < UM_LEN(rates); i++) um_jw_put_double(w, rates[i].key, rates[i].value);
    for (size_t i = 0; i < N_LATENCIES; i++) put_latency(w, &all[i]);
}
