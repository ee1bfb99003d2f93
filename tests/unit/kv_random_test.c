/* kv: random operations on tables, compared with a simple model. The model writes to every position a number that
 * depends on all tokens up to this position, as keys do. So it knows which numbers each table must read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "kv/kv.h"

enum { PAGES = 24, PAGE_SIZE = 4, TABLES = 10, CAP = 12, POSITIONS = CAP * PAGE_SIZE, STEPS = 100000 };

typedef struct owner {
    um_table table;
    uint64_t space;
    int32_t ids[POSITIONS];
    int32_t n_stored;
    bool is_used;
    bool has_others; /* the tokens have changed since the table's last search */
} owner;

typedef struct world {
    um_pages pool;
    owner owner[TABLES];
    uint64_t slot[PAGES * PAGE_SIZE]; /* the keys of the backend */
    uint64_t seed, drawn;
    int64_t n_found;
} world;

static int32_t draw(world *w, int32_t n) { return (int32_t)(um_rng_u64(w->seed, w->drawn++) % (uint64_t)n); }

static uint64_t key_after(uint64_t key, int32_t id) { return um_rng_u64(key, (uint64_t)id); }

/* ---- Operations -------------------------------------------------------------------------------------------------- */

/* Draws tokens from a vocabulary of three. They often start like those of another owner, so that many pages are equal.
 */
static void draw_ids(world *w, owner *o, int32_t from) {
    const owner *like = &w->owner[draw(w, TABLES)];
    int32_t same = draw(w, 3) == 0 ? from : draw(w, POSITIONS);
    for (int32_t i = from; i < POSITIONS; i++) o->ids[i] = i < same ? like->ids[i] : draw(w, 3);
    o->has_others = true;
}

static void start(world *w, owner *o) {
    int32_t most = draw(w, POSITIONS + 1), n_ids = draw(w, POSITIONS + 1), kept = 0;
    int32_t available = um_pages_available(&w->pool);
    o->is_used = true;
    /* A table that is used again searches for the same tokens; other tokens need a new table. */
    if (o->has_others || draw(w, 2)) {
        um_table_deinit(&o->table);
        um_table_init(&o->table, CAP);
        o->space = (uint64_t)draw(w, 3); /* 0: shares nothing */
        draw_ids(w, o, 0);
        o->has_others = false;
    }
    int32_t matched = um_prefix_match(&w->pool, o->space, o->ids, n_ids, most, &kept);
    o->n_stored = um_table_reuse_prefix(&o->table, &w->pool, o->space, o->ids, n_ids, most);
    assert_int_equal(o->n_stored, matched);
    w->n_found += matched;
    assert_int_equal(o->table.n * PAGE_SIZE, matched);
    assert_true(matched <= UM_MIN(n_ids, most));
    assert_int_equal(available - um_pages_available(&w->pool), kept);
}

static void store(world *w, owner *o) {
    int32_t more = 1 + draw(w, 2 * PAGE_SIZE), end = UM_MIN(o->n_stored + more, POSITIONS);
    um_page_copy copy;
    if (end == o->n_stored || !um_table_grow(&o->table, &w->pool, um_pages_for(&w->pool, end))) return;
    if (!um_table_writable(&o->table, &w->pool, o->n_stored, &copy)) {
        assert_int_equal(um_pages_available(&w->pool), 0);
        return;
    }
    assert_true(copy.n < PAGE_SIZE);
    for (int32_t i = 0; i < copy.n; i++) w->slot[copy.to * PAGE_SIZE + i] = w->slot[copy.from * PAGE_SIZE + i];
    uint64_t key = o->space;
    for (int32_t i = 0; i < end; i++) {
        int32_t page = o->table.page[i / PAGE_SIZE];
        key = key_after(key, o->ids[i]);
        if (i < o->n_stored) continue;
        assert_true(um_page_may_write(&w->pool, page));
        w->slot[page * PAGE_SIZE + i % PAGE_SIZE] = key;
    }
    o->n_stored = end;
}

static void publish(world *w, owner *o) {
    um_table_publish(&o->table, &w->pool, o->space, o->ids, o->n_stored);
    int32_t whole = o->space ? o->n_stored / PAGE_SIZE * PAGE_SIZE : 0;
    assert_int_equal(um_prefix_match(&w->pool, o->space, o->ids, o->n_stored, POSITIONS, NULL), whole);
}

static void fork_from(world *w, owner *o, const owner *from) {
    o->is_used = true;
    o->space = from->space;
    o->n_stored = draw(w, from->n_stored + 1);
    memcpy(o->ids, from->ids, sizeof(o->ids));
    draw_ids(w, o, o->n_stored);
    um_table_fork(&o->table, &from->table, &w->pool, o->n_stored);
}

/* Returns to an earlier position and continues with other tokens. */
static void rewind_to_earlier(world *w, owner *o) {
    o->n_stored = draw(w, o->n_stored + 1);
    um_table_truncate(&o->table, &w->pool, um_pages_for(&w->pool, o->n_stored));
    draw_ids(w, o, o->n_stored);
}

static void end(world *w, owner *o) {
    um_table_release(&o->table, &w->pool);
    o->is_used = false;
}

