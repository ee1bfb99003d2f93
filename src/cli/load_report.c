/* The report of `unmask bench serve` as text and as JSON. */
#include "cli/load.h"

#if __has_include("commit.h")
#include "commit.h"
#endif
#ifndef UM_COMMIT
#define UM_COMMIT "unknown"
#endif

#define INDENT 10 /* columns of the labels of the report */

static const char timed[] = "from the time a request is due to its last byte, seen by the client; latencies count "
                            "answered requests only";

/* ---- Spread ------------------------------------------------------------------------------------------------------ */

enum { RATE_REQUESTS, RATE_TOKENS, RATE_GOOD, RATES };
static const struct {
    const char *key, *name;
} rate_names[RATES] = {
    {"requests_per_second", "requests/s"}, {"tokens_per_second", "tokens/s"}, {"goodput", "goodput/s"}};

static um_spread spread_of(const um_load_summary *s, int which) {
    double v[UM_LOAD_RUNS_MAX];
    for (size_t i = 0; i < s->n_rates; i++) {
        const um_load_rates *r = &s->rates[i];
        v[i] = which == RATE_REQUESTS ? r->requests : which == RATE_TOKENS ? r->tokens : r->good;
    }
    return um_spread_of(v, s->n_rates);
}

/* ---- Text -------------------------------------------------------------------------------------------------------- */

static const char *unit_name(const um_load_report *r) {
    return um_streq(r->unit, "request_rate") ? "requests/s" : "at once";
}

static void put_counts(const char *label, const um_load_summary *s, um_buf *out) {
    um_buf text = {0};
    um_buf_printf(&text, "%s: ", label);
    for (int o = UM_LOAD_ANSWERED; o <= UM_LOAD_ABORTED; o++)
        um_buf_printf(&text, "%s%lld %s", o > UM_LOAD_ANSWERED ? ", " : "", (long long)s->outcomes[o],
                      um_load_outcomes[o]);
    for (int i = 0; i < (int)UM_LEN(s->statuses); i++)
        if (s->statuses[i]) um_buf_printf(&text, "; status %d: %lld", i, (long long)s->statuses[i]);
    um_report_line(out, "", 0, text.data);
    um_buf_free(&text);
    if (s->error) {
        um_buf_puts(out, "  first error: ");
        um_cli_put_safe(out, s->error, strlen(s->error));
        um_buf_putc(out, '\n');
    }
}

static void put_rates(const um_load_summary *s, bool with_good, um_buf *out) {
    um_buf_puts(out, " ");
    for (int i = 0; i < (with_good ? RATES : RATE_GOOD); i++) {
        um_spread v = spread_of(s, i);
        um_buf_printf(out, " %s %.2f", rate_names[i].name, v.median);
        if (s->n_rates > 1) um_buf_printf(out, " (%.2f..%.2f)", v.min, v.max);
    }
    um_buf_putc(out, '\n');
}

static void put_times(const um_load_summary *s, um_buf *out) {
    um_buf_puts(out, "  milliseconds            mean       p50       p90       p95       p99       max\n");
    for (int i = 0; i < UM_LOAD_TIMES; i++) {
        const um_histogram *h = &s->times[i];
        if (!h->n || h->max <= 0) continue; /* in a closed loop, requests never wait in the client */
        um_buf_printf(out, "  %-17s %10.2f", um_load_times[i].name, 1e3 * um_histogram_mean(h));
        for (size_t k = 0; k < UM_LEN(um_report_quantiles); k++)
            um_buf_printf(out, " %9.2f", 1e3 * um_histogram_quantile(h, um_report_quantiles[k]));
        um_buf_printf(out, " %9.2f\n", 1e3 * h->max);
    }
}

static void put_tokens(const um_load_summary *s, um_buf *out) {
    double n = (double)s->outcomes[UM_LOAD_ANSWERED];
    um_buf text = {0};
    um_buf_printf(&text, "an answer has %.1f tokens", um_ratio((double)s->tokens, n));
    if (s->nfe)
        um_buf_printf(&text, " from %.1f forward passes, %.2f tokens per forward", um_ratio((double)s->nfe, n),
                      um_ratio((double)s->tokens, (double)s->nfe));
    um_buf_printf(&text, "; a prompt has %.1f tokens, %.0f %% of them cached", um_ratio((double)s->prompt_tokens, n),
                  1e2 * um_ratio((double)s->cached_tokens, (double)s->prompt_tokens));
    um_report_line(out, "", 2, text.data);
    um_buf_free(&text);
}

void um_load_put_point(const um_load_report *r, const um_load_point *p, um_buf *out) {
    const um_load_summary *s = &p->summary;
    char label[64] = "arrivals from the file";
    if (!um_streq(r->unit, "arrivals")) snprintf(label, sizeof label, "%g %s", p->value, unit_name(r));
    um_buf_putc(out, '\n');
    put_counts(label, s, out);
    if (!s->outcomes[UM_LOAD_ANSWERED]) return;
    put_rates(s, r->slo.ttft > 0 || r->slo.tpot > 0, out);
    put_times(s, out);
    put_tokens(s, out);
}

