/* Prompts for a load: from a file, from a trace, or random words; and the parsers of --prompt-words and points. */
#include "cli/load.h"

#include <jansson.h>

#include "cli/requests.h"

static void push(um_load_prompts *p, const char *text, size_t n, int64_t max_tokens) {
    if (p->n == p->cap) {
        p->cap = UM_MAX(2 * p->cap, (size_t)64);
        p->prompt = um_realloc(p->prompt, um_mul(p->cap, sizeof *p->prompt));
    }
    p->prompt[p->n++] = (um_load_prompt){um_arena_strndup(&p->text, text, n), max_tokens};
}

static void set_about(um_load_prompts *p, const char *fmt, ...) UM_PRINTF(2, 3);
static void set_about(um_load_prompts *p, const char *fmt, ...) {
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    um_free(p->about);
    p->about = um_strdup(text);
}

void um_load_prompts_free(um_load_prompts *p) {
    um_arena_free(&p->text);
    um_free(p->prompt);
    um_free(p->about);
    *p = (um_load_prompts){0};
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

typedef um_status (*line_fn)(void *arg, const json_t *line, um_err *err);

/* Parses each line of a file as a JSON object and calls fn with it. */
static um_status each_line(const char *path, line_fn fn, void *arg, um_err *err) {
    um_err own, *e = err ? err : &own;
    um_lines l;
    um_str line;
    um_status st = um_lines_open(&l, path, e);
    if (st) return st;
    while (!st) {
        json_t *root = NULL;
        um_lines_result got = um_lines_next(&l, true, &line, e);
        if (got == UM_LINES_END) break;
        if (got == UM_LINES_FAILED) st = e->code;
        else if (got == UM_LINES_AGAIN) st = um_fail(e, UM_ECANCELED, "interrupted");
        else if (got == UM_LINES_TOO_LONG) st = um_fail(e, UM_ELIMIT, "longer than %zu bytes", UM_LINE_MAX);
        else st = um_line_object(&root, line, e);
        if (!st) st = fn(arg, root, e);
        if (st && got != UM_LINES_FAILED) um_fail_in(e, "%s:%lld", path, (long long)l.number);
        json_decref(root);
    }
    um_lines_close(&l);
    return st;
}

static um_status take_prompt(void *arg, const json_t *line, um_err *err) {
    const char *text;
    um_status st = um_line_text(line, "prompt", &text, err);
    if (!st) push(arg, text, strlen(text), 0);
    return st;
}

um_status um_load_prompts_file(um_load_prompts *p, const char *path, um_err *err) {
    um_status st = each_line(path, take_prompt, p, err);
    if (!st && !p->n) st = um_fail(err, UM_EINVAL, "%s has no prompts", path);
    set_about(p, "%zu prompts of %s", p->n, path);
    return st;
}

typedef struct trace {
    um_load_prompts *prompts;
    um_arrivals *arrivals;
} trace;

static um_status take_arrival(void *arg, const json_t *line, um_err *err) {
    trace *t = arg;
    const json_t *at = json_object_get(line, "at"), *max = json_object_get(line, "max_tokens");
    int64_t max_tokens = 0;
    if (!json_is_number(at))
        return um_fail(err, UM_EINVAL, "\"at\": expected seconds since the start, found %s", um_json_kind(at));
    if (!um_arrivals_push(t->arrivals, json_number_value(at)))
        return um_fail(err, UM_EINVAL,
                       "\"at\": %g is negative or before that of the previous line; sort the lines by time",
                       json_number_value(at));
    um_status st = max ? um_json_take_int(max, "\"max_tokens\"", 1, INT32_MAX, &max_tokens, err) : UM_OK;
    if (st || !json_object_get(line, "prompt")) return st;
    const char *text;
    st = um_line_text(line, "prompt", &text, err);
    if (!st) push(t->prompts, text, strlen(text), max_tokens);
    return st;
}

um_status um_load_trace(um_load_prompts *p, um_arrivals *a, const char *path, um_err *err) {
    trace t = {p, a};
    um_status st = each_line(path, take_arrival, &t, err);
    if (!st && !a->n) st = um_fail(err, UM_EINVAL, "%s has no arrivals", path);
    if (!st && p->n && p->n != a->n)
        st = um_fail(err, UM_EINVAL, "%s: %zu of %zu lines have a \"prompt\"; either all lines or none must have one",
                     path, p->n, a->n);
    if (p->n) set_about(p, "%zu prompts of %s", p->n, path);
    return st;
}

/* ---- Words ------------------------------------------------------------------------------------------------------- */

/* Short common words, which are single tokens in most tokenizers. */
static const char *const words[] = {"time", "year",  "people", "way",    "day",   "man",    "thing",   "woman",
                                    "life", "child", "world",  "school", "state", "family", "student", "group",
                                    "hand", "part",  "place",  "case",   "week",  "work",   "night",   "point",
                                    "home", "water", "room",   "area",   "story", "fact",   "month",   "book"};

void um_load_prompts_words(um_load_prompts *p, size_t n, int64_t min, int64_t max, uint64_t seed) {
    uint64_t key = um_rng_key(seed, 1, 0, 0), counter = 0;
    um_buf text = {0};
    for (size_t i = 0; i < n; i++) {
        int64_t length = min + (int64_t)(um_rng_u64(key, counter++) % (uint64_t)(max - min + 1));
        um_buf_clear(&text);
        for (int64_t k = 0; k < length; k++)
            um_buf_printf(&text, "%s%s", k ? " " : "", words[um_rng_u64(key, counter++) % UM_LEN(words)]);
        push(p, text.data, text.len, 0);
    }
    um_buf_free(&text);
    set_about(p, "%zu prompts of %lld..%lld random words", n, (long long)min, (long long)max);
}

/* ---- Values of options ------------------------------------------------------------------------------------------- */

um_status um_load_parse_range(const char *text, const char *option, int64_t *min, int64_t *max, um_err *err) {
    const char *dots = strstr(text, "..");
    char *first = um_strndup(text, dots ? (size_t)(dots - text) : strlen(text));
    bool ok = um_parse_int(first, min) && um_parse_int(dots ? dots + 2 : first, max);
    um_free(first);
    if (ok && *min >= 1 && *min <= *max && *max <= 100000) return UM_OK;
    return um_fail(err, UM_EINVAL, "--%s: expected a number of words or a range, as in 16..64, found \"%.60s\"", option,
                   text);
}

um_status um_load_parse_points(const char *text, const char *option, bool whole, double out[UM_LOAD_POINTS_MAX],
                               size_t *n, um_err *err) {
    *n = 0;
    for (const char *p = text; *p;) {
        size_t len = strcspn(p, ",");
        char *word = um_strndup(p, len);
        double v = 0;
        bool ok = um_parse_double(word, &v) && v > 0 && v <= 1e6 && (!whole || v == (double)(int64_t)v);
        um_free(word);
        if (!ok || *n == UM_LOAD_POINTS_MAX) break;
        out[(*n)++] = v;
        p += len + (p[len] == ',');
        if (!*p && p[-1] != ',') return UM_OK;
    }
    return um_fail(err, UM_EINVAL, "--%s: expected up to %d %snumbers above 0, separated by commas, found \"%.60s\"",
                   option, UM_LOAD_POINTS_MAX, whole ? "whole " : "", text);
}