static void step(world *w) {
    owner *o = &w->owner[draw(w, TABLES)], *other = &w->owner[draw(w, TABLES)];
    int32_t what = draw(w, 100);
    if (what == 99) um_prefix_flush(&w->pool);
    else if (!o->is_used && other->is_used && what < 40) fork_from(w, o, other);
    else if (!o->is_used) start(w, o);
    else if (what < 55) store(w, o);
    else if (what < 80) publish(w, o);
    else if (what < 86) rewind_to_earlier(w, o);
    else if (what < 96) end(w, o);
}

/* ---- Invariants -------------------------------------------------------------------------------------------------- */

/* Each page is held, cached or free, and n_holders is the number of tables that contain it. */
static void check_states(const world *w) {
    const um_pages *p = &w->pool;
    int32_t holders[PAGES] = {0}, is_free[PAGES] = {0}, is_cached[PAGES] = {0}, n_used = 0, n_cached = 0, last = -1;
    for (int32_t t = 0; t < TABLES; t++)
        for (int32_t i = 0; i < w->owner[t].table.n; i++) holders[w->owner[t].table.page[i]]++;
    for (int32_t i = 0; i < p->n_free; i++) is_free[p->free_page[i]]++;
    for (int32_t page = p->oldest; page >= 0 && n_cached <= PAGES; page = p->page[page].newer, n_cached++) {
        assert_int_equal(p->page[page].older, last);
        is_cached[page]++;
        last = page;
    }
    assert_int_equal(last, p->newest);
    assert_int_equal(n_cached, p->n_cached);
    for (int32_t i = 0; i < PAGES; i++) {
        assert_int_equal(holders[i], p->page[i].n_holders);
        assert_int_equal((holders[i] > 0) + is_free[i] + is_cached[i], 1);
        assert_true(is_cached[i] == 0 || p->page[i].published);
        assert_true(is_free[i] == 0 || !p->page[i].published);
        n_used += holders[i] > 0;
    }
    assert_int_equal(n_used, um_pages_used(p));
    assert_true(p->used_max >= n_used);
}

/* The index contains each published page once, in an entry that a search from its hash reaches. */
static void check_index(const world *w) {
    const um_pages *p = &w->pool;
    int32_t entries[PAGES] = {0};
    for (uint64_t i = 0; i <= p->entry_mask; i++)
        if (p->entry[i] >= 0) entries[p->entry[i]]++;
    for (int32_t i = 0; i < PAGES; i++) {
        assert_int_equal(entries[i], p->page[i].published);
        if (!p->page[i].published) continue;
        uint64_t at = p->page[i].hash & p->entry_mask;
        while (p->entry[at] != i) {
            assert_true(p->entry[at] >= 0);
            at = (at + 1) & p->entry_mask;
        }
    }
}

/* Every table reads the keys that its own tokens give. */
static void check_contents(const world *w) {
    for (int32_t t = 0; t < TABLES; t++) {
        const owner *o = &w->owner[t];
        uint64_t key = o->space;
        for (int32_t i = 0; i < o->n_stored && o->is_used; i++) {
            key = key_after(key, o->ids[i]);
            assert_true(w->slot[o->table.page[i / PAGE_SIZE] * PAGE_SIZE + i % PAGE_SIZE] == key);
        }
    }
}

static void run_random_operations(uint64_t seed, uint64_t hash_mask) {
    static world w;
    memset(&w, 0, sizeof(w));
    w.seed = seed;
    assert_int_equal(um_pages_init(&w.pool, PAGES, PAGE_SIZE, NULL), UM_OK);
    w.pool.hash_mask = hash_mask;
    for (int32_t i = 0; i < TABLES; i++) um_table_init(&w.owner[i].table, CAP);
    for (int32_t i = 0; i < STEPS; i++) {
        step(&w);
        check_states(&w);
        check_index(&w);
        check_contents(&w);
    }
    assert_true(w.n_found > 0);
    for (int32_t i = 0; i < TABLES; i++) {
        end(&w, &w.owner[i]);
        um_table_deinit(&w.owner[i].table);
    }
    assert_int_equal(um_pages_available(&w.pool), PAGES);
    um_pages_deinit(&w.pool);
}

static uint64_t seed_of_run(void) {
    const char *env = getenv("UM_TEST_SEED");
    uint64_t seed = env ? strtoull(env, NULL, 10) : (uint64_t)um_rng_seed();
    print_message("           seed %llu (UM_TEST_SEED repeats it)\n", (unsigned long long)seed);
    return seed;
}

static void every_table_reads_the_keys_of_its_tokens(void **state) {
    (void)state;
    run_random_operations(seed_of_run(), UINT64_MAX);
}

static void every_table_reads_the_keys_of_its_tokens_when_hashes_collide(void **state) {
    (void)state;
    run_random_operations(seed_of_run(), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_table_reads_the_keys_of_its_tokens),
        cmocka_unit_test(every_table_reads_the_keys_of_its_tokens_when_hashes_collide),
    };
    return cmocka_run_group_tests_name("pages at random", tests, NULL, NULL);
}
