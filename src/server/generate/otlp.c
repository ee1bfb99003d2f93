/* Writes traces in OTLP's JSON encoding. A line is an ExportTraceServiceRequest. Prompts and answers are not in it. */
#include "server/generate/otlp.h"

#include <math.h>
#include <time.h>

#include "server/respond/access.h"
#include "server/respond/reply.h"

enum { KIND_INTERNAL = 1, KIND_SERVER = 2 };
enum { STATUS_ERROR = 2 };
#define TRACE_DIGITS    32
#define SPAN_DIGITS     16
#define STATE_BYTES_MAX 512

struct um_otlp {
    um_trace_file *file;
    char trace_id[TRACE_DIGITS + 1], span_id[SPAN_DIGITS + 1];
    char parent_id[SPAN_DIGITS + 1]; /* "": the trace begins here */
    char *state;                     /* header tracestate, or NULL */
    double start;                    /* um_now() */
    const char *path;                /* of the endpoint; NULL without an exchange */
    char request_id[sizeof((um_access_record *)0)->request_id];
    const um_key *key; /* NULL: none; keys live as long as the server */
    int status;        /* HTTP status of an error; 0: none */
    char *message;
};

/* ---- The client's trace ------------------------------------------------------------------------------------------ */

/* Copies n lowercase hexadecimal digits, which must not all be 0. */
static bool take_digits(const char **at, char *out, size_t n) {
    if (strspn(*at, "0123456789abcdef") < n || strspn(*at, "0") >= n) return false;
    memcpy(out, *at, n);
    out[n] = '\0';
    *at += n;
    return true;
}

/* Parses "VERSION-TRACE-PARENT-FLAGS". A later version than 00 may have more behind the flags. */
static bool read_parent(um_otlp *t, const char *header, bool *is_sampled) {
    static const char hex[] = "0123456789abcdef";
    if (strspn(header, hex) != 2 || header[2] != '-' || memcmp(header, "ff", 2) == 0) return false;
    const bool is_first = memcmp(header, "00", 2) == 0;
    const char *at = header + 3;
    if (!take_digits(&at, t->trace_id, TRACE_DIGITS) || *at++ != '-') return false;
    if (!take_digits(&at, t->parent_id, SPAN_DIGITS) || *at++ != '-') return false;
    if (strspn(at, hex) != 2 || (at[2] && (is_first || at[2] != '-'))) return false;
    *is_sampled = (strchr(hex, at[1]) - hex) & 1;
    return true;
}

/* A malformed header counts as missing. Returns false if the client does not want its trace recorded. */
static bool join_client(um_otlp *t, um_exchange *x) {
    bool is_sampled = true;
    const char *parent = um_exchange_header(x, "traceparent"), *state = um_exchange_header(x, "tracestate");
    if (parent && !read_parent(t, parent, &is_sampled)) parent = NULL;
    if (!parent) {
        t->trace_id[0] = t->parent_id[0] = '\0';
        return true;
    }
    if (state && *state && strlen(state) <= STATE_BYTES_MAX) t->state = um_strdup(state);
    return is_sampled;
}

/* ---- Life -------------------------------------------------------------------------------------------------------- */

static void make_id(char *out, size_t n_digits) {
    char id[64];
    um_make_id("", id);
    memcpy(out, id, n_digits);
    out[n_digits] = '\0';
}

static void trace_free(um_otlp *t) {
    um_free(t->state);
    um_free(t->message);
    um_free(t);
}

static void read_exchange(um_otlp *t, um_exchange *x) {
    const um_access_record *r = um_exchange_get_user_data(x);
    t->start = um_exchange_start_time(x);
    t->path = r->path;
    snprintf(t->request_id, sizeof t->request_id, "%s", r->request_id);
    t->key = r->key;
}

um_otlp *um_otlp_new(um_trace_file *file, um_exchange *x) {
    if (!file) return NULL;
    um_otlp *t = UM_NEW(um_otlp);
    *t = (um_otlp){.file = file, .start = um_now()};
    if (x && !join_client(t, x)) {
        trace_free(t);
        return NULL;
    }
    if (!*t->trace_id) make_id(t->trace_id, TRACE_DIGITS);
    make_id(t->span_id, SPAN_DIGITS);
    if (x) read_exchange(t, x);
    return t;
}

void um_otlp_fail(um_otlp *t, int status, const char *message) {
    if (!t || t->status) return;
    t->status = status;
    t->message = um_strdup(message);
}

/* ---- Attributes -------------------------------------------------------------------------------------------------- */

/* Begins {"key", "value": {TYPE: value}}; the caller writes the value. */
static void begin_attribute(um_jw *w, const char *key, const char *type) {
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "key", key);
    um_jw_key(w, "value");
    um_jw_begin_object(w);
    um_jw_key(w, type);
}

static void end_attribute(um_jw *w) {
    um_jw_end_object(w);
    um_jw_end_object(w);
}

