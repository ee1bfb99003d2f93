/* Properties of the terminal, and text that is safe to write to it. */
#include <langinfo.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "cli/cli.h"

/* Returns rows or columns of the terminal; if it does not report them, the value of LINES or COLUMNS. */
static int size_of(int fd, bool lines, const char *name, int otherwise) {
    struct winsize w;
    int64_t v = 0;
    if (ioctl(fd, TIOCGWINSZ, &w) == 0) v = lines ? w.ws_row : w.ws_col;
    const char *text = getenv(name);
    if (v <= 0 && (!text || !um_parse_int(text, &v) || v <= 0 || v > 10000)) return otherwise;
    return (int)v;
}

int um_cli_columns(int fd) { return size_of(fd, false, "COLUMNS", 80); }

int um_cli_lines(int fd) { return size_of(fd, true, "LINES", 24); }

bool um_cli_can_draw(int fd) {
    const char *term = getenv("TERM");
    return isatty(fd) && term && *term && !um_streq(term, "dumb");
}

/* A non-empty NO_COLOR turns colours off (no-color.org). */
bool um_cli_colour(int fd) {
    const char *no = getenv("NO_COLOR");
    return um_cli_can_draw(fd) && !(no && *no);
}

bool um_cli_utf8(void) { return um_streq(nl_langinfo(CODESET), "UTF-8"); }

/* ---- Echo -------------------------------------------------------------------------------------------------------- */

static struct termios saved_mode;
static volatile bool echo_is_off;

/* Only the foreground process may change the terminal mode; the system would stop a background process. */
void um_cli_echo(bool on) {
    if (on == !echo_is_off || tcgetpgrp(STDIN_FILENO) != getpgrp()) return;
    if (on) {
        echo_is_off = false;
        tcsetattr(STDIN_FILENO, TCSANOW, &saved_mode);
        return;
    }
    if (tcgetattr(STDIN_FILENO, &saved_mode) != 0) return;
    struct termios quiet = saved_mode;
    quiet.c_lflag &= ~(tcflag_t)ECHO;
    echo_is_off = tcsetattr(STDIN_FILENO, TCSANOW, &quiet) == 0;
}

/* ---- Safe text --------------------------------------------------------------------------------------------------- */

void um_cli_put_safe(um_buf *out, const char *text, size_t n) {
    const char *instead = um_cli_utf8() ? "\xEF\xBF\xBD" : "?";
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        bool incomplete;
        int len = um_utf8_next(text + i, n - i, &cp);
        if (len > 0 && !um_utf8_is_control(cp)) um_buf_append(out, text + i, (size_t)len);
        else um_buf_puts(out, instead);
        i += len > 0 ? (size_t)len : um_utf8_bad(text + i, n - i, &incomplete);
    }
}
