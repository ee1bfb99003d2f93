/* Writers of the members that responses of several APIs share. */
#include <math.h>

#include "server/api/common.h"

/* ---- Usage ------------------------------------------------------------------------------------------------------- */

static double ratio(double a, double b) { return b > 0 ? a / b : 0; }

typedef struct sums {
    int64_t prompt, completion, cached, nfe, denoise_tokens;
    double decode_seconds, first_seconds;
} sums;

/* Returns the sums over all choices so far. A prompt counts once, even if it has several answers. With `of_chunks` an
 * answer counts the tokens of the chunks that were sent. */
static sums usage_sums(um_generation *g, bool of_chunks) {
    const um_body *b = um_generation_body(g);
    sums s = {.first_seconds = INFINITY};
    for (size_t i = 0; i < b->n_prompts; i++) s.prompt += (int64_t)b->prompt[i].n_ids + b->generate.n_suffix;
    for (int32_t i = 0; i < um_generation_n_choices(g); i++) {
        const um_choice *c = um_generation_choice(g, i);
        s.completion += of_chunks ? c->n_sent : c->n_tokens;
        s.nfe += c->nfe;
        if (!c->finished) continue;
        if (c->index == 0) s.cached += c->result.cached_tokens;
        s.denoise_tokens += c->result.denoise_tokens;
        s.decode_seconds += c->result.decode_seconds;
        s.first_seconds = fmin(s.first_seconds, c->result.first_token_seconds);
    }
    return s;
}

/* Members that OpenAI's usage object does not have: passes and times. */
static void put_usage_extensions(um_jw *w, const sums *s) {
    um_jw_put_int(w, "nfe", s->nfe);
    um_jw_put_double(w, "tpf", ratio((double)s->completion, (double)s->nfe));
    um_jw_put_double(w, "engine_decode_time_s", s->decode_seconds);
    um_jw_put_ratio(w, "engine_decode_tps", (double)s->denoise_tokens, s->decode_seconds);
    um_jw_put_double(w, "ttft_s", s->first_seconds);
}

static void put_usage(um_generation *g, bool of_chunks, um_jw *w) {
    sums s = usage_sums(g, of_chunks);
    um_jw_begin_object(w);
    um_jw_put_int(w, "prompt_tokens", s.prompt);
    um_jw_put_int(w, "completion_tokens", s.completion);
    um_jw_put_int(w, "total_tokens", s.prompt + s.completion);
    um_jw_key(w, "prompt_tokens_details");
    um_jw_begin_object(w);
    um_jw_put_int(w, "cached_tokens", s.cached);
    um_jw_end_object(w);
    const um_body *b = um_generation_body(g);
    if (um_generation_service(g)->setup.config->usage_extensions || b->return_timings || b->usage_extensions)
        put_usage_extensions(w, &s);
    um_jw_end_object(w);
}

void um_put_usage(um_generation *g, um_jw *w) { put_usage(g, false, w); }
void um_put_chunk_usage(um_generation *g, um_jw *w) { put_usage(g, true, w); }

/* ---- The end of an answer ---------------------------------------------------------------------------------------- */

void um_put_stop_reason(um_jw *w, const um_msg_finish *m) {
    if (m->stop.n) um_jw_str(w, m->stop.p, m->stop.n);
    else if (m->finish == UM_FINISH_STOP_ID) um_jw_int(w, m->stop_id);
    else um_jw_null(w);
}

static void put_timings(const um_msg_finish *m, um_jw *w) {
    um_jw_key(w, "timings");
    um_jw_begin_object(w);
    um_jw_put_seconds(w, "queue_s", m->queue_seconds);
    um_jw_put_seconds(w, "ttft_s", m->first_token_seconds);
    um_jw_put_seconds(w, "total_s", m->total_seconds);
    um_jw_put_seconds(w, "engine_decode_time_s", m->decode_seconds);
    um_jw_put_int(w, "nfe", m->nfe);
    um_jw_end_object(w);
}

void um_put_extras(um_generation *g, um_choice *c, um_jw *w) {
    if (um_generation_body(g)->return_token_ids) um_jw_put_ints(w, "token_ids", c->result.ids, c->result.n_ids);
    um_put_stream_extras(g, c, w);
}

void um_put_stream_extras(um_generation *g, um_choice *c, um_jw *w) {
    const um_body *b = um_generation_body(g);
    const um_msg_finish *m = &c->result;
    if (m->finish == UM_FINISH_REPETITION || m->finish == UM_FINISH_MAX_NFE || m->finish == UM_FINISH_CONSTRAINT ||
        m->finish == UM_FINISH_SAMPLER) {
        um_jw_put_cstr(w, "completion_reason", um_finish_name((um_finish)m->finish));
    }
    if (b->return_step_map) um_jw_put_ints(w, "step_map", m->pass, m->n_ids);
    if (b->return_trajectory) {
        um_jw_key(w, "trajectory");
        um_jw_begin_array(w);
        if (c->trajectory.json.len) um_jw_raw(w, c->trajectory.json.data, c->trajectory.json.len);
        um_jw_end_array(w);
    }
    if (b->return_timings) put_timings(m, w);
}

