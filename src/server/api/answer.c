/* An answer is read: its reasoning is taken off first, then the calls out of what remains. */
#include "server/api/answer.h"

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/* ---- White space at the edges ------------------------------------------------------------------------------------ */

static void say(um_part_kind kind, um_str text, um_part_fn fn, void *arg) {
    if (text.n) fn(arg, &(um_part){.kind = kind, .text = text});
}

void um_edges_put(um_edges *e, um_part_kind kind, um_str text, um_part_fn fn, void *arg) {
    while (e->skips && text.n && is_space(*text.p)) text = (um_str){text.p + 1, text.n - 1};
    if (!text.n) return;
    e->skips = false;
    size_t end = text.n;
    while (e->holds && end && is_space(text.p[end - 1])) end--;
    if (end) {
        um_edges_flush(e, kind, fn, arg);
        say(kind, (um_str){text.p, end}, fn, arg);
    }
    um_buf_append(&e->space, text.p + end, text.n - end);
}

void um_edges_flush(um_edges *e, um_part_kind kind, um_part_fn fn, void *arg) {
    say(kind, (um_str){e->space.data, e->space.len}, fn, arg);
    um_buf_clear(&e->space);
}

void um_edges_drop(um_edges *e) {
    um_buf_clear(&e->space);
    e->skips = true;
}

/* ---- Markers ----------------------------------------------------------------------------------------------------- */

size_t um_marker_find(um_str text, const char *marker, bool *whole) {
    size_t n = strlen(marker);
    *whole = true;
    for (size_t i = 0; i < text.n; i++) {
        size_t there = UM_MIN(n, text.n - i);
        if (memcmp(text.p + i, marker, there) != 0) continue;
        *whole = there == n;
        return i;
    }
    return text.n;
}

int um_begins_with(um_str text, const char *words) {
    int best = -1;
    for (const char *p = words; *p;) {
        size_t n = strcspn(p, " "), there = UM_MIN(n, text.n);
        if (memcmp(text.p, p, there) == 0) best = UM_MAX(best, there == n ? 1 : 0);
        p += n + (p[n] == ' ');
    }
    return best;
}

/* ---- The whole --------------------------------------------------------------------------------------------------- */

void um_answer_init(um_answer_reader *a, const um_tool_format *tools, const um_reasoning_format *reasoning) {
    *a = (um_answer_reader){{.format = reasoning}, {.format = tools}};
    a->tools.edges.holds = true;
}

void um_answer_free(um_answer_reader *a) {
    um_buf_free(&a->reasoning.held);
    um_buf_free(&a->reasoning.edges.space);
    um_buf_free(&a->tools.held);
    um_buf_free(&a->tools.edges.space);
}

/* Where parts go on their way through the two readers. */
typedef struct route {
    um_tool_reader *tools;
    um_part_fn fn;
    void *arg;
} route;

static void to_tools(void *arg, const um_part *p) {
    route *r = arg;
    if (p->kind == UM_PART_CONTENT) um_tools_push(r->tools, p->text, r->fn, r->arg);
    else r->fn(r->arg, p);
}

void um_answer_push(um_answer_reader *a, um_str text, um_part_fn fn, void *arg) {
    route r = {&a->tools, fn, arg};
    um_reasoning_push(&a->reasoning, text, to_tools, &r);
}

/* Between the readers nothing waits: what the first one says, the second one has. */
size_t um_answer_waiting(const um_answer_reader *a) {
    return um_tools_waiting(&a->tools) + a->reasoning.edges.space.len + a->reasoning.held.len;
}

void um_answer_end(um_answer_reader *a, um_part_fn fn, void *arg) {
    route r = {&a->tools, fn, arg};
    um_reasoning_end(&a->reasoning, to_tools, &r);
    um_tools_end(&a->tools, fn, arg);
}
