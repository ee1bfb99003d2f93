/* Prints the points of `unmask bench engine` as text and JSON, and draws them as SVG. */
#include <math.h>

#include "cli/bench_engine.h"

#define INDENT 10 /* columns of the labels of the report */

const char um_engine_timed[] =
    "from the end of the step before to the end of the step: plan, forward pass, sampling, apply and the gap; without "
    "loading, adding requests and warm-up";

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

/* Returns the step that begins a block, or NULL when none was measured. */
static const um_step_result *block_start(const um_engine_point *p) {
    const um_step_result *commit = &p->step[UM_STEP_COMMIT], *refresh = &p->step[UM_STEP_REFRESH];
    return commit->n ? commit : refresh->n ? refresh : NULL;
}

/* Returns the seconds in which all requests begin a block. A step may refresh only some of them. */
static double start_seconds(const um_engine_point *p) {
    const um_step_result *s = block_start(p);
    if (!s) return p->step[UM_STEP_DENOISE].seconds.median;
    if (s == &p->step[UM_STEP_COMMIT]) return s->seconds.median;
    return s->seconds.median * p->batch * (p->context + p->block) / (double)s->size.tokens;
}

double um_engine_point_tokens_per_second(const um_engine_point *p, double tokens_per_pass, bool starts) {
    const double denoise = p->step[UM_STEP_DENOISE].seconds.median;
    if (!starts) return um_ratio(p->batch * tokens_per_pass, denoise);
    const double passes = UM_MAX(p->block / tokens_per_pass, 1);
    return um_ratio((double)p->batch * p->block, (passes - 1) * denoise + start_seconds(p));
}

static double share_of_limit(const um_step_result *s) { return um_ratio(s->limit, s->seconds.median); }

/* ---- Text -------------------------------------------------------------------------------------------------------- */

void um_engine_put_header(um_buf *out, const um_engine_header *h) {
    const bool is_gpu = h->device.memory > 0;
    um_buf changes = {0};
    char threads[32] = "";
    if (!is_gpu) snprintf(threads, sizeof threads, ", %d threads", h->device.threads);
    um_report_line(out, "timed", INDENT, um_engine_timed);
    um_report_linef(out, "machine", INDENT, "%s, %d cores, %s%s%s", h->machine.cpu, h->machine.cores,
                    is_gpu ? "GPU " : "", h->device.name, threads);
    um_report_linef(out, "program", INDENT, "unmask %s, commit %s", um_version(), h->commit);
    um_report_changes(&changes, h->config);
    um_report_line(out, "options", INDENT, changes.data);
    if (h->limits.read_bytes > 0)
        um_report_linef(out, "measured", INDENT, "memory is read at %.1f GB/s, a large product runs at %.2f TFLOP/s",
                        h->limits.read_bytes / 1e9, h->limits.operations / 1e12);
    um_buf_free(&changes);
}

static void put_title(um_buf *out, const um_engine_point *p) {
    um_buf text = {0};
    um_buf_printf(&text, "%s (%s), %s", p->shape->name, p->shape->model, p->type_name);
    if (p->layers < p->all_layers) um_buf_printf(&text, ", %d of %d layers", p->layers, p->all_layers);
    um_buf_printf(&text, ", %.2f GB of weights, keys and values %s; context %d, block %d, %s, sampler %s; batch %d",
                  (double)p->weight_bytes / 1e9, p->kv_dtype, p->context, p->block, p->strategy, p->sampler, p->batch);
    um_buf_putc(out, '\n');
    um_report_line(out, "", 0, text.data);
    um_buf_free(&text);
}

/* Appends the names of the columns of put_step. */
static void put_columns(um_buf *out) {
    um_buf_printf(out, "  %-7s %4s %6s %5s %9s %8s %8s %8s %6s %s\n", "step", "n", "tokens", "rows", "ms median", "min",
                  "max", "limit ms", "share", "bound by");
}

/* Appends the times beside those of the steps: of the gaps before them, and by the device's clock. */
static void put_gap(um_buf *out, const char *name, const um_step_result *s) {
    if (!s->n_gaps && s->device_seconds <= 0) return;
    um_buf_printf(out, "  %-7s", name);
    if (s->n_gaps) um_buf_printf(out, " gap %.1f us (median), %.1f us (max)", 1e6 * s->gap.median, 1e6 * s->gap.max);
    if (s->device_seconds > 0)
        um_buf_printf(out, "%s %.3f ms on the device", s->n_gaps ? ";" : "", 1e3 * s->device_seconds);
    if (s->clock_rate > 0) um_buf_printf(out, " at %.0f MHz", 1e-6 * s->clock_rate);
    um_buf_putc(out, '\n');
}

