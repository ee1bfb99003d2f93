/* The line editor over libedit. This file decodes the keys itself: libedit would repeat a read that Ctrl-C interrupts,
 * and would take each line of a pasted text as a line of its own. */
#include "cli/line_editor.h"

#ifndef UM_LIBEDIT

const char *um_line_editor_library(void) { return NULL; }

um_line_editor *um_line_editor_new(const char *history_file) {
    (void)history_file;
    return NULL;
}

um_line_result um_line_editor_read(um_line_editor *e, const char *prompt, um_buf *line, bool *was_empty) {
    (void)e, (void)prompt, (void)line, (void)was_empty;
    return UM_LINE_END;
}

void um_line_editor_add(um_line_editor *e, const char *text) { (void)e, (void)text; }

void um_line_editor_free(um_line_editor *e) { (void)e; }

#else

#include <errno.h>
#include <histedit.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#include "cli/cli.h"

#define HISTORY_LINES 1000
#define BREAK         0x21B5 /* the sign for a line break inside of the line and in the history file */
#define BREAK_UTF8    "\u21b5"
#define PASTE_ON      "\x1b[?2004h" /* the terminal marks pasted text */
#define PASTE_OFF     "\x1b[?2004l"
#define PASTE_BEGIN   "\x1b[200~"
#define PASTE_END     "\x1b[201~"

enum { KEY_END = -1, KEY_INTERRUPT = -2 };

struct um_line_editor {
    EditLine *edit;
    History *history;
    char *file, *prompt;
    unsigned char pending[16]; /* bytes that were read ahead */
    size_t n_pending;
    bool pasting, after_return; /* after_return: the last pasted character was a carriage return */
    bool interrupted, was_empty;
};

const char *um_line_editor_library(void) { return "libedit"; }

/* ---- Keys -------------------------------------------------------------------------------------------------------- */

static int next_byte(um_line_editor *e) {
    unsigned char c;
    if (e->n_pending) {
        c = e->pending[0];
        memmove(e->pending, e->pending + 1, --e->n_pending);
        return c;
    }
    for (;;) {
        ssize_t n = read(STDIN_FILENO, &c, 1);
        if (n == 1) return c;
        if (n == 0 || errno != EINTR) return KEY_END;
        if (um_cli_interrupted()) return KEY_INTERRUPT;
    }
}

/* After an escape character: returns whether the bytes that follow complete `sequence`. Keeps other bytes for later. */
static bool take_sequence(um_line_editor *e, const char *sequence) {
    unsigned char seen[8];
    size_t n = 0;
    while (sequence[n + 1]) {
        int c = next_byte(e);
        if (c < 0) return false;
        seen[n++] = (unsigned char)c;
        if (c != (unsigned char)sequence[n]) break;
        if (!sequence[n + 1]) return true;
    }
    if (n + e->n_pending > sizeof e->pending) return false;
    memmove(e->pending + n, e->pending, e->n_pending);
    memcpy(e->pending, seen, n);
    e->n_pending += n;
    return false;
}

/* Reads a character in UTF-8. Bytes that are no character become U+FFFD. */
static int32_t next_character(um_line_editor *e) {
    char bytes[4];
    uint32_t cp = 0;
    bool incomplete = true;
    for (size_t n = 0; n < sizeof bytes && incomplete;) {
        int c = next_byte(e);
        if (c < 0) return c;
        bytes[n++] = (char)c;
        if (um_utf8_next(bytes, n, &cp)) return (int32_t)cp;
        (void)um_utf8_bad(bytes, n, &incomplete);
    }
    return 0xFFFD;
}

/* Returns the character that stands for a pasted one in the line, or 0 to drop it. */
static int32_t pasted(um_line_editor *e, int32_t c) {
    bool is_second = c == '\n' && e->after_return;
    e->after_return = c == '\r';
    if (is_second) return 0;
    if (c == '\r' || c == '\n') return BREAK;
    if (c == '\t') return ' ';
    return c < 0x20 || c == 0x7F ? 0 : c;
}

/* Gives libedit the next key. Returns 1, 0 at the end of input, or -1 after Ctrl-C. */
static int get_key(EditLine *edit, wchar_t *out) {
    um_line_editor *e = NULL;
    int32_t c;
    el_get(edit, EL_CLIENTDATA, &e);
    while ((c = next_character(e)) >= 0) {
        if (c == 0x1B && take_sequence(e, e->pasting ? PASTE_END : PASTE_BEGIN)) {
            e->pasting = !e->pasting;
            continue;
        }
        if (e->pasting) c = pasted(e, c);
        if (c == 0) continue;
        *out = (wchar_t)c;
        return 1;
    }
    if (c == KEY_END) return 0;
    const LineInfo *line = el_line(edit);
    e->interrupted = true;
    e->was_empty = line->lastchar == line->buffer;
    return -1;
}

