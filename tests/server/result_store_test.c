/* server: the store of results: ids, limits, and what other threads may copy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include <event2/event.h>

#include "server/api/result_store.h"

#define BYTES_MAX 100000

typedef struct world {
    um_server_config config;
    um_service service;
    um_result_store *store;
} world;

static int setup(void **state) {
    world *w = UM_NEW(world);
    w->config.result_max = 3;
    w->config.result_ttl = 600;
    w->service.setup.config = &w->config;
    w->service.base = event_base_new();
    w->store = um_result_store_new(&w->service, BYTES_MAX);
    *state = w;
    return 0;
}

static int teardown(void **state) {
    world *w = *state;
    um_result_store_free(w->store);
    event_base_free(w->service.base);
    um_free(w);
    return 0;
}

/* Returns a text of n bytes. */
static um_buf text_of(size_t n) {
    um_buf b = {0};
    for (size_t i = 0; i < n; i++) um_buf_putc(&b, 'x');
    return b;
}

/* Adds a finished result whose response has n bytes. */
static um_stored *finish(world *w, const char *id, size_t n) {
    um_stored *e = um_stored_add(w->store, id, "");
    um_buf json = text_of(n);
    assert_non_null(e);
    um_stored_finish(e, 200, &json);
    return e;
}

static void finds_results_by_their_ids(void **state) {
    world *w = *state;
    um_stored *a = finish(w, "a", 5), *b = um_stored_add(w->store, "b", "");
    assert_ptr_equal(um_stored_find(w->store, "a", NULL), a);
    assert_ptr_equal(um_stored_find(w->store, "b", NULL), b);
    assert_null(um_stored_find(w->store, "c", NULL));
    assert_null(um_stored_add(w->store, "a", ""));
    um_stored_remove(a);
    assert_null(um_stored_find(w->store, "a", NULL));
}

static void deletes_the_oldest_beyond_the_number(void **state) {
    world *w = *state;
    um_stored_add(w->store, "unfinished", "");
    finish(w, "a", 5), finish(w, "b", 5), finish(w, "c", 5), finish(w, "d", 5);
    assert_null(um_stored_find(w->store, "a", NULL));
    assert_non_null(um_stored_find(w->store, "b", NULL));
    assert_non_null(um_stored_find(w->store, "unfinished", NULL));
}

static void deletes_the_oldest_beyond_the_bytes_but_keeps_the_newest(void **state) {
    world *w = *state;
    finish(w, "a", BYTES_MAX / 2), finish(w, "b", BYTES_MAX / 4);
    assert_non_null(um_stored_find(w->store, "a", NULL));
    finish(w, "c", BYTES_MAX / 2);
    assert_null(um_stored_find(w->store, "a", NULL));
    assert_non_null(um_stored_find(w->store, "b", NULL));
    finish(w, "d", 2 * BYTES_MAX);
    assert_null(um_stored_find(w->store, "c", NULL));
    assert_non_null(um_stored_find(w->store, "d", NULL));
}

static void deletes_results_that_are_too_old(void **state) {
    world *w = *state;
    finish(w, "a", 5)->finished -= 599;
    assert_non_null(um_stored_find(w->store, "a", NULL));
    um_stored_find(w->store, "a", NULL)->finished -= 2;
    assert_null(um_stored_find(w->store, "a", NULL));
}

static void copies_finished_results_only(void **state) {
    world *w = *state;
    um_buf json = {0}, items = {0}, given = text_of(7), before = text_of(3);
    um_stored *e = um_stored_add(w->store, "a", "");
    um_stored_set(e, &before);
    um_stored_set_items(e, &given);
    assert_false(um_stored_copy(w->store, "a", "", &json, &items));
    before = text_of(4);
    um_stored_finish(e, 200, &before);
    assert_true(um_stored_copy(w->store, "a", "", &json, &items));
    assert_int_equal(json.len, 4);
    assert_int_equal(items.len, 7);
    assert_false(um_stored_copy(w->store, "b", "", &json, &items));
    um_buf_free(&json);
    um_buf_free(&items);
}

static void an_update_makes_a_result_the_newest(void **state) {
    world *w = *state;
    um_stored *a = finish(w, "a", 5);
    um_buf json = text_of(BYTES_MAX / 2), items = text_of(7), copy = {0}, before = {0};
    finish(w, "b", BYTES_MAX / 4);
    um_stored_update(a, &json, &items);
    finish(w, "c", BYTES_MAX / 3); /* too many bytes: "b" is the oldest now */
    assert_null(um_stored_find(w->store, "b", NULL));
    assert_true(um_stored_copy(w->store, "a", "", &copy, &before));
    assert_int_equal(copy.len, BYTES_MAX / 2);
    assert_int_equal(before.len, 7);
    um_buf_free(&copy);
    um_buf_free(&before);
}

static void results_are_ordered_by_their_time(void **state) {
    world *w = *state;
    const char *const id[] = {"b", "d", "a", "c"};
    const double age[] = {30, 10, 40, 20};
    for (size_t i = 0; i < UM_LEN(id); i++) {
        um_stored *e = um_stored_add(w->store, id[i], "");
        e->is_finished = true;
        e->finished = um_now() - age[i];
        um_stored_link(e);
    }
    finish(w, "e", 5); /* the fifth of three */
    assert_null(um_stored_find(w->store, "a", NULL));
    assert_null(um_stored_find(w->store, "b", NULL));
    for (size_t i = 1; i < UM_LEN(id); i += 2) assert_non_null(um_stored_find(w->store, id[i], NULL));
}

static void others_find_and_copy_nothing(void **state) {
    world *w = *state;
    um_key ann = {.name = "ann", .is_from_file = true}, bob = {.name = "bob", .is_from_file = true};
    um_buf json = text_of(5), copy = {0}, before = {0};
    um_stored *e = um_stored_add(w->store, "a", "ann");
    um_stored_finish(e, 200, &json);
    assert_ptr_equal(um_stored_find(w->store, "a", &ann), e);
    assert_null(um_stored_find(w->store, "a", &bob));
    assert_false(um_stored_copy(w->store, "a", "bob", &copy, &before));
    assert_false(um_stored_copy(w->store, "a", "", &copy, &before));
}

static void stop_removes_the_unfinished(void **state) {
    world *w = *state;
    finish(w, "a", 5);
    um_stored_add(w->store, "b", "");
    um_result_store_stop(w->store);
    assert_non_null(um_stored_find(w->store, "a", NULL));
    assert_null(um_stored_find(w->store, "b", NULL));
}

#define CLAIM(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CLAIM(finds_results_by_their_ids),
        CLAIM(deletes_the_oldest_beyond_the_number),
        CLAIM(deletes_the_oldest_beyond_the_bytes_but_keeps_the_newest),
        CLAIM(deletes_results_that_are_too_old),
        CLAIM(copies_finished_results_only),
        CLAIM(an_update_makes_a_result_the_newest),
        CLAIM(results_are_ordered_by_their_time),
        CLAIM(others_find_and_copy_nothing),
        CLAIM(stop_removes_the_unfinished),
    };
    return cmocka_run_group_tests_name("result_store", tests, NULL, NULL);
}
