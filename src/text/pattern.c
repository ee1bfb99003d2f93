/* Patterns of normalizers and pre-tokenizers. Tokenizer files use Oniguruma's Ruby syntax, and PCRE2 treats most of it
 * the same. A construct that PCRE2 treats differently is rewritten if an exact equivalent exists and rejected if not. A
 * file therefore fails to load instead of silently giving different ids. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "text/tok.h"

#define MATCH_LIMIT    10000000u
#define HEAP_LIMIT_KIB (64u << 10)
#define STACK_MAX      ((size_t)8 << 20)
#define PATTERN_MAX    65536

/* Letters, numbers and marks that Unicode 15 and 16 added. The reference uses the tables of Unicode 16, PCRE2 10.42
 * those of Unicode 14. A newer PCRE2 includes these characters already; listing them again changes nothing. */
#define NEW_L                                                                                                          \
    "\\x{1c89}-\\x{1c8a}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}\\x{10d4a}-\\x{10d65}"              \
    "\\x{10d6f}-\\x{10d85}\\x{10ec2}-\\x{10ec4}\\x{1123f}-\\x{11240}\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}"         \
    "\\x{11390}-\\x{113b5}\\x{113b7}\\x{113d1}\\x{113d3}\\x{11bc0}-\\x{11be0}\\x{11f02}\\x{11f04}-\\x{11f10}"          \
    "\\x{11f12}-\\x{11f33}\\x{1342f}\\x{13441}-\\x{13446}\\x{13460}-\\x{143fa}\\x{16100}-\\x{1611d}"                   \
    "\\x{16d40}-\\x{16d6c}\\x{18cff}\\x{1b132}\\x{1b155}\\x{1df25}-\\x{1df2a}\\x{1e030}-\\x{1e06d}"                    \
    "\\x{1e4d0}-\\x{1e4eb}\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"
#define NEW_N                                                                                                          \
    "\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}\\x{16130}-\\x{16139}"        \
    "\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1d2c0}-\\x{1d2d3}\\x{1e4f0}-\\x{1e4f9}\\x{1e5f1}-\\x{1e5fa}"
#define NEW_M                                                                                                          \
    "\\x{897}\\x{cf3}\\x{ece}\\x{10d69}-\\x{10d6d}\\x{10efc}-\\x{10eff}\\x{11241}\\x{113b8}-\\x{113c0}"                \
    "\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113d0}\\x{113d2}\\x{113e1}-\\x{113e2}"                    \
    "\\x{11f00}-\\x{11f01}\\x{11f03}\\x{11f34}-\\x{11f3a}\\x{11f3e}-\\x{11f42}\\x{11f5a}\\x{13440}"                    \
    "\\x{13447}-\\x{13455}\\x{1611e}-\\x{1612f}\\x{1e08f}\\x{1e4ec}-\\x{1e4ef}\\x{1e5ee}-\\x{1e5ef}"

/* The contents of classes that match like Oniguruma's \s and \w. PCRE2 10.42's own \s also matches U+180E, and its \w
 * does not match marks. Oniguruma's \w matches marks and all of N*. */
#define SPACES                                                                                                         \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define NOT_SPACES                                                                                                     \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}" \
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
#define WORD     "\\p{L}\\p{M}\\p{N}\\p{Pc}" NEW_L NEW_N NEW_M
#define NOT_WORD "\\p{Pd}\\p{Ps}\\p{Pe}\\p{Pi}\\p{Pf}\\p{Po}\\p{S}\\p{Z}\\p{C}"
#define EDGE     "(?:(?<=[" WORD "])(?![" WORD "])|(?<![" WORD "])(?=[" WORD "]))"
#define NO_EDGE  "(?:(?<=[" WORD "])(?=[" WORD "])|(?<![" WORD "])(?![" WORD "]))"

/* ---- Rewriting --------------------------------------------------------------------------------------------------- */

typedef struct rewrite {
    um_str in;
    size_t at;
    bool in_class;
    um_buf out;
    const char *where;
    um_err *err;
} rewrite;

static um_status refuse(rewrite *r, const char *what) {
    return um_fail(r->err, UM_EUNSUPPORTED,
                   "%s: the expression \"%.100s\" uses %s at byte %zu, which is not supported because it would match "
                   "differently here than in the library that the file was made with",
                   r->where, r->in.p, what, r->at);
}

