/* Checks requests against the limits of their keys. */
#include "server/generate/quota.h"

#include <math.h>

#include "server/respond/reply.h"

#define DEFAULT_ANSWER_TOKENS 512 /* of a request without max_tokens, for models that set no other length */

/* ---- Headers ----------------------------------------------------------------------------------------------------- */

/* "250ms", "12s", "1m30s", as OpenAI's servers write times. Rounds up. */
static void format_time(double seconds, char out[32]) {
    int64_t s = (int64_t)ceil(seconds);
    if (seconds < 1) snprintf(out, 32, "%dms", (int)ceil(seconds * 1e3));
    else if (s < 60) snprintf(out, 32, "%ds", (int)s);
    else snprintf(out, 32, "%lldm%ds", (long long)(s / 60), (int)(s % 60));
}

/* kind: "requests" or "tokens" */
static void put_rate(um_rate *r, const char *kind, um_exchange *x) {
    char name[48], value[32];
    double now = um_now();
    if (!r->per_minute) return;
    snprintf(name, sizeof name, "x-ratelimit-limit-%s", kind);
    snprintf(value, sizeof value, "%lld", (long long)r->per_minute);
    um_exchange_add_header(x, name, value);
    snprintf(name, sizeof name, "x-ratelimit-remaining-%s", kind);
    snprintf(value, sizeof value, "%lld", (long long)um_rate_left(r, now));
    um_exchange_add_header(x, name, value);
    snprintf(name, sizeof name, "x-ratelimit-reset-%s", kind);
    format_time(um_rate_reset(r, now), value);
    um_exchange_add_header(x, name, value);
}

static void put_retry(double seconds, um_exchange *x) {
    char value[32];
    snprintf(value, sizeof value, "%lld", (long long)UM_MAX(ceil(seconds), 1));
    um_exchange_add_header(x, "Retry-After", value);
}

void um_quota_put_tokens(um_key *key, um_exchange *x, bool is_refused) {
    if (!key) return;
    put_rate(&key->tokens, "tokens", x);
    if (is_refused) put_retry(um_rate_wait(&key->tokens, 1, um_now()), x);
}

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

bool um_quota_take_request(um_key *key, um_exchange *x) {
    if (!key || !key->requests.per_minute) return true;
    double now = um_now(), wait = um_rate_wait(&key->requests, 1, now);
    if (wait == 0) um_rate_take(&key->requests, 1, now);
    put_rate(&key->requests, "requests", x);
    if (wait == 0) return true;
    key->n_limited++;
    put_retry(wait, x);
    um_reply_error(x, 429, NULL, "rate_limit_exceeded",
                   "the key %s allows %lld requests per minute; retry in %.0f s (header Retry-After)", key->name,
                   (long long)key->requests.per_minute, UM_MAX(ceil(wait), 1));
    return false;
}

/* ---- Generations ------------------------------------------------------------------------------------------------- */

/* Returns the longest answer that a prompt may get. A whole-sequence strategy computes its whole canvas. */
static int64_t longest_answer(const um_body *b) {
    int64_t n = b->checked.sampling.max_tokens ? b->checked.sampling.max_tokens : DEFAULT_ANSWER_TOKENS;
    return um_body_is_whole(b) ? UM_MAX(n, b->checked.decoding.gen_length) : n;
}

static int64_t answer_tokens(const um_body *b) {
    int64_t n = 0;
    for (size_t i = 0; i < b->n_prompts; i++) n += longest_answer(um_body_of(b, i)) * b->generate.n;
    return n;
}

static int64_t prompt_tokens(const um_body *b) {
    int64_t n = 0;
    for (size_t i = 0; i < b->n_prompts; i++) n += (int64_t)b->prompt[i].n_ids;
    return n;
}

static um_status check_model(const um_key *key, const char *name, um_err *err) {
    if (um_key_may_use(key, name)) return UM_OK;
    return um_fail_param(err, UM_EINVAL, "model", "the key %s does not allow the model \"%.100s\"", key->name, name);
}

/* A request chooses an adapter by its name as the model, or by a field of its own. The model that it then names, or
 * does not name, is the base of the adapter. */
static um_status check_models(const um_key *key, const um_body *b, um_err *err) {
    um_status st = UM_OK;
    bool names_base = !b->model;
    for (size_t i = 0; i < b->n_prompts && !st; i++) {
        um_str adapter = um_body_of(b, i)->generate.adapter;
        char *name = adapter.n ? um_strndup(adapter.p, adapter.n) : NULL;
        if (name) st = check_model(key, name, err);
        else if (names_base) st = check_model(key, um_setup_model_name(b->setup), err);
        um_free(name);
    }
    return st || names_base ? st : check_model(key, b->model, err);
}

