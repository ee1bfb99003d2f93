/* Draws an answer in place while it is denoised.
 *
 * The view keeps the settled text; the tokens in flight come with every frame. It lays out a frame into rows of the
 * terminal's width and writes them over the rows of the last frame in one write. If the rows don't fit, settled rows
 * scroll out at the top and are not drawn again. If the rows in flight alone don't fit, the view cuts off their end.
 * Rows break at spaces, around wide characters and after masks. The finished answer is printed as ordinary text with
 * the same line breaks at spaces; the terminal itself breaks longer words, so that they can be copied whole. */
#include <errno.h>
#include <unistd.h>

#include "cli/cli.h"

#define FRAME_SECONDS (1.0 / 60)

/* A row of the frame. */
typedef struct row {
    size_t start; /* offset of its bytes in `cells` */
    size_t text;  /* bytes of settled text before the row */
    int width;
    bool open; /* the row has text that may still change */
} row;

/* The last place in the current row where the row may break. */
typedef struct gap {
    size_t cells, text; /* bytes of `cells` and of settled text before it */
    int column;         /* 0: there is no such place */
    const char *style;
    bool open, open_after; /* text that may still change: before it, after it */
} gap;

/* Escape sequences for the states of tokens, indexed by UM_TOKEN_*; "" for plain text. */
typedef struct palette {
    const char *style[4];
} palette;
static const palette coloured = {{"\x1b[2m", "\x1b[1;32m", "\x1b[36m", ""}};
static const palette plain = {{"\x1b[2m", "\x1b[1m", "\x1b[2m", ""}}; /* NO_COLOR forbids colours, but not bold text */

struct um_view {
    int fd;
    bool draws; /* fd is a terminal that can move its cursor */
    const palette *palette;
    const char *mask, *special; /* signs for masks and special tokens, one column wide */

    size_t taken; /* bytes of the settled text that are in `text` already */
    size_t base;  /* bytes of `text` that have scrolled out at the top */
    um_buf text;  /* settled text, safe for a terminal */

    um_buf cells, scratch, frame;
    row *rows;
    int n_rows, cap_rows, columns, column;
    gap gap;
    bool after_gap;             /* the next cell may begin a row */
    const char *style;          /* style at the end of `cells`; every row begins and ends with plain text */
    int first_drawn, end_drawn; /* rows on the screen; the cursor is in the last one */
    double last_frame;
};

um_view *um_view_new(int fd) {
    um_view *v = UM_NEW(um_view);
    bool utf8 = um_cli_utf8();
    v->fd = fd;
    v->draws = um_cli_can_draw(fd);
    v->palette = um_cli_colour(fd) ? &coloured : &plain;
    v->mask = utf8 ? "\u2591" : "_";
    v->special = utf8 ? "\u00b7" : ".";
    um_buf_reserve(&v->text, 4096);
    um_buf_reserve(&v->scratch, 256);
    um_view_reset(v);
    return v;
}

void um_view_free(um_view *v) {
    if (!v) return;
    um_buf_free(&v->text);
    um_buf_free(&v->cells);
    um_buf_free(&v->scratch);
    um_buf_free(&v->frame);
    um_free(v->rows);
    um_free(v);
}

void um_view_reset(um_view *v) {
    um_buf_clear(&v->text);
    v->taken = v->base = 0;
    v->n_rows = v->first_drawn = v->end_drawn = 0;
    v->last_frame = 0;
}

/* ---- Layout ------------------------------------------------------------------------------------------------------ */

static void set_style(um_view *v, const char *style) {
    if (um_streq(v->style, style)) return;
    if (*v->style) um_buf_puts(&v->cells, "\x1b[m");
    um_buf_puts(&v->cells, style);
    v->style = style;
}

static void begin_row(um_view *v, size_t text) {
    set_style(v, "");
    if (v->n_rows == v->cap_rows) {
        v->cap_rows = UM_MAX(2 * v->cap_rows, 64);
        v->rows = (row *)um_realloc(v->rows, um_mul((size_t)v->cap_rows, sizeof(row)));
    }
    v->rows[v->n_rows++] = (row){.start = v->cells.len, .text = text};
    v->column = 0;
    v->gap = (gap){0};
    v->after_gap = false;
}

static void insert(um_buf *out, size_t at, const char *text) {
    size_t n = strlen(text);
    um_buf_puts(out, text); /* makes room */
    memmove(out->data + at + n, out->data + at, out->len - n - at);
    memcpy(out->data + at, text, n);
}