/* Rewrites \p{L}, \p{N} and \p{M} to include the characters of newer Unicode versions. Returns false for other names,
 * and for a negated property inside a class, which can't be rewritten and keeps PCRE2's table. */
static bool rewrite_new_letters(rewrite *r, um_str name, bool negated) {
    static const struct { const char *name, *add; } added[] = {{"L", NEW_L}, {"N", NEW_N}, {"M", NEW_M}};
    for (size_t i = 0; i < UM_LEN(added); i++) {
        if (!um_str_eq(name, um_str_of(added[i].name)) || (r->in_class && negated)) continue;
        const char *open = r->in_class ? "" : (negated ? "[^" : "["), *close = r->in_class ? "" : "]";
        um_buf_printf(&r->out, "%s\\p{%s}%s%s", open, added[i].name, added[i].add, close);
        return true;
    }
    return false;
}

/* Rewrites \p{Name}. A bare script name means script extensions to PCRE2 and the script itself to Oniguruma. Names of
 * general categories have one or two characters. */
static um_status rewrite_property(rewrite *r) {
    const char *s = r->in.p;
    size_t open = r->at + 2, end = open;
    if (open >= r->in.n || s[open] != '{') return refuse(r, "\\p without braces");
    while (end < r->in.n && s[end] != '}') end++;
    if (end >= r->in.n) return refuse(r, "\\p{ without }");
    bool caret = s[open + 1] == '^', negated = caret != (s[r->at + 1] == 'P');
    um_str name = {s + open + 1 + caret, end - open - 1 - caret};
    bool script = name.n > 2 && !um_str_eq(name, UM_STR("Any"));
    if (!rewrite_new_letters(r, name, negated))
        um_buf_printf(&r->out, "\\%c{%s%.*s}", negated ? 'P' : 'p', script ? "sc:" : "", (int)name.n, name.p);
    r->at = end + 1;
    return UM_OK;
}

/* \uHHHH becomes \x{HHHH}. */
static um_status rewrite_u(rewrite *r) {
    if (r->at + 6 > r->in.n) return refuse(r, "an incomplete \\u");
    um_buf_printf(&r->out, "\\x{%.4s}", r->in.p + r->at + 2);
    r->at += 6;
    return UM_OK;
}

static um_status rewrite_class_escape(rewrite *r, const char *inside) {
    um_buf_printf(&r->out, r->in_class ? "%s" : "[%s]", inside);
    r->at += 2;
    return UM_OK;
}

static um_status rewrite_escape(rewrite *r) {
    if (r->at + 1 >= r->in.n) return refuse(r, "a backslash at its end");
    char c = r->in.p[r->at + 1];
    switch (c) {
    case 's': return rewrite_class_escape(r, SPACES);
    case 'S': return rewrite_class_escape(r, NOT_SPACES);
    case 'w': return rewrite_class_escape(r, WORD);
    case 'W': return rewrite_class_escape(r, NOT_WORD);
    case 'p':
    case 'P': return rewrite_property(r);
    case 'u': return rewrite_u(r);
    case 'b':
    case 'B':
        if (r->in_class) break;
        um_buf_puts(&r->out, c == 'b' ? EDGE : NO_EDGE);
        r->at += 2;
        return UM_OK;
    case 'v': /* the vertical tab only, not PCRE2's vertical white space */
        um_buf_puts(&r->out, "\\x{b}");
        r->at += 2;
        return UM_OK;
    default: break;
    }
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (letter && !strchr("dDnrtfaexkbAz", c)) {
        char what[4] = {'\\', c, 0};
        return refuse(r, what);
    }
    um_buf_append(&r->out, r->in.p + r->at, 2);
    r->at += 2;
    return UM_OK;
}

static bool starts(const rewrite *r, const char *s) {
    size_t n = strlen(s);
    return r->in.n - r->at >= n && memcmp(r->in.p + r->at, s, n) == 0;
}

/* Checks a group. Of the options in (?flags: and (?flags), only i and x mean the same in both: m is dot-all in
 * Oniguruma and multi-line in PCRE2. Lookarounds and named groups are allowed. Returns the unsupported construct, or
 * NULL. */
