/* The events of a request: settled text, snapshots, traces and the result. */
#include <math.h>

#include "engine/engine.h"

static bool is_wanted(const um_sequence *j, int type) { return j->on_event && (j->events & (unsigned)type); }

static void emit(um_sequence *j, um_event *ev) {
    ev->id = j->id;
    ev->index = j->index;
    if (is_wanted(j, ev->type)) j->on_event(j->arg, ev);
}

/* Returns the duration in seconds of the steps that denoised the answer, the current step up to now included. */
static double decode_seconds(const um_engine *e, const um_sequence *j) {
    return j->decode_seconds + (j->denoised ? um_now() - e->step_start : 0);
}

/* ---- Settled text ------------------------------------------------------------------------------------------------ */

/* Stores the present length of the text as the end of the tokens whose text the stream has just completed. */
static void store_text_ends(um_sequence *j) {
    while (j->n_text < (int32_t)j->stream.n_out) j->text_end[j->n_text++] = (int32_t)j->text.len;
}

/* Detokenizes answer tokens up to position `end`. */
static void push_text(um_sequence *j, int32_t end) {
    const um_req *q = &j->req;
    while (q->n_prompt + (int32_t)j->stream.n_pushed < end) {
        um_stream_push(&j->stream, q->token[q->n_prompt + (int32_t)j->stream.n_pushed], &j->text);
        store_text_ends(j);
    }
}

/* Appends the bytes of an incomplete character at the end of the answer. They belong to the last token. */
static void flush_text(um_sequence *j) {
    um_stream_flush(&j->stream, &j->text);
    store_text_ends(j);
    if (j->n_text) j->text_end[j->n_text - 1] = (int32_t)j->text.len;
}

/* Returns the length of the text of the first min_tokens tokens. No stop string may begin in it. */
static size_t text_before_min_tokens(const um_sequence *j) {
    int32_t n = UM_MIN(j->req.sampling.min_tokens, j->n_text);
    return n > 0 ? (size_t)j->text_end[n - 1] : 0;
}

/* Returns where the first stop string in text[from..) begins, or the length of the text. Stores it in stop_found. */
static size_t find_stop(um_sequence *j, size_t from) {
    size_t best = j->text.len;
    from = UM_MAX(from, text_before_min_tokens(j));
    if (from >= j->text.len) return best;
    for (size_t i = 0; i < j->n_stop; i++) {
        const char *at = (const char *)memmem(j->text.data + from, j->text.len - from, j->stop[i], strlen(j->stop[i]));
        if (!at || (size_t)(at - j->text.data) >= best) continue;
        best = (size_t)(at - j->text.data);
        j->stop_found = j->stop[i];
    }
    return best;
}

/* Returns the number of bytes at the end of the text that could be the beginning of a stop string. */
static size_t held_back(const um_sequence *j) {
    size_t most = UM_MIN(j->text.len - j->sent, j->stop_longest ? j->stop_longest - 1 : 0);
    for (size_t n = most; n > 0; n--)
        for (size_t i = 0; i < j->n_stop; i++)
            if (strlen(j->stop[i]) > n && memcmp(j->text.data + j->text.len - n, j->stop[i], n) == 0) return n;
    return 0;
}

/* Returns the number of tokens whose text lies completely in text[0..end). A token without text is counted only when a
 * token with text follows, because a stop string that begins right after it would remove it from the answer. */
static int32_t tokens_within(const um_sequence *j, size_t end) {
    int32_t n = j->n_sent;
    for (int32_t i = n; i < j->n_text && (size_t)j->text_end[i] <= end; i++)
        if (j->text_end[i] > (i ? j->text_end[i - 1] : 0)) n = i + 1;
    return n;
}

/* Stores the likeliest ids of the settled tokens [from, to), with the logarithms of their probabilities. */
static void store_likeliest(um_sequence *j, int32_t from, int32_t to) {
    const um_req *q = &j->req;
    const size_t per = (size_t)q->n_top;
    const um_top *top = q->top + (size_t)q->n_prompt * per;
    for (size_t i = (size_t)from * per; i < (size_t)to * per; i++)
        j->likeliest[i] = (um_logprob){top[i].id, logf(top[i].p)};
}

/* Sends the text up to `end` and the first n tokens, without the parts that have been sent before. */
static void send_text(um_engine *e, um_sequence *j, size_t end, int32_t n) {
    assert(end >= j->sent && n >= j->n_sent); /* text that has been sent stays part of the answer */
    if (end == j->sent && n == j->n_sent) return;
    const um_req *q = &j->req;
    const int32_t from = j->n_sent, pos = q->n_prompt + from;
    if (j->likeliest) store_likeliest(j, from, n);
    um_event ev = {.type = UM_EVENT_TEXT,
                   .text = j->text.data + j->sent,
                   .text_len = end - j->sent,
                   .ids = q->token + pos,
                   .n_ids = (size_t)(n - from),
                   .text_end = j->text_end + from,
                   .logprob = q->logprob ? q->logprob + pos : NULL,
                   .likeliest = j->likeliest ? j->likeliest + (size_t)from * (size_t)q->n_top : NULL,
                   .n_likeliest = q->n_top,
                   .offset = from,
                   .nfe = q->nfe,
                   .decode_tokens = j->decode_tokens};
    j->sent = end;
    j->n_sent = n;
    if (!j->first_token) j->first_token = um_now();
    if (is_wanted(j, ev.type)) ev.decode_seconds = decode_seconds(e, j);
    emit(j, &ev);
}