static void put_step(um_buf *out, const char *name, const um_step_result *s) {
    um_buf_printf(out, "  %-7s %4zu %6lld %5lld %9.3f %8.3f %8.3f %8.3f %5.1f%% %s\n", name, s->n,
                  (long long)s->size.tokens, (long long)s->size.rows, 1e3 * s->seconds.median, 1e3 * s->seconds.min,
                  1e3 * s->seconds.max, 1e3 * s->limit, 1e2 * share_of_limit(s), s->reads ? "reading" : "products");
}

static void put_operations(um_buf *out, const um_engine_point *p) {
    if (!p->n_operations) return;
    um_buf_printf(out, "  operation                us   share   (mean of %d denoising passes, timed one by one)\n",
                  p->n_profiled);
    for (int32_t i = 0; i < p->n_operations; i++) {
        const um_operation_time *o = &p->operation[i];
        um_buf_printf(out, "  %-18s %8.1f %6.2f%%\n", o->name, 1e6 * o->seconds, 1e2 * o->share);
    }
    if (p->condition_share > 0)
        um_report_linef(out, "", 2,
                        "conditioning on the predictions of the pass before: %.2f%% of a pass, blends of embeddings "
                        "%.2f%%, mixing them into the canvas %.2f%%",
                        1e2 * (p->blend_share + p->condition_share), 1e2 * p->blend_share, 1e2 * p->condition_share);
}

