/* Answers that wait for the disk, and pages of lists. */
#include "server/batch/request.h"

um_batches *um_batches_of(um_server *s, um_exchange *x) {
    um_batches *all = um_server_batches(s);
    if (!all)
        um_reply_error(x, 501, NULL, NULL,
                       "this server keeps no files and batches; start it with --state-dir DIR to have them");
    return all;
}

um_status um_expires_after_check(const char *param, const char *anchor, int64_t seconds, um_err *err) {
    if (um_streq(anchor, "created_at") && seconds >= 1 && seconds <= UM_FILE_TTL_MAX) return UM_OK;
    return um_fail_param(err, UM_EINVAL, param, "expected the anchor created_at, and seconds 1..%d", UM_FILE_TTL_MAX);
}

/* ---- Waiting for the disk ---------------------------------------------------------------------------------------- */

static void on_close(void *arg, um_exchange *x, bool complete) {
    (void)x, (void)complete;
    ((um_pending *)arg)->x = NULL;
}

um_pending *um_pending_new(um_exchange *x) {
    um_pending *p = UM_NEW(um_pending);
    p->x = x;
    um_exchange_on_close(x, on_close, p);
    return p;
}

void um_pending_done(void *arg, um_status s, const um_err *err) {
    um_pending *p = arg;
    um_exchange *x = p->x;
    if (s) um_warn("%s", err->msg);
    if (x) {
        um_exchange_on_close(x, NULL, NULL);
        /* The reason names folders of this machine: it is for the log. */
        if (s) um_reply_error(x, 507, NULL, "storage_error", "the server can't write its files; its log says why");
        else um_reply_json(x, 200, &p->json);
    }
    um_buf_free(&p->json);
    um_free(p);
}

/* ---- Pages of lists ---------------------------------------------------------------------------------------------- */

bool um_page_read(um_page *p, um_exchange *x, size_t limit, size_t most) {
    const char *asked = um_exchange_query(x, "limit"), *order = um_exchange_query(x, "order");
    int64_t n = (int64_t)limit;
    *p = (um_page){.after = um_exchange_query(x, "after"), .rising = um_streq(order, "asc")};
    if (asked && (!um_parse_int(asked, &n) || n < 1 || n > (int64_t)most)) {
        um_reply_error(x, 400, "limit", NULL, "limit: expected an integer 1..%zu, found \"%.40s\"", most, asked);
        return false;
    }
    if (order && !p->rising && !um_streq(order, "desc")) {
        um_reply_error(x, 400, "order", NULL, "order: expected asc or desc, found \"%.40s\"", order);
        return false;
    }
    p->limit = (size_t)n;
    return true;
}

static bool shows(const um_page_of *of, size_t i) { return !of->shows || of->shows(of->list, i, of->filter); }

/* Index of the k-th entry in the order of the page. */
static size_t at(const um_page *p, const um_page_of *of, size_t k) { return p->rising ? k : of->n - 1 - k; }

/* Where the page begins in its order; false: there is no entry that it could begin behind. */
static bool find_first(const um_page *p, const um_page_of *of, size_t *k) {
    for (*k = 0; p->after && *k < of->n; ++*k)
        if (um_streq(of->id(of->list, at(p, of, *k)), p->after)) return ++*k, true;
    return !p->after;
}

/* Writes the entries from the k-th on; gives the first and the last id, NULL without any. True: there are more. */
static bool put_entries(const um_page *p, const um_page_of *of, size_t k, um_jw *w, const char *id[2]) {
    size_t n = 0;
    for (; k < of->n; k++) {
        size_t i = at(p, of, k);
        if (!shows(of, i)) continue;
        if (n == p->limit) return true;
        id[1] = of->id(of->list, i);
        if (n++ == 0) id[0] = id[1];
        of->put(of->list, i, w);
    }
    return false;
}

void um_page_reply(const um_page *p, const um_page_of *of, um_exchange *x) {
    um_buf body = {0};
    um_jw w;
    const char *id[2] = {NULL, NULL};
    size_t first;
    if (!find_first(p, of, &first)) { /* an empty page would pass for the end of the list */
        um_reply_error(x, 400, "after", NULL, "after: \"%.80s\" is not in the list, or not any more", p->after);
        return;
    }
    um_jw_init(&w, &body);
    um_jw_begin_object(&w);
    um_jw_put_cstr(&w, "object", "list");
    um_jw_key(&w, "data");
    um_jw_begin_array(&w);
    bool more = put_entries(p, of, first, &w, id);
    um_jw_end_array(&w);
    um_jw_put_cstr(&w, "first_id", id[0]);
    um_jw_put_cstr(&w, "last_id", id[1]);
    um_jw_put_bool(&w, "has_more", more);
    um_jw_end_object(&w);
    um_reply_json(x, 200, &body);
    um_buf_free(&body);
}
