/* Fuzzes command lines and environments. The input is a list of words separated by NUL bytes. Words that begin with
 * UNMASK_ are environment variables, the others are arguments. Every value must be within the range of its option, and
 * its text must be accepted again and give the same text. A rejected input must give an error message. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct settings {
    bool quiet;
    int32_t threads, order;
    int64_t seed;
    float threshold;
    char device[8];
    const char *model;
} settings;

static const um_option rows[] = {
    {"quiet", NULL, UM_OPT_BOOL, UM_FIELD(settings, quiet), 0, 0, NULL, "true", NULL, NULL, "A", "say nothing"},
    {"threads", "cores", UM_OPT_INT, UM_FIELD(settings, threads), 1, 64, NULL, "auto", "0", "N", "A", "threads"},
    {"order", NULL, UM_OPT_CHOICE, UM_FIELD(settings, order), 0, 0, "first|last", "last", NULL, "O", "B", "order"},
    {"seed", NULL, UM_OPT_INT64, UM_FIELD(settings, seed), 0, 0, NULL, "-1", NULL, "N", "B", "seed"},
    {"accept_threshold", NULL, UM_OPT_FLOAT, UM_FIELD(settings, threshold), 0, 1, NULL, "auto", "nan", "P", "A", "p"},
    {"device", NULL, UM_OPT_NAME, UM_FIELD(settings, device), 0, 0, NULL, "cpu", NULL, "D", "B", "device"},
    {"model", NULL, UM_OPT_STR, UM_FIELD(settings, model), 0, 0, NULL, NULL, NULL, "DIR", "B", "folder"},
};

static void require(bool claim) {
    if (!claim) abort();
}

enum { WORDS_MAX = 32 };

typedef struct words {
    char *argv[WORDS_MAX + 1], *env[WORDS_MAX + 1]; /* both end with NULL */
    int argc, n_env;
} words;

static void split(words *w, char *text, size_t size) {
    w->argv[w->argc++] = text;
    for (size_t i = 0; i + 1 < size && w->argc + w->n_env < WORDS_MAX; i++) {
        if (text[i]) continue;
        if (strncmp(text + i + 1, "UNMASK_", 7) == 0) w->env[w->n_env++] = text + i + 1;
        else w->argv[w->argc++] = text + i + 1;
    }
}

static void check_ranges(const settings *s) {
    require(s->threads >= 0 && s->threads <= 64);
    require(s->order == 0 || s->order == 1);
    require(isnan(s->threshold) || (s->threshold >= 0 && s->threshold <= 1));
    require(memchr(s->device, 0, sizeof s->device) != NULL);
}

static void check_text(const settings *s) {
    for (size_t i = 0; i < UM_LEN(rows); i++) {
        settings copy = *s;
        um_buf a = {0}, b = {0};
        um_option_get_text(&rows[i], s, &a);
        require(um_option_set_text(&rows[i], &copy, a.data, NULL) == UM_OK);
        um_option_get_text(&rows[i], &copy, &b);
        require(um_streq(a.data, b.data));
        um_buf_free(&a);
        um_buf_free(&b);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = um_zalloc(size + 1), **outside = environ;
    const char *rest[WORDS_MAX];
    settings v = {0};
    words w = {.argc = 0};
    um_option_set set = {rows, UM_LEN(rows), &v};
    um_arena strings;
    um_settings s = {.sets = &set, .n_sets = 1, .command = "run", .strings = &strings};
    um_err err = {.code = UM_OK};
    int n_rest = 0;
    bool help;
    memcpy(text, data, size);
    split(&w, text, size);
    um_log_set_level(UM_LOG_ERROR);
    um_arena_init(&strings, 0);
    um_options_init(rows, UM_LEN(rows), &v);
    um_settings_init(&s);
    um_status status = um_settings_argv(&s, w.argc, w.argv, rest, &n_rest, &help, &err);
    require(status == UM_OK || err.msg[0]);
    require(n_rest >= 0 && n_rest < w.argc);
    environ = w.env;
    status = um_settings_env(&s, &err);
    environ = outside;
    require(status == UM_OK || err.msg[0]);
    check_ranges(&v);
    check_text(&v);
    um_settings_free(&s);
    um_arena_free(&strings);
    um_free(text);
    return 0;
}