/* Ends the answer before a stop string that begins at byte `at`. Tokens that contribute to the text before it stay. */
static void cut_at_stop(um_sequence *j, size_t at) {
    um_req *q = &j->req;
    int32_t n = 0;
    while (n < j->n_text && (n == 0 ? 0 : (size_t)j->text_end[n - 1]) < at) n++;
    q->n_answer = n;
    q->finish = UM_FINISH_STOP;
    q->stop_id = -1;
    j->text.len = at;
    j->text.data[at] = '\0';
}

static void send_settled_text(um_engine *e, um_sequence *j) {
    um_req *q = &j->req;
    size_t searched = j->text.len - UM_MIN(j->text.len, j->stop_longest);
    push_text(j, q->finish ? q->n_prompt + q->n_answer : um_req_shown_end(q));
    if (q->finish) flush_text(j);
    size_t at = j->n_stop ? find_stop(j, searched) : j->text.len;
    if (at < j->text.len) cut_at_stop(j, at);
    size_t end = q->finish ? j->text.len : j->text.len - held_back(j);
    /* The last event has all remaining tokens, also those without text. */
    send_text(e, j, end, q->finish ? q->n_answer : tokens_within(j, end));
}

/* ---- Snapshots and traces ---------------------------------------------------------------------------------------- */

static void send_snapshot(um_engine *e, um_sequence *j) {
    const um_req *q = &j->req;
    int32_t n = q->finish ? q->n_answer : UM_MAX(0, UM_MIN(q->end, q->limit) - q->n_prompt);
    for (int32_t i = 0; i < n; i++) {
        int32_t pos = q->n_prompt + i;
        if (um_req_masked(q, pos)) j->state[i] = UM_TOKEN_MASK;
        else if (q->written[pos] == q->nfe) j->state[i] = UM_TOKEN_FRESH;
        else j->state[i] = pos < q->filled ? UM_TOKEN_SETTLED : UM_TOKEN_SET;
    }
    um_snapshot s = {.n = (size_t)n,
                     .id = q->token + q->n_prompt,
                     .state = j->state,
                     .pass = q->written + q->n_prompt,
                     .confidence = q->confidence + q->n_prompt,
                     .block = e->view,
                     .n_blocks = um_req_blocks(q, e->view),
                     .nfe = q->nfe};
    emit(j, &(um_event){.type = UM_EVENT_SNAPSHOT,
                        .decode_seconds = decode_seconds(e, j),
                        .decode_tokens = j->decode_tokens,
                        .snapshot = &s});
}

static void send_trace(um_engine *e, um_sequence *j) {
    um_trace t = {.prefill = j->prefill};
    j->req.strategy->trace(&j->req, &e->trace, &t);
    emit(j, &(um_event){.type = UM_EVENT_TRACE, .trace = &t});
}

/* Text comes before the snapshot, because a stop string may end the answer. Any callback may abort the answer. */
void um_output_pass(um_engine *e, um_sequence *j) {
    if (j->is_score) return;
    if (!j->aborted && (j->events & UM_EVENT_TRACE)) send_trace(e, j);
    if (!j->aborted) send_settled_text(e, j);
    if (!j->aborted && (j->events & UM_EVENT_SNAPSHOT)) send_snapshot(e, j);
}

/* Returns the number of tokens of the answer that were written by passes other than prefill. */
static int32_t count_denoised(const um_req *q) {
    int32_t n = 0;
    for (int32_t i = 0; i < q->n_answer; i++) n += q->written[q->n_prompt + i] > q->prefill_passes;
    return n;
}

void um_output_finish(um_engine *e, um_sequence *j) {
    const um_req *q = &j->req;
    double now = um_now();
    assert(j->n_sent == q->n_answer);
    e->stats.requests++;
    e->stats.aborted += q->finish == UM_FINISH_ABORTED;
    e->stats.tokens += q->n_answer;
    if (j->is_score) {
        um_output_score(j, now);
        return;
    }
    um_result r = {.id = j->id,
                   .token_ids = q->token + q->n_prompt,
                   .pass = q->written + q->n_prompt,
                   .n_tokens = (size_t)q->n_answer,
                   .text = j->text.len ? j->text.data : "",
                   .text_len = j->text.len,
                   .text_end = j->text_end,
                   .index = j->index,
                   .logprob = q->logprob ? q->logprob + q->n_prompt : NULL,
                   .likeliest = j->likeliest,
                   .n_likeliest = q->n_top,
                   .stop = q->finish == UM_FINISH_STOP ? j->stop_found : NULL,
                   .stop_id = q->stop_id,
                   .cached_tokens = j->cached_tokens,
                   .preemptions = j->preemptions,
                   .finish = q->finish,
                   .nfe = q->nfe,
                   .prompt_tokens = q->n_prompt + q->n_suffix,
                   .denoise_tokens = count_denoised(q),
                   .denoise_passes = q->nfe - q->prefill_passes,
                   .seed = (int64_t)q->seed,
                   .queue_seconds = (j->started ? j->started : now) - j->added,
                   .first_token_seconds = (j->first_token ? j->first_token : now) - j->added,
                   .total_seconds = now - j->added,
                   .decode_seconds = decode_seconds(e, j)};
    emit(j, &(um_event){.type = UM_EVENT_FINISH, .result = &r});
}

const char *um_finish_name(um_finish f) {
    static const char *const name[] = {
#define UM_X(symbol, text) text,
        UM_FINISH_MAP(UM_X)
#undef UM_X
    };
    return (size_t)f < UM_LEN(name) ? name[f] : "unknown";
}
