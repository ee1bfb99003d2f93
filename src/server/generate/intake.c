/* Reads short bodies on the loop's thread, others on reader threads. */
#include "server/generate/intake.h"

#include <jansson.h>

#include "server/respond/access.h"
#include "server/respond/reply.h"

#if !JSON_HAVE_ATOMIC_BUILTINS && !JSON_HAVE_SYNC_BUILTINS
#error "threads share JSON values: jansson must count references atomically"
#endif

static void intake_free(void *arg) {
    um_intake *r = arg;
    json_decref(r->root);
    um_body_free(&r->body);
    for (size_t i = 0; i < r->n_bodies; i++) um_body_free(&r->bodies[i]);
    um_free(r->bodies);
    um_buf_free(&r->bytes);
    um_buf_free(&r->out);
    um_buf_free(&r->aborted);
    um_held_unref(r->held);
    um_free(r);
}

static void release(um_intake *r) { um_release(r->service, r->bytes.len, intake_free, r); }

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

/* Replaces the body by what it stands for. */
static um_status decode(um_intake *r, um_err *err) {
    const um_server_config *c = r->service->setup.config;
    const um_coding_limits limits = {(size_t)c->max_body_bytes, (size_t)c->max_body_ratio};
    um_buf text = {0};
    um_status st = um_coding_decode(r->coding, (um_str){r->bytes.data, r->bytes.len}, limits, &text, err);
    if (st) r->refused = um_body_status_of(st);
    um_buf_free(&r->bytes);
    r->bytes = text;
    r->coding = UM_CODING_NONE;
    return st;
}

static um_status parse(um_intake *r, um_err *err) {
    um_status decoded = r->coding == UM_CODING_NONE ? UM_OK : decode(r, err);
    if (decoded) return decoded;
    um_str text = {r->bytes.data, r->bytes.len};
    um_status st = um_held_new(&r->held, &r->service->held, text, err);
    if (st) r->refused = st == UM_ELIMIT ? 413 : 503;
    if (!st) st = um_json_parse_request(&r->root, text.p, text.n, "body", err);
    if (st || json_is_object(r->root)) return st;
    return um_fail(err, UM_EINVAL, "expected a JSON object, found another JSON value");
}

um_status um_intake_read_body(um_intake *r, const um_api *api, json_t *root, um_body *body, um_err *err) {
    um_status st = um_api_read(api, &r->service->setup, &r->capacity, root, body, err);
    body->bytes = r->bytes.len;
    body->held = um_held_ref(r->held);
    body->since = r->since;
    body->generate.tenant = r->tenant;
    return st;
}

um_status um_intake_read_api(um_intake *r, const um_api *a, um_err *err) {
    json_t *root = r->root;
    r->root = NULL;
    r->api = a;
    return um_intake_read_body(r, a, root, &r->body, err);
}

static um_status work(void *arg, um_err *err) {
    um_intake *r = arg;
    um_status st = r->root ? UM_OK : parse(r, err);
    return st ? st : r->handler->read(r, err);
}

/* ---- The response ------------------------------------------------------------------------------------------------ */

static const char *error_code(const um_intake *r) {
    return r->n_bodies ? r->bodies[r->n_bodies - 1].error_code : r->body.error_code;
}

static void respond(um_intake *r, um_status s, const um_err *err) {
    if (!s) r->handler->respond(r);
    else
        um_reply_error(r->x, r->refused ? r->refused : um_http_status_of(s), *err->param ? err->param : NULL,
                       error_code(r), "%s", err->msg);
}

void um_intake_generate(um_intake *r) { um_generation_start(r->service, r->x, &r->body, r->api->writer); }

void um_intake_send_json(um_intake *r) { um_reply_json(r->x, 200, &r->out); }

/* ---- Reader threads ---------------------------------------------------------------------------------------------- */

static void enter_list(um_intake *r) {
    r->link = &r->service->intakes;
    r->next = *r->link;
    if (r->next) r->next->link = &r->next;
    *r->link = r;
}

static void leave_list(um_intake *r) {
    *r->link = r->next;
    if (r->next) r->next->link = r->link;
}

size_t um_intakes_abort(um_service *s, const char *id, const um_key *by) {
    size_t n = 0, bytes = id ? strlen(id) + 1 : 0;
    for (um_intake *r = s->intakes; r; r = r->next) {
        if (!r->x || !r->handler->generates || !(um_key_is_admin(by) || r->key == by)) continue;
        if (id && r->aborted.len + bytes <= UM_INTAKE_ABORTED_BYTES_MAX) um_buf_append(&r->aborted, id, bytes);
        if (id || r->is_aborted) continue;
        r->is_aborted = true;
        n++;
    }
    return n;
}

