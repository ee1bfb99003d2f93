/* server: API keys: the key file, the search for a key, and rates. Times are numbers of the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/keys/keys.h"

/* SHA-256 of "abc" and of the empty text, from the standard's examples. */
#define ABC   "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static char path[] = "/tmp/keys_testXXXXXX";

static int begin(void **state) {
    (void)state;
    int fd = mkstemp(path);
    close(fd);
    return fd < 0;
}

static int end(void **state) {
    (void)state;
    return unlink(path);
}

static void write_file(const char *text) {
    um_err err = {0};
    assert_int_equal(um_file_replace(path, um_str_of(text), &err), UM_OK);
}

static um_keys *open_keys(const char *list, const char *text) {
    um_keys *k;
    um_err err = {0};
    if (text) write_file(text);
    if (um_keys_new(&k, list, text ? path : NULL, &err)) fail_msg("%s", err.msg);
    return k;
}

static const char *name_of(const um_keys *k, const char *secret) {
    const um_key *key = um_keys_match(k, secret, strlen(secret));
    return key ? key->name : NULL;
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

static void reads_names_hashes_and_settings(void **state) {
    (void)state;
    um_keys *k = open_keys("one, two",
                           "# keys\n\n  alice\t" ABC " requests_per_minute=5 models=a,b tokens_per_minute=7 # note\r\n"
                           "ops@x " EMPTY " admin");
    const um_key *key = um_keys_find(k, "alice");
    assert_int_equal(um_keys_count(k), 4);
    assert_string_equal(name_of(k, "abc"), "alice");
    assert_string_equal(name_of(k, ""), "ops@x");
    assert_string_equal(name_of(k, "two"), "api-key-2");
    assert_null(name_of(k, "ab"));
    assert_null(name_of(k, ABC));
    assert_int_equal(key->limits.requests_per_minute, 5);
    assert_int_equal(key->limits.tokens_per_minute, 7);
    assert_true(um_key_may_use(key, "b") && !um_key_may_use(key, "c"));
    assert_true(!um_key_is_admin(key) && um_key_is_admin(um_keys_find(k, "ops@x")));
    um_keys_free(k);
}

static void refuses_wrong_lines_with_their_place(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "found no key"},
        {"# nobody\n", "found no key"},
        {"alice", "hash of its key is missing"},
        {"alice ,", "hash of its key is missing"},
        {"alice secret-word", "found a word of 11 bytes"},
        {"alice " ABC "0", "found a word of 65 bytes"},
        {"a/b " ABC, "found \"a/b\""},
        {"api-key-1 " ABC, "belongs to a key of --api-key"},
        {"alice " ABC " admin\nbob " ABC, "alice and bob have the same key"},
        {"alice " ABC "\nalice " EMPTY, "duplicate name alice"},
        {"alice " ABC " tokens_per_minut=3", "tokens_per_minute"},
        {"alice " ABC " tokens_per_minute=x", "tokens_per_minute"},
        {"alice " ABC " tokens_per_minute=-1", "tokens_per_minute"},
        {"alice " ABC " max_concurrent", "found no value"},
        {"alice " ABC " models=,", "found none"},
        {"alice " ABC "," EMPTY "," ABC "," ABC "," ABC, "more than 4 hashes"},
    };
    for (size_t i = 0; i < UM_LEN(cases); i++) {
        um_keys *k;
        um_err err = {0};
        write_file(cases[i].text);
        assert_int_not_equal(um_keys_new(&k, NULL, path, &err), UM_OK);
        assert_null(k);
        if (!strstr(err.msg, cases[i].message) || !strstr(err.msg, path)) fail_msg("%zu: %s", i, err.msg);
        assert_null(strstr(err.msg, "secret-word"));
    }
}

static void names_keep_their_ids_and_counts(void **state) {
    (void)state;
    um_err err = {0};
    um_keys *k = open_keys("x", "a " ABC "\nb " EMPTY);
    um_key *a = um_keys_find(k, "a"), *b = um_keys_find(k, "b");
    a->n_requests = 5;
    write_file("c " EMPTY " models=m\na " ABC " max_concurrent=3");
    assert_int_equal(um_keys_reload(k, &err), UM_OK);
    assert_ptr_equal(um_keys_get(k, a->id), a);
    assert_int_equal(a->n_requests, 5);
    assert_int_equal(a->limits.max_concurrent, 3);
    assert_string_equal(name_of(k, ""), "c");
    assert_int_equal(b->n_hashes, 0);
    assert_int_equal(um_keys_find(k, "c")->id, 4);
    write_file("b " ABC);
    assert_int_equal(um_keys_reload(k, &err), UM_OK);
    assert_ptr_equal(um_keys_match(k, "abc", 3), b);
    assert_string_equal(name_of(k, "x"), "api-key-1");
    um_keys_free(k);
}

