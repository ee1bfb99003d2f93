/* base: options from a file, the environment and the command line. */
#include "base/base.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

#include <math.h>

typedef struct values {
    bool quiet, cache;
    int32_t threads, order;
    float threshold;
    char device[8];
    const char *model, *config;
} values;

#define V(field) UM_FIELD(values, field)

static const um_option rows[] = {
    {"quiet", "q", UM_OPT_BOOL, V(quiet), 0, 0, NULL, "false", NULL, NULL, "Output", "say nothing"},
    {"prefix_cache", NULL, UM_OPT_BOOL, V(cache), 0, 0, NULL, "true", NULL, NULL, "Memory", "share pages"},
    {"threads", "num_threads,t,cores", UM_OPT_INT, V(threads), 1, 64, NULL, "auto", "0", "N", "Output", "threads"},
    {"order", NULL, UM_OPT_CHOICE, V(order), 0, 0, "first|last", "last", NULL, "NAME", "Memory", "order"},
    {"accept_threshold", NULL, UM_OPT_FLOAT, V(threshold), 0, 1, NULL, "auto", "nan", "P", "Output", "probability"},
    {"device", NULL, UM_OPT_NAME, V(device), 0, 0, NULL, "cpu", NULL, "NAME", "Memory", "what computes"},
    {"model", "m", UM_OPT_STR, V(model), 0, 0, NULL, NULL, NULL, "DIR", "Memory", "folder"},
};
static const um_option outer_rows[] = {
    {"config", NULL, UM_OPT_STR, V(config), 0, 0, NULL, NULL, NULL, "FILE", "Configuration", "file"},
};

/* The command under test is "run". There is another command, "eval", with an option "limit". */
static bool is_known(const char *command, const char *option) {
    bool is_eval = !command || um_streq(command, "eval");
    if (!option) return is_eval || um_streq(command, "run");
    return is_eval && um_streq(option, "limit");
}

static values v;
static um_option_set sets[] = {{rows, UM_LEN(rows), &v}, {outer_rows, UM_LEN(outer_rows), &v}};
static um_settings s;
static um_arena strings;
static um_err err;

static int begin(void **state) {
    (void)state;
    memset(&v, 0x55, sizeof v);
    for (size_t i = 0; i < UM_LEN(sets); i++) um_options_init(sets[i].rows, sets[i].n, sets[i].base);
    um_arena_init(&strings, 0);
    s = (um_settings){
        .sets = sets, .n_sets = 2, .n_outer = 1, .command = "run", .known = is_known, .strings = &strings};
    um_settings_init(&s);
    err = (um_err){0};
    return 0;
}

static int end(void **state) {
    (void)state;
    unsetenv("UNMASK_THREADS");
    unsetenv("UNMASK_NUM_THREADS");
    unsetenv("UNMASK_QUIET");
    um_settings_free(&s);
    um_arena_free(&strings);
    return 0;
}

static um_status argv(const char **word, int n, const char **rest, int *n_rest, bool *help) {
    char *copy[16] = {NULL};
    for (int i = 0; i < n; i++) copy[i] = (char *)(uintptr_t)word[i];
    return um_settings_argv(&s, n, copy, rest, n_rest, help, &err);
}

static um_status flags(const char *a, const char *b) {
    const char *word[] = {"unmask", a, b}, *rest[3];
    int n_rest;
    bool help;
    return argv(word, b ? 3 : 2, rest, &n_rest, &help);
}

static um_status yaml(const char *text) { return um_settings_yaml(&s, text, strlen(text), "u.yaml", &err); }

static const um_given *given(const char *name) {
    um_setting o;
    assert_true(um_settings_find(&s, name, &o));
    return o.given;
}

/* ---- Command line ------------------------------------------------------------------------------------------------ */

static void command_line_mixes_flags_and_words(void **state) {
    (void)state;
    const char *word[] = {"unmask", "one",         "--threads", "4",  "--order=first", "--quiet", "--no-prefix-cache",
                          "-",      "--model=a=b", "two",       "--", "--quiet",       "-x"};
    const char *rest[UM_LEN(word)], *expected[] = {"one", "-", "two", "--quiet", "-x"};
    int n_rest;
    bool help;
    assert_int_equal(argv(word, UM_LEN(word), rest, &n_rest, &help), UM_OK);
    assert_true(v.threads == 4 && v.order == 0 && v.quiet && !v.cache && !help);
    assert_string_equal(v.model, "a=b");
    assert_int_equal(n_rest, UM_LEN(expected));
    for (size_t i = 0; i < UM_LEN(expected); i++) assert_string_equal(rest[i], expected[i]);
}

