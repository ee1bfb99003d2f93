/* Profiles: a trace and sums of spans. The trace is a list of JSON objects, one per line, in the Trace Event Format
 * (complete events, times in microseconds). It is written while it grows, and viewers accept a list without its end, so
 * the trace of a killed process still opens. */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define TEXT_BYTES ((size_t)64 << 10)
#define LINE_BYTES ((size_t)256) /* longest line of a span; names are short */

/* ---- Spans ------------------------------------------------------------------------------------------------------- */

double um_profile_open(um_profile *p) {
    assert(p->depth < UM_PROFILE_DEPTH);
    p->inside[++p->depth] = 0;
    return um_now();
}

static um_profile_sum *sum_of(um_profile *p, const char *name) {
    for (int32_t i = 0; i < p->n_sums; i++)
        if (p->sum[i].name == name || um_streq(p->sum[i].name, name)) return &p->sum[i];
    assert(p->n_sums < UM_PROFILE_NAMES);
    p->sum[p->n_sums] = (um_profile_sum){.name = name};
    return &p->sum[p->n_sums++];
}

static void store_span(um_profile *p, const char *name, double start, double end, int32_t size) {
    if (!p->span) return; /* a profile without a trace */
    if (p->n_spans == UM_PROFILE_SPANS) p->n_dropped++;
    else p->span[p->n_spans++] = (um_profile_span){name, start, end, size};
}

/* Ignores a span that was entered before the profile was started. */
void um_profile_close(um_profile *p, double since, const char *name, int32_t size) {
    if (since < p->origin) return;
    double end = um_now(), seconds = end - since;
    um_profile_sum *s = sum_of(p, name);
    s->n++;
    s->seconds += seconds;
    s->self += seconds - p->inside[p->depth];
    p->inside[--p->depth] += seconds;
    if (p->depth == 0) p->total += seconds;
    store_span(p, name, since, end, size);
}