static const char *bad_group(const rewrite *r) {
    if (!starts(r, "(?")) return starts(r, "(*") ? "a (* verb" : NULL;
    for (size_t i = r->at + 2; i < r->in.n; i++) {
        char c = r->in.p[i];
        if (c == 'i' || c == 'x' || c == '-') continue;
        if (c >= 'a' && c <= 'z') return "a group option other than i and x";
        if ((c >= 'A' && c <= 'Z') || c == '&' || c == '|' || c == '+' || (c >= '0' && c <= '9'))
            return "a special group";
        break;
    }
    return NULL;
}

static const char *bad_construct(const rewrite *r) {
    char c = r->in.p[r->at];
    if (r->in_class) {
        if (starts(r, "&&")) return "&& in a class";
        return c == '[' ? "a class inside a class" : NULL;
    }
    if (c == '^' || c == '$') return c == '^' ? "^" : "$";
    if (starts(r, "{,")) return "{,n}";
    if (starts(r, "}+") && r->at > 0) return "{n,m}+";
    return c == '(' ? bad_group(r) : NULL;
}

static um_status rewrite_all(rewrite *r) {
    while (r->at < r->in.n) {
        um_status st = UM_OK;
        char c = r->in.p[r->at];
        if (c == '\\') {
            if ((st = rewrite_escape(r))) return st;
            continue;
        }
        const char *bad = bad_construct(r);
        if (bad) return refuse(r, bad);
        um_buf_putc(&r->out, c);
        r->at++;
        if (!r->in_class && c == '[') {
            r->in_class = true;
            if (starts(r, "^")) um_buf_putc(&r->out, r->in.p[r->at++]);
            if (starts(r, "]")) return refuse(r, "a class that begins with ]");
        } else if (c == ']') r->in_class = false;
    }
    return UM_OK;
}

/* ---- Compiling --------------------------------------------------------------------------------------------------- */

static void *regex_alloc(size_t n, void *arg) {
    (void)arg;
    return um_alloc(n);
}

static void regex_free(void *p, void *arg) {
    (void)arg;
    um_free(p);
}

static um_status compile(um_pattern *p, const rewrite *r) {
    pcre2_general_context *general = pcre2_general_context_create(regex_alloc, regex_free, NULL);
    pcre2_compile_context *context = pcre2_compile_context_create(general);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF); /* the dot matches everything but LF */
    int code;
    PCRE2_SIZE at;
    p->code = pcre2_compile((PCRE2_SPTR)r->out.data, r->out.len, PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code,
                            &at, context);
    um_status st = UM_OK;
    if (p->code)
        pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE); /* without JIT, PCRE2 interprets: slower, same matches */
    else {
        PCRE2_UCHAR text[128];
        pcre2_get_error_message(code, text, sizeof text);
        st = um_fail(r->err, UM_EPARSE, "%s: the expression \"%.100s\" is not valid: %s", r->where, r->in.p,
                     (char *)text);
    }
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    return st;
}

um_status um_pattern_pcre(um_pattern *p, um_str regex, const char *where, um_err *err) {
    memset(p, 0, sizeof *p);
    if (regex.n > PATTERN_MAX)
        return um_fail(err, UM_ELIMIT, "%s: expression of %zu bytes, at most %d are allowed", where, regex.n,
                       PATTERN_MAX);
    rewrite r = {.in = regex, .where = where, .err = err};
    um_buf_reserve(&r.out, regex.n + 1);
    um_status st = rewrite_all(&r);
    if (!st) st = compile(p, &r);
    um_buf_free(&r.out);
    return st;
}

um_status um_pattern_regex(um_pattern *p, um_str regex, const char *where, um_err *err) {
    *p = (um_pattern){.known = um_known_find(regex)};
    return p->known ? UM_OK : um_pattern_pcre(p, regex, where, err);
}

um_status um_pattern_load(um_pattern *p, const json_t *json, um_arena *a, const char *where, um_err *err) {
    memset(p, 0, sizeof *p);
    const json_t *s = json_object_get(json, "String"), *r = json_object_get(json, "Regex");
    if (json_is_string(s)) {
        size_t n = json_string_length(s);
        p->literal = (um_str){um_arena_strndup(a, json_string_value(s), n), n};
        return UM_OK;
    }
    if (json_is_string(r))
        return um_pattern_regex(p, (um_str){json_string_value(r), json_string_length(r)}, where, err);
    return um_fail(err, UM_EPARSE, "%s: a pattern must be {\"String\": …} or {\"Regex\": …}", where);
}

