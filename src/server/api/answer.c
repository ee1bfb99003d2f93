/* The parser of a whole answer, and what its two parts share: trimming white space, finding markers. */
#include "server/api/answer.h"

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/* ---- Trimming ---------------------------------------------------------------------------------------------------- */

static void emit(um_answer_part_kind kind, um_str text, um_answer_part_fn fn, void *arg) {
    if (text.n) fn(arg, &(um_answer_part){.kind = kind, .text = text});
}

void um_trimmer_put(um_trimmer *t, um_answer_part_kind kind, um_str text, um_answer_part_fn fn, void *arg) {
    while (t->skip_leading && text.n && is_space(*text.p)) text = (um_str){text.p + 1, text.n - 1};
    if (!text.n) return;
    t->skip_leading = false;
    size_t end = text.n;
    while (t->hold_trailing && end && is_space(text.p[end - 1])) end--;
    if (end) {
        um_trimmer_flush(t, kind, fn, arg);
        emit(kind, (um_str){text.p, end}, fn, arg);
    }
    um_buf_append(&t->space, text.p + end, text.n - end);
}

void um_trimmer_flush(um_trimmer *t, um_answer_part_kind kind, um_answer_part_fn fn, void *arg) {
    emit(kind, (um_str){t->space.data, t->space.len}, fn, arg);
    um_buf_clear(&t->space);
}

void um_trimmer_drop(um_trimmer *t) {
    um_buf_clear(&t->space);
    t->skip_leading = true;
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

/* ---- The whole answer -------------------------------------------------------------------------------------------- */

void um_answer_parser_init(um_answer_parser *a, const um_tool_format *tools, const um_reasoning_format *reasoning) {
    *a = (um_answer_parser){{.format = reasoning}, {.format = tools}};
    a->tools.trimmer.hold_trailing = true;
}

void um_answer_parser_free(um_answer_parser *a) {
    um_buf_free(&a->reasoning.pending);
    um_buf_free(&a->reasoning.trimmer.space);
    um_buf_free(&a->tools.pending);
    um_buf_free(&a->tools.trimmer.space);
}

/* The receiver of the reasoning parser's parts. It passes content to the tool parser and everything else to the
 * caller's function. */
typedef struct receiver {
    um_tool_parser *tools;
    um_answer_part_fn fn;
    void *arg;
} receiver;

static void push_to_tools(void *arg, const um_answer_part *p) {
    receiver *r = arg;
    if (p->kind == UM_ANSWER_CONTENT) um_tool_parser_push(r->tools, p->text, r->fn, r->arg);
    else r->fn(r->arg, p);
}

void um_answer_parser_push(um_answer_parser *a, um_str text, um_answer_part_fn fn, void *arg) {
    receiver r = {&a->tools, fn, arg};
    um_reasoning_parser_push(&a->reasoning, text, push_to_tools, &r);
}

size_t um_answer_parser_pending(const um_answer_parser *a) {
    return um_tool_parser_pending(&a->tools) + a->reasoning.trimmer.space.len + a->reasoning.pending.len;
}

void um_answer_parser_end(um_answer_parser *a, um_answer_part_fn fn, void *arg) {
    receiver r = {&a->tools, fn, arg};
    um_reasoning_parser_end(&a->reasoning, push_to_tools, &r);
    um_tool_parser_end(&a->tools, fn, arg);
}