static void put_text(um_jw *w, const char *key, const char *value) {
    begin_attribute(w, key, "stringValue");
    um_jw_cstr(w, value);
    end_attribute(w);
}

/* OTLP writes 64-bit integers as strings. */
static void put_int(um_jw *w, const char *key, int64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)value);
    begin_attribute(w, key, "intValue");
    um_jw_cstr(w, text);
    end_attribute(w);
}

static void put_double(um_jw *w, const char *key, double value) {
    begin_attribute(w, key, "doubleValue");
    um_jw_double(w, value);
    end_attribute(w);
}

static void put_finish_reasons(um_jw *w, um_generation *g) {
    begin_attribute(w, "gen_ai.response.finish_reasons", "arrayValue");
    um_jw_begin_object(w);
    um_jw_key(w, "values");
    um_jw_begin_array(w);
    for (int32_t i = 0; i < UM_MIN(um_generation_n_choices(g), UM_OTLP_ANSWERS_MAX); i++) {
        const um_choice *c = um_generation_choice(g, i);
        um_jw_begin_object(w);
        um_jw_put_cstr(w, "stringValue", c->finished ? um_finish_reason(&c->result) : "error");
        um_jw_end_object(w);
    }
    um_jw_end_array(w);
    um_jw_end_object(w);
    end_attribute(w);
}

/* Sums over the answers. The answers of a prompt share it. */
static void put_usage(um_jw *w, um_generation *g) {
    const um_body *b = um_generation_body(g);
    int64_t input = 0, output = 0, cached = 0, passes = 0;
    for (size_t i = 0; i < b->n_prompts; i++) input += (int64_t)b->prompt[i].n_ids;
    for (int32_t i = 0; i < um_generation_n_choices(g); i++) {
        const um_choice *c = um_generation_choice(g, i);
        output += c->n_tokens;
        passes += c->nfe;
        if (c->finished && c->index == 0) cached += c->result.cached_tokens;
    }
    put_int(w, "gen_ai.usage.input_tokens", input);
    put_int(w, "gen_ai.usage.output_tokens", output);
    put_int(w, "gen_ai.usage.cache_read.input_tokens", cached);
    put_int(w, "unmask.forward_passes", passes);
}

static void put_parameters(um_jw *w, const um_body *b) {
    const um_sampling_params *q = &b->checked.sampling;
    if (q->max_tokens > 0) put_int(w, "gen_ai.request.max_tokens", q->max_tokens);
    if (!isnan(q->temperature)) put_double(w, "gen_ai.request.temperature", (double)q->temperature);
    put_double(w, "gen_ai.request.top_p", (double)q->top_p);
    if (q->top_k > 0) put_double(w, "gen_ai.request.top_k", q->top_k);
    if (q->seed >= 0) put_int(w, "gen_ai.request.seed", q->seed);
    if (b->generate.n != 1) put_int(w, "gen_ai.request.choice.count", b->generate.n);
}

static const char *operation_of(const um_body *b) {
    return b->n_prompts && b->prompt[0].kind == UM_PROMPT_CHAT ? "chat" : "text_completion";
}

static void put_attributes(um_jw *w, const um_otlp *t, um_generation *g) {
    const um_body *b = um_generation_body(g);
    char status[16];
    um_jw_key(w, "attributes");
    um_jw_begin_array(w);
    put_text(w, "gen_ai.operation.name", operation_of(b));
    put_text(w, "gen_ai.provider.name", "unmask");
    put_text(w, "gen_ai.request.model", um_generation_model(g));
    put_text(w, "gen_ai.response.model", um_generation_model(g));
    put_text(w, "gen_ai.response.id", um_generation_id(g));
    put_parameters(w, um_body_of(b, 0));
    put_usage(w, g);
    put_finish_reasons(w, g);
    if (t->path) put_text(w, "http.route", t->path);
    if (*t->request_id) put_text(w, "unmask.request_id", t->request_id);
    if (t->key) put_text(w, "unmask.key", t->key->name);
    snprintf(status, sizeof status, "%d", t->status);
    if (t->status) put_text(w, "error.type", status);
    um_jw_end_array(w);
}

/* ---- Spans ------------------------------------------------------------------------------------------------------- */

/* Writes a time of um_now() as nanoseconds since the epoch. `offset` is the difference of the clocks. */
static void put_time(um_jw *w, const char *key, double time, double offset) {
    char text[32];
    snprintf(text, sizeof text, "%.0f", (time + offset) * 1e9);
    um_jw_put_cstr(w, key, text);
}

static double clock_offset(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9 - um_now();
}