void um_pattern_free(um_pattern *p) {
    if (p->code) pcre2_code_free(p->code);
    p->code = NULL;
}

/* ---- Matching ---------------------------------------------------------------------------------------------------- */

static void scan_init(um_match_state *scan) {
    pcre2_general_context *general = pcre2_general_context_create(regex_alloc, regex_free, NULL);
    scan->context = pcre2_match_context_create(general);
    scan->data = pcre2_match_data_create(1, general);
    pcre2_set_match_limit(scan->context, MATCH_LIMIT);
    pcre2_set_heap_limit(scan->context, HEAP_LIMIT_KIB);
    pcre2_general_context_free(general);
}

void um_scan_free(um_match_state *scan) {
    pcre2_match_data_free(scan->data);
    pcre2_match_context_free(scan->context);
    if (scan->stack) pcre2_jit_stack_free(scan->stack);
    memset(scan, 0, sizeof *scan);
}

/* Runs PCRE2. JIT code starts with a small area on the machine stack; the large JIT stack is allocated when needed. */
static int match(const um_pattern *p, um_match_state *scan, um_str s, size_t from) {
    PCRE2_SPTR text = (PCRE2_SPTR)s.p;
    int rc = pcre2_match(p->code, text, s.n, from, PCRE2_NO_UTF_CHECK, scan->data, scan->context);
    if (rc != PCRE2_ERROR_JIT_STACKLIMIT || scan->stack) return rc;
    scan->stack = pcre2_jit_stack_create(64 << 10, STACK_MAX, NULL);
    pcre2_jit_stack_assign(scan->context, NULL, scan->stack);
    return pcre2_match(p->code, text, s.n, from, PCRE2_NO_UTF_CHECK, scan->data, scan->context);
}

static um_status next_regex(const um_pattern *p, um_match_state *scan, um_str s, size_t from, size_t *start,
                            size_t *end, bool *found, um_err *err) {
    if (!scan->data) scan_init(scan);
    while (from <= s.n) {
        int rc = match(p, scan, s, from);
        if (rc == PCRE2_ERROR_NOMATCH) return UM_OK;
        if (rc < 0) {
            PCRE2_UCHAR text[128];
            pcre2_get_error_message(rc, text, sizeof text);
            return um_fail(err, UM_ELIMIT, "the tokenizer's expression gave up on %zu bytes of text: %s", s.n,
                           (char *)text);
        }
        const PCRE2_SIZE *v = pcre2_get_ovector_pointer(scan->data);
        if (v[1] > v[0]) {
            *start = v[0];
            *end = v[1];
            *found = true;
            return UM_OK;
        }
        int len = 1; /* empty match: continue after the next character */
        from = v[0] > from ? v[0] : from;
        if (from < s.n) um_cp_at(s.p + from, s.n - from, &len);
        from += (size_t)len;
    }
    return UM_OK;
}

um_status um_pattern_next(const um_pattern *p, um_match_state *scan, um_str s, size_t from, size_t *start, size_t *end,
                          bool *found, um_err *err) {
    *found = false;
    if (p->code) return next_regex(p, scan, s, from, start, end, found, err);
    if (from >= s.n || (p->literal.n == 0 && !p->known)) return UM_OK;
    if (p->known) {
        *start = from;
        *end = um_known_end(p->known, s, from);
        *found = true;
        return UM_OK;
    }
    const char *hit = (const char *)memmem(s.p + from, s.n - from, p->literal.p, p->literal.n);
    if (!hit) return UM_OK;
    *start = (size_t)(hit - s.p);
    *end = *start + p->literal.n;
    *found = true;
    return UM_OK;
}

um_status um_pattern_replace(const um_pattern *p, um_match_state *scan, um_str s, um_str by, um_buf *out, um_err *err) {
    size_t done = 0, start, end;
    for (;;) {
        bool found;
        um_status st = um_pattern_next(p, scan, s, done, &start, &end, &found, err);
        if (st) return st;
        if (!found) break;
        um_buf_append(out, s.p + done, start - done);
        um_buf_append(out, by.p, by.n);
        done = end;
    }
    um_buf_append(out, s.p + done, s.n - done);
    return UM_OK;
}
