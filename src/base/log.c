/* Log: each call writes one line to stderr. */
#include "base/base.h"

#include <stdatomic.h>
#include <time.h>

#define LINE_MAX_BYTES 2048

static atomic_int log_level = UM_LOG_WARN;
static atomic_bool as_json;
static char prefix[UM_LOG_PREFIX_MAX];

void um_log_set_level(um_log_level level) { atomic_store_explicit(&log_level, (int)level, memory_order_relaxed); }

um_log_level um_log_get_level(void) { return (um_log_level)atomic_load_explicit(&log_level, memory_order_relaxed); }

void um_log_set_json(bool on) { atomic_store_explicit(&as_json, on, memory_order_relaxed); }

void um_log_set_prefix(const char *text) { snprintf(prefix, sizeof prefix, "%s", text); }

bool um_log_is_json(void) { return atomic_load_explicit(&as_json, memory_order_relaxed); }

void um_log_time(char out[UM_LOG_TIME_MAX]) {
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t n = strftime(out, UM_LOG_TIME_MAX, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(out + n, UM_LOG_TIME_MAX - n, ".%03dZ", (int)(now.tv_nsec / 1000000));
}

static void put_json(um_log_level level, const char *message, um_buf *out) {
    static const char *const names[] = {"error", "warning", "info", "debug"};
    char time[UM_LOG_TIME_MAX];
    um_jw w;
    um_log_time(time);
    um_jw_init(&w, out);
    um_jw_begin_object(&w);
    um_jw_put_cstr(&w, "time", time);
    um_jw_put_cstr(&w, "level", names[level]);
    um_jw_put_cstr(&w, "message", message);
    um_jw_end_object(&w);
    um_buf_putc(out, '\n');
}

void um_log_line(um_log_level level, const char *message, um_buf *out) {
    static const char *const names[] = {"error: ", "warning: ", "", "debug: "};
    if (um_log_is_json()) put_json(level, message, out);
    else um_buf_printf(out, "unmask: %s%s\n", names[level], message);
}

/* Formats the whole line first and writes it with one call, so that lines of several threads do not mix. */
void um_log(um_log_level level, const char *fmt, ...) {
    if (level > um_log_get_level()) return;
    char message[LINE_MAX_BYTES];
    int n = snprintf(message, sizeof message, "%s", prefix);
    um_buf line = {0};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message + n, sizeof message - (size_t)n, fmt, ap);
    va_end(ap);
    um_log_line(level, message, &line);
    um_log_write(line.data, line.len);
    um_buf_free(&line);
}