/* Moves the text after the gap to a new row. */
static void break_at_gap(um_view *v) {
    const gap g = v->gap;
    const char *end = *g.style ? "\x1b[m" : "", *style = v->style;
    int column = v->column - g.column;
    insert(&v->cells, g.cells, g.style);
    insert(&v->cells, g.cells, end);
    v->rows[v->n_rows - 1].width = g.column;
    v->rows[v->n_rows - 1].open = g.open;
    v->style = "";
    begin_row(v, g.text);
    v->style = style;
    v->rows[v->n_rows - 1] =
        (row){.start = g.cells + strlen(end), .text = g.text, .width = column, .open = g.open_after};
    v->column = column;
}

/* Begins a row for a cell that does not fit into the current one. */
static void wrap(um_view *v, size_t text, bool may_break) {
    if (!may_break && v->gap.column > 0) {
        break_at_gap(v);
        return;
    }
    begin_row(v, text);
}

/* Places n bytes, w columns wide, into the current row, or into a new one. `text` bytes of settled text precede them.
 * A space that does not fit becomes the end of its row. */
static void put_cell(um_view *v, int state, const char *bytes, size_t n, int w, size_t text) {
    const bool is_space = *bytes == ' ', may_break = v->after_gap || w > 1;
    if (is_space && v->column + w > v->columns && v->column > 0) {
        begin_row(v, text + (state == UM_TOKEN_SETTLED));
        return;
    }
    while (v->column + w > v->columns && v->column > 0) wrap(v, text, v->after_gap || w > 1);
    row *r = &v->rows[v->n_rows - 1];
    if (v->column > 0 && !is_space && may_break)
        v->gap = (gap){v->cells.len, text, v->column, v->style, r->open, false};
    v->after_gap = is_space || w > 1 || state == UM_TOKEN_MASK; /* text before a mask may be half a word */
    v->gap.open_after |= state != UM_TOKEN_SETTLED;
    set_style(v, v->palette->style[state]);
    um_buf_append(&v->cells, bytes, n);
    v->column += w;
    r->width = v->column;
    r->open |= state != UM_TOKEN_SETTLED;
}

/* Lays out safe text. Settled text starts at byte `text` of v->text; for text in flight, `text` is the end of v->text.
 */
static void put_text(um_view *v, int state, const char *s, size_t n, size_t text) {
    size_t moves = state == UM_TOKEN_SETTLED;
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        size_t len = (size_t)um_utf8_next(s + i, n - i, &cp);
        assert(len > 0);
        if (cp == '\n') {
            v->rows[v->n_rows - 1].open |= !moves;
            begin_row(v, text + moves * (i + 1));
        } else if (cp == '\t') {
            int w = UM_MIN(8 - v->column % 8, UM_MAX(v->columns - v->column, 1));
            put_cell(v, state, "        ", (size_t)w, w, text + moves * i);
        } else {
            put_cell(v, state, s + i, len, um_utf8_width(cp), text + moves * i);
        }
        i += len;
    }
}

static void take_settled(um_view *v, um_str settled) {
    if (settled.n <= v->taken) return;
    um_cli_put_safe(&v->text, settled.p + v->taken, settled.n - v->taken);
    v->taken = settled.n;
}

static void put_piece(um_view *v, const um_piece *p) {
    const char *sign = p->state == UM_TOKEN_MASK ? v->mask : p->is_special ? v->special : NULL;
    if (sign) {
        put_cell(v, UM_TOKEN_MASK, sign, strlen(sign), 1, v->text.len);
        return;
    }
    um_buf_clear(&v->scratch);
    um_cli_put_safe(&v->scratch, p->text.p, p->text.n);
    put_text(v, p->state, v->scratch.data, v->scratch.len, v->text.len);
}

static void lay_out(um_view *v, const um_frame *f) {
    take_settled(v, f->settled);
    um_buf_clear(&v->cells);
    v->n_rows = 0;
    v->style = "";
    begin_row(v, v->base);
    put_text(v, UM_TOKEN_SETTLED, v->text.data + v->base, v->text.len - v->base, v->base);
    for (size_t i = 0; i < f->n; i++) put_piece(v, &f->piece[i]);
    set_style(v, "");
}

/* ---- Drawing ----------------------------------------------------------------------------------------------------- */

/* Writes the frame. Ignores errors: if the terminal is gone, the answer is still returned to the caller. */
static void send(um_view *v) {
    const char *p = v->frame.data;
    for (size_t left = v->frame.len; left > 0;) {
        ssize_t n = write(v->fd, p, left);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        p += n;
        left -= (size_t)n;
    }
    um_buf_clear(&v->frame);
}