static void a_wrong_file_changes_nothing(void **state) {
    (void)state;
    um_err err = {0};
    um_keys *k = open_keys(NULL, "a " ABC);
    write_file("b " EMPTY "\nc what");
    assert_int_not_equal(um_keys_reload(k, &err), UM_OK);
    assert_non_null(strstr(err.msg, ":2: "));
    assert_int_equal(um_keys_count(k), 1);
    assert_string_equal(name_of(k, "abc"), "a");
    um_keys_free(k);
}

/* Each read brings 400 new names. The third one would exceed the limit. */
static void the_number_of_names_is_bounded(void **state) {
    (void)state;
    um_err err = {0};
    um_keys *k = open_keys(NULL, "a " ABC);
    for (int round = 0; round < 3; round++) {
        um_buf text = {0};
        for (int i = 0; i < 400; i++) um_buf_printf(&text, "r%d-%d %064x\n", round, i, round * 400 + i);
        write_file(text.data);
        um_buf_free(&text);
        assert_int_equal(um_keys_reload(k, &err), round < 2 ? UM_OK : UM_ELIMIT);
    }
    assert_int_equal(um_keys_count(k), 801);
    assert_non_null(strstr(err.msg, "restart the server"));
    um_keys_free(k);
}

static void owners_see_their_own_and_admins_everything(void **state) {
    (void)state;
    um_keys *k = open_keys("x", "a " ABC "\nops " EMPTY " admin");
    const um_key *a = um_keys_find(k, "a"), *ops = um_keys_find(k, "ops"), *x = um_keys_find(k, "api-key-1");
    assert_string_equal(um_key_owner(a), "a");
    assert_string_equal(um_key_owner(x), "");
    assert_string_equal(um_key_owner(NULL), "");
    assert_true(um_key_may_see(a, "a") && um_key_may_see(ops, "a") && um_key_may_see(x, "a"));
    assert_true(um_key_may_see(NULL, "a"));
    assert_false(um_key_may_see(a, "ops"));
    assert_false(um_key_may_see(a, ""));
    um_keys_free(k);
}

/* ---- Rates ------------------------------------------------------------------------------------------------------- */

static void a_rate_grows_to_its_limit_within_a_minute(void **state) {
    (void)state;
    um_rate r = {0};
    um_rate_set(&r, 60, 100);
    assert_int_equal(um_rate_left(&r, 100), 60);
    um_rate_take(&r, 60, 100);
    assert_int_equal(um_rate_left(&r, 100.5), 0);
    assert_float_equal(um_rate_wait(&r, 1, 100.5), 0.5, 1e-9);
    assert_float_equal(um_rate_reset(&r, 100.5), 59.5, 1e-9);
    assert_int_equal(um_rate_left(&r, 110), 10);
    assert_float_equal(um_rate_wait(&r, 10, 110), 0, 0);
    assert_int_equal(um_rate_left(&r, 1e6), 60);
}

static void a_rate_pays_back_what_was_used_beyond_it(void **state) {
    (void)state;
    um_rate r = {0};
    um_rate_set(&r, 60, 0);
    um_rate_take(&r, 90, 0);
    assert_int_equal(um_rate_left(&r, 0), 0);
    assert_float_equal(um_rate_wait(&r, 1, 0), 31, 1e-9);
    um_rate_take(&r, -50, 0);
    assert_int_equal(um_rate_left(&r, 0), 20);
    um_rate_take(&r, -1000, 0);
    assert_int_equal(um_rate_left(&r, 0), 60);
}

static void more_than_the_limit_waits_for_a_full_rate(void **state) {
    (void)state;
    um_rate r = {0};
    um_rate_set(&r, 60, 0);
    assert_float_equal(um_rate_wait(&r, 1000, 0), 0, 0);
    um_rate_take(&r, 1, 0);
    assert_float_equal(um_rate_wait(&r, 1000, 0), 1, 1e-9);
}

static void a_new_limit_keeps_what_was_used(void **state) {
    (void)state;
    um_rate r = {0};
    um_rate_set(&r, 60, 0);
    um_rate_take(&r, 50, 0);
    um_rate_set(&r, 120, 0);
    assert_int_equal(um_rate_left(&r, 0), 10);
    um_rate_set(&r, 5, 0);
    assert_int_equal(um_rate_left(&r, 0), 5);
    um_rate_set(&r, 0, 0);
    assert_float_equal(um_rate_wait(&r, 1000, 0), 0, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_names_hashes_and_settings),
        cmocka_unit_test(refuses_wrong_lines_with_their_place),
        cmocka_unit_test(names_keep_their_ids_and_counts),
        cmocka_unit_test(a_wrong_file_changes_nothing),
        cmocka_unit_test(the_number_of_names_is_bounded),
        cmocka_unit_test(owners_see_their_own_and_admins_everything),
        cmocka_unit_test(a_rate_grows_to_its_limit_within_a_minute),
        cmocka_unit_test(a_rate_pays_back_what_was_used_beyond_it),
        cmocka_unit_test(more_than_the_limit_waits_for_a_full_rate),
        cmocka_unit_test(a_new_limit_keeps_what_was_used),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
