/* The option tables of every command: names, names in other systems, and every source of a value. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include <ctype.h>

#include "cli/cli.h"
#include "cli/requests.h"
#include "decode/decode.h"

/* ---- Walking ----------------------------------------------------------------------------------------------------- */

/* Calls fn for every row of every command. */
static void walk(void (*fn)(const um_command *c, const um_option *row)) {
    for (const um_command *const *c = um_commands; *c; c++) {
        um_command_options o;
        um_command_options_init(&o, *c);
        for (size_t i = 0; i < o.n; i++)
            for (size_t k = 0; k < o.sets[i].n; k++) fn(*c, &o.sets[i].rows[k]);
        um_command_options_free(&o);
    }
}

/* Writes the last of a row's choices, with a number in place of N. */
static void last_choice(const char *choices, char *out, size_t size) {
    const char *last = strrchr(choices, '|');
    snprintf(out, size, "%s", last ? last + 1 : choices);
    char *number = out + strlen(out) - 1;
    if (*number == 'N') *number = '7';
}

/* Writes a value that is not the default. */
static void sample(const um_option *row, char *out, size_t size) {
    switch (row->type) {
    case UM_OPT_BOOL: snprintf(out, size, "%s", um_streq(row->def, "true") ? "false" : "true"); return;
    case UM_OPT_INT:
    case UM_OPT_INT64: snprintf(out, size, "%d", UM_MAX(7, (int32_t)row->min)); return;
    case UM_OPT_FLOAT: snprintf(out, size, "0.25"); return;
    case UM_OPT_NAME:
    case UM_OPT_CHOICE:
        if (row->choices) last_choice(row->choices, out, size);
        else snprintf(out, size, "word");
        return;
    case UM_OPT_STR: snprintf(out, size, "text"); return;
    }
}

/* ---- Each place -------------------------------------------------------------------------------------------------- */

typedef struct place {
    const char *name;
    um_status (*take)(um_settings *s, const um_option *row, const char *name, const char *value, um_err *err);
} place;

static um_status take_argv(um_settings *s, const um_option *row, const char *name, const char *value, um_err *err) {
    static char flag[128]; /* static because options borrow strings */
    char *argv[] = {flag, flag};
    const char *rest[2];
    int n_rest;
    bool help;
    (void)row;
    snprintf(flag, sizeof flag, "--%s=%s", name, value);
    for (char *p = flag; *p && *p != '='; p++)
        if (*p == '_') *p = '-';
    return um_settings_argv(s, 2, argv, rest, &n_rest, &help, err);
}

static um_status take_env(um_settings *s, const um_option *row, const char *name, const char *value, um_err *err) {
    um_buf variable = {0};
    (void)row;
    um_option_put_env(name, &variable);
    setenv(variable.data, value, 1);
    um_status st = um_settings_env(s, err);
    unsetenv(variable.data);
    um_buf_free(&variable);
    return st;
}

static um_status take_yaml(um_settings *s, const um_option *row, const char *name, const char *value, um_err *err) {
    char text[128];
    (void)row;
    int n = snprintf(text, sizeof text, "%s: %s\n", name, value);
    return um_settings_yaml(s, text, (size_t)n, "file", err);
}

static const place places[] = {{"command line", take_argv}, {"environment", take_env}, {"file", take_yaml}};

/* Returns the field as text, after its value was set by this name from this source. */
static char *taken(const um_command *c, const place *p, const um_option *row, const char *name, const char *value) {
    um_command_options o;
    um_arena strings;
    um_setting found;
    um_buf text = {0};
    um_err err;
    um_command_options_init(&o, c);
    um_arena_init(&strings, 0);
    um_settings s = {.sets = o.sets, .n_sets = o.n, .command = c->name, .strings = &strings};
    um_settings_init(&s);
    if (p->take(&s, row, name, value, &err)) fail_msg("%s, %s: %s", c->name, p->name, err.msg);
    assert_true(um_settings_find(&s, row->name, &found));
    um_option_get_text(row, found.base, &text);
    um_settings_free(&s);
    um_arena_free(&strings);
    um_command_options_free(&o);
    return um_buf_take(&text);
}

