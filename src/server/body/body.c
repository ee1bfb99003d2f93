/* Reads a body: looks up every field in the API's tables, then in the option tables. */
#include "server/body/body.h"

#include <jansson.h>
#include <stdatomic.h>

#include "engine/options.h"

#define IGNORED_LINES_MAX 100

/* ---- Parameters -------------------------------------------------------------------------------------------------- */

static const um_option *find_row(um_body *b, const char *name, um_option_set *sets, size_t *n) {
    const um_option *row = NULL;
    *n = um_request_option_sets(sets, &b->checked);
    for (size_t i = 0; i < *n && !row; i++) row = um_options_find(sets[i].rows, sets[i].n, name);
    return row;
}

bool um_body_is_set(const um_body *b, const char *option) {
    for (uint32_t i = 0; i < b->generate.n_set; i++)
        if (um_str_eq(b->generate.set[i].name, um_str_of(option))) return true;
    return false;
}

/* Returns the pair of an option, a new one if the option is not set yet. The capacity is the next power of two, so it
 * follows from the length. */
static um_pair *find_or_add_pair(um_body *b, const char *option) {
    um_msg_generate *g = &b->generate;
    um_pair *pair = (um_pair *)g->set;
    for (uint32_t i = 0; i < g->n_set; i++)
        if (um_str_eq(pair[i].name, um_str_of(option))) return &pair[i];
    if ((g->n_set & (g->n_set - 1)) == 0) {
        um_pair *more = um_arena_alloc(&b->arena, um_mul(UM_MAX(2 * (size_t)g->n_set, 1), sizeof *more));
        if (g->n_set) memcpy(more, pair, g->n_set * sizeof *more);
        g->set = pair = more;
    }
    return &pair[g->n_set++];
}

um_status um_body_set(um_body *b, const char *option, const char *value, um_err *err) {
    um_option_set sets[UM_OPTION_SETS_MAX];
    size_t n;
    const um_option *row = find_row(b, option, sets, &n);
    um_status st = um_options_set(sets, n, option, value, err);
    if (st) return um_fail_about(err, st, option);
    um_str copy = {um_arena_strndup(&b->arena, value, strlen(value)), strlen(value)};
    *find_or_add_pair(b, row->name) = (um_pair){um_str_of(row->name), copy};
    return UM_OK;
}

um_status um_body_set_json(um_body *b, const char *option, const char *field, const json_t *v, um_err *err) {
    um_option_set sets[UM_OPTION_SETS_MAX];
    char number[UM_NUMBER_MAX];
    const char *text;
    size_t n;
    const um_option *row = find_row(b, option, sets, &n);
    assert(row);
    um_status st = um_option_json_text(row, field, v, number, &text, err);
    if (!st) st = um_body_set(b, option, text, err);
    if (!st) return UM_OK;
    err->param[0] = '\0'; /* the name of the option, which is replaced by the name of the field */
    return um_fail_about(err, st, field);
}

/* ---- Fields ------------------------------------------------------------------------------------------------------ */