static void command_line_errors_help(void **state) {
    const char *bad[][3] = {
        {"--treads", "4", "unknown option --treads; did you mean --threads?"},
        {"--accept-treshold=1", NULL, "unknown option --accept-treshold; did you mean --accept-threshold?"},
        {"--no-threads", NULL, "unknown option --no-threads; did you mean --threads?"},
        {"--no-quiet=1", NULL, "--no-quiet takes no value, found \"1\""},
        {"--threads", "--quiet", "--threads needs a value, found --quiet; write --threads=VALUE if this is the value"},
        {"--threads", NULL, "--threads needs a value, found the end of the command line"},
        {"--threads", "x", "--threads: expected an integer 1..64, or auto, found \"x\""},
        {"--num_threads=65", NULL, "--num_threads: 65 is outside 1..64"},
        {"--cores=65", NULL, "--cores: 65 is outside 1..64"},
        {"-x", "4",
         "unknown option -x; long options start with two dashes, text that starts with a dash goes after --"},
    };
    for (size_t i = 0; i < UM_LEN(bad); i++) {
        end(state);
        begin(state);
        assert_true(flags(bad[i][0], bad[i][1]) < 0);
        assert_string_equal(err.msg, bad[i][2]);
    }
}

/* Short options take a value as the next word, or a number in the same word. */
static void short_options_are_options(void **state) {
    (void)state;
    assert_int_equal(flags("-t", "-2"), UM_ERANGE);
    assert_int_equal(flags("-q", "-t4"), UM_OK);
    assert_true(v.quiet && v.threads == 4);
    assert_int_equal(flags("-m", "folder"), UM_OK);
    assert_string_equal(v.model, "folder");
    um_setting o;
    assert_true(um_settings_find(&s, "threads", &o));
    assert_string_equal(o.given->where, "-t");
    assert_false(um_settings_find(&s, "t", &o)); /* the letter is no name for files, flags and variables */
}

static void short_options_are_refused_like_long_ones(void **state) {
    (void)state;
    static const struct {
        const char *a, *b, *message;
    } bad[] = {
        {"-m", NULL, "-m needs a value, found the end of the command line"},
        {"-m", "-q", "-m needs a value, found -q"},
        {"-m", "--quiet", "-m needs a value, found --quiet"},
        {"-t", "x", "-t: expected an integer 1..64, or auto, found \"x\""},
        {"-model", NULL, "unknown option -model; did you mean --model?"},
        {"-q1", NULL,
         "unknown option -q1; long options start with two dashes, text that starts with a dash goes after --"},
        {"--t", "4", "unknown option --t"},
    };
    for (size_t i = 0; i < UM_LEN(bad); i++) {
        assert_int_not_equal(flags(bad[i].a, bad[i].b), UM_OK);
        assert_string_equal(err.msg, bad[i].message);
    }
}

static const char *peer_name(const char *name) {
    return um_streq(name, "n") ? "threads" : um_streq(name, "no-share") ? "no_prefix_cache" : NULL;
}

static void names_of_other_programs_lead_to_the_option(void **state) {
    (void)state;
    s.peer_name = peer_name;
    assert_int_equal(flags("-n", "4"), UM_EINVAL);
    assert_string_equal(err.msg, "unknown option -n; did you mean --threads?");
    assert_int_equal(flags("--no-share", NULL), UM_EINVAL);
    assert_string_equal(err.msg, "unknown option --no-share; did you mean --no-prefix-cache?");
}

static void last_flag_counts(void **state) {
    (void)state;
    assert_int_equal(flags("--threads=2", "--threads=3"), UM_OK);
    assert_int_equal(v.threads, 3);
    assert_int_equal(flags("--quiet=yes", "--quiet=off"), UM_OK);
    assert_false(v.quiet);
}

static void help_is_a_flag(void **state) {
    (void)state;
    const char *flag[] = {"-h", "--help"};
    for (size_t i = 0; i < 2; i++) {
        const char *word[] = {"unmask", flag[i]}, *rest[2];
        int n_rest;
        bool help;
        assert_int_equal(argv(word, 2, rest, &n_rest, &help), UM_OK);
        assert_true(help);
    }
}

/* ---- Environment ------------------------------------------------------------------------------------------------- */

static void environment_sets_options_by_name_and_alias(void **state) {
    (void)state;
    setenv("UNMASK_QUIET", "yes", 1);
    setenv("UNMASK_NUM_THREADS", "8", 1);
    assert_int_equal(um_settings_env(&s, &err), UM_OK);
    assert_true(v.quiet && v.threads == 8);
    assert_string_equal(given("threads")->where, "UNMASK_NUM_THREADS");
}

static void empty_variable_counts_as_unset(void **state) {
    (void)state;
    setenv("UNMASK_THREADS", "", 1);
    assert_int_equal(um_settings_env(&s, &err), UM_OK);
    assert_int_equal(given("threads")->by, UM_BY_DEFAULT);
}

