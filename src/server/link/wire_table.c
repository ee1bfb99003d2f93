/* The fields of every message. The kind of a field is derived from its C type, so that the two can't differ. */
#include "server/link/wire_table.h"

/* clang-format off */
#define KIND(x)                                                                                                        \
    _Generic((x),                                                                                                      \
        bool: UM_WIRE_BOOL, int32_t: UM_WIRE_I32, uint32_t: UM_WIRE_U32, int64_t: UM_WIRE_I64, uint64_t: UM_WIRE_U64,  \
        double: UM_WIRE_F64, um_str: UM_WIRE_TEXT, const uint8_t *: UM_WIRE_U8S, const int32_t *: UM_WIRE_I32S,        \
        const float *: UM_WIRE_F32S, const int64_t *: UM_WIRE_I64S, const um_str *: UM_WIRE_TEXTS,                     \
        const um_pair *: UM_WIRE_PAIRS)
/* clang-format on */

/* Rows of the table. M is defined as the struct that they describe. */
#define ONE(field)                                                                                                     \
    { #field, KIND(((M *)0)->field), offsetof(M, field), NULL, 0 }
#define MANY(field, count)                                                                                             \
    { #field, KIND(((M *)0)->field), offsetof(M, field), #count, offsetof(M, count) }

/* The same for fields that a _MAP macro lists. */
#define ONE_OF(type, field)         ONE(field),
#define MANY_OF(type, field, count) MANY(field, count),

#define M um_msg_generate
static const um_wire_field generate[] = {ONE(rid),
                                         ONE(events),
                                         ONE(n),
                                         ONE(priority),
                                         ONE(tenant),
                                         ONE(cache_salt),
                                         ONE(keep_special),
                                         ONE(n_ids),
                                         MANY(ids, n_ids),
                                         ONE(n_suffix),
                                         MANY(suffix, n_suffix),
                                         ONE(n_set),
                                         MANY(set, n_set),
                                         ONE(n_stop),
                                         MANY(stop, n_stop),
                                         ONE(n_stop_ids),
                                         MANY(stop_ids, n_stop_ids),
                                         ONE(n_bias),
                                         MANY(bias_id, n_bias),
                                         MANY(bias, n_bias),
                                         ONE(n_allowed_ids),
                                         MANY(allowed_ids, n_allowed_ids),
                                         ONE(n_bad_words),
                                         MANY(bad_words, n_bad_words),
                                         ONE(adapter),
                                         ONE(constraint),
                                         ONE(constraint_text),
                                         ONE(reasoning_begin),
                                         ONE(reasoning_end)};
#undef M
#define M um_msg_abort
static const um_wire_field abort_[] = {ONE(rid)};
#undef M
#define M um_msg_call
static const um_wire_field call[] = {ONE(call_id), ONE(name), ONE(args)};
#undef M
#define M um_msg_return
static const um_wire_field ret[] = {ONE(call_id), ONE(status), ONE(param), ONE(value)};
#undef M
#define M um_msg_ping
static const um_wire_field ping[] = {ONE(number)};
#undef M
#define M um_msg_hello
static const um_wire_field hello[] = {ONE(pid), ONE(version)};
#undef M
#define M um_msg_loading
static const um_wire_field loading[] = {ONE(bytes), ONE(bytes_all)};
#undef M
#define M um_msg_ready
static const um_wire_field ready[] = {
    ONE(n_params),        ONE(load_seconds), ONE(max_model_len), ONE(max_num_reqs), ONE(max_num_batched_tokens),
    ONE(page_size),       ONE(pages_total),  ONE(block_size),    ONE(weight_bytes), ONE(kv_bytes),
    ONE(workspace_bytes), ONE(strategy),     ONE(sampler),       ONE(device),       ONE(dtype),
    ONE(family),          ONE(adapters)};
#undef M
#define M um_msg_failed
static const um_wire_field failed[] = {ONE(status), ONE(message)};
#undef M
#define M um_msg_text
static const um_wire_field text[] = {ONE(rid),
                                     ONE(index),
                                     ONE(offset),
                                     ONE(nfe),
                                     ONE(decode_tokens),
                                     ONE(decode_seconds),
                                     ONE(n_ids),
                                     MANY(ids, n_ids),
                                     MANY(text_end, n_ids),
                                     UM_LOGPROBS_MAP(ONE_OF, MANY_OF) ONE(text)};
#undef M
#define M um_msg_snapshot
static const um_wire_field snapshot[] = {ONE(rid),
                                         ONE(index),
                                         ONE(nfe),
                                         ONE(decode_seconds),
                                         ONE(decode_tokens),
                                         ONE(n),
                                         MANY(ids, n),
                                         MANY(state, n),
                                         MANY(pass, n),
                                         MANY(confidence, n),
                                         ONE(n_blocks),
                                         MANY(block_start, n_blocks),
                                         MANY(block_length, n_blocks),
                                         MANY(block_status, n_blocks)};
#undef M
#define M um_msg_finish
static const um_wire_field finish[] = {ONE(rid),
                                       ONE(index),
                                       ONE(finish),
                                       ONE(stop_id),
                                       ONE(cached_tokens),
                                       ONE(preemptions),
                                       ONE(nfe),
                                       ONE(prompt_tokens),
                                       ONE(denoise_tokens),
                                       ONE(denoise_passes),
                                       ONE(seed),
                                       ONE(queue_seconds),
                                       ONE(first_token_seconds),
                                       ONE(total_seconds),
                                       ONE(decode_seconds),
                                       ONE(n_ids),
                                       MANY(ids, n_ids),
                                       MANY(pass, n_ids),
                                       MANY(text_end, n_ids),
                                       UM_LOGPROBS_MAP(ONE_OF, MANY_OF) ONE(text),
                                       ONE(stop)};
#undef M
#define M um_msg_error
static const um_wire_field error[] = {ONE(rid), ONE(status), ONE(param), ONE(message)};
#undef M
#define M                um_msg_stats
#define UM_X(type, name) ONE(name),
static const um_wire_field stats[] = {UM_STATS_COUNT_MAP(UM_X) UM_STATS_BYTES_MAP(UM_X) ONE(resident_bytes),
                                      UM_STATS_DEVICE_MAP(UM_X) UM_STATS_AMOUNT_MAP(UM_X) ONE(n_prefill_step),
                                      MANY(prefill_step, n_prefill_step),
                                      ONE(n_decode_step),
                                      MANY(decode_step, n_decode_step),
                                      ONE(n_step_tokens),
                                      MANY(step_tokens, n_step_tokens),
                                      ONE(n_rank_pass),
                                      MANY(rank_pass, n_rank_pass),
                                      ONE(n_rank_exchange),
                                      MANY(rank_exchange, n_rank_exchange)};
#undef UM_X
#undef M

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

static um_status check_loading(const um_msg *m, um_err *err) {
    const um_msg_loading *l = &m->loading;
    if (l->bytes >= 0 && l->bytes <= l->bytes_all) return UM_OK;
    return um_fail(err, UM_EPARSE, "bytes is %lld, expected 0..bytes_all, %lld", (long long)l->bytes,
                   (long long)l->bytes_all);
}

static um_status check_snapshot(const um_msg *m, um_err *err) {
    const um_msg_snapshot *s = &m->snapshot;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->state[i] > UM_TOKEN_SETTLED)
            return um_fail(err, UM_EPARSE, "state %u is %u, expected 0..%d", i, s->state[i], UM_TOKEN_SETTLED);
    return UM_OK;
}

static um_status check_ends(const int32_t *text_end, uint32_t n, um_err *err) {
    for (uint32_t i = 0; i < n; i++)
        if (text_end[i] < (i ? text_end[i - 1] : 0))
            return um_fail(err, UM_EPARSE, "text_end %u is %d, expected %d or more", i, text_end[i],
                           i ? text_end[i - 1] : 0);
    return UM_OK;
}

static um_status check_logprobs(uint32_t n_ids, uint32_t n_logprob, int32_t n_likeliest, uint32_t n_likeliest_all,
                                um_err *err) {
    if (n_logprob && n_logprob != n_ids)
        return um_fail(err, UM_EPARSE, "n_logprob is %u, expected 0 or n_ids, %u", n_logprob, n_ids);
    if (n_likeliest < 0 || (uint64_t)n_likeliest * n_ids != n_likeliest_all)
        return um_fail(err, UM_EPARSE, "n_likeliest_all is %u, expected n_ids times n_likeliest, %u * %d",
                       n_likeliest_all, n_ids, n_likeliest);
    return UM_OK;
}

static um_status check_text(const um_msg *m, um_err *err) {
    const um_msg_text *t = &m->text;
    um_status st = check_ends(t->text_end, t->n_ids, err);
    return st ? st : check_logprobs(t->n_ids, t->n_logprob, t->n_likeliest, t->n_likeliest_all, err);
}

static um_status check_finish(const um_msg *m, um_err *err) {
    const um_msg_finish *f = &m->finish;
    if (f->finish < UM_FINISH_NONE || f->finish > UM_FINISH_SAMPLER)
        return um_fail(err, UM_EPARSE, "finish is %d, expected 0..%d", f->finish, UM_FINISH_SAMPLER);
    um_status st = check_ends(f->text_end, f->n_ids, err);
    return st ? st : check_logprobs(f->n_ids, f->n_logprob, f->n_likeliest, f->n_likeliest_all, err);
}

static um_status check_stats(const um_msg *m, um_err *err) {
    const um_msg_stats *s = &m->stats;
    const struct {
        const char *name;
        uint32_t n;
    } all[] = {{"n_prefill_step", s->n_prefill_step},
               {"n_decode_step", s->n_decode_step},
               {"n_step_tokens", s->n_step_tokens}};
    for (size_t i = 0; i < UM_LEN(all); i++)
        if (all[i].n && all[i].n != UM_STATS_BUCKETS)
            return um_fail(err, UM_EPARSE, "%s is %u, expected 0 or %d", all[i].name, all[i].n, UM_STATS_BUCKETS);
    if (s->n_rank_pass > UM_STATS_RANKS_MAX || s->n_rank_exchange != s->n_rank_pass)
        return um_fail(err, UM_EPARSE, "n_rank_pass is %u and n_rank_exchange %u, expected the same, 0..%d",
                       s->n_rank_pass, s->n_rank_exchange, UM_STATS_RANKS_MAX);
    return UM_OK;
}

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

#define LAYOUT(type, name, rows, summary, check)                                                                       \
    { type, name, summary, rows, UM_LEN(rows), check }
const um_wire_layout um_wire_layouts[] = {
    LAYOUT(UM_MSG_GENERATE, "generate", generate, "to a worker: start a generation", NULL),
    LAYOUT(UM_MSG_ABORT, "abort", abort_, "to a worker: abort a generation", NULL),
    LAYOUT(UM_MSG_CALL, "call", call, "to a worker: call a utility by name; args is JSON", NULL),
    LAYOUT(UM_MSG_PING, "ping", ping, "to a worker: reply with pong", NULL),
    {UM_MSG_SHUTDOWN, "shutdown", "to a worker: abort all requests and end", NULL, 0, NULL},
    LAYOUT(UM_MSG_HELLO, "hello", hello, "from a worker: it is connected and will load the model", NULL),
    LAYOUT(UM_MSG_READY, "ready", ready, "from a worker: it is loaded and takes requests", NULL),
    LAYOUT(UM_MSG_FAILED, "failed", failed, "from a worker: it can't start or has to end; its last message", NULL),
    LAYOUT(UM_MSG_TEXT, "text", text, "from a worker: new text that can no longer change", check_text),
    LAYOUT(UM_MSG_SNAPSHOT, "snapshot", snapshot, "from a worker: the present state of an answer", check_snapshot),
    LAYOUT(UM_MSG_FINISH, "finish", finish, "from a worker: an answer has ended", check_finish),
    LAYOUT(UM_MSG_ERROR, "error", error, "from a worker: a request failed", NULL),
    LAYOUT(UM_MSG_STATS, "stats", stats, "from a worker: its counters since its hello", check_stats),
    LAYOUT(UM_MSG_PONG, "pong", ping, "from a worker: the reply to a ping, with its number", NULL),
    LAYOUT(UM_MSG_RETURN, "return", ret, "from a worker: the result of a call as JSON, or an error message", NULL),
    LAYOUT(UM_MSG_LOADING, "loading", loading, "from a worker: how much of the weights it has loaded", check_loading),
};
const size_t um_n_wire_layouts = UM_LEN(um_wire_layouts);

const um_wire_layout *um_wire_layout_find(um_msg_type type) {
    for (size_t i = 0; i < um_n_wire_layouts; i++)
        if (um_wire_layouts[i].type == type) return &um_wire_layouts[i];
    return NULL;
}

const char *um_msg_name(um_msg_type type) {
    const um_wire_layout *l = um_wire_layout_find(type);
    return l ? l->name : "unknown";
}

size_t um_wire_bytes(um_wire_kind kind) {
    static const uint8_t bytes[] = {
#define UM_X(kind, type, bytes) bytes,
        UM_WIRE_KIND_MAP(UM_X)
#undef UM_X
    };
    return bytes[kind];
}

/* ---- Status of blocks -------------------------------------------------------------------------------------------- */

static const char *const block_names[] = {"DUMMY", "ACTIVE", "TO_CACHE", "IN_CACHE"};

int32_t um_block_number(const char *status) {
    int32_t i = 0;
    while (i < (int32_t)UM_LEN(block_names) && !um_streq(block_names[i], status)) i++;
    return i;
}

const char *um_block_name(int32_t number) {
    return number >= 0 && number < (int32_t)UM_LEN(block_names) ? block_names[number] : "unknown";
}