void um_load_put_header(const um_load_report *r, um_buf *out) {
    um_machine machine;
    um_machine_get(&machine);
    um_report_line(out, "timed", INDENT, timed);
    um_report_linef(out, "machine", INDENT, "%s, %d cores (the client's)", machine.cpu, machine.cores);
    um_report_linef(out, "program", INDENT, "unmask %s, commit %s", um_version(), UM_COMMIT);
    um_report_linef(out, "server", INDENT, "%s%s, %s%s%s", r->url, r->endpoint, r->peer->model,
                    *r->peer->version ? ", " : "", r->peer->version);
    um_report_line(out, "prompts", INDENT, r->prompts->about);
    um_report_line(out, "options", INDENT, r->options);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void put_json_time(um_jw *w, const char *key, const um_histogram *h) {
    um_jw_key(w, key);
    if (!h->n) {
        um_jw_null(w);
        return;
    }
    um_jw_begin_object(w);
    um_jw_put_int(w, "n", h->n);
    um_jw_put_double(w, "mean", um_histogram_mean(h));
    for (size_t k = 0; k < UM_LEN(um_report_quantiles); k++) {
        char name[8];
        snprintf(name, sizeof name, "p%.0f", 100 * um_report_quantiles[k]);
        um_jw_put_double(w, name, um_histogram_quantile(h, um_report_quantiles[k]));
    }
    um_jw_put_double(w, "max", h->max);
    um_jw_end_object(w);
}

static void put_json_counts(um_jw *w, const um_load_summary *s) {
    for (int o = UM_LOAD_ANSWERED; o <= UM_LOAD_ABORTED; o++) um_jw_put_int(w, um_load_outcomes[o], s->outcomes[o]);
    um_jw_key(w, "failed_by_status");
    um_jw_begin_object(w);
    for (int i = 0; i < (int)UM_LEN(s->statuses); i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        if (s->statuses[i]) um_jw_put_int(w, key, s->statuses[i]);
    }
    um_jw_end_object(w);
    um_jw_put_cstr(w, "first_error", s->error);
}

static void put_json_point(um_jw *w, const um_load_report *r, const um_load_point *p) {
    const um_load_summary *s = &p->summary;
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "unit", r->unit);
    um_jw_put_double(w, "value", p->value);
    put_json_counts(w, s);
    for (int i = 0; i < RATES; i++) {
        um_spread v = spread_of(s, i);
        um_jw_key(w, rate_names[i].key);
        um_jw_begin_object(w);
        um_jw_put_double(w, "median", v.median);
        um_jw_put_double(w, "min", v.min);
        um_jw_put_double(w, "max", v.max);
        um_jw_end_object(w);
    }
    for (int i = 0; i < UM_LOAD_TIMES; i++) put_json_time(w, um_load_times[i].key, &s->times[i]);
    um_jw_put_int(w, "prompt_tokens", s->prompt_tokens);
    um_jw_put_int(w, "cached_tokens", s->cached_tokens);
    um_jw_put_int(w, "completion_tokens", s->tokens);
    um_jw_put_int(w, "nfe", s->nfe);
    um_jw_put_double(w, "tokens_per_forward", um_ratio((double)s->tokens, (double)s->nfe));
    um_jw_end_object(w);
}

void um_load_put_json(const um_load_report *r, um_buf *out) {
    um_machine machine;
    um_jw w;
    um_machine_get(&machine);
    um_jw_init(&w, out);
    um_jw_begin_object(&w);
    um_jw_put_cstr(&w, "timed", timed);
    um_jw_put_cstr(&w, "cpu", machine.cpu);
    um_jw_put_int(&w, "cores", machine.cores);
    um_jw_put_cstr(&w, "version", um_version());
    um_jw_put_cstr(&w, "commit", UM_COMMIT);
    um_jw_put_cstr(&w, "url", r->url);
    um_jw_put_cstr(&w, "endpoint", r->endpoint);
    um_jw_put_cstr(&w, "model", r->peer->model);
    um_jw_put_cstr(&w, "server", r->peer->version);
    um_jw_put_cstr(&w, "prompts", r->prompts->about);
    um_jw_put_cstr(&w, "options", r->options);
    um_jw_put_double(&w, "slo_ttft_seconds", r->slo.ttft);
    um_jw_put_double(&w, "slo_tpot_seconds", r->slo.tpot);
    um_jw_key(&w, "points");
    um_jw_begin_array(&w);
    for (size_t i = 0; i < r->n; i++) put_json_point(&w, r, &r->point[i]);
    um_jw_end_array(&w);
    um_jw_end_object(&w);
    um_buf_putc(out, '\n');
}