static char *get_prompt(EditLine *edit) {
    um_line_editor *e = NULL;
    el_get(edit, EL_CLIENTDATA, &e);
    return e->prompt;
}

/* ---- Text -------------------------------------------------------------------------------------------------------- */

/* Appends text with every `from` replaced by `to`. */
static void put_replaced(um_buf *out, const char *text, const char *from, const char *to) {
    for (const char *at; (at = strstr(text, from)); text = at + strlen(from)) {
        um_buf_append(out, text, (size_t)(at - text));
        um_buf_puts(out, to);
    }
    um_buf_puts(out, text);
}

/* Writes the history to a new file that takes the place of the old one, so that it is never half written. */
static void save_history(um_line_editor *e) {
    HistEvent event;
    um_buf path = {0};
    if (!e->file) return;
    um_buf_printf(&path, "%s.%ld", e->file, (long)getpid());
    mode_t mask = umask(077);
    if (history(e->history, &event, H_SAVE, path.data) < 0 || rename(path.data, e->file) != 0) unlink(path.data);
    umask(mask);
    um_buf_free(&path);
}

void um_line_editor_add(um_line_editor *e, const char *text) {
    HistEvent event;
    um_buf line = {0};
    put_replaced(&line, text, "\n", BREAK_UTF8);
    history(e->history, &event, H_ENTER, line.data);
    um_buf_free(&line);
    save_history(e);
}

/* ---- The editor -------------------------------------------------------------------------------------------------- */

um_line_editor *um_line_editor_new(const char *history_file) {
    HistEvent event;
    if (!isatty(STDIN_FILENO) || !um_cli_can_draw(STDERR_FILENO) || !um_cli_utf8()) return NULL;
    um_line_editor *e = UM_NEW(um_line_editor);
    *e = (um_line_editor){.file = history_file ? um_strdup(history_file) : NULL, .prompt = um_strdup("")};
    e->edit = el_init("unmask", stdin, stderr, stderr);
    e->history = history_init();
    if (!e->edit || !e->history) {
        um_line_editor_free(e);
        return NULL;
    }
    history(e->history, &event, H_SETSIZE, HISTORY_LINES);
    history(e->history, &event, H_SETUNIQUE, 1);
    if (e->file) history(e->history, &event, H_LOAD, e->file);
    el_set(e->edit, EL_CLIENTDATA, e);
    el_set(e->edit, EL_PROMPT_ESC, get_prompt, '\1');
    el_set(e->edit, EL_EDITOR, "emacs");
    el_set(e->edit, EL_HIST, history, e->history);
    el_set(e->edit, EL_GETCFN, get_key);
    el_set(e->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    return e;
}

um_line_result um_line_editor_read(um_line_editor *e, const char *prompt, um_buf *line, bool *was_empty) {
    int n = 0;
    um_free(e->prompt);
    um_buf text = {0};
    um_buf_printf(&text, um_cli_colour(STDERR_FILENO) ? "\1\x1b[1m\1%s\1\x1b[m\1" : "%s", prompt);
    e->prompt = um_strdup(text.data);
    um_buf_free(&text);
    e->pasting = e->after_return = e->interrupted = false;
    el_resize(e->edit);
    fputs(PASTE_ON, stderr);
    const char *read = el_gets(e->edit, &n);
    fputs(PASTE_OFF, stderr);
    *was_empty = e->was_empty;
    if (!read || n <= 0) {
        if (e->interrupted) el_reset(e->edit);
        fputs(e->interrupted ? "^C\n" : "\n", stderr);
        return e->interrupted ? UM_LINE_INTERRUPTED : UM_LINE_END;
    }
    put_replaced(line, read, BREAK_UTF8, "\n");
    while (line->len && line->data[line->len - 1] == '\n') line->data[--line->len] = '\0';
    return UM_LINE_READ;
}

void um_line_editor_free(um_line_editor *e) {
    if (!e) return;
    if (e->edit) el_end(e->edit);
    if (e->history) history_end(e->history);
    um_free(e->file);
    um_free(e->prompt);
    um_free(e);
}

#endif
