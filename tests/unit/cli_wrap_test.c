/* Line breaks of streamed text: between words, and the same as in a finished view. */
#include <fcntl.h>
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/cli.h"
#include "cli/wrap.h"

enum { COLUMNS = 20, TEXT_MAX = 400, TRIALS = 300 };

/* Returns the lines of a text that arrives in pieces of n bytes; n 0: in one piece. */
static const char *wrapped(const char *text, size_t n) {
    static um_buf out;
    um_wrap w = {0};
    const size_t len = strlen(text);
    um_buf_clear(&out);
    for (size_t i = 0; i < len;) {
        size_t end = n ? UM_MIN(i + n, len) : len;
        while (end < len && ((unsigned char)text[end] & 0xC0) == 0x80) end++; /* only whole characters */
        um_wrap_text(&w, (um_str){text + i, end - i}, COLUMNS, &out);
        i = end;
    }
    um_wrap_end(&w, COLUMNS, &out);
    assert_int_equal(w.column, 0);
    um_wrap_free(&w);
    return out.data;
}

static void lines_break_at_spaces(void **state) {
    (void)state;
    for (size_t n = 0; n < 6; n++) {
        assert_string_equal(wrapped("one two three four five", n), "one two three four\nfive");
        assert_string_equal(wrapped("12345678901234567890 x\n\n  y ", n), "12345678901234567890\nx\n\n  y ");
        assert_string_equal(wrapped("123456789 123456789  x", n), "123456789 123456789 \nx");
        assert_string_equal(wrapped("12345678901234567890 \nx", n), "12345678901234567890\nx");
        assert_string_equal(wrapped("123456789\t12 345\tx", n), "123456789\t12\n345\tx");
    }
}

static void long_words_and_wide_characters_are_left_to_the_terminal(void **state) {
    (void)state;
    assert_string_equal(wrapped("a 1234567890123456789012 b", 1), "a\n1234567890123456789012 b");
    assert_string_equal(wrapped("a \u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d\u5341 b", 1),
                        "a \u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d\u5341 b");
    assert_string_equal(wrapped("1234567890123456789 \u4e00", 1), "1234567890123456789\n\u4e00");
    assert_string_equal(wrapped("12345678901 \u00fc\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc e\u0301", 1),
                        "12345678901 \u00fc\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc\ne\u0301");
}

/* A word is kept only behind a space, and only while it may still move to the next row. */
static void text_is_written_as_soon_as_its_row_is_known(void **state) {
    um_wrap w = {0};
    um_buf out = {0};
    (void)state;
    um_wrap_text(&w, um_str_of("one"), COLUMNS, &out);
    assert_string_equal(out.data, "one");
    um_wrap_text(&w, um_str_of(" two"), COLUMNS, &out);
    assert_string_equal(out.data, "one");
    um_wrap_text(&w, um_str_of(" "), COLUMNS, &out);
    assert_string_equal(out.data, "one two");
    um_wrap_text(&w, um_str_of("1234567890123"), COLUMNS, &out);
    assert_string_equal(out.data, "one two\n1234567890123");
    um_wrap_free(&w);
    um_buf_free(&out);
}

static void any_width_is_survived(void **state) {
    (void)state;
    for (int columns = 1; columns < 5; columns++) {
        um_wrap w = {0};
        um_buf out = {0};
        um_wrap_text(&w, um_str_of("a  bc\t\u4e00 def\n gh"), columns, &out);
        um_wrap_end(&w, columns, &out);
        assert_true(out.len > 10 && w.word.len == 0);
        um_wrap_free(&w);
        um_buf_free(&out);
    }
}

/* Words of all lengths, several spaces, and empty lines. A letter ends each line and the text: the view writes a space
 * there even if it does not fit. */
static void make_text(uint64_t trial, char text[TEXT_MAX]) {
    const size_t n = 1 + um_rng_u64(trial, 0) % (TEXT_MAX - 2);
    for (size_t i = 0; i < n; i++) {
        const uint64_t kind = um_rng_u64(trial, i + 1) % 40;
        text[i] = kind < 8 ? ' ' : kind == 8 ? '\n' : (char)('a' + kind % 26);
        if (i + 1 == n || (text[i] == '\n' && i && text[i - 1] == ' ')) text[i] = 'x';
    }
    text[n] = '\0';
}

/* Returns what a view leaves on a terminal of COLUMNS columns, without carriage returns. A read may return a part, so
 * a byte that no text has marks the end. */
static const char *viewed(int master, int terminal, um_view *v, const char *text) {
    enum { MARK = 1 };
    static char shown[4 * TEXT_MAX];
    size_t kept = 0;
    um_view_reset(v);
    um_view_finish(v, um_str_of(text));
    assert_int_equal(write(terminal, &(char){MARK}, 1), 1);
    for (char c; read(master, &c, 1) == 1 && c != MARK;) {
        assert_true(kept + 1 < sizeof shown);
        if (c != '\r') shown[kept++] = c;
    }
    shown[kept] = '\0';
    return shown;
}

static void streamed_lines_are_those_of_a_finished_view(void **state) {
    const struct winsize size = {.ws_row = 24, .ws_col = COLUMNS};
    char text[TEXT_MAX];
    (void)state;
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    int terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
    assert_true(terminal >= 0 && ioctl(terminal, TIOCSWINSZ, &size) == 0);
    um_view *v = um_view_new(terminal);
    for (uint64_t i = 0; i < TRIALS; i++) {
        make_text(i, text);
        um_buf want = {0};
        um_buf_puts(&want, wrapped(text, i % 5));
        if (want.len && want.data[want.len - 1] != '\n') um_buf_putc(&want, '\n');
        assert_string_equal(viewed(master, terminal, v, text), want.data);
        um_buf_free(&want);
    }
    um_view_free(v);
    close(terminal);
    close(master);
}

int main(void) {
    setlocale(LC_CTYPE, "C.UTF-8");
    setenv("TERM", "xterm", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_break_at_spaces),
        cmocka_unit_test(long_words_and_wide_characters_are_left_to_the_terminal),
        cmocka_unit_test(text_is_written_as_soon_as_its_row_is_known),
        cmocka_unit_test(any_width_is_survived),
        cmocka_unit_test(streamed_lines_are_those_of_a_finished_view),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