/* Moves the cursor to the first drawn row. If the terminal's width has changed since the last frame, the terminal has
 * wrapped the rows again. */
static void to_top(um_view *v, int columns) {
    int up = -1;
    for (int i = v->first_drawn; i < v->end_drawn; i++) up += UM_MAX(1, UM_CEIL_DIV(v->rows[i].width, columns));
    um_buf_putc(&v->frame, '\r');
    if (up > 0) um_buf_printf(&v->frame, "\x1b[%dA", up);
}

/* Chooses the rows on the screen: the last ones, but a row that may still change must not scroll out. */
static void choose_window(um_view *v, int height) {
    int open = 0;
    while (open < v->n_rows - 1 && !v->rows[open].open) open++;
    v->first_drawn = UM_MAX(0, UM_MIN(open, v->n_rows - height));
    v->end_drawn = UM_MIN(v->n_rows, v->first_drawn + height);
}

bool um_view_is_due(const um_view *v) { return v->draws && um_now() - v->last_frame >= FRAME_SECONDS; }

/* Clears each line before writing it. After a full line, the cursor would still be on its last character, and clearing
 * would remove that character. */
void um_view_draw(um_view *v, const um_frame *f) {
    int columns = um_cli_columns(v->fd);
    if (!um_view_is_due(v)) return;
    v->last_frame = um_now();
    to_top(v, columns);
    v->columns = columns;
    lay_out(v, f);
    choose_window(v, UM_MAX(um_cli_lines(v->fd) - 1, 1));
    for (int i = 0; i < v->end_drawn; i++) {
        size_t end = i + 1 < v->n_rows ? v->rows[i + 1].start : v->cells.len;
        um_buf_puts(&v->frame, i + 1 == v->end_drawn ? "\x1b[J" : "\x1b[K");
        um_buf_append(&v->frame, v->cells.data + v->rows[i].start, end - v->rows[i].start);
        if (i + 1 < v->end_drawn) um_buf_puts(&v->frame, "\r\n");
    }
    v->base = v->rows[v->first_drawn].text;
    send(v);
}

/* Appends the text of a row, with a line break in place of the space at which the row was broken. */
static void put_row_text(um_view *v, int i) {
    size_t start = v->rows[i].text, end = i + 1 < v->n_rows ? v->rows[i + 1].text : v->text.len;
    bool breaks = end < v->text.len && end > start && v->text.data[end - 1] == ' ';
    um_buf_append(&v->frame, v->text.data + start, end - start - breaks);
    if (breaks) um_buf_putc(&v->frame, '\n');
}

/* Prints the text from the first row on the screen on. */
void um_view_finish(um_view *v, um_str text) {
    um_buf_clear(&v->scratch);
    um_cli_put_safe(&v->scratch, text.p, text.n);
    size_t from = UM_MIN(v->base, v->scratch.len);
    if (v->end_drawn > v->first_drawn) {
        to_top(v, um_cli_columns(v->fd));
        um_buf_puts(&v->frame, "\x1b[J");
    }
    um_buf_clear(&v->text);
    um_buf_append(&v->text, v->scratch.data, v->scratch.len);
    v->columns = um_cli_columns(v->fd);
    v->base = from;
    lay_out(v, &(um_frame){.settled = {NULL, 0}});
    for (int i = 0; i < v->n_rows; i++) put_row_text(v, i);
    if (v->frame.len && v->frame.data[v->frame.len - 1] != '\n') um_buf_putc(&v->frame, '\n');
    send(v);
    v->first_drawn = v->end_drawn = 0;
}

void um_view_summary(FILE *f, const um_result *r, bool colour) {
    double seconds = r->total_seconds - r->queue_seconds;
    fprintf(f, "%s[%zu token%s", colour ? "\x1b[2m" : "", r->n_tokens, r->n_tokens == 1 ? "" : "s");
    if (r->nfe > 0) fprintf(f, " in %d pass%s", r->nfe, r->nfe == 1 ? "" : "es");
    if (seconds > 0) fprintf(f, ", %.1f tokens/s", (double)r->n_tokens / seconds);
    if (r->nfe > 0) fprintf(f, ", %.2f tokens/forward", (double)r->n_tokens / r->nfe);
    fprintf(f, ", %s]%s\n", um_finish_name(r->finish), colour ? "\x1b[m" : "");
}
