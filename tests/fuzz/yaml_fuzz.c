/* Fuzzes configuration files. The error message of a rejected file must begin with its name. The settings of an
 * accepted file are printed as a file, which must be accepted and must print the same. The same bytes are also read as
 * the front matter of a model card. */
#include <stdlib.h>

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct values {
    bool quiet;
    int32_t threads, order;
    int64_t seed;
    float threshold;
    char device[8];
    const char *model;
} values;

#define V(field) UM_FIELD(values, field)

static const um_option rows[] = {
    {"quiet", NULL, UM_OPT_BOOL, V(quiet), 0, 0, NULL, "true", NULL, NULL, "A", "say nothing"},
    {"threads", "cores", UM_OPT_INT, V(threads), 1, 64, NULL, "auto", "0", "N", "A", "threads"},
    {"order", NULL, UM_OPT_CHOICE, V(order), 0, 0, "first|last", "last", NULL, "O", "B", "order"},
    {"seed", NULL, UM_OPT_INT64, V(seed), 0, 0, NULL, "-1", NULL, "N", "B", "seed"},
    {"accept_threshold", NULL, UM_OPT_FLOAT, V(threshold), 0, 1, NULL, "auto", "nan", "P", "A", "p"},
    {"device", NULL, UM_OPT_NAME, V(device), 0, 0, NULL, "cpu", NULL, "D", "B", "device"},
    {"model", NULL, UM_OPT_STR, V(model), 0, 0, NULL, NULL, NULL, "DIR", "B", "folder"},
};

static void require(bool claim) {
    if (!claim) abort();
}

static bool is_known(const char *command, const char *option) {
    if (!option) return um_streq(command, "eval");
    return um_streq(option, "limit");
}

/* Reads a file and prints its settings, without the comments that name their sources. */
static um_status read_and_print(const char *text, size_t n, um_buf *out, um_err *err) {
    values v = {0};
    um_option_set set = {rows, UM_LEN(rows), &v};
    um_arena strings;
    um_settings s = {.sets = &set, .n_sets = 1, .command = "run", .known = is_known, .strings = &strings};
    um_arena_init(&strings, 0);
    um_options_init(rows, UM_LEN(rows), &v);
    um_settings_init(&s);
    um_status st = um_settings_yaml(&s, text, n, "file", err);
    for (size_t i = 0; i < UM_LEN(rows); i++) s.given[i] = (um_given){UM_BY_DEFAULT, NULL};
    if (!st) require(um_settings_print(&s, out, err) == UM_OK);
    um_settings_free(&s);
    um_arena_free(&strings);
    return st;
}

/* Reads the texts of a list, in a document that may use the whole language. */
static void read_texts(const char *text, size_t n) {
    const char *out[4];
    um_arena strings;
    um_arena_init(&strings, 0);
    const size_t found = um_yaml_texts(text, n, "examples", &strings, out, UM_LEN(out));
    require(found <= UM_LEN(out));
    for (size_t i = 0; i < found; i++) require(um_utf8_check(out[i], strlen(out[i])) == strlen(out[i]));
    um_arena_free(&strings);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    um_buf once = {0}, again = {0};
    um_err err = {.code = UM_OK};
    read_texts((const char *)data, size);
    if (read_and_print((const char *)data, size, &once, &err)) {
        require(strncmp(err.msg, "file:", 5) == 0 && err.msg[5]);
    } else {
        require(read_and_print(once.data, once.len, &again, &err) == UM_OK);
        require(um_streq(once.data, again.data));
    }
    um_buf_free(&once);
    um_buf_free(&again);
    return 0;
}
