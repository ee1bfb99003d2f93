/* Reasoning: what a model thinks before it answers, between two markers at the front. */
#include "server/api/answer.h"

const um_reasoning_format um_reasoning_formats[] = {
    {"think", "qwen3|sdar", "<think> … </think> at the front, if at all", "<think>", "</think>", false},
    {"think_open", "deepseek_r1|dream_reasoner", "the template opens <think>; it ends at </think>", "<think>",
     "</think>", true},
};
const size_t um_n_reasoning_formats = UM_LEN(um_reasoning_formats);

um_status um_reasoning_format_find(const um_reasoning_format **out, const char *name, um_err *err) {
    um_str at;
    *out = NULL;
    if (!name || !*name) return UM_OK;
    for (size_t i = 0; i < um_n_reasoning_formats && !*out; i++) {
        const um_reasoning_format *f = &um_reasoning_formats[i];
        if (um_streq(name, f->name) || um_word_index(f->aliases, '|', name, &at) >= 0) *out = f;
    }
    if (*out) return UM_OK;
    um_buf names = {0};
    for (size_t i = 0; i < um_n_reasoning_formats; i++)
        um_buf_printf(&names, "%s%s", i ? ", " : "", um_reasoning_formats[i].name);
    um_status st = um_fail_param(err, UM_EINVAL, "reasoning_parser", "\"%.60s\" is none of %s", name, names.data);
    um_buf_free(&names);
    return st;
}

enum { AT_FRONT, INSIDE, BEHIND };

static um_str held(const um_reasoning_reader *r) { return (um_str){r->held.data ? r->held.data : "", r->held.len}; }

/* Takes n bytes off the front of what is held. */
static void consume(um_reasoning_reader *r, size_t n) {
    memmove(r->held.data, r->held.data + n, r->held.len - n);
    r->held.len -= n;
    r->held.data[r->held.len] = '\0';
}

/* White space in front of the marker is the marker's when it is there, the answer's when it is not. */
static bool leave_front(um_reasoning_reader *r) {
    um_str text = held(r);
    size_t blank = strspn(text.p, " \n\r\t");
    int begins = um_begins_with((um_str){text.p + blank, text.n - blank}, r->format->begin);
    if (begins == 0) return false;
    if (begins > 0) consume(r, blank + strlen(r->format->begin));
    r->state = begins > 0 || r->format->is_open ? INSIDE : BEHIND;
    r->edges = (um_edges){r->edges.space, r->state == INSIDE, r->state == INSIDE};
    return true;
}

static bool leave_reasoning(um_reasoning_reader *r, um_part_fn fn, void *arg) {
    bool whole;
    size_t at = um_marker_find(held(r), r->format->end, &whole);
    bool found = whole && at < r->held.len;
    um_edges_put(&r->edges, UM_PART_REASONING, (um_str){held(r).p, at}, fn, arg);
    if (at || found) consume(r, at + (found ? strlen(r->format->end) : 0));
    if (!found) return false;
    um_edges_drop(&r->edges);
    r->edges.holds = false;
    r->state = BEHIND;
    return true;
}

void um_reasoning_push(um_reasoning_reader *r, um_str text, um_part_fn fn, void *arg) {
    if (!r->format) {
        if (text.n) fn(arg, &(um_part){.kind = UM_PART_CONTENT, .text = text});
        return;
    }
    um_buf_append(&r->held, text.p, text.n);
    if (r->state == AT_FRONT && !leave_front(r)) return;
    if (r->state == INSIDE && !leave_reasoning(r, fn, arg)) return;
    um_edges_put(&r->edges, UM_PART_CONTENT, held(r), fn, arg);
    um_buf_clear(&r->held);
}

/* Reasoning that nobody ended is reasoning still. */
void um_reasoning_end(um_reasoning_reader *r, um_part_fn fn, void *arg) {
    um_part_kind kind = UM_PART_CONTENT;
    if (!r->format || !r->held.len) return;
    if (r->state == INSIDE || (r->state == AT_FRONT && r->format->is_open)) kind = UM_PART_REASONING;
    um_edges_put(&r->edges, kind, held(r), fn, arg);
    um_buf_clear(&r->held);
}