void um_profile_add(um_profile *p, const char *name, double start, double end, int32_t size) {
    if (!p->on || p->depth == 0) return;
    um_profile_sum *s = sum_of(p, name);
    s->n++;
    s->seconds += end - start;
    s->self += end - start;
    p->inside[p->depth] += end - start;
    store_span(p, name, start, end, size);
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

static void fail_write(um_profile *p, const char *path) {
    um_fail(&p->err, UM_EIO, "cannot write the profile %s: %s", path, strerror(errno));
}

static void write_text(um_profile *p) {
    for (size_t at = 0; at < p->text.len && !p->err.code;) {
        ssize_t n = write(p->fd, p->text.data + at, p->text.len - at);
        if (n >= 0) at += (size_t)n;
        else if (errno != EINTR) fail_write(p, p->path);
    }
    um_buf_clear(&p->text);
}

/* Rounds start and end, not the duration, so that a span stays within the span that encloses it. */
static void put_span(um_profile *p, const um_profile_span *s) {
    long long start = llround((s->start - p->origin) * 1e9), length = llround((s->end - p->origin) * 1e9) - start;
    um_buf_printf(&p->text,
                  ",\n{\"name\":\"%s\",\"ph\":\"X\",\"ts\":%lld.%03lld,\"dur\":%lld.%03lld,\"pid\":1,\"tid\":1,"
                  "\"args\":{\"size\":%d}}",
                  s->name, start / 1000, start % 1000, length / 1000, length % 1000, s->size);
    if (p->text.len + LINE_BYTES > TEXT_BYTES) write_text(p);
}

static void write_spans(um_profile *p) {
    for (size_t i = 0; i < p->n_spans; i++) {
        if (p->n_written == UM_PROFILE_WRITTEN || p->err.code) {
            p->n_dropped++;
            continue;
        }
        put_span(p, &p->span[i]);
        p->n_written++;
    }
    p->n_spans = 0;
}

void um_profile_flush(um_profile *p) {
    if (p->on && p->n_spans > UM_PROFILE_SPANS / 2) write_spans(p);
}

/* "x.json" -> "x.csv", "x" -> "x.csv" */
static char *path_of_table(const char *path) {
    size_t n = strlen(path);
    um_buf out = {0};
    if (n > 5 && um_streq(path + n - 5, ".json")) n -= 5;
    um_buf_printf(&out, "%.*s.csv", (int)n, path);
    return um_buf_take(&out);
}

um_status um_profile_check(const char *path, um_err *err) {
    char *table = path_of_table(path);
    um_status st = um_file_check_write(path, err);
    if (!st) st = um_file_check_write(table, err);
    um_free(table);
    return st;
}

um_status um_profile_start(um_profile *p, const char *path, um_err *err) {
    if (p->on) return UM_OK;
    if (!path) {
        *p = (um_profile){.on = true, .fd = -1, .origin = um_now()};
        return UM_OK;
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return um_fail(err, UM_EIO, "cannot write the profile %s: %s", path, strerror(errno));
    *p = (um_profile){
        .on = true, .fd = fd, .path = um_strdup(path), .span = UM_NEW_ARRAY(um_profile_span, UM_PROFILE_SPANS)};
    um_buf_reserve(&p->text, TEXT_BYTES + 1);
    um_buf_printf(&p->text,
                  "[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"tid\":1,\"args\":{\"name\":\"unmask %s\"}}",
                  um_version());
    p->origin = um_now();
    return UM_OK;
}

static void write_table(um_profile *p) {
    um_buf out = {0};
    char *path = path_of_table(p->path);
    FILE *f = fopen(path, "we");
    um_profile_put_csv(p, &out);
    bool ok = f && fwrite(out.data, 1, out.len, f) == out.len;
    if (f && fclose(f) != 0) ok = false;
    if (!ok && !p->err.code) fail_write(p, path);
    um_free(path);
    um_buf_free(&out);
}

um_status um_profile_stop(um_profile *p, um_err *err) {
    if (!p->on) return UM_OK;
    p->on = false;
    if (!p->span) return UM_OK;
    write_spans(p);
    if (p->n_dropped)
        um_buf_printf(&p->text, ",\n{\"name\":\"dropped\",\"ph\":\"M\",\"pid\":1,\"tid\":1,\"args\":{\"spans\":%lld}}",
                      (long long)p->n_dropped);
    um_buf_puts(&p->text, "\n]\n");
    write_text(p);
    if (close(p->fd) != 0 && !p->err.code) fail_write(p, p->path);
    write_table(p);
    um_free(p->path);
    um_free(p->span);
    um_buf_free(&p->text);
    p->path = NULL;
    p->span = NULL;
    return p->err.code ? um_fail(err, p->err.code, "%s", p->err.msg) : UM_OK;
}

/* ---- Sums -------------------------------------------------------------------------------------------------------- */

static int by_seconds(const void *a, const void *b) {
    const um_profile_sum *x = (const um_profile_sum *)a, *y = (const um_profile_sum *)b;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

static void sort_sums(const um_profile *p, um_profile_sum *out) {
    memcpy(out, p->sum, sizeof p->sum);
    qsort(out, (size_t)p->n_sums, sizeof *out, by_seconds);
}

/* Returns the share of the time of all outermost spans. That time is 0 when the profile is stopped within the first
 * outermost span. */
static double share_of(const um_profile *p, const um_profile_sum *s) {
    return p->total > 0 ? s->seconds / p->total : 0;
}

void um_profile_put_csv(const um_profile *p, um_buf *out) {
    um_profile_sum s[UM_PROFILE_NAMES];
    sort_sums(p, s);
    um_buf_puts(out, "scope,spans,seconds,self_seconds,share\n");
    for (int32_t i = 0; i < p->n_sums; i++)
        um_buf_printf(out, "%s,%lld,%.9f,%.9f,%.6f\n", s[i].name, (long long)s[i].n, s[i].seconds, s[i].self,
                      share_of(p, &s[i]));
}

void um_profile_put_table(const um_profile *p, um_buf *out) {
    um_profile_sum s[UM_PROFILE_NAMES];
    sort_sums(p, s);
    um_buf_puts(out, "scope          spans   seconds      self   share\n");
    for (int32_t i = 0; i < p->n_sums; i++)
        um_buf_printf(out, "%-12s %7lld %9.4f %9.4f %6.2f%%\n", s[i].name, (long long)s[i].n, s[i].seconds, s[i].self,
                      1e2 * share_of(p, &s[i]));
}