/* Writes a part of an answer, without attributes of its own except the number of the answer. */
static void put_part(um_jw *w, const um_otlp *t, const um_choice *c, const char *name, const double span[2],
                     double offset) {
    char id[SPAN_DIGITS + 1];
    make_id(id, SPAN_DIGITS);
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "traceId", t->trace_id);
    um_jw_put_cstr(w, "spanId", id);
    um_jw_put_cstr(w, "parentSpanId", t->span_id);
    um_jw_put_cstr(w, "name", name);
    um_jw_put_int(w, "kind", KIND_INTERNAL);
    put_time(w, "startTimeUnixNano", span[0], offset);
    put_time(w, "endTimeUnixNano", span[1], offset);
    um_jw_key(w, "attributes");
    um_jw_begin_array(w);
    put_int(w, "unmask.answer", c->number);
    if (um_streq(name, "decode")) put_int(w, "unmask.answer.tokens", c->n_tokens);
    if (um_streq(name, "decode")) put_int(w, "unmask.answer.forward_passes", c->nfe);
    um_jw_end_array(w);
    um_jw_end_object(w);
}

/* The worker reports durations. They are laid end to end, up to the time at which the answer arrived here: the queue
 * comes first, the steps that denoise come last, and the rest is the prefill. */
static void put_parts(um_jw *w, const um_otlp *t, const um_choice *c, double offset) {
    const um_msg_finish *m = &c->result;
    double begin = UM_MAX(c->finished_at - m->total_seconds, t->start);
    double started = UM_MIN(begin + m->queue_seconds, c->finished_at);
    double denoised = UM_MAX(c->finished_at - m->decode_seconds, started);
    put_part(w, t, c, "queue", (const double[]){begin, started}, offset);
    put_part(w, t, c, "prefill", (const double[]){started, denoised}, offset);
    put_part(w, t, c, "decode", (const double[]){denoised, c->finished_at}, offset);
}

static void put_status(um_jw *w, const um_otlp *t) {
    um_jw_key(w, "status");
    um_jw_begin_object(w);
    if (t->status) {
        um_jw_put_cstr(w, "message", t->message);
        um_jw_put_int(w, "code", STATUS_ERROR);
    }
    um_jw_end_object(w);
}

static void put_request(um_jw *w, const um_otlp *t, um_generation *g, double offset) {
    um_buf name = {0};
    um_buf_printf(&name, "%s %s", operation_of(um_generation_body(g)), um_generation_model(g));
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "traceId", t->trace_id);
    um_jw_put_cstr(w, "spanId", t->span_id);
    if (*t->parent_id) um_jw_put_cstr(w, "parentSpanId", t->parent_id);
    if (t->state) um_jw_put_cstr(w, "traceState", t->state);
    um_jw_put_cstr(w, "name", name.data);
    um_jw_put_int(w, "kind", KIND_SERVER);
    put_time(w, "startTimeUnixNano", t->start, offset);
    put_time(w, "endTimeUnixNano", um_now(), offset);
    put_attributes(w, t, g);
    put_status(w, t);
    um_jw_end_object(w);
    um_buf_free(&name);
}

static void put_spans(um_jw *w, const um_otlp *t, um_generation *g) {
    double offset = clock_offset();
    um_jw_key(w, "spans");
    um_jw_begin_array(w);
    put_request(w, t, g, offset);
    for (int32_t i = 0; i < UM_MIN(um_generation_n_choices(g), UM_OTLP_ANSWERS_MAX); i++)
        if (um_generation_choice(g, i)->finished) put_parts(w, t, um_generation_choice(g, i), offset);
    um_jw_end_array(w);
}

static void put_resource(um_jw *w, const um_otlp *t) {
    um_jw_key(w, "resource");
    um_jw_begin_object(w);
    um_jw_key(w, "attributes");
    um_jw_begin_array(w);
    put_text(w, "service.name", "unmask");
    put_text(w, "service.version", um_version());
    put_text(w, "service.instance.id", um_trace_file_instance(t->file));
    um_jw_end_array(w);
    um_jw_end_object(w);
}

static void put_scope(um_jw *w) {
    um_jw_key(w, "scope");
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "name", "unmask");
    um_jw_put_cstr(w, "version", um_version());
    um_jw_end_object(w);
}

static void put_line(um_jw *w, const um_otlp *t, um_generation *g) {
    um_jw_begin_object(w);
    um_jw_key(w, "resourceSpans");
    um_jw_begin_array(w);
    um_jw_begin_object(w);
    put_resource(w, t);
    um_jw_key(w, "scopeSpans");
    um_jw_begin_array(w);
    um_jw_begin_object(w);
    put_scope(w);
    put_spans(w, t, g);
    um_jw_end_object(w);
    um_jw_end_array(w);
    um_jw_end_object(w);
    um_jw_end_array(w);
    um_jw_end_object(w);
}

void um_otlp_end(um_otlp *t, um_generation *g) {
    um_buf line = {0};
    um_jw w;
    if (!t) return;
    um_jw_init(&w, &line);
    put_line(&w, t, g);
    um_buf_putc(&line, '\n');
    um_trace_file_append(t->file, (um_str){line.data, line.len});
    um_buf_free(&line);
    trace_free(t);
}