static void check_name(const um_command *c, const um_option *row, const char *name) {
    char value[64];
    sample(row, value, sizeof value);
    for (size_t i = 0; i < UM_LEN(places); i++) {
        char *text = taken(c, &places[i], row, name, value);
        if (!um_streq(text, value)) fail_msg("%s, %s, %s: %s became %s", c->name, places[i].name, name, value, text);
        um_free(text);
    }
}

static void check_all_names(const um_command *c, const um_option *row) {
    um_str alias;
    check_name(c, row, row->name);
    for (size_t i = 0; um_option_alias(row, i, &alias); i++) {
        char *name = um_strndup(alias.p, alias.n);
        check_name(c, row, name);
        um_free(name);
    }
}

static void every_name_is_accepted_from_every_source(void **state) {
    (void)state;
    walk(check_all_names);
}

/* ---- Request lines ----------------------------------------------------------------------------------------------- */

/* Checks the parameter after a request line has set it. */
static void check_line(const um_option *row, const char *name) {
    char value[64], line[256];
    um_config c;
    um_request_line q = {0};
    um_option_set sets[UM_DECODE_SETS_MAX];
    um_buf text = {0};
    um_err err;
    sample(row, value, sizeof value);
    const char *quote = row->type == UM_OPT_NAME || row->type == UM_OPT_CHOICE ? "\"" : "";
    snprintf(line, sizeof line, "{\"id\": 1, \"prompt\": \"x\", \"%s\": %s%s%s}", name, quote, value, quote);
    um_config_init(&c);
    um_request defaults = {.size = sizeof defaults, .decoding = c.decoding, .sampling = c.sampling};
    if (um_request_line_parse(&q, um_str_of(line), &defaults, &err)) fail_msg("%s: %s", line, err.msg);
    size_t n = um_decode_option_sets(sets, &q.request.decoding, &q.request.sampling);
    for (size_t i = 0; i < n; i++)
        if (row >= sets[i].rows && row < sets[i].rows + sets[i].n) um_option_get_text(row, sets[i].base, &text);
    assert_string_equal(text.data, value);
    um_buf_free(&text);
    um_request_line_free(&q);
}

static void every_decoding_option_is_accepted_in_request_lines(void **state) {
    (void)state;
    um_config c;
    um_option_set sets[UM_DECODE_SETS_MAX];
    um_str alias;
    um_config_init(&c);
    size_t n = um_decode_option_sets(sets, &c.decoding, &c.sampling);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < sets[i].n; k++) {
            const um_option *row = &sets[i].rows[k];
            check_line(row, row->name);
            for (size_t a = 0; um_option_alias(row, a, &alias); a++) {
                char *name = um_strndup(alias.p, alias.n);
                check_line(row, name);
                um_free(name);
            }
        }
    }
}

/* ---- Tables ------------------------------------------------------------------------------------------------------ */

static void check_row(const um_command *c, const um_option *row) {
    for (const char *p = row->name; *p; p++)
        if (!islower((unsigned char)*p) && *p != '_')
            fail_msg("%s: a name has small letters and _: %s", c->name, row->name);
    if (!row->group || !row->help || !*row->help) fail_msg("%s: %s has no group or help", c->name, row->name);
    if (row->help[strlen(row->help) - 1] == '.') fail_msg("%s: the help of %s ends in a full stop", c->name, row->name);
    if (row->type != UM_OPT_BOOL && !row->metavar) fail_msg("%s: %s has no metavar", c->name, row->name);
}

static void rows_are_complete(void **state) {
    (void)state;
    walk(check_row);
}

