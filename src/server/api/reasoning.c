/* The formats of reasoning, the text between two markers at the start of an answer, and their parser. */
#include "server/api/answer.h"

const um_reasoning_format um_reasoning_formats[] = {
    {"think", "qwen3|sdar", "<think>", "</think>", false},
    {"think_open", "deepseek_r1|dream_reasoner", "<think>", "</think>", true},
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
    um_status st = um_fail_param(err, UM_EINVAL, "reasoning_parser", "unknown format \"%.60s\", expected one of: %s",
                                 name, names.data);
    um_buf_free(&names);
    return st;
}

/* The state of a parser: before, inside and after the reasoning. */
enum { AT_START, INSIDE, BEHIND };

static um_str pending(const um_reasoning_parser *r) {
    return (um_str){r->pending.data ? r->pending.data : "", r->pending.len};
}

/* Removes the first n pending bytes. */
static void consume(um_reasoning_parser *r, size_t n) {
    memmove(r->pending.data, r->pending.data + n, r->pending.len - n);
    r->pending.len -= n;
    r->pending.data[r->pending.len] = '\0';
}

/* Looks for the begin marker. Returns false while that needs more text. White space in front of the marker is dropped
 * with it; without a marker it belongs to the answer. */
static bool parse_start(um_reasoning_parser *r) {
    um_str text = pending(r);
    size_t blank = strspn(text.p, " \n\r\t");
    int begins = um_begins_with((um_str){text.p + blank, text.n - blank}, r->format->begin);
    if (begins == 0) return false;
    if (begins > 0) consume(r, blank + strlen(r->format->begin));
    r->state = begins > 0 || r->format->is_open ? INSIDE : BEHIND;
    r->trimmer = (um_trimmer){r->trimmer.space, r->state == INSIDE, r->state == INSIDE};
    return true;
}

/* Passes on reasoning up to the end marker. Returns false if the marker has not come yet. */
static bool parse_reasoning(um_reasoning_parser *r, um_answer_part_fn fn, void *arg) {
    bool whole;
    size_t at = um_marker_find(pending(r), r->format->end, &whole);
    bool found = whole && at < r->pending.len;
    um_trimmer_put(&r->trimmer, UM_ANSWER_REASONING, (um_str){pending(r).p, at}, fn, arg);
    if (at || found) consume(r, at + (found ? strlen(r->format->end) : 0));
    if (!found) return false;
    um_trimmer_drop(&r->trimmer);
    r->trimmer.hold_trailing = false;
    r->state = BEHIND;
    return true;
}

void um_reasoning_parser_push(um_reasoning_parser *r, um_str text, um_answer_part_fn fn, void *arg) {
    if (!r->format) {
        if (text.n) fn(arg, &(um_answer_part){.kind = UM_ANSWER_CONTENT, .text = text});
        return;
    }
    um_buf_append(&r->pending, text.p, text.n);
    if (r->state == AT_START && !parse_start(r)) return;
    if (r->state == INSIDE && !parse_reasoning(r, fn, arg)) return;
    um_trimmer_put(&r->trimmer, UM_ANSWER_CONTENT, pending(r), fn, arg);
    um_buf_clear(&r->pending);
}

/* Reasoning without an end marker lasts to the end of the answer. */
void um_reasoning_parser_end(um_reasoning_parser *r, um_answer_part_fn fn, void *arg) {
    um_answer_part_kind kind = UM_ANSWER_CONTENT;
    if (!r->format || !r->pending.len) return;
    if (r->state == INSIDE || (r->state == AT_START && r->format->is_open)) kind = UM_ANSWER_REASONING;
    um_trimmer_put(&r->trimmer, kind, pending(r), fn, arg);
    um_buf_clear(&r->pending);
}