static void bad_variable_is_named(void **state) {
    (void)state;
    setenv("UNMASK_THREADS", "many", 1);
    assert_int_equal(um_settings_env(&s, &err), UM_EINVAL);
    assert_string_equal(err.msg, "UNMASK_THREADS: expected an integer 1..64, or auto, found \"many\"");
}

static void option_twice_in_the_environment_is_an_error(void **state) {
    (void)state;
    setenv("UNMASK_THREADS", "8", 1);
    setenv("UNMASK_NUM_THREADS", "8", 1);
    assert_int_equal(um_settings_env(&s, &err), UM_EINVAL);
    assert_non_null(strstr(err.msg, "the option threads is given twice, first at UNMASK_"));
}

/* ---- File -------------------------------------------------------------------------------------------------------- */

static void file_sets_every_type(void **state) {
    (void)state;
    assert_int_equal(yaml("quiet: yes\nprefix-cache: Off\nnum_threads: 12\norder: first\naccept_threshold: 1e-1\n"
                          "device: on # not a bool\nmodel: 'it''s \\n'\n"),
                     UM_OK);
    assert_true(v.quiet && !v.cache && v.threads == 12 && v.order == 0 && v.threshold == 0.1f);
    assert_string_equal(v.device, "on");
    assert_string_equal(v.model, "it's \\n");
    assert_string_equal(given("model")->where, "u.yaml:7:8");
}

static void null_leaves_an_option_as_it_is(void **state) {
    (void)state;
    assert_int_equal(yaml("threads:\nmodel: null\norder: ~\nengine:\n"), UM_OK);
    assert_true(v.threads == 0 && !v.model && v.order == 1);
    assert_int_equal(given("threads")->by, UM_BY_DEFAULT);
}

static void nothing_is_a_file(void **state) {
    (void)state;
    assert_int_equal(yaml(""), UM_OK);
    assert_int_equal(yaml("# nothing\n"), UM_OK);
    assert_int_equal(yaml("---\n"), UM_OK);
    assert_int_equal(yaml("{}"), UM_OK);
}

static void sections_group_and_those_of_the_command_win(void **state) {
    (void)state;
    assert_int_equal(yaml("run:\n  threads: 5\nthreads: 4\nengine:\n  order: first\n  decoding_thresholds:\n"
                          "    accept_threshold: 0.5\neval:\n  limit: 3\n"),
                     UM_OK);
    assert_true(v.threads == 5 && v.order == 0 && v.threshold == 0.5f);
    assert_int_equal(given("threads")->by, UM_BY_SECTION);
}

static void options_of_other_commands_are_passed_over(void **state) {
    (void)state;
    assert_int_equal(yaml("limit: 3\neval:\n  limit: 4\n"), UM_OK);
    assert_int_equal(yaml("run:\n  limit: 3\n"), UM_EINVAL);
    assert_string_equal(err.msg, "u.yaml:2:3: unknown option limit");
    assert_int_equal(yaml("eval:\n  trheads: 3\n"), UM_EINVAL);
    assert_string_equal(err.msg, "u.yaml:2:3: trheads is not an option of eval");
}

static void file_errors_say_where(void **state) {
    const char *bad[][2] = {
        {"\n  treads: 4", "u.yaml:2:3: unknown option treads; did you mean threads?"},
        {"zzzzzz: 4", "u.yaml:1:1: unknown option zzzzzz"},
        {"threads: x", "u.yaml:1:10: threads: expected an integer 1..64, or auto, found \"x\""},
        {"threads: 65", "u.yaml:1:10: threads: 65 is outside 1..64"},
        {"cores: 65", "u.yaml:1:8: cores: 65 is outside 1..64"},
        {"threads: \"4\"", "u.yaml:1:10: threads: expected a value of type integer, found the text \"4\"; remove the "
                           "quotes"},
        {"quiet: maybe", "u.yaml:1:8: quiet: expected true or false, found \"maybe\""},
        {"threads: {a: 1}", "u.yaml:1:1: threads: expected a value, found a mapping"},
        {"other:\n  a: 1", "u.yaml:1:1: unknown section other; expected engine, decoding_thresholds or a command"},
        {"run:\n  engine:\n    threads: 1", "u.yaml:2:3: unknown section engine; expected engine, decoding_thresholds "
                                            "or a command"},
        {"threads: 1\nnum-threads: 2",
         "u.yaml:2:14: num-threads: the option threads is given twice, first at u.yaml:1:10"},
        {"config: other.yaml", "u.yaml:1:1: config belongs on the command line or in the environment"},
    };
    for (size_t i = 0; i < UM_LEN(bad); i++) {
        end(state);
        begin(state);
        assert_true(yaml(bad[i][0]) < 0);
        assert_string_equal(err.msg, bad[i][1]);
    }
}