static um_status check_priority(const um_key *key, const um_body *b, um_err *err) {
    if (key->limits.admin) return UM_OK;
    for (size_t i = 0; i < b->n_prompts; i++) {
        int32_t priority = um_body_of(b, i)->generate.priority;
        if (priority < key->limits.min_priority)
            return um_fail_param(err, UM_EINVAL, "priority", "the key %s allows a priority of %d or more, found %d",
                                 key->name, key->limits.min_priority, priority);
    }
    return UM_OK;
}

static um_status check_length(const um_key *key, const um_body *b, um_err *err) {
    int64_t n = answer_tokens(b), most = key->limits.max_answer_tokens;
    if (!most || n <= most) return UM_OK;
    return um_fail_param(err, UM_ELIMIT, "max_tokens",
                         "the key %s allows answers of %lld tokens together (n x max_tokens), this request asks for "
                         "%lld",
                         key->name, (long long)most, (long long)n);
}

static um_status check_running(const um_key *key, const um_body *b, um_err *err) {
    int32_t most = key->limits.max_concurrent;
    if (!most || key->n_running < most || b->is_batch_line) return UM_OK;
    return um_fail(err, UM_ELIMIT, "the key %s allows %d generations at a time; retry when one has finished", key->name,
                   most);
}

/* Returns the tokens that a generation reserves: those of its prompts and its longest answers. Many clients set no
 * max_tokens, and most answers are short, so it reserves at most a quarter of the minute's tokens for answers. An
 * answer that is longer uses tokens beyond its reservation, and later requests wait for them. */
static int64_t tokens_to_reserve(const um_key *key, const um_body *b) {
    int64_t limit = key->tokens.per_minute, prompt = prompt_tokens(b), most = UM_MAX(limit / 4, prompt);
    return UM_MIN(UM_MIN(prompt + answer_tokens(b), most), limit);
}

/* A line of a batch has waited already (um_quota_has_room) and may use more than is left. */
static um_status reserve(um_quota *q, um_key *key, const um_body *b, um_exchange *x, um_err *err) {
    double now = um_now();
    int64_t n = tokens_to_reserve(key, b);
    double wait = b->is_batch_line ? 0 : um_rate_wait(&key->tokens, n, now);
    if (wait == 0) {
        q->reserved = n;
        um_rate_take(&key->tokens, n, now);
    }
    if (x) um_quota_put_tokens(key, x, false);
    if (wait == 0) return UM_OK;
    if (x) put_retry(wait, x);
    return um_fail(
        err, UM_ELIMIT,
        "the key %s allows %lld tokens per minute, and too few are left; retry in %.0f s (header Retry-After)",
        key->name, (long long)key->tokens.per_minute, UM_MAX(ceil(wait), 1));
}

um_status um_quota_begin(um_quota *q, um_key *key, um_body *b, um_exchange *x, int *status, um_err *err) {
    *q = (um_quota){0};
    if (!key) return UM_OK;
    *status = 403;
    b->error_code = "not_allowed";
    um_status st = check_models(key, b, err);
    if (!st) st = check_priority(key, b, err);
    if (!st) st = check_length(key, b, err);
    if (st) return st;
    *status = 429;
    b->error_code = "rate_limit_exceeded";
    st = check_running(key, b, err);
    if (!st) st = reserve(q, key, b, x, err);
    if (st) {
        key->n_limited++;
        return st;
    }
    b->error_code = NULL;
    q->key = key;
    key->n_running++;
    return UM_OK;
}

void um_quota_spend(um_quota *q, int64_t n_prompt, int64_t n_generated) {
    if (!q->key) return;
    int64_t reserved = UM_MIN(q->reserved, n_prompt + n_generated);
    q->reserved -= reserved;
    um_rate_take(&q->key->tokens, n_prompt + n_generated - reserved, um_now());
    q->key->prompt_tokens += n_prompt;
    q->key->generation_tokens += n_generated;
}

void um_quota_end(um_quota *q) {
    if (!q->key) return;
    um_rate_take(&q->key->tokens, -q->reserved, um_now());
    q->reserved = 0;
    q->key->n_running--;
}

bool um_quota_has_room(um_key *key) {
    if (!key) return true;
    int32_t most = key->limits.max_concurrent;
    if (most && key->n_running >= UM_MAX(1, most - UM_CEIL_DIV(most, 4))) return false;
    return um_rate_left(&key->tokens, um_now()) > 0 || !key->tokens.per_minute;
}