static size_t rows_called(const um_command_options *o, const char *name) {
    size_t n = 0;
    for (size_t i = 0; i < o->n; i++)
        for (size_t k = 0; k < o->sets[i].n; k++) n += um_options_find(&o->sets[i].rows[k], 1, name) != NULL;
    return n;
}

static void no_name_stands_for_two_options(void **state) {
    (void)state;
    for (const um_command *const *c = um_commands; *c; c++) {
        um_command_options o;
        um_str alias;
        um_command_options_init(&o, *c);
        for (size_t i = 0; i < o.n; i++) {
            for (size_t k = 0; k < o.sets[i].n; k++) {
                const um_option *row = &o.sets[i].rows[k];
                if (rows_called(&o, row->name) != 1) fail_msg("%s: %s", (*c)->name, row->name);
                for (size_t a = 0; um_option_alias(row, a, &alias); a++) {
                    char *name = um_strndup(alias.p, alias.n);
                    if (rows_called(&o, name) != 1) fail_msg("%s: %s", (*c)->name, name);
                    um_free(name);
                }
            }
        }
        um_command_options_free(&o);
    }
}

/* All commands share the environment: if UNMASK_JSON=true is a switch of one command, no other command may take "true"
 * as a file name. */
static void check_switch(const um_command *c, const um_option *row) {
    for (const um_command *const *other = um_commands; *other; other++) {
        um_command_options o;
        um_command_options_init(&o, *other);
        for (size_t i = 0; i < o.n && row->type == UM_OPT_BOOL; i++) {
            const um_option *same = um_options_find(o.sets[i].rows, o.sets[i].n, row->name);
            if (same && same->type != UM_OPT_BOOL)
                fail_msg("%s is a switch of %s, and takes a value in %s", row->name, c->name, (*other)->name);
        }
        um_command_options_free(&o);
    }
}

static void short_options_are_unique(void **state) {
    (void)state;
    for (const um_command *const *c = um_commands; *c; c++) {
        um_command_options o;
        int n[128] = {0};
        um_command_options_init(&o, *c);
        for (size_t i = 0; i < o.n; i++)
            for (size_t k = 0; k < o.sets[i].n; k++) n[um_option_short(&o.sets[i].rows[k]) & 127]++;
        for (int letter = 1; letter < 128; letter++)
            if (n[letter] > 1) fail_msg("%s: -%c", (*c)->name, letter);
        assert_int_equal(n['c'], 1);
        um_command_options_free(&o);
    }
}

static void no_command_takes_a_value_where_another_has_a_switch(void **state) {
    (void)state;
    walk(check_switch);
}

static void check_meanings(const um_command *c, const char *const (*names)[2], size_t n) {
    um_command_options o;
    um_command_options_init(&o, c);
    for (size_t i = 0; i < n; i++) {
        const um_option *row = NULL;
        for (size_t k = 0; k < o.n && !row; k++) row = um_options_find(o.sets[k].rows, o.sets[k].n, names[i][0]);
        if (!row || !um_streq(row->name, names[i][1])) fail_msg("%s: %s is not %s", c->name, names[i][0], names[i][1]);
    }
    um_command_options_free(&o);
}

