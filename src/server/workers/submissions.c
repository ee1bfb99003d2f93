/* The table of submissions. */
#include "server/workers/submissions.h"

#include <stdlib.h>

#define SIZE_MIN ((size_t)64)

/* Hashes a request number. Numbers are consecutive, and the multiplication spreads them. */
static size_t home_of(const um_submissions *t, uint64_t rid) {
    return (size_t)((rid * 0x9E3779B97F4A7C15U) >> 32) & (t->size - 1);
}

/* Returns the index of the number, or of the empty entry where it belongs. */
static size_t place_of(const um_submissions *t, uint64_t rid) {
    size_t at = home_of(t, rid);
    while (t->entry[at].rid && t->entry[at].rid != rid) at = (at + 1) & (t->size - 1);
    return at;
}

static void resize(um_submissions *t, size_t size) {
    um_submissions old = *t;
    t->size = size;
    t->entry = UM_NEW_ARRAY(um_submission, size);
    for (size_t i = 0; i < old.size; i++)
        if (old.entry[i].rid) t->entry[place_of(t, old.entry[i].rid)] = old.entry[i];
    um_free(old.entry);
}

void um_submissions_add(um_submissions *t, const um_submission *g) {
    assert(g->rid);
    if (2 * ((size_t)t->n + 1) >= t->size) resize(t, UM_MAX(2 * t->size, SIZE_MIN));
    size_t at = place_of(t, g->rid);
    assert(!t->entry[at].rid);
    t->entry[at] = *g;
    t->n++;
}

um_submission *um_submissions_find(const um_submissions *t, uint64_t rid) {
    if (t->n == 0 || rid == 0) return NULL;
    um_submission *g = &t->entry[place_of(t, rid)];
    return g->rid ? g : NULL;
}

/* Empties an entry. Moves entries that follow it into the gap when linear probing would look for them there. */
static void empty_entry(um_submissions *t, size_t at) {
    size_t mask = t->size - 1;
    for (size_t k = (at + 1) & mask; t->entry[k].rid; k = (k + 1) & mask) {
        if (((k - home_of(t, t->entry[k].rid)) & mask) < ((k - at) & mask)) continue;
        t->entry[at] = t->entry[k];
        at = k;
    }
    t->entry[at] = (um_submission){0};
}

bool um_submissions_take(um_submissions *t, uint64_t rid, um_submission *g) {
    um_submission *found = um_submissions_find(t, rid);
    if (!found) return false;
    *g = *found;
    empty_entry(t, (size_t)(found - t->entry));
    t->n--;
    return true;
}

static int ascending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

uint64_t *um_submissions_list(const um_submissions *t, int32_t worker, size_t *n) {
    uint64_t *rid = UM_NEW_ARRAY(uint64_t, (size_t)t->n + 1);
    *n = 0;
    for (size_t i = 0; i < t->size; i++)
        if (t->entry[i].rid && (worker < 0 || t->entry[i].worker == worker)) rid[(*n)++] = t->entry[i].rid;
    qsort(rid, *n, sizeof(*rid), ascending);
    return rid;
}

void um_submissions_free(um_submissions *t) {
    um_free(t->entry);
    *t = (um_submissions){0};
}
