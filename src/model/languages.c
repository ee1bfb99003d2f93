/* Compiles constraints, and keeps what was compiled. */
#include <jansson.h>
#include <pthread.h>

#include "model/languages.h"

enum { UNUSED_MAX = 16 };      /* languages without users that are kept */
enum { VOCABULARIES_MAX = 3 }; /* without special tokens, and with two pairs of markers */

/* Bytes that stand for the markers of a section if these are special tokens. Valid UTF-8 has none of them. */
enum { BEGIN_CODE = 0xFE, END_CODE = 0xFF };

/* The model's vocabulary, in which up to two special tokens have text. */
typedef struct vocabulary {
    um_model *m;
    int32_t begin, end; /* ids of special tokens that are markers of a section; -1: none */
    um_vocabulary *v;
} vocabulary;

struct um_languages {
    pthread_mutex_t lock;
    vocabulary *vocabulary[VOCABULARIES_MAX]; /* NULL: not sorted yet */
    um_shared_language *first;
    int64_t uses;
};

um_languages *um_languages_new(void) {
    um_languages *l = UM_NEW(um_languages);
    pthread_mutex_init(&l->lock, NULL);
    return l;
}

static void free_language(um_shared_language *l) {
    um_language_free(l->language);
    um_rules_free(&l->rules);
    um_free((void *)(uintptr_t)l->of.text);
    um_free((void *)(uintptr_t)l->of.begin);
    um_free((void *)(uintptr_t)l->of.end);
    um_free(l);
}

void um_languages_free(um_languages *l) {
    if (!l) return;
    for (um_shared_language *at = l->first, *next; at; at = next) {
        next = at->next;
        assert(at->n_users == 0);
        free_language(at);
    }
    for (int32_t i = 0; i < VOCABULARIES_MAX; i++) {
        if (l->vocabulary[i]) um_vocabulary_free(l->vocabulary[i]->v);
        um_free(l->vocabulary[i]);
    }
    pthread_mutex_destroy(&l->lock);
    um_free(l);
}

/* ---- Vocabulary -------------------------------------------------------------------------------------------------- */