/* Aborts the generations that the intake has started, those newer than `older`. */
static void abort_noted(um_intake *r, const um_generation *older) {
    if (r->is_aborted) um_generations_abort(r->service, older, NULL, NULL);
    for (size_t at = 0; at < r->aborted.len; at += strlen(r->aborted.data + at) + 1)
        um_generations_abort(r->service, older, r->aborted.data + at, NULL);
}

static void done(void *arg, um_status s, const um_err *err) {
    um_intake *r = arg;
    const um_generation *older = r->service->generations;
    leave_list(r);
    if (r->x) {
        um_exchange_on_close(r->x, NULL, NULL);
        respond(r, s, err);
        abort_noted(r, older);
    }
    release(r);
}

/* Work that has begun can't be cancelled: it ends in done(). */
static void on_close(void *arg, um_exchange *x, bool complete) {
    um_intake *r = arg;
    (void)x, (void)complete;
    r->x = NULL;
    if (!um_work_queue_cancel(r->service->readers, r)) return;
    leave_list(r);
    release(r);
}

static void queue(um_intake *r, size_t weight) {
    um_exchange_on_close(r->x, on_close, r);
    if (um_work_queue_submit(r->service->readers, &(um_work){work, done, r, weight})) {
        enter_list(r);
        return;
    }
    um_exchange_on_close(r->x, NULL, NULL);
    um_reply_error(r->x, 429, NULL, NULL, "%zu MiB of requests wait for the reader threads already; retry later",
                   UM_INTAKE_QUEUE_BYTES_MAX >> 20);
    release(r);
}

/* Returns the largest size that the body may have when it is decoded. */
static size_t decoded_bound(const um_intake *r) {
    const um_server_config *c = r->service->setup.config;
    size_t by_ratio;
    if (!um_mul_ok(r->bytes.len, (size_t)c->max_body_ratio, &by_ratio)) by_ratio = SIZE_MAX;
    return UM_MIN((size_t)c->max_body_bytes, UM_MAX(by_ratio, UM_CODING_RATIO_FREE));
}

/* Returns whether a short body leads to much work: it brings a template, continues a response with its whole
 * conversation, or constrains the answer. */
static bool needs_reader(const json_t *root) {
    return json_object_get(root, "chat_template") || json_object_get(root, "previous_response_id") ||
           json_object_get(root, "conversation") || um_body_may_constrain(root);
}

uint64_t um_tenant_of(int32_t key, const um_exchange *x) {
    if (key > 0) return (uint64_t)key;
    return x ? um_exchange_peer_number(x) : 0;
}

void um_intake_start(um_service *s, um_exchange *x, const um_intake_handler *handler, const void *arg) {
    um_err err = {0};
    if (!um_body_is_json(x)) return;
    um_intake *r = UM_NEW(um_intake);
    *r = (um_intake){.service = s, .x = x, .handler = handler, .arg = arg, .capacity = um_capacity_get(s)};
    r->since = um_now();
    r->key = um_access_record_key(x);
    r->capacity.owner = um_key_owner(r->key);
    if (r->key) {
        r->capacity.answer_tokens = r->key->limits.max_answer_tokens;
        r->capacity.key = r->key->id;
    }
    r->coding = um_body_coding(x);
    r->tenant = um_tenant_of(r->key ? r->key->id : 0, x);
    r->bytes = um_exchange_take_body(x);
    if (r->coding != UM_CODING_NONE) {
        queue(r, decoded_bound(r));
        return;
    }
    if (r->bytes.len > UM_INLINE_BYTES_MAX) {
        queue(r, r->bytes.len);
        return;
    }
    um_status st = parse(r, &err);
    if (!st && needs_reader(r->root)) {
        queue(r, UM_INTAKE_TEMPLATE_WEIGHT);
        return;
    }
    if (!st) st = handler->read(r, &err);
    respond(r, st, &err);
    release(r);
}

static um_status read_api(um_intake *r, um_err *err) { return um_intake_read_api(r, r->arg, err); }

void um_api_serve(um_service *s, um_exchange *x, const um_api *a) {
    static const um_intake_handler handler = {.read = read_api, .respond = um_intake_generate, .generates = true};
    um_intake_start(s, x, &handler, a);
}
