/* Reads the messages of a conversation from a terminal or a pipe. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/chat.h"

#define QUOTES "\"\"\"" /* around a message of several lines */

/* ---- History file ------------------------------------------------------------------------------------------------ */

/* Makes the folders above a file, for its user only. */
static void make_folders(char *path) {
    for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = '\0';
        mkdir(path, 0700);
        *p = '/';
    }
}

/* Returns the path of the history file, or NULL when no folder is known for it. */
static char *history_path(void) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    um_buf path = {0};
    if (state && *state == '/') um_buf_puts(&path, state);
    else if (home && *home == '/') um_buf_printf(&path, "%s/.local/state", home);
    else return NULL;
    um_buf_puts(&path, "/unmask/history");
    make_folders(path.data);
    char *copy = um_strdup(path.data);
    um_buf_free(&path);
    return copy;
}

void um_conversation_open_input(um_conversation *t, bool keep_history) {
    t->tty = isatty(STDIN_FILENO);
    char *path = t->tty && keep_history && um_line_editor_library() ? history_path() : NULL;
    if (t->tty) t->editor = um_line_editor_new(path);
    um_free(path);
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

/* Reads a line as the terminal's driver or the pipe gives it. After Ctrl-C the driver has discarded the line; whether
 * it was empty is unknown. */
static um_line_result read_plain(um_conversation *t, const char *prompt, um_buf *line) {
    char *text = NULL;
    size_t cap = 0;
    if (t->tty) fprintf(stderr, um_cli_colour(STDERR_FILENO) ? "\x1b[1m%s\x1b[m" : "%s", prompt);
    errno = 0;
    ssize_t n = getline(&text, &cap, stdin);
    if (n > 0) um_buf_append(line, text, (size_t)n - (text[n - 1] == '\n'));
    bool interrupted = n <= 0 && errno == EINTR && um_cli_interrupted() && t->tty;
    free(text); /* allocated by getline */
    if (n > 0) return UM_LINE_READ;
    if (t->tty) fputc('\n', stderr);
    clearerr(stdin);
    return interrupted ? UM_LINE_INTERRUPTED : UM_LINE_END;
}

static um_line_result read_line(um_conversation *t, const char *prompt, um_buf *line, bool *was_empty) {
    *was_empty = false;
    if (t->editor) return um_line_editor_read(t->editor, prompt, line, was_empty);
    return read_plain(t, prompt, line);
}

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

static bool ends_with(const um_buf *text, const char *end) {
    size_t n = strlen(end);
    return text->len >= n && memcmp(text->data + text->len - n, end, n) == 0;
}

static void shorten(um_buf *text, size_t n) {
    text->len -= n;
    text->data[text->len] = '\0';
}

/* Removes the quotes of a complete message. Returns whether the message goes on with the next line. */
static bool goes_on(um_buf *text) {
    size_t quotes = strlen(QUOTES);
    if (strncmp(text->data, QUOTES, quotes) == 0) {
        if (text->len < 2 * quotes || !ends_with(text, QUOTES)) return true;
        shorten(text, quotes);
        memmove(text->data, text->data + quotes, text->len - quotes + 1);
        text->len -= quotes;
        return false;
    }
    if (!ends_with(text, "\\")) return false;
    shorten(text, 1);
    return true;
}

um_line_result um_conversation_read(um_conversation *t, um_buf *text) {
    bool was_empty;
    um_line_result r;
    um_buf_clear(text);
    um_buf_puts(text, "");
    for (const char *prompt = "> ";; prompt = ". ") {
        r = read_line(t, prompt, text, &was_empty);
        if (r != UM_LINE_READ || !goes_on(text)) break;
        um_buf_putc(text, '\n');
    }
    if (r == UM_LINE_READ) {
        t->interrupts = 0;
        if (t->editor && text->len) um_line_editor_add(t->editor, text->data);
    }
    if (r == UM_LINE_END && text->len) return UM_LINE_READ; /* the input ends inside of a message */
    if (r != UM_LINE_INTERRUPTED || um_cli_terminated()) return r;
    um_cli_clear_interrupt();
    t->interrupts += was_empty ? 2 : 1;
    return r;
}