static bool is_among(const int32_t *ids, int32_t n, int32_t id) {
    for (int32_t i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

static bool ends_answers(const um_model *m, int32_t id) {
    const um_arch *a = &m->arch;
    return id == a->mask_id || id == a->pad_id || is_among(a->stop, a->n_stop, id);
}

static bool has_code(um_str bytes) {
    return memchr(bytes.p, BEGIN_CODE, bytes.n) != NULL || memchr(bytes.p, END_CODE, bytes.n) != NULL;
}

/* Returns the text of a token that an answer may contain before its end. */
static um_str token_bytes(void *arg, int32_t id) {
    static const char begin = (char)BEGIN_CODE, end = (char)END_CODE;
    const vocabulary *v = (const vocabulary *)arg;
    if (id == v->begin) return (um_str){&begin, 1};
    if (id == v->end) return (um_str){&end, 1};
    if (ends_answers(v->m, id) || um_tok_is_special(v->m->tok, id)) return (um_str){0};
    const um_str bytes = um_tok_bytes(v->m->tok, id);
    return bytes.n && has_code(bytes) ? (um_str){0} : bytes;
}

static size_t spell(void *arg, um_str text, int32_t *len) {
    const vocabulary *v = (const vocabulary *)arg;
    um_ids ids = {0};
    size_t n = 0, bytes = 0;
    if (um_tok_encode(v->m->tok, text, UM_PARSE_NOT_SPECIAL, false, &ids, NULL) == UM_OK && ids.n <= text.n) {
        for (; n < ids.n && token_bytes(arg, ids.data[n]).n; n++) {
            len[n] = (int32_t)token_bytes(arg, ids.data[n]).n;
            bytes += (size_t)len[n];
        }
        if (n < ids.n || bytes != text.n) n = 0;
    }
    um_ids_free(&ids);
    return n;
}

/* Finds the vocabulary with these markers, or sorts it. */
static um_status get_vocabulary(um_model *m, int32_t begin, int32_t end, um_vocabulary **out, um_err *err) {
    vocabulary **at = m->languages->vocabulary, **last = at + VOCABULARIES_MAX;
    if (begin < 0 && end < 0) last = at + 1;
    else at++;
    while (at < last && *at && ((*at)->begin != begin || (*at)->end != end)) at++;
    if (at == last)
        return um_fail(err, UM_ELIMIT,
                       "requests have used %d pairs of special tokens as markers of a section, and there may be no "
                       "more",
                       VOCABULARIES_MAX - 1);
    if (!*at) {
        vocabulary *v = UM_NEW(vocabulary);
        *v = (vocabulary){.m = m, .begin = begin, .end = end};
        const um_vocabulary_source source = {.arg = v, .n = m->net.vocab, .bytes = token_bytes, .spell = spell};
        um_status st = um_vocabulary_new(&v->v, &source, err);
        if (st) {
            um_free(v);
            return st;
        }
        *at = v;
    }
    *out = (*at)->v;
    return UM_OK;
}

/* ---- Rules ------------------------------------------------------------------------------------------------------- */

static um_status rules_of_choice(um_rules *rules, const char *text, um_err *err) {
    json_t *list = NULL;
    um_status st = um_json_parse_request(&list, text, strlen(text), "choice", err);
    const size_t n = json_array_size(list);
    if (!st && !n) st = um_fail(err, UM_EINVAL, "the choice is no array of texts, or is empty");
    um_str *choice = UM_NEW_ARRAY(um_str, n + 1);
    for (size_t i = 0; i < n && !st; i++) {
        const json_t *item = json_array_get(list, i);
        if (!json_is_string(item)) st = um_fail(err, UM_EINVAL, "item %zu of the choice is no text", i);
        else choice[i] = (um_str){json_string_value(item), json_string_length(item)};
    }
    if (!st) st = um_rules_from_choice(rules, choice, n, err);
    um_free(choice);
    json_decref(list);
    return st;
}

static um_status rules_of(um_rules *rules, const um_constraint *c, um_err *err) {
    switch (c->kind) {
    case UM_CONSTRAINT_JSON: return um_rules_from_any_json(rules, &c->style, err);
    case UM_CONSTRAINT_SCHEMA: return um_rules_from_schema(rules, c->text, strlen(c->text), &c->style, err);
    case UM_CONSTRAINT_REGEX: return um_rules_from_regex(rules, um_str_of(c->text), err);
    case UM_CONSTRAINT_GRAMMAR: return um_rules_from_gbnf(rules, um_str_of(c->text), err);
    case UM_CONSTRAINT_CHOICE: return rules_of_choice(rules, c->text, err);
    }
    return um_fail_param(err, UM_ERANGE, "constraint", "%d is no UM_CONSTRAINT_*", c->kind);
}

/* ---- Sections ---------------------------------------------------------------------------------------------------- */

/* Sets *id to the special token that a marker is; -1 if it is a text. */
static um_status find_marker(const um_model *m, const char *marker, const char *param, int32_t *id, um_err *err) {
    *id = marker ? um_tok_find(m->tok, um_str_of(marker)) : -1;
    if (*id < 0 || !um_tok_is_special(m->tok, *id)) {
        *id = -1;
        return UM_OK;
    }
    if (!ends_answers(m, *id)) return UM_OK;
    return um_fail_param(err, UM_EINVAL, param,
                         "\"%.80s\" is an end, padding or mask token, so it can't be a marker inside of an answer",
                         marker);
}

/* Returns how much of the marker the text ends with, when the marker's first `n` bytes are followed by a byte. */
static int32_t matched(um_str marker, int32_t n, uint8_t byte) {
    for (int32_t k = UM_MIN(n + 1, (int32_t)marker.n); k > 0; k--)
        if ((uint8_t)marker.p[k - 1] == byte && !memcmp(marker.p, marker.p + n + 1 - k, (size_t)(k - 1))) return k;
    return 0;
}

/* A section has only those special tokens that are its end. */
static bool may_follow(um_str marker, int32_t n, int byte) {
    return (byte != BEGIN_CODE && byte != END_CODE) || (uint8_t)marker.p[n] == byte;
}

/* Sets the rule of a text that ends with the first n bytes of the marker: each byte leads to the rule of how much it
 * ends with then. */
static void set_section_rule(um_rules *rules, um_str marker, int32_t first, int32_t n) {
    const um_expr **part = UM_NEW_ARRAY(const um_expr *, marker.n + 1);
    uint64_t(*set)[4] = (uint64_t(*)[4])um_zalloc((marker.n + 1) * sizeof *set);
    size_t n_parts = 0;
    for (int b = 0; b < 256; b++)
        if (may_follow(marker, n, b)) set[matched(marker, n, (uint8_t)b)][b / 64] |= UINT64_C(1) << b % 64;
    for (size_t k = 0; k <= marker.n; k++) {
        if (!(set[k][0] | set[k][1] | set[k][2] | set[k][3])) continue;
        const um_expr *step[] = {um_expr_bytes(rules, set[k]), um_expr_call(rules, first + (int32_t)k)};
        part[n_parts++] = um_expr_join(rules, step, 2);
    }
    um_rule_set(rules, first + n, um_expr_either(rules, part, n_parts));
    um_free(part);
    um_free(set);
}

/* Puts a free section, which ends with a marker, in front of the texts. Without `begin` the section has begun. */
static void add_section(um_rules *rules, const um_str *begin, um_str end) {
    const int32_t answer = rules->root, first = rules->n;
    const uint64_t spaces[4] = {UINT64_C(1) << ' ' | UINT64_C(1) << '\n'};
    char name[32];
    for (int32_t n = 0; n <= (int32_t)end.n; n++) {
        snprintf(name, sizeof name, "section end %d", n);
        um_rule_add(rules, um_str_of(name));
    }
    for (int32_t n = 0; n < (int32_t)end.n; n++) set_section_rule(rules, end, first, n);
    const um_expr *behind[] = {um_expr_repeat(rules, um_expr_bytes(rules, spaces), 0, 4), um_expr_call(rules, answer)};
    um_rule_set(rules, first + (int32_t)end.n, um_expr_join(rules, behind, 2));
    rules->root = um_rule_add(rules, UM_STR("section"));
    const um_expr *section[] = {um_expr_text(rules, begin ? *begin : UM_STR("")), um_expr_call(rules, first)};
    const um_expr *ways[] = {um_expr_join(rules, section, 2), um_expr_call(rules, answer)};
    um_rule_set(rules, rules->root, um_expr_either(rules, ways, begin ? 2 : 1));
}

/* Adds the section of a constraint. A marker that is a special token is a byte of its own. */
static void add_section_of(um_rules *rules, const um_constraint *c, int32_t begin_id, int32_t end_id) {
    static const char begin_code = (char)BEGIN_CODE, end_code = (char)END_CODE;
    if (!c->end) return;
    const um_str begin = begin_id >= 0 ? (um_str){&begin_code, 1} : um_str_of(c->begin);
    add_section(rules, c->begin ? &begin : NULL, end_id >= 0 ? (um_str){&end_code, 1} : um_str_of(c->end));
}

/* ---- Languages --------------------------------------------------------------------------------------------------- */

static bool is_same(const um_constraint *a, const um_constraint *b) {
    return a->kind == b->kind && um_streq(a->text, b->text) && a->style.space_max == b->style.space_max &&
           a->depth == b->depth && um_streq(a->begin, b->begin) && um_streq(a->end, b->end);
}

static bool is_worn(um_shared_language *l) {
    um_language_lock(l->language);
    const bool worn = um_language_is_worn(l->language);
    um_language_unlock(l->language);
    return worn;
}

/* Finds the language of a constraint that new requests may use. */
static um_shared_language *find(um_languages *all, const um_constraint *c) {
    um_shared_language *l = all->first;
    while (l && (!is_same(&l->of, c) || is_worn(l))) l = l->next;
    return l;
}

/* Frees an unused language that is worn, or else the one that was used longest ago if there are too many. */
static void drop_oldest(um_languages *all) {
    um_shared_language **oldest = NULL, **worn = NULL;
    int32_t n = 0;
    for (um_shared_language **at = &all->first; *at; at = &(*at)->next) {
        if ((*at)->n_users) continue;
        n++;
        if (!oldest || (*at)->used < (*oldest)->used) oldest = at;
        if (is_worn(*at)) worn = at;
    }
    if (worn) oldest = worn;
    else if (n <= UNUSED_MAX) return;
    um_shared_language *gone = *oldest;
    *oldest = gone->next;
    free_language(gone);
}

static um_status compile(um_model *m, const um_constraint *c, um_shared_language **out, um_err *err) {
    um_vocabulary *v = NULL;
    int32_t begin, end;
    um_status st = find_marker(m, c->begin, "reasoning_begin", &begin, err);
    if (!st) st = find_marker(m, c->end, "reasoning_end", &end, err);
    if (!st) st = get_vocabulary(m, begin, end, &v, err);
    if (st) return st;
    um_shared_language *l = UM_NEW(um_shared_language);
    l->of = *c;
    l->of.text = c->text ? um_strdup(c->text) : NULL;
    l->of.begin = c->begin ? um_strdup(c->begin) : NULL;
    l->of.end = c->end ? um_strdup(c->end) : NULL;
    um_rules_init(&l->rules);
    st = rules_of(&l->rules, c, err);
    if (!st) add_section_of(&l->rules, c, begin, end);
    if (!st) st = um_rules_check(&l->rules, err);
    if (!st) st = um_language_new(&l->language, &l->rules, v, c->depth, err);
    if (st) {
        free_language(l);
        return um_fail_about(err, st, "constraint");
    }
    *out = l;
    return UM_OK;
}

um_status um_model_get_language(um_model *m, const um_constraint *c, um_shared_language **out, um_err *err) {
    um_languages *all = m->languages;
    um_status st = UM_OK;
    pthread_mutex_lock(&all->lock);
    um_shared_language *l = find(all, c);
    if (!l) {
        st = compile(m, c, &l, err);
        if (!st) {
            l->next = all->first;
            all->first = l;
        }
    }
    if (!st) {
        l->n_users++;
        l->used = ++all->uses;
        *out = l;
    }
    pthread_mutex_unlock(&all->lock);
    return st;
}

void um_model_release_language(um_model *m, um_shared_language *l) {
    if (!l) return;
    pthread_mutex_lock(&m->languages->lock);
    l->n_users--;
    drop_oldest(m->languages);
    pthread_mutex_unlock(&m->languages->lock);
}