void um_engine_put_point(um_buf *out, const um_engine_header *h, const um_engine_point *p) {
    const um_step_result *denoise = &p->step[UM_STEP_DENOISE];
    um_buf text = {0};
    put_title(out, p);
    put_columns(out);
    for (int i = 0; i < UM_N_STEP_KINDS; i++)
        if (p->step[i].n) put_step(out, um_step_kind_names[i], &p->step[i]);
    for (int i = 0; i < UM_N_STEP_KINDS; i++)
        if (p->step[i].n) put_gap(out, um_step_kind_names[i], &p->step[i]);
    um_buf_printf(out, "  a denoising pass after a pause of 0.5 s: %.3f ms (median of %zu)", 1e3 * p->burst_seconds,
                  p->n_burst);
    if (p->burst_clock_rate > 0) um_buf_printf(out, " at %.0f MHz", 1e-6 * p->burst_clock_rate);
    um_buf_putc(out, '\n');
    um_buf_printf(&text, "limit of a denoising pass: %.3f GB of weights, %.3f GB of keys and values, %.4f TFLOP",
                  denoise->cost.weight_bytes / 1e9, denoise->cost.kv_bytes / 1e9, denoise->cost.operations / 1e12);
    if (denoise->cost.experts > 0)
        um_buf_printf(&text, "; %.1f experts per layer, if tokens choose at random", denoise->cost.experts);
    if (p->limits_of_passes) um_buf_puts(&text, "; at the rates of the fastest passes, the device has no others");
    um_report_line(out, "", 2, text.data);
    um_report_linef(out, "", 2,
                    "at %g tokens per forward: %.1f tokens/s, %.1f tokens/s with the first step of each block (%s)",
                    h->tokens_per_pass, um_engine_point_tokens_per_second(p, h->tokens_per_pass, false),
                    um_engine_point_tokens_per_second(p, h->tokens_per_pass, true),
                    p->step[UM_STEP_COMMIT].n ? "commit" : "refresh");
    um_buf_free(&text);
    put_operations(out, p);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void put_spread(um_jw *w, const char *key, const um_spread *s, double scale) {
    um_jw_key(w, key);
    um_jw_begin_object(w);
    um_jw_put_double(w, "median", scale * s->median);
    um_jw_put_double(w, "min", scale * s->min);
    um_jw_put_double(w, "max", scale * s->max);
    um_jw_end_object(w);
}

static void put_clock(um_jw *w, const char *key, double rate) {
    if (rate > 0) um_jw_put_double(w, key, 1e-6 * rate);
    else um_jw_put_null(w, key);
}

static void put_step_json(um_jw *w, const char *name, const um_step_result *s) {
    um_jw_key(w, name);
    um_jw_begin_object(w);
    um_jw_put_int(w, "n", (int64_t)s->n);
    um_jw_put_int(w, "tokens", s->size.tokens);
    um_jw_put_int(w, "rows", s->size.rows);
    um_jw_put_int(w, "keys", s->size.keys);
    put_spread(w, "ms", &s->seconds, 1e3);
    if (s->n_gaps) put_spread(w, "gap_us", &s->gap, 1e6);
    else um_jw_put_null(w, "gap_us");
    if (s->device_seconds > 0) um_jw_put_double(w, "device_ms", 1e3 * s->device_seconds);
    else um_jw_put_null(w, "device_ms");
    put_clock(w, "clock_mhz", s->clock_rate);
    um_jw_put_double(w, "weight_bytes", s->cost.weight_bytes);
    um_jw_put_double(w, "kv_bytes", s->cost.kv_bytes);
    um_jw_put_double(w, "operations", s->cost.operations);
    um_jw_put_double(w, "experts", s->cost.experts);
    um_jw_put_double(w, "limit_ms", 1e3 * s->limit);
    um_jw_put_cstr(w, "limited_by", s->reads ? "reading" : "products");
    um_jw_put_double(w, "share_of_limit", share_of_limit(s));
    um_jw_end_object(w);
}

static void put_conditions(um_jw *w, const um_engine_header *h, const um_engine_point *p) {
    um_jw_put_cstr(w, "version", um_version());
    um_jw_put_cstr(w, "commit", h->commit);
    um_jw_put_cstr(w, "timed", um_engine_timed);
    um_jw_put_cstr(w, "cpu", h->machine.cpu);
    um_jw_put_int(w, "cores", h->machine.cores);
    um_jw_put_cstr(w, "device", h->config->device);
    um_jw_put_cstr(w, "device_name", h->device.name);
    um_jw_put_int(w, "threads", h->device.threads);
    um_jw_put_int(w, "ranks", h->config->tensor_parallel_size);
    um_jw_put_bool(w, "expert_parallel", h->config->enable_expert_parallel);
    um_jw_put_cstr(w, "shape", p->shape->name);
    um_jw_put_int(w, "layers", p->layers);
    um_jw_put_int(w, "all_layers", p->all_layers);
    um_jw_put_cstr(w, "dtype", p->dtype);
    um_jw_put_cstr(w, "weight_type", p->weight_type);
    um_jw_put_cstr(w, "kv_dtype", p->kv_dtype);
    um_jw_put_bool(w, "eager", h->config->enforce_eager);
    um_jw_put_bool(w, "deterministic", h->config->deterministic);
    um_jw_put_int(w, "batch", p->batch);
    um_jw_put_int(w, "context", p->context);
    um_jw_put_int(w, "block", p->block);
    um_jw_put_cstr(w, "strategy", p->strategy);
    um_jw_put_cstr(w, "sampler", p->sampler);
    um_jw_put_int(w, "allocated_weight_bytes", (int64_t)p->weight_bytes);
    um_jw_put_int(w, "allocated_kv_bytes", (int64_t)p->kv_bytes);
    um_jw_put_double(w, "load_seconds", p->load_seconds);
    um_jw_put_double(w, "read_bytes_per_second", p->limits.read_bytes);
    um_jw_put_double(w, "operations_per_second", p->limits.operations);
    um_jw_put_cstr(w, "rates_from", p->limits_of_passes ? "fastest passes" : "device");
}

static void put_operations_json(um_jw *w, const um_engine_point *p) {
    um_jw_key(w, "operations");
    um_jw_begin_array(w);
    for (int32_t i = 0; i < p->n_operations; i++) {
        um_jw_begin_object(w);
        um_jw_put_cstr(w, "name", p->operation[i].name);
        um_jw_put_double(w, "us", 1e6 * p->operation[i].seconds);
        um_jw_put_double(w, "share", p->operation[i].share);
        um_jw_end_object(w);
    }
    um_jw_end_array(w);
    um_jw_put_double(w, "blend_share", p->blend_share);
    um_jw_put_double(w, "condition_share", p->condition_share);
}

void um_engine_put_json(um_buf *out, const um_engine_header *h, const um_engine_point *p) {
    um_jw w;
    um_jw_init(&w, out);
    um_jw_begin_object(&w);
    put_conditions(&w, h, p);
    um_jw_key(&w, "steps");
    um_jw_begin_object(&w);
    for (int i = 0; i < UM_N_STEP_KINDS; i++)
        if (p->step[i].n) put_step_json(&w, um_step_kind_names[i], &p->step[i]);
    um_jw_end_object(&w);
    um_jw_put_double(&w, "burst_ms", 1e3 * p->burst_seconds);
    put_clock(&w, "burst_clock_mhz", p->burst_clock_rate);
    um_jw_put_double(&w, "tokens_per_forward", h->tokens_per_pass);
    um_jw_put_double(&w, "tokens_per_second", um_engine_point_tokens_per_second(p, h->tokens_per_pass, false));
    um_jw_put_double(&w, "tokens_per_second_with_block_starts",
                     um_engine_point_tokens_per_second(p, h->tokens_per_pass, true));
    if (p->n_operations) put_operations_json(&w, p);
    um_jw_end_object(&w);
    um_buf_putc(out, '\n');
}

/* ---- SVG --------------------------------------------------------------------------------------------------------- */

enum { LEFT = 170, BAR_WIDTH = 420, RIGHT = 190, ROW = 34, BAR = 20, TOP = 58 };

/* Appends text without the characters that XML reserves. */
static void put_xml(um_buf *out, const char *text) {
    for (const char *c = text; *c; c++) um_buf_putc(out, strchr("<>&\"", *c) ? ' ' : *c);
}

static void put_bar(um_buf *out, const um_engine_point *p, size_t row, double longest) {
    const um_step_result *s = &p->step[UM_STEP_DENOISE];
    const size_t y = TOP + row * ROW;
    const double time = BAR_WIDTH * s->seconds.median / longest, limit = BAR_WIDTH * s->limit / longest;
    um_buf_printf(out, "<text x=\"%d\" y=\"%zu\" text-anchor=\"end\">%s, %d at once</text>\n", LEFT - 8, y + 15,
                  p->shape->name, p->batch);
    um_buf_printf(out, "<rect x=\"%d\" y=\"%zu\" width=\"%.1f\" height=\"%d\" fill=\"#9ecae1\"/>\n", LEFT, y, time,
                  BAR);
    um_buf_printf(out, "<rect x=\"%d\" y=\"%zu\" width=\"%.1f\" height=\"%d\" fill=\"#3182bd\"/>\n", LEFT, y + 6, limit,
                  BAR - 12);
    um_buf_printf(out, "<text x=\"%.1f\" y=\"%zu\">%.2f ms, limit %.2f (%.0f %%)</text>\n",
                  LEFT + UM_MAX(time, limit) + 6, y + 15, 1e3 * s->seconds.median, 1e3 * s->limit,
                  1e2 * share_of_limit(s));
}

void um_engine_put_svg(um_buf *out, const um_engine_header *h, const um_engine_point *p, size_t n) {
    double longest = 0;
    const um_engine_point *first = NULL;
    for (size_t i = 0; i < n; i++) {
        if (p[i].step[UM_STEP_DENOISE].n && !first) first = &p[i];
        const um_step_result *s = &p[i].step[UM_STEP_DENOISE];
        longest = UM_MAX(longest, UM_MAX(s->seconds.median, s->limit));
    }
    um_buf_printf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%zu\" font-family=\"sans-serif\" "
                  "font-size=\"13\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
                  LEFT + BAR_WIDTH + RIGHT, TOP + n * ROW + 10);
    um_buf_printf(out,
                  "<text x=\"12\" y=\"22\" font-size=\"15\">Denoising step (light) and its limit (dark), ms</text>\n"
                  "<text x=\"12\" y=\"42\">");
    put_xml(out, h->device.memory > 0 ? h->device.name : h->machine.cpu);
    if (first) um_buf_printf(out, ", %s, context %d", first->dtype, first->context);
    um_buf_printf(out, ", commit %s</text>\n", h->commit);
    for (size_t i = 0, row = 0; i < n; i++)
        if (p[i].step[UM_STEP_DENOISE].n) put_bar(out, &p[i], row++, longest);
    um_buf_puts(out, "</svg>\n");
}
