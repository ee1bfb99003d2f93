/* Pages of lists. */
#include "server/respond/list_page.h"

#include "server/respond/reply.h"

bool um_list_page_read(um_list_page *p, um_exchange *x, size_t limit, size_t most) {
    const char *value = um_exchange_query(x, "limit"), *order = um_exchange_query(x, "order");
    int64_t n = (int64_t)limit;
    *p = (um_list_page){.after = um_exchange_query(x, "after"), .ascending = um_streq(order, "asc")};
    if (value && (!um_parse_int(value, &n) || n < 1 || n > (int64_t)most)) {
        um_reply_error(x, 400, "limit", NULL, "limit: expected an integer 1..%zu, found \"%.40s\"", most, value);
        return false;
    }
    if (order && !p->ascending && !um_streq(order, "desc")) {
        um_reply_error(x, 400, "order", NULL, "order: expected asc or desc, found \"%.40s\"", order);
        return false;
    }
    p->limit = (size_t)n;
    return true;
}

static bool matches(const um_list_page_source *source, size_t i) {
    return !source->matches || source->matches(source->list, i, source->filter);
}

/* Returns the index of the k-th entry in the order of the page. */
static size_t at(const um_list_page *p, const um_list_page_source *source, size_t k) {
    return p->ascending ? k : source->n - 1 - k;
}

/* Finds the place in the page's order where the page begins. Returns false if the entry `after` does not exist. */
static bool find_first(const um_list_page *p, const um_list_page_source *source, size_t *k) {
    for (*k = 0; p->after && *k < source->n; ++*k) {
        size_t i = at(p, source, *k);
        if (um_streq(source->id(source->list, i), p->after)) return ++*k, matches(source, i);
    }
    return !p->after;
}

/* Writes the entries from the k-th on and sets id[] to the ids of the first and the last one. Returns true if there are
 * more entries. */
static bool put_entries(const um_list_page *p, const um_list_page_source *source, size_t k, um_jw *w,
                        const char *id[2]) {
    size_t n = 0;
    for (; k < source->n; k++) {
        size_t i = at(p, source, k);
        if (!matches(source, i)) continue;
        if (n == p->limit) return true;
        id[1] = source->id(source->list, i);
        if (n++ == 0) id[0] = id[1];
        source->put(source->list, i, w);
    }
    return false;
}

void um_list_page_reply(const um_list_page *p, const um_list_page_source *source, um_exchange *x) {
    um_buf body = {0};
    um_jw w;
    const char *id[2] = {NULL, NULL};
    size_t first;
    if (!find_first(p, source, &first)) { /* an empty page would look like the end of the list */
        um_reply_error(x, 400, "after", NULL, "after: \"%.80s\" is not in the list", p->after);
        return;
    }
    um_jw_init(&w, &body);
    um_jw_begin_object(&w);
    um_jw_put_cstr(&w, "object", "list");
    um_jw_key(&w, "data");
    um_jw_begin_array(&w);
    bool more = put_entries(p, source, first, &w, id);
    um_jw_end_array(&w);
    um_jw_put_cstr(&w, "first_id", id[0]);
    um_jw_put_cstr(&w, "last_id", id[1]);
    um_jw_put_bool(&w, "has_more", more);
    um_jw_end_object(&w);
    um_reply_json(x, 200, &body);
    um_buf_free(&body);
}
