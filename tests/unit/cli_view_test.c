/* The view of an answer on a pseudo-terminal: its output for a snapshot. */
#include <fcntl.h>
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/cli.h"
#include "model/model.h"

enum { COLUMNS = 20, LINES = 6, TOKENS_MAX = 64 };

typedef struct fixture {
    um_model model; /* only its tokenizer is used */
    um_view *view;
    um_frame_builder *speller;
    int master, terminal;
} fixture;

static int setup(void **state) {
    fixture *f = UM_NEW(fixture);
    um_err err;
    setlocale(LC_CTYPE, "C.UTF-8");
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    assert_int_equal(um_tok_open(&f->model.tok, "models/tiny-block", &err), UM_OK);
    f->master = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(f->master >= 0 && grantpt(f->master) == 0 && unlockpt(f->master) == 0);
    f->terminal = open(ptsname(f->master), O_RDWR | O_NOCTTY);
    struct winsize size = {.ws_row = LINES, .ws_col = COLUMNS};
    assert_true(f->terminal >= 0 && ioctl(f->terminal, TIOCSWINSZ, &size) == 0);
    f->view = um_view_new(f->terminal);
    f->speller = um_frame_builder_new(&f->model);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    fixture *f = (fixture *)*state;
    um_view_free(f->view);
    um_frame_builder_free(f->speller);
    close(f->terminal);
    close(f->master);
    um_tok_close(f->model.tok);
    um_free(f);
    return 0;
}

/* Returns what the terminal received since the last call. */
static const char *shown(fixture *f) {
    static char text[8192];
    usleep(20000); /* longer than the shortest time between two frames */
    ssize_t n = read(f->master, text, sizeof text - 1);
    assert_true(n >= 0);
    text[n] = '\0';
    return text;
}

/* Draws tokens in the states of `states`: 'm' mask, 'f' fresh, 's' set, '.' settled. */
static const char *draw(fixture *f, const int32_t *id, const char *states) {
    uint8_t state[TOKENS_MAX];
    size_t n = strlen(states);
    for (size_t i = 0; i < n; i++) state[i] = (uint8_t)(strchr("mfs.", states[i]) - "mfs.");
    um_snapshot s = {.n = n, .id = id, .state = state};
    um_view_draw(f->view, um_frame_builder_read(f->speller, &s));
    return shown(f);
}

static const char *finish(fixture *f, const char *text) {
    um_view_finish(f->view, um_str_of(text));
    return shown(f);
}

static size_t encode(fixture *f, const char *text, int32_t id[TOKENS_MAX]) {
    um_ids ids = {0};
    assert_int_equal(um_tok_encode(f->model.tok, um_str_of(text), UM_PARSE_ALL, false, &ids, NULL), UM_OK);
    size_t n = ids.n;
    assert_true(n <= TOKENS_MAX);
    memcpy(id, ids.data, n * sizeof(int32_t));
    um_ids_free(&ids);
    return n;
}

/* ---- Claims ------------------------------------------------------------------------------------------------------ */

static void tells_masks_fresh_set_and_settled_tokens_apart(void **state) {
    fixture *f = (fixture *)*state;
    int32_t id[TOKENS_MAX];
    assert_int_equal(encode(f, "1234", id), 4);
    assert_string_equal(draw(f, id, ".sfm"), "\r\x1b[J1\x1b[36m2\x1b[m\x1b[1;32m3\x1b[m\x1b[2m\u2591\x1b[m");
}

static void joins_a_character_that_is_spread_over_tokens(void **state) {
    fixture *f = (fixture *)*state;
    int32_t id[TOKENS_MAX];
    assert_true(encode(f, "\u00fc", id) == 2); /* u with dots: two byte tokens in this vocabulary */
    assert_string_equal(draw(f, id, "ff"), "\r\x1b[J\x1b[1;32m\u00fc\x1b[m");
    assert_string_equal(draw(f, id, ".f"), "\r\x1b[J\x1b[1;32m\u00fc\x1b[m");
}

