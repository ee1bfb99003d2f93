/* The progress bar on stderr: redrawn in place on a terminal; elsewhere a line at intervals. */
#include <unistd.h>

#include "cli/cli.h"

#define DRAW_SECONDS 0.1
#define BAR_MAX      30

struct um_progress {
    const char *what;
    /* total < 0: unknown. before: units that were done before the start, which do not count for the speed. */
    int64_t total, before, done;
    double start, drawn, interval;
    double delay;  /* seconds before the first line */
    bool is_bytes; /* the units are bytes */
    bool terminal, shown;
    char note[80];
};

um_progress *um_progress_new(const char *what, int64_t total, int64_t done, double interval) {
    um_progress *p = UM_NEW(um_progress);
    p->what = what;
    p->total = total;
    p->before = p->done = done;
    p->start = p->drawn = um_now();
    p->terminal = isatty(STDERR_FILENO);
    p->interval = p->terminal ? DRAW_SECONDS : interval;
    return p;
}

um_progress *um_progress_new_bytes(const char *what, int64_t total, double delay, double interval) {
    um_progress *p = um_progress_new(what, total, 0, interval);
    p->is_bytes = true;
    p->delay = delay;
    p->drawn = p->start - p->interval; /* the first line comes after the delay */
    return p;
}

/* Appends a duration, as in "7 s", "2:05" or "1:00:05". */
static void put_duration(um_buf *b, double seconds) {
    int64_t s = (int64_t)(seconds + 0.5);
    if (s < 60) um_buf_printf(b, "%d s", (int)s);
    else if (s < 3600) um_buf_printf(b, "%d:%02d", (int)(s / 60), (int)(s % 60));
    else um_buf_printf(b, "%lld:%02d:%02d", (long long)(s / 3600), (int)(s / 60 % 60), (int)(s % 60));
}

static void put_bar(const um_progress *p, um_buf *b) {
    int width = UM_MIN(BAR_MAX, um_cli_columns(STDERR_FILENO) - 60);
    if (!p->terminal || p->total <= 0 || width < 8) return;
    int full = (int)((double)width * (double)p->done / (double)p->total);
    um_buf_putc(b, '[');
    for (int i = 0; i < width; i++) um_buf_putc(b, i < full ? '#' : '.');
    um_buf_puts(b, "] ");
}

static void put_count(const um_progress *p, um_buf *b) {
    char done[UM_BYTES_TEXT], total[UM_BYTES_TEXT];
    if (p->is_bytes && p->total > 0) {
        um_buf_printf(b, "%d %%  %s of %s", (int)((double)p->done / (double)p->total * 100),
                      um_bytes_text(done, (double)p->done), um_bytes_text(total, (double)p->total));
        return;
    }
    um_buf_printf(b, "%lld", (long long)p->done);
    if (p->total >= 0) um_buf_printf(b, "/%lld", (long long)p->total);
    um_buf_printf(b, " %s", p->what);
}

static void put_status(const um_progress *p, um_buf *b) {
    put_count(p, b);
    if (*p->note) um_buf_printf(b, "  %s", p->note);
    int64_t fresh = p->done - p->before, left = p->total - p->done;
    if (p->total < 0 || fresh <= 0 || left <= 0) return;
    um_buf_puts(b, "  ETA ");
    put_duration(b, (um_now() - p->start) / (double)fresh * (double)left);
}

/* Draws with one write, so that log lines can't interrupt it. Cuts the line at the terminal's width, because a longer
 * line could not be redrawn. */
static void draw(um_progress *p) {
    um_buf b = {0};
    if (p->terminal) um_buf_putc(&b, '\r');
    if (p->is_bytes) um_buf_printf(&b, "%s ", p->what);
    put_bar(p, &b);
    put_status(p, &b);
    size_t columns = (size_t)um_cli_columns(STDERR_FILENO);
    if (p->terminal && b.len > columns) b.len = columns;
    um_buf_puts(&b, p->terminal ? "\033[K" : "\n");
    fwrite(b.data, 1, b.len, stderr);
    fflush(stderr);
    um_buf_free(&b);
    p->drawn = um_now();
    p->shown = true;
}

void um_progress_set(um_progress *p, int64_t done, const char *note) {
    if (!p) return;
    p->done = done;
    snprintf(p->note, sizeof p->note, "%s", note ? note : "");
    const double now = um_now();
    if (p->interval > 0 && now - p->drawn >= p->interval && now - p->start >= p->delay) draw(p);
}

void um_progress_hide(um_progress *p) {
    if (!p || !p->terminal || !p->shown) return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    p->shown = false;
}

void um_progress_clear(um_progress *p) {
    if (!p || !p->terminal || !p->shown) return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    p->shown = false;
    p->drawn = 0;
}

void um_progress_free(um_progress *p) {
    if (!p) return;
    if (p->terminal && p->shown) {
        draw(p);
        fputc('\n', stderr);
    }
    um_free(p);
}
