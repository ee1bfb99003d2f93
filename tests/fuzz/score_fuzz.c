/* Fuzzes scoring requests: the first byte chooses how a prompt is read, the rest is the object. An accepted request
 * must have one prompt, and answers; its parameters must be accepted again from their own texts. It must survive the
 * way to a worker: inside the frame of a call it is read as the same request. A rejected one must give an error message
 * and name the member. */
#include <jansson.h>
#include <stdlib.h>

#include "engine/engine.h"
#include "server/link/score_json.h"
#include "server/link/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool claim) {
    if (!claim) abort();
}

static bool same_text(const char *a, size_t n, const char *b, size_t m) {
    return !a == !b && n == m && (!n || memcmp(a, b, n) == 0);
}

static bool same_ids(const int32_t *a, size_t n, const int32_t *b, size_t m) {
    return !a == !b && n == m && (!n || memcmp(a, b, n * sizeof *a) == 0);
}

static bool same_params(const um_score_params *a, const um_score_params *b) {
    return a->method == b->method && a->samples == b->samples && a->batch == b->batch &&
           a->check_greedy == b->check_greedy && a->seed == b->seed && a->block_size == b->block_size &&
           a->cfg_scale == b->cfg_scale;
}

/* Sets every parameter from its own text, which must be accepted. */
static void check_parameters(const um_score_request *r) {
    um_score_request again = *r;
    const um_option_set set = um_score_option_set(&again);
    um_buf text = {0};
    for (size_t i = 0; i < set.n; i++) {
        um_buf_clear(&text);
        um_option_get_text(&set.rows[i], set.base, &text);
        require(um_option_set_text(&set.rows[i], set.base, text.data, NULL) == UM_OK);
    }
    require(same_params(&again.params, &r->params));
    um_buf_free(&text);
}

static void check_accepted(const um_score_job *job) {
    const um_score_request *r = &job->request;
    require((r->text != NULL) + (r->ids != NULL) + (r->messages != NULL) + (r->chat != NULL) == 1);
    for (size_t i = 0; i < r->n_ids; i++) require(r->ids[i] >= 0);
    if (r->messages) require(r->n_messages == 1 && r->messages->content);
    if (r->chat) {
        json_t *messages = NULL;
        const char *text = r->chat->messages_json;
        require(um_json_parse_exact(&messages, text, strlen(text), "x", NULL) == UM_OK);
        require(json_is_array(messages));
        json_decref(messages);
    }
    require(job->n_answers >= 1 && job->n_answers <= UM_SCORE_ANSWERS_MAX);
    for (size_t i = 0; i < job->n_answers; i++) {
        const um_score_request s = um_score_job_get(job, i);
        require(!s.answer != !s.answer_ids);
        for (size_t k = 0; k < s.n_answer_ids; k++) require(s.answer_ids[k] >= 0);
    }
    check_parameters(r);
}

static void check_same(const um_score_job *a, const um_score_job *b) {
    require(same_text(a->request.text, a->request.text_len, b->request.text, b->request.text_len));
    require(same_ids(a->request.ids, a->request.n_ids, b->request.ids, b->request.n_ids));
    require(!a->request.chat == !b->request.chat);
    require(!a->request.chat || um_streq(a->request.chat->messages_json, b->request.chat->messages_json));
    require(same_params(&a->request.params, &b->request.params));
    require(a->n_answers == b->n_answers && a->one_answer == b->one_answer);
    for (size_t i = 0; i < a->n_answers; i++) {
        const um_score_request x = um_score_job_get(a, i), y = um_score_job_get(b, i);
        require(same_text(x.answer, x.answer_len, y.answer, y.answer_len));
        require(same_ids(x.answer_ids, x.n_answer_ids, y.answer_ids, y.n_answer_ids));
    }
}

/* Sends the object as the argument of a call, and reads it on the other side. */
static void check_call(const json_t *root, const um_score_job *job, const um_score_request *defaults) {
    um_buf args = {0}, frame = {0};
    um_arena arena;
    um_msg got;
    json_t *received = NULL;
    um_score_job other = {0};
    um_buf_puts(&args, "{\"ticket\":7,\"tenant\":1,\"request\":");
    um_json_put_exact(root, &args);
    um_buf_putc(&args, '}');
    um_msg m = {.type = UM_MSG_CALL, .call = {.call_id = 9, .name = um_str_of("score"), .args = {args.data, args.len}}};
    um_wire_write(&frame, &m);
    um_arena_init(&arena, 0);
    require(um_wire_read(&got, &arena, (um_str){frame.data, frame.len}, NULL) == UM_OK);
    require(um_json_parse_exact(&received, got.call.args.p, got.call.args.n, "x", NULL) == UM_OK);
    require(um_score_job_read(&other, json_object_get(received, "request"), defaults, false, NULL, NULL) == UM_OK);
    check_same(job, &other);
    um_score_job_free(&other);
    json_decref(received);
    um_arena_free(&arena);
    um_buf_free(&frame);
    um_buf_free(&args);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    json_t *root = NULL;
    um_config c;
    um_score_request defaults;
    um_score_job job = {0};
    um_err err = {0};
    if (size < 1 || um_json_parse_exact(&root, (const char *)data + 1, size - 1, "request", NULL)) return 0;
    um_config_init(&c);
    um_score_init_config(&c, &defaults);
    const bool in_chat = data[0] & 1;
    if (!json_is_object(root)) goto done;
    if (um_score_job_read(&job, root, &defaults, in_chat, data[0] & 2 ? "id|model" : NULL, &err) == UM_OK) {
        check_accepted(&job);
        if (!(data[0] & 3)) check_call(root, &job, &defaults);
    } else require(err.msg[0] && (err.param[0] || json_object_get(root, "")));
    um_score_job_free(&job);
done:
    json_decref(root);
    return 0;
}
