/* Model cards: the examples in the front matter of a README.md, which is an untrusted file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model_folder.h"

/* Returns the examples of a folder with this README.md, separated by "|". */
static char *examples_of(const char *text) {
    char *dir = folder_new();
    um_card card;
    um_buf out = {0};
    if (text) folder_write_text(dir, "README.md", text);
    um_card_read(&card, dir);
    for (int32_t i = 0; i < card.n_examples; i++) um_buf_printf(&out, "%s%s", i ? "|" : "", card.example[i]);
    um_buf_puts(&out, "");
    um_card_free(&card);
    folder_free(dir);
    return um_buf_take(&out);
}

static void expect(const char *text, const char *examples) {
    char *found = examples_of(text);
    assert_string_equal(found, examples);
    um_free(found);
}

static void examples_are_read_from_the_front_matter(void **state) {
    (void)state;
    expect("---\nlicense: mit\ntags: [a, b]\nexamples:\n  - one\n  - \"two \\\"2\\\"\"\n---\n# Model\n",
           "one|two \"2\"");
    expect("---\nexamples: [one, 'two']\nmodel-index:\n- name: x\n  results: [{a: 1}]\n---\n", "one|two");
}

static void a_card_without_examples_has_none(void **state) {
    (void)state;
    expect(NULL, "");
    expect("", "");
    expect("# Model\nexamples: [one]\n", "");
    expect("---\nlicense: mit\n---\nexamples: [one]\n", "");
    expect("---\nexamples: one\n---\n", "");
    expect("---\nmore:\n  examples: [one]\n---\n", "");
    expect("---\n- examples: [one]\n---\n", "");
    expect("---\nexamples: [one]\nno end", "");
    expect("---\n{ broken\nexamples: [one]\n---\n", "");
}

static void only_texts_of_the_list_count(void **state) {
    (void)state;
    expect("---\na: &x [deep]\nexamples:\n - one\n - {two: three}\n - [four]\n - *x\n - five\nz: 1\n---\n", "one|five");
}

static void control_characters_are_left_out(void **state) {
    (void)state;
    expect("---\nexamples: [\"a\\x1b[31mb\\x07\", \"two\\nlines\", \"\\u202Eback\", \"\\x00zero\", \" \", \"\"]\n---\n",
           "a[31mb|two lines|back");
}

static void numbers_and_sizes_are_limited(void **state) {
    (void)state;
    um_buf text = {0};
    um_buf_puts(&text, "---\nexamples:\n");
    for (int i = 0; i < 20; i++) um_buf_printf(&text, "  - e%d\n", i);
    um_buf_puts(&text, "---\n");
    expect(text.data, "e0|e1|e2|e3|e4|e5|e6|e7");
    um_buf_clear(&text);
    um_buf_puts(&text, "---\nexamples:\n  - short\n  - ");
    for (int i = 0; i <= UM_CARD_EXAMPLE_BYTES_MAX; i++) um_buf_putc(&text, 'x');
    um_buf_puts(&text, "\n---\n");
    expect(text.data, "short");
    um_buf_clear(&text);
    um_buf_puts(&text, "---\nexamples: [one]\n#");
    for (int i = 0; i < 20000; i++) um_buf_putc(&text, 'x');
    um_buf_puts(&text, "\n---\n");
    expect(text.data, "");
    um_buf_free(&text);
}

static void bundled_models_have_three_examples(void **state) {
    static const char *const models[] = {"models/tiny-block", "models/tiny-full"};
    (void)state;
    for (size_t i = 0; i < UM_LEN(models); i++) {
        um_config c;
        um_model *m = NULL;
        um_model_info info;
        um_config_init(&c);
        c.model = models[i];
        assert_int_equal(um_model_open_text(&m, &c, NULL), UM_OK);
        um_model_get_info(m, &info);
        assert_int_equal(info.n_examples, 3);
        for (int32_t k = 0; k < 3; k++) assert_true(strlen(info.example[k]) > 10);
        um_model_close(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(examples_are_read_from_the_front_matter),
        cmocka_unit_test(a_card_without_examples_has_none),
        cmocka_unit_test(only_texts_of_the_list_count),
        cmocka_unit_test(control_characters_are_left_out),
        cmocka_unit_test(numbers_and_sizes_are_limited),
        cmocka_unit_test(bundled_models_have_three_examples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