/* Names by which Diffulex, dLLM-Serve, vLLM and its diffusion plugin, and the models' own scripts call our options. */
static void names_of_other_systems_are_known(void **state) {
    (void)state;
    static const char *const names[][2] = {
        {"model_path", "model"},
        {"max_num_seqs", "max_num_reqs"},
        {"kvcache_block_size", "page_size"},
        {"num_kvcache_blocks", "num_pages"},
        {"num_gpu_blocks_override", "num_pages"},
        {"dp_size", "data_parallel_size"},
        {"dp", "data_parallel_size"},
        {"data_parallel", "data_parallel_size"},
        {"kv_cache_dtype", "kv_cache_dtype"},
        {"kv_cache_layout", "kv_cache_layout"},
        {"block_length", "block_size"},
        {"diffusion_block_size", "block_size"},
        {"default_block_len", "block_size"},
        {"threshold", "accept_threshold"},
        {"commit_confidence_threshold", "accept_threshold"},
        {"block_add_threshold", "add_block_threshold"},
        {"decoded_token_threshold", "semi_complete_threshold"},
        {"diffusion_steps", "steps"},
        {"fdv2_use_block_cache", "block_cache"},
        {"max_new_tokens", "max_tokens"},
        {"remasking", "sampler"},
        {"alg", "sampler"},
        {"max_completion_tokens", "max_tokens"},
        {"min_new_tokens", "min_tokens"},
        {"top_logprobs", "logprobs"},
        {"progress_log_interval", "progress_interval"},
        {"dllm_block_length", "block_size"},
        {"dllm_confidence_threshold", "accept_threshold"},
        {"dllm_unmasking_strategy", "sampler"},
        {"dllm_denoising_steps", "denoising_steps"},
        {"dmax_sampler_fast_path", "dmax_fast_path"},
        {"editing_threshold", "edit_threshold"},
        {"max_post_steps", "max_post_edit_steps"},
        {"lora_path", "lora"},
        {"lora_modules", "lora"},
        {"pre_merge_lora", "lora_merge"},
    };
    check_meanings(&um_cmd_generate, names, UM_LEN(names));
}

/* Names of the servers of vLLM, SGLang and llama.cpp. */
static void names_of_other_servers_are_known(void **state) {
    (void)state;
    static const char *const names[][2] = {
        {"model_path", "model"},
        {"alias", "served_model_name"},
        {"allowed_origins", "cors_allow_origin"},
        {"timeout_keep_alive", "keep_alive"},
        {"api_key", "api_key"},
        {"root_path", "root_path"},
        {"max_num_seqs", "max_num_reqs"},
        {"max_running_requests", "max_num_reqs"},
        {"context_length", "max_model_len"},
        {"disable_radix_cache", "disable_prefix_caching"},
        {"random_seed", "seed"},
        {"dp_size", "data_parallel_size"},
        {"lora_modules", "lora"},
        {"tool_call_parser", "tool_call_parser"},
        {"reasoning_parser", "reasoning_parser"},
        {"zmq_command_addr", "zmq_command_addr"},
    };
    check_meanings(&um_cmd_serve, names, UM_LEN(names));
}

static void values_of_other_systems_mean_the_same(void **state) {
    (void)state;
    um_config c;
    um_err err;
    um_config_init(&c);
    assert_int_equal(um_config_set(&c, "num_kvcache_blocks", "-1", &err), UM_OK); /* auto */
    assert_int_equal(c.num_pages, -1);
    assert_int_equal(um_config_set(&c, "seed", "-1", &err), UM_OK); /* auto */
    assert_int_equal(c.sampling.seed, -1);
    assert_int_equal(um_config_set(&c, "top_k", "-1", &err), UM_OK);           /* off */
    assert_int_equal(um_config_set(&c, "kv_cache_dtype", "fp8", &err), UM_OK); /* float8_e4m3 */
    assert_int_equal(um_config_set(&c, "kv_cache_dtype", "fp8_e4m3", &err), UM_OK);
    assert_int_equal(um_config_set(&c, "kv_cache_layout", "distinct", &err), UM_OK);
    assert_int_equal(um_config_set(&c, "kvcache_block_size", "512", &err), UM_OK);
    assert_int_equal(c.page_size, 512);
    assert_int_equal(um_config_set(&c, "kvcache_block_size", "16", &err), UM_OK);
    assert_int_equal(c.page_size, 16);
}

/* ---- Options of other engines ------------------------------------------------------------------------------------ */