/* ---- Snapshots --------------------------------------------------------------------------------------------------- */

/* Returns the name of a block's state, as in Diffulex's API. */
static const char *block_word(int32_t status) {
    static const char *const words[] = {"DUMMY", "ACTIVE", "TO_CACHE", "IN_CACHE"};
    return status >= 0 && status < (int32_t)UM_LEN(words) ? words[status] : "ACTIVE";
}

static void put_blocks(const um_msg_snapshot *m, um_jw *w) {
    um_jw_key(w, "blocks");
    um_jw_begin_array(w);
    for (uint32_t i = 0; i < m->n_blocks; i++) {
        um_jw_begin_object(w);
        um_jw_put_int(w, "start", m->block_start[i]);
        um_jw_put_int(w, "length", m->block_length[i]);
        um_jw_put_cstr(w, "status", block_word(m->block_status[i]));
        um_jw_end_object(w);
    }
    um_jw_end_array(w);
}

/* The text of a snapshot, as a whole and token by token. `whole` shows masks as the text of the mask token. In the list
 * of tokens, the text of a mask is empty. */
typedef struct words {
    char *text;
    size_t *end;
    um_buf whole;
} words;

static um_str word(const words *v, uint32_t i) {
    size_t from = i ? v->end[i - 1] : 0;
    return (um_str){v->text + from, v->end[i] - from};
}

static void words_init(words *v, um_generation *g, const um_msg_snapshot *m, int32_t mask) {
    um_model *model = um_generation_service(g)->setup.model;
    char *spelled = NULL;
    *v = (words){0};
    v->end = UM_NEW_ARRAY(size_t, (size_t)m->n + 1);
    um_model_decode_each(model, m->ids, m->n, um_generation_body(g)->keep_special, &v->text, v->end, NULL);
    um_model_decode(model, &mask, 1, true, &spelled, NULL, NULL);
    for (uint32_t i = 0; i < m->n && v->text; i++) {
        if (m->ids[i] < 0) um_buf_puts(&v->whole, spelled ? spelled : "");
        else um_buf_append(&v->whole, word(v, i).p, word(v, i).n);
    }
    um_free(spelled);
}

static void words_free(words *v) {
    um_free(v->text);
    um_free(v->end);
    um_buf_free(&v->whole);
}

static void put_words(const words *v, const um_msg_snapshot *m, um_jw *w) {
    um_jw_put_str(w, "text", (um_str){v->whole.data, v->whole.len});
    um_jw_key(w, "tokens");
    um_jw_begin_array(w);
    for (uint32_t i = 0; i < m->n; i++) {
        if (v->text && m->ids[i] >= 0) um_jw_str(w, word(v, i).p, word(v, i).n);
        else um_jw_cstr(w, "");
    }
    um_jw_end_array(w);
}

static void put_positions(const um_msg_snapshot *m, int32_t mask, um_jw *w) {
    uint32_t stable = 0;
    um_jw_key(w, "token_ids");
    um_jw_begin_array(w);
    for (uint32_t i = 0; i < m->n; i++) um_jw_int(w, m->ids[i] < 0 ? mask : m->ids[i]);
    um_jw_end_array(w);
    um_jw_key(w, "mask_positions");
    um_jw_begin_array(w);
    for (uint32_t i = 0; i < m->n; i++)
        if (m->ids[i] < 0) um_jw_int(w, i);
    um_jw_end_array(w);
    um_jw_put_ints(w, "pass", m->pass, m->n);
    um_jw_key(w, "confidence");
    um_jw_begin_array(w);
    for (uint32_t i = 0; i < m->n; i++) um_jw_share(w, m->confidence[i]);
    um_jw_end_array(w);
    while (stable < m->n && m->state[stable] == UM_TOKEN_SETTLED) stable++;
    um_jw_put_int(w, "stable_len", stable);
}

void um_put_snapshot(um_generation *g, um_choice *c, const um_msg_snapshot *m, um_jw *w) {
    um_model_info info;
    words v;
    int64_t prompt = (int64_t)um_generation_body(g)->prompt[c->prompt].n_ids;
    um_model_get_info(um_generation_service(g)->setup.model, &info);
    um_jw_put_cstr(w, "event", "buffer_snapshot");
    um_jw_put_cstr(w, "id", um_generation_id(g));
    um_jw_put_int(w, "token_offset", 0);
    um_jw_put_int(w, "absolute_start", prompt);
    um_jw_put_int(w, "absolute_end", prompt + m->n);
    words_init(&v, g, m, info.mask_id);
    put_words(&v, m, w);
    words_free(&v);
    put_positions(m, info.mask_id, w);
    um_jw_put_int(w, "mask_token_id", info.mask_id);
    put_blocks(m, w);
    um_jw_put_int(w, "nfe", m->nfe);
    um_jw_put_bool(w, "finished", c->finished);
    um_put_decode(w, m->decode_seconds, m->decode_tokens);
}