static void missing_file_is_named(void **state) {
    (void)state;
    assert_int_equal(um_settings_file(&s, "/nowhere/u.yaml", &err), UM_ENOENT);
    assert_non_null(strstr(err.msg, "/nowhere/u.yaml"));
}

/* ---- Several sources --------------------------------------------------------------------------------------------- */

static void source_of_higher_precedence_wins_in_any_order(void **state) {
    (void)state;
    setenv("UNMASK_THREADS", "2", 1);
    setenv("UNMASK_QUIET", "1", 1);
    assert_int_equal(flags("--threads=1", NULL), UM_OK);
    assert_int_equal(um_settings_env(&s, &err), UM_OK);
    assert_int_equal(yaml("threads: 3\nquiet: false\norder: first\n"), UM_OK);
    assert_true(v.threads == 1 && v.quiet && v.order == 0 && v.cache);
    assert_int_equal(given("threads")->by, UM_BY_ARGV);
    assert_int_equal(given("quiet")->by, UM_BY_ENV);
    assert_int_equal(given("order")->by, UM_BY_FILE);
    assert_int_equal(given("prefix_cache")->by, UM_BY_DEFAULT);
}

static void value_of_lower_precedence_is_still_checked(void **state) {
    (void)state;
    assert_int_equal(flags("--threads=1", NULL), UM_OK);
    assert_int_equal(yaml("threads: 99"), UM_ERANGE);
    assert_int_equal(v.threads, 1);
}

static void printed_settings_say_who_gave_each(void **state) {
    (void)state;
    um_buf text = {0};
    setenv("UNMASK_QUIET", "1", 1);
    assert_int_equal(flags("--num-threads=7", NULL), UM_OK);
    assert_int_equal(um_settings_env(&s, &err), UM_OK);
    assert_int_equal(yaml("device: \"a b\""), UM_OK);
    assert_int_equal(um_settings_print(&s, &text, &err), UM_OK);
    const char *expected[] = {"# ---- Output ----\n\n# say nothing\nquiet: true  # environment UNMASK_QUIET\n",
                              "\n# threads (1..64, or auto)\nthreads: 7  # command line --num-threads\n",
                              "\nprefix_cache: true  # default\n",
                              "\ndevice: \"a b\"  # file u.yaml:1:9\n",
                              "\nmodel: null  # default\n",
                              "\naccept_threshold: auto  # default\n"};
    for (size_t i = 0; i < UM_LEN(expected); i++) assert_non_null(strstr(text.data, expected[i]));
    assert_null(strstr(text.data, "config:"));
    um_buf_free(&text);
}

static void printed_settings_read_back(void **state) {
    um_buf text = {0};
    assert_int_equal(
        flags("--model=a: \"b\" \\ # \xC3\xBC\x01\xC2\x85\n\xE2\x80\xA8\xF0\x9F\x98\x80 null", "--device=auto"), UM_OK);
    assert_int_equal(flags("--threads=auto", "--accept-threshold=0.1"), UM_OK);
    assert_int_equal(um_settings_print(&s, &text, &err), UM_OK);
    values before = v;
    char *model = um_strdup(v.model);
    end(state);
    begin(state);
    assert_int_equal(yaml(text.data), UM_OK);
    assert_string_equal(v.model, model);
    v.model = before.model;
    assert_memory_equal(&v, &before, sizeof v);
    um_free(model);
    um_buf_free(&text);
}

static void text_that_yaml_can_not_hold_is_refused(void **state) {
    (void)state;
    um_buf text = {0};
    assert_int_equal(flags("--model=a\xFF", NULL), UM_OK);
    assert_int_equal(um_settings_print(&s, &text, &err), UM_EINVAL);
    assert_string_equal(err.msg, "model: byte 1 of the value is not UTF-8, so YAML can't hold it");
    um_buf_free(&text);
}

#define T(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(command_line_mixes_flags_and_words),
        T(command_line_errors_help),
        T(short_options_are_options),
        T(short_options_are_refused_like_long_ones),
        T(names_of_other_programs_lead_to_the_option),
        T(last_flag_counts),
        T(help_is_a_flag),
        T(environment_sets_options_by_name_and_alias),
        T(empty_variable_counts_as_unset),
        T(bad_variable_is_named),
        T(option_twice_in_the_environment_is_an_error),
        T(file_sets_every_type),
        T(null_leaves_an_option_as_it_is),
        T(nothing_is_a_file),
        T(sections_group_and_those_of_the_command_win),
        T(options_of_other_commands_are_passed_over),
        T(file_errors_say_where),
        T(missing_file_is_named),
        T(source_of_higher_precedence_wins_in_any_order),
        T(value_of_lower_precedence_is_still_checked),
        T(printed_settings_say_who_gave_each),
        T(printed_settings_read_back),
        T(text_that_yaml_can_not_hold_is_refused),
    };
    return cmocka_run_group_tests_name("base_settings", tests, NULL, NULL);
}