/* Sets the option of `serve` on the command line. */
static um_status give_foreign(const char *name, const char *value, um_err *err) {
    um_command_options o;
    um_arena strings;
    um_command_options_init(&o, &um_cmd_serve);
    um_arena_init(&strings, 0);
    um_settings s = {.sets = o.sets, .n_sets = o.n, .command = "serve", .strings = &strings};
    s.foreign = um_foreign_options;
    s.n_foreign = um_n_foreign_options;
    um_settings_init(&s);
    um_status st = take_argv(&s, NULL, name, value, err);
    um_settings_free(&s);
    um_arena_free(&strings);
    um_command_options_free(&o);
    return st;
}

static void check_foreign_name(const um_foreign *f, const char *name) {
    static const char *const samples[] = {"true", "7", "word", "folder"};
    um_err err;
    size_t n = f->neutral ? strcspn(f->neutral, "|") : 0;
    char *value = f->neutral ? um_strndup(f->neutral, n) : um_strdup(samples[f->kind]);
    if (give_foreign(name, value, &err)) fail_msg("%s %s: %s", name, value, err.msg);
    um_free(value);
    if (!f->neutral) return;
    const char *other = f->kind == UM_FOREIGN_SWITCH ? um_streq(f->neutral, "true") ? "false" : "true" : "77";
    assert_int_equal(give_foreign(name, other, &err), UM_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, f->note));
}

static void foreign_options_accept_only_neutral_values(void **state) {
    (void)state;
    for (size_t i = 0; i < um_n_foreign_options; i++) {
        const um_foreign *f = &um_foreign_options[i];
        for (const char *p = f->names; *p; p += strcspn(p, ",")) {
            p += *p == ',';
            char *name = um_strndup(p, strcspn(p, ","));
            check_foreign_name(f, name);
            um_free(name);
        }
    }
}

static void no_foreign_option_has_the_name_of_another(void **state) {
    (void)state;
    for (const um_command *const *c = um_commands; *c; c++) {
        um_command_options o;
        um_str at;
        um_command_options_init(&o, *c);
        for (size_t i = 0; i < um_n_foreign_options; i++) {
            const um_foreign *f = &um_foreign_options[i];
            assert_true(*f->note && f->note[strlen(f->note) - 1] != '.');
            for (const char *p = f->names; *p; p += strcspn(p, ",")) {
                p += *p == ',';
                char *name = um_strndup(p, strcspn(p, ","));
                if (rows_called(&o, name)) fail_msg("%s has an option %s of its own", (*c)->name, name);
                for (size_t k = 0; k < um_n_foreign_options; k++)
                    if (k != i && um_word_index(um_foreign_options[k].names, ',', name, &at) >= 0)
                        fail_msg("%s stands for two foreign options", name);
                um_free(name);
            }
        }
        um_command_options_free(&o);
    }
}

static void commands_can_override_defaults(void **state) {
    (void)state;
    um_command_options o;
    um_command_options_init(&o, &um_cmd_run);
    assert_int_equal(o.config.max_num_reqs, 1);
    um_command_options_free(&o);
    um_command_options_init(&o, &um_cmd_generate);
    assert_int_equal(o.config.max_num_reqs, 32);
    um_command_options_free(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_is_accepted_from_every_source),
        cmocka_unit_test(every_decoding_option_is_accepted_in_request_lines),
        cmocka_unit_test(rows_are_complete),
        cmocka_unit_test(no_name_stands_for_two_options),
        cmocka_unit_test(short_options_are_unique),
        cmocka_unit_test(no_command_takes_a_value_where_another_has_a_switch),
        cmocka_unit_test(names_of_other_systems_are_known),
        cmocka_unit_test(names_of_other_servers_are_known),
        cmocka_unit_test(values_of_other_systems_mean_the_same),
        cmocka_unit_test(foreign_options_accept_only_neutral_values),
        cmocka_unit_test(no_foreign_option_has_the_name_of_another),
        cmocka_unit_test(commands_can_override_defaults),
    };
    return cmocka_run_group_tests_name("cli_options", tests, NULL, NULL);
}
