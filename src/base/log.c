/* Log: one line a call on stderr. */
#include "base/base.h"

#include <stdatomic.h>

static atomic_int log_level = UM_LOG_WARN;

void um_log_set_level(um_log_level level) { atomic_store_explicit(&log_level, (int)level, memory_order_relaxed); }

um_log_level um_log_get_level(void) { return (um_log_level)atomic_load_explicit(&log_level, memory_order_relaxed); }

/* The line is formatted aside and written by one call, so that lines of several threads do not mix. */
void um_log(um_log_level level, const char *fmt, ...) {
    static const char *const names[] = {"error: ", "warning: ", "", "debug: "};
    if (level > um_log_get_level()) return;
    char line[2048];
    int head = snprintf(line, sizeof line, "unmask: %s", names[level]);
    va_list ap;
    va_start(ap, fmt);
    int body = vsnprintf(line + head, sizeof line - (size_t)head - 1, fmt, ap);
    va_end(ap);
    size_t n = UM_MIN((size_t)head + (size_t)UM_MAX(body, 0), sizeof line - 2);
    line[n++] = '\n';
    fwrite(line, 1, n, stderr);
}