static bool is_same(const json_t *a, const json_t *b) {
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

/* Returns whether v is one of the JSON values of a list separated by '|'. */
static bool is_neutral(const char *list, const json_t *v) {
    bool found = false;
    for (const char *p = list; *p && !found;) {
        size_t n = strcspn(p, "|");
        json_t *one = json_loadb(p, n, JSON_DECODE_ANY, NULL);
        assert(one);
        found = is_same(one, v);
        json_decref(one);
        p += n + (p[n] == '|');
    }
    return found;
}

static um_status check_neutral(const um_field *f, const json_t *v, um_err *err) {
    if (is_neutral(f->neutral, v)) return UM_OK;
    um_buf words = {0};
    for (const char *p = f->neutral; *p; p++) {
        if (*p == '|') um_buf_puts(&words, " or ");
        else um_buf_putc(&words, *p);
    }
    um_status st = um_fail(err, UM_EINVAL, "\"%s\": only %s is supported: %s", f->name, words.data, f->why);
    um_buf_free(&words);
    return st;
}

const um_field *um_field_find(const um_field_set *const *sets, const char *name) {
    for (const um_field_set *const *s = sets; *s; s++)
        for (size_t k = 0; k < (*s)->n; k++)
            if (!(*s)->rows[k].is_member && um_streq(name, (*s)->rows[k].name)) return &(*s)->rows[k];
    return NULL;
}

static um_status fail_unknown(um_body *b, const um_option_set *sets, size_t n_sets, const char *key, um_err *err) {
    const char *words[256];
    size_t n = 0;
    for (const um_field_set *const *s = b->sets; *s; s++)
        for (size_t k = 0; k < (*s)->n && n < UM_LEN(words); k++) words[n++] = (*s)->rows[k].name;
    for (size_t i = 0; i < n_sets; i++)
        for (size_t k = 0; k < sets[i].n && n < UM_LEN(words); k++) words[n++] = sets[i].rows[k].name;
    const char *near = um_nearest(key, words, n);
    if (near) return um_fail(err, UM_EINVAL, "unknown field \"%.80s\"; did you mean \"%s\"?", key, near);
    return um_fail(err, UM_EINVAL, "unknown field \"%.80s\"; `unmask list options` names the parameters", key);
}

bool um_body_ignores(um_body *b, const char *key) {
    if (!b->setup || !b->setup->config->ignore_unknown_fields) return false;
    if (b->n_ignored < (int32_t)UM_LEN(b->ignored)) b->ignored[b->n_ignored] = key;
    b->n_ignored++;
    return true;
}

/* Appends up to `most` bytes of a text. Others than printable ASCII become '?', so that a name can't forge log lines.
 */
static void put_printable(um_buf *out, const char *text, size_t most) {
    for (size_t i = 0; i < most && text[i]; i++) um_buf_putc(out, text[i] >= ' ' && text[i] <= '~' ? text[i] : '?');
}

/* Logs the names of unknown fields: a line for a request, and none after so many requests. */
static void log_ignored(const um_body *b) {
    static atomic_int lines;
    um_buf names = {0};
    if (!b->n_ignored || atomic_load(&lines) >= IGNORED_LINES_MAX) return;
    const int line = atomic_fetch_add(&lines, 1);
    if (line >= IGNORED_LINES_MAX) return;
    const int32_t n = UM_MIN(b->n_ignored, (int32_t)UM_LEN(b->ignored));
    for (int32_t i = 0; i < n; i++) {
        um_buf_puts(&names, i ? ", \"" : "\"");
        put_printable(&names, b->ignored[i], 40);
        um_buf_putc(&names, '"');
    }
    if (b->n_ignored > n) um_buf_printf(&names, " and %d more", b->n_ignored - n);
    um_warn("ignored unknown fields of a request (--ignore-unknown-fields): %s%s", names.data,
            line + 1 == IGNORED_LINES_MAX ? "; further requests are not logged" : "");
    um_buf_free(&names);
}

static um_status take_parameter(um_body *b, const char *key, const json_t *v, um_err *err) {
    um_option_set sets[UM_OPTION_SETS_MAX];
    size_t n;
    if (!find_row(b, key, sets, &n)) return um_body_ignores(b, key) ? UM_OK : fail_unknown(b, sets, n, key, err);
    return json_is_null(v) ? UM_OK : um_body_set_json(b, key, key, v, err);
}

/* Many clients send null for "not given". */
static um_status take_field(um_body *b, const char *key, const json_t *v, um_err *err) {
    const um_field *f = um_field_find(b->sets, key);
    if (!f) return take_parameter(b, key, v, err);
    if (json_is_null(v)) return UM_OK;
    if (f->neutral) return check_neutral(f, v, err);
    if (f->option) return um_body_set_json(b, f->option, key, v, err);
    if (f->take) return f->take(b, v, err);
    assert(f->why);
    return UM_OK;
}

bool um_body_has(const um_body *b, const char *field) {
    const json_t *v = json_object_get(b->root, field);
    return v && !json_is_null(v);
}

/* ---- Prompts ----------------------------------------------------------------------------------------------------- */

um_prompt *um_body_prompts(um_body *b, size_t n, um_err *err) {
    if (b->n_prompts) {
        um_fail(err, UM_EINVAL, "the request has more than one prompt field");
        return NULL;
    }
    b->prompt = um_arena_alloc(&b->arena, um_mul(n, sizeof(um_prompt)));
    b->n_prompts = n;
    return b->prompt;
}

static um_status read_ids(um_body *b, um_prompt *p, const json_t *v, const char *what, um_err *err) {
    p->kind = UM_PROMPT_IDS;
    p->n_ids = json_array_size(v);
    p->ids = um_arena_alloc(&b->arena, um_mul(p->n_ids + 1, sizeof(int32_t)));
    return um_json_take_ids(v, what, p->ids, err);
}

static um_status read_prompt(um_body *b, um_prompt *p, const json_t *v, const char *what, um_err *err) {
    if (json_is_array(v)) return read_ids(b, p, v, what, err);
    if (!json_is_string(v))
        return um_fail(err, UM_EINVAL, "%s: expected a string or an array of token ids, found %s", what,
                       um_json_kind(v));
    *p = (um_prompt){UM_PROMPT_TEXT, {json_string_value(v), json_string_length(v)}, NULL, 0};
    return UM_OK;
}

um_status um_body_take_prompt(um_body *b, const json_t *v, um_err *err) {
    const json_t *first = json_array_get(v, 0);
    b->one_prompt = !json_is_string(first) && !json_is_array(first);
    size_t n = b->one_prompt ? 1 : json_array_size(v);
    if (n > UM_PROMPTS_MAX)
        return um_fail(err, UM_ERANGE, "%zu prompts, but a request has at most %d", n, UM_PROMPTS_MAX);
    um_prompt *p = um_body_prompts(b, n, err);
    if (!p) return UM_EINVAL;
    if (b->one_prompt) return read_prompt(b, p, v, "the prompt", err);
    um_status st = UM_OK;
    for (size_t i = 0; i < n && !st; i++) {
        char what[40];
        snprintf(what, sizeof what, "prompt %zu", i);
        st = read_prompt(b, &p[i], json_array_get(v, i), what, err);
    }
    return st;
}

/* ---- The body ---------------------------------------------------------------------------------------------------- */

const char *um_body_dump(um_body *b, const json_t *v) {
    size_t n = json_dumpb(v, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY);
    char *text = um_arena_alloc(&b->arena, n + 1);
    json_dumpb(v, text, n, JSON_COMPACT | JSON_ENCODE_ANY);
    return text;
}

static void init(um_body *b, json_t *root, const um_field_set *const *sets) {
    *b = (um_body){.root = root,
                   .sets = sets,
                   .generate = {.n = 1},
                   .special_tokens = true,
                   .parallel_tool_calls = true,
                   .include_reasoning = true};
    um_arena_init(&b->arena, 0);
    um_chat_init(&b->chat);
}

static um_status read_fields(um_body *b, um_err *err) {
    const char *key;
    json_t *value;
    um_err own, *e = err ? err : &own;
    e->param[0] = '\0';
    b->chat.special_in_content = b->checked.special_in_content;
    json_object_foreach(b->root, key, value) {
        um_status st = take_field(b, key, value, e);
        if (st) return um_fail_about(e, st, key);
    }
    b->generate.keep_special = b->keep_special;
    b->top_logprobs = b->checked.sampling.logprobs;
    return um_body_finish_chat(b, e);
}

/* Removes an option from the request. The engine refuses options that its strategy does not read. */
static void unset(um_body *b, const char *option) {
    um_pair *pair = (um_pair *)b->generate.set;
    uint32_t i = 0;
    while (i < b->generate.n_set && !um_str_eq(pair[i].name, um_str_of(option))) i++;
    if (i < b->generate.n_set) pair[i] = pair[--b->generate.n_set];
}

/* gen_length is the length of the canvas. Without max_tokens it also limits the answer. For strategies without a canvas
 * it becomes max_tokens only. */
static um_status apply_gen_length(um_body *b, um_err *err) {
    if (!um_body_has(b, "gen_length") || !b->checked.decoding.gen_length || um_body_is_set(b, "max_tokens"))
        return UM_OK;
    if (!um_body_is_whole(b)) unset(b, "gen_length");
    return um_body_set_json(b, "max_tokens", "gen_length", json_object_get(b->root, "gen_length"), err);
}

um_status um_body_read(um_body *b, const um_setup *setup, const um_capacity *capacity, json_t *root,
                       const um_field_set *const *sets, um_err *err) {
    const um_server_config *c = setup->config;
    init(b, root, sets);
    b->setup = setup;
    b->capacity = *capacity;
    b->key = capacity->key;
    b->snapshot_interval = c->snapshot_interval;
    b->snapshot_max_hz = c->snapshot_max_hz;
    um_request_init_config(c->engine, &b->checked);
    um_status st = read_fields(b, err);
    log_ignored(b);
    return st ? st : apply_gen_length(b, err);
}

um_status um_body_read_offline(um_body *b, json_t *root, const um_field_set *const *sets, const um_request *defaults,
                               um_err *err) {
    init(b, root, sets);
    b->checked = *defaults;
    return read_fields(b, err);
}

const um_body *um_body_of(const um_body *b, size_t prompt) { return b->own ? &b->own[prompt] : b; }

void um_body_free(um_body *b) {
    for (size_t i = 0; b->own && i < b->n_prompts; i++) um_body_free(&b->own[i]);
    json_decref(b->root);
    um_arena_free(&b->arena);
    um_held_unref(b->held);
    *b = (um_body){0};
}
