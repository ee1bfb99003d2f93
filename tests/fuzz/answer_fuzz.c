/* Fuzzes the parsers of answers: reasoning and tool calls. The first byte of the input chooses the formats, the second
 * one where the text is cut, and the rest is the text. The parts are the same wherever the text is cut, the arguments
 * of a call in the form of XML are JSON, and without calls and reasoning nothing but white space is lost. */
#include <jansson.h>
#include <stdlib.h>

#include "server/api/answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"properties\": "
    "{\"s\": {\"type\": \"string\"}, \"n\": {\"type\": \"integer\"}}}}}]";

static void require(bool claim) {
    if (!claim) abort();
}

/* The parts of an answer, each with its kind in front when it differs from that of the part before. */
typedef struct output {
    um_buf out;
    int kind, n_calls;
    size_t content;
    bool is_xml;
} output;

static void append_part(void *arg, const um_answer_part *p) {
    output *t = arg;
    if ((int)p->kind != t->kind || p->kind == UM_ANSWER_CALL) um_buf_putc(&t->out, (char)('0' + p->kind));
    t->kind = p->kind;
    um_buf_append(&t->out, p->text.p, p->text.n);
    if (p->kind == UM_ANSWER_CONTENT) t->content += p->text.n;
    if (p->kind != UM_ANSWER_CALL) return;
    t->n_calls++;
    require(p->name.p != NULL);
    um_buf_append(&t->out, p->name.p, p->name.n);
    json_t *v = t->is_xml ? json_loadb(p->text.p, p->text.n, JSON_ALLOW_NUL, NULL) : NULL;
    require(!t->is_xml || json_is_object(v));
    json_decref(v);
}

static output parse(const um_tool_format *f, const um_reasoning_format *r, um_str text, size_t cut) {
    um_answer_parser a;
    output t = {.kind = -1, .is_xml = f && f->parse == um_tool_parse_xml};
    um_answer_parser_init(&a, f, r);
    a.tools.tools = tools;
    for (size_t at = 0; at < text.n;) {
        size_t n = UM_MIN(cut ? cut : text.n, text.n - at);
        um_answer_parser_push(&a, (um_str){text.p + at, n}, append_part, &t);
        at += n;
        require(um_answer_parser_pending(&a) <= at);
    }
    um_answer_parser_end(&a, append_part, &t);
    um_answer_parser_free(&a);
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    const size_t n_formats = um_n_tool_formats + 2, n_reasoning = um_n_reasoning_formats + 1;
    const size_t i = data[0] % n_formats, k = data[0] / n_formats % n_reasoning;
    const um_tool_format *f = i ? &um_tool_formats[i - 1] : NULL;
    if (i > um_n_tool_formats) f = &um_tool_format_pieces;
    const um_reasoning_format *r = k ? &um_reasoning_formats[k - 1] : NULL;
    const um_str text = {(const char *)data + 2, size - 2};
    output whole = parse(f, r, text, 0), cut = parse(f, r, text, 1 + data[1] % 16);
    require(whole.out.len == cut.out.len);
    require(!whole.out.len || memcmp(whole.out.data, cut.out.data, whole.out.len) == 0);
    if (!r && !whole.n_calls && f != &um_tool_format_pieces) require(whole.content == text.n);
    um_buf_free(&whole.out);
    um_buf_free(&cut.out);
    return 0;
}
