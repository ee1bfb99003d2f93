/* Breaks the lines of streamed text between words. Only spaces become line breaks, so the text needs no escape
 * sequences, and it is the text that the view of an answer leaves behind. */
#include "cli/wrap.h"

/* Writes n bytes, `width` columns wide. The terminal breaks a row that becomes too long. */
static void write_cells(um_wrap *w, const char *bytes, size_t n, int width, int columns, um_buf *out) {
    um_buf_append(out, bytes, n);
    w->column = w->column + width > columns ? width : w->column + width;
}

static void write_line_break(um_wrap *w, um_buf *out) {
    um_buf_putc(out, '\n');
    w->column = 0;
}

/* Writes the kept space, as a line break if `width` columns after it would not fit, and the kept word. */
static void write_kept(um_wrap *w, int width, int columns, um_buf *out) {
    if (w->has_space && w->column + 1 + width > columns) write_line_break(w, out);
    else if (w->has_space) write_cells(w, " ", 1, 1, columns, out);
    w->has_space = false;
    write_cells(w, w->word.data, w->word.len, w->width, columns, out);
    um_buf_clear(&w->word);
    w->width = 0;
}

/* Writes the kept word, or the kept space, at the end of a line. A space that does not fit is left out: the terminal
 * would begin another row for it. */
static void end_line(um_wrap *w, int columns, um_buf *out) {
    if (!w->word.len && w->column >= columns) w->has_space = false;
    write_kept(w, w->width, columns, out);
}

/* Rows can also break around a wide character. A word without a space before it is not kept, because the row has no
 * better place for a break. */
static void take_character(um_wrap *w, const char *bytes, size_t n, int width, int columns, um_buf *out) {
    if (width > 1) write_kept(w, w->word.len ? w->width : width, columns, out);
    if (w->has_space) {
        um_buf_append(&w->word, bytes, n);
        w->width += width;
        if (w->column + 1 + w->width > columns) write_kept(w, w->width, columns, out);
    } else write_cells(w, bytes, n, width, columns, out);
}

/* A tab moves the cursor to the next column that is a multiple of 8, but not out of the row. */
static void write_tab(um_wrap *w, int columns, um_buf *out) {
    um_buf_putc(out, '\t');
    w->column = UM_MIN(w->column + 8 - w->column % 8, columns - 1);
}

void um_wrap_text(um_wrap *w, um_str text, int columns, um_buf *out) {
    for (size_t i = 0; i < text.n;) {
        uint32_t cp = 0;
        const size_t n = (size_t)um_utf8_next(text.p + i, text.n - i, &cp);
        assert(n > 0);
        if (cp == '\n') {
            end_line(w, columns, out);
            write_line_break(w, out);
        } else if (cp == '\t' || cp == ' ') {
            write_kept(w, w->width, columns, out);
            if (cp == '\t') write_tab(w, columns, out);
            else w->has_space = true;
        } else take_character(w, text.p + i, n, um_utf8_width(cp), columns, out);
        i += n;
    }
}

void um_wrap_end(um_wrap *w, int columns, um_buf *out) {
    end_line(w, columns, out);
    w->column = 0;
}

void um_wrap_free(um_wrap *w) {
    um_buf_free(&w->word);
    *w = (um_wrap){0};
}