static void shows_half_a_character_as_a_replacement(void **state) {
    fixture *f = (fixture *)*state;
    int32_t id[TOKENS_MAX];
    encode(f, "\u00fc", id);
    assert_non_null(strstr(draw(f, id, "fm"), "\uFFFD"));
}

static void marks_special_tokens_in_flight(void **state) {
    fixture *f = (fixture *)*state;
    int32_t id[TOKENS_MAX];
    assert_int_equal(encode(f, "1<|im_end|>", id), 2);
    assert_string_equal(draw(f, id, "ff"), "\r\x1b[J\x1b[1;32m1\x1b[m\x1b[2m\u00b7\x1b[m");
}

static void wraps_at_the_width_of_the_terminal(void **state) {
    fixture *f = (fixture *)*state;
    int32_t id[TOKENS_MAX];
    size_t n = encode(f, "1234567890123456789012", id);
    char states[TOKENS_MAX] = "";
    memset(states, '.', n);
    assert_string_equal(draw(f, id, states),
                        "\r\x1b[K12345678901234567890\r\r\n\x1b[J12"); /* the terminal driver adds one \r */
    assert_memory_equal(draw(f, id, states), "\r\x1b[1A\x1b[K1", 9);
}

static void wraps_at_words(void **state) {
    fixture *f = (fixture *)*state;
    int32_t id[TOKENS_MAX];
    char states[TOKENS_MAX] = "";
    size_t n = encode(f, "one two three four five", id);
    /* The row that ends before a moved word has no style at its end, and the word gets its own back. */
    memset(states, 'f', n);
    assert_string_equal(draw(f, id, states), "\r\x1b[K\x1b[1;32mone two three four \x1b[m\r\r\n"
                                             "\x1b[J\x1b[1;32mfive\x1b[m");
    memset(states, '.', n);
    assert_string_equal(draw(f, id, states), "\r\x1b[1A\x1b[Kone two three four \r\r\n\x1b[Jfive");
    assert_string_equal(finish(f, "one two three four five"), "\r\x1b[1A\x1b[Jone two three four\r\nfive\r\n");
}

static void a_long_word_and_wide_characters_are_left_to_the_terminal(void **state) {
    fixture *f = (fixture *)*state;
    assert_string_equal(finish(f, "a 1234567890123456789012 b"), "a\r\n1234567890123456789012 b\r\n");
    um_view_reset(f->view);
    assert_string_equal(finish(f, "a \u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d\u5341"),
                        "a \u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d\u5341\r\n");
    um_view_reset(f->view);
    assert_string_equal(finish(f, "12345678901234567890 x\n\n  y"), "12345678901234567890\r\nx\r\n\r\n  y\r\n");
}

static void takes_escape_sequences_out_of_the_answer(void **state) {
    fixture *f = (fixture *)*state;
    assert_string_equal(finish(f, "a\x1b[2Jb\x07"), "a\uFFFD[2Jb\uFFFD\r\n");
}

static void leaves_the_answer_as_ordinary_text(void **state) {
    fixture *f = (fixture *)*state;
    int32_t id[TOKENS_MAX];
    encode(f, "1234", id);
    draw(f, id, ".ssm");
    assert_string_equal(finish(f, "123"), "\r\x1b[J123\r\n");
}

int main(void) {
#define CLAIM(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CLAIM(tells_masks_fresh_set_and_settled_tokens_apart),
        CLAIM(joins_a_character_that_is_spread_over_tokens),
        CLAIM(shows_half_a_character_as_a_replacement),
        CLAIM(marks_special_tokens_in_flight),
        CLAIM(wraps_at_the_width_of_the_terminal),
        CLAIM(wraps_at_words),
        CLAIM(a_long_word_and_wide_characters_are_left_to_the_terminal),
        CLAIM(takes_escape_sequences_out_of_the_answer),
        CLAIM(leaves_the_answer_as_ordinary_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
