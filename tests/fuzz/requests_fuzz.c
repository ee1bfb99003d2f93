/* Fuzzes request lines. An accepted line must have one prompt, and its id must be the JSON of its member "id", or the
 * number of the line without one. Every parameter must be accepted again from its own text. A rejected line must give
 * an error message. */
#include <jansson.h>
#include <stdlib.h>

#include "cli/requests.h"
#include "engine/engine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool claim) {
    if (!claim) abort();
}

/* Sets every parameter from its own text, which must be accepted. */
static void check_parameters(um_request *r) {
    um_option_set sets[UM_DECODE_SETS_MAX];
    size_t n = um_decode_option_sets(sets, &r->decoding, &r->sampling);
    um_buf text = {0};
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < sets[i].n; k++) {
            um_buf_clear(&text);
            um_option_get_text(&sets[i].rows[k], sets[i].base, &text);
            require(um_option_set_text(&sets[i].rows[k], sets[i].base, text.data, NULL) == UM_OK);
        }
    }
    um_buf_free(&text);
}

/* Checks a text that is passed on as JSON; NULL is allowed. */
static void check_json(const char *text) {
    json_t *v = NULL;
    if (!text) return;
    require(um_json_parse_exact(&v, text, strlen(text), "x", NULL) == UM_OK);
    json_decref(v);
}

static void check_id(const um_request_line *q) {
    const json_t *member = json_object_get(q->body.root, "id");
    json_t *id = json_loadb(q->id.data, q->id.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (member && !json_is_null(member)) require(json_equal(id, member));
    else require(json_is_integer(id) && json_integer_value(id) == q->number);
    json_decref(id);
}

static void check_accepted(um_request_line *q) {
    const um_request *r = &q->request;
    check_id(q);
    require((r->text != NULL) + (r->ids != NULL) + (r->chat != NULL) == 1);
    for (size_t i = 0; i < r->n_ids; i++) require(r->ids[i] >= 0);
    if (r->chat) check_json(r->chat->messages_json), check_json(r->chat->tools_json), check_json(r->chat->kwargs_json);
    require(r->n >= 1 && r->n <= UM_ANSWERS_MAX);
    for (size_t i = 0; i < r->n_stop_ids; i++) require(r->stop_ids[i] >= 0);
    for (size_t i = 0; i < r->n_bias; i++) require(r->bias[i].id >= 0 && r->bias[i].value <= 100);
    for (size_t i = 0; i < r->n_stop; i++) require(r->stop[i] && *r->stop[i]);
    check_parameters(&q->request);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    um_config c;
    um_request_line q = {.number = 7};
    um_err err = {0};
    um_config_init(&c);
    um_request defaults = {.size = sizeof defaults, .n = 1, .decoding = c.decoding, .sampling = c.sampling};
    /* The second parse reuses the memory of the first one. */
    um_status first = um_request_line_parse(&q, (um_str){(const char *)data, size}, &defaults, &err);
    require(first == UM_OK || err.msg[0]);
    require(um_request_line_parse(&q, (um_str){(const char *)data, size}, &defaults, &err) == first);
    if (first == UM_OK) check_accepted(&q);
    um_request_line_free(&q);
    return 0;
}
