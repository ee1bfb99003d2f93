/* JSON schemas: integers and numbers, with bounds and multipleOf, as automata over their decimal digits. */
#include <stdlib.h>

#include "grammar/schema.h"

#define DIGITS_MAX      40   /* digits of a bound on each side of the point */
#define FRACTION_DIGITS 15   /* digits in front of and behind the point when a bound is given */
#define MULTIPLES_MAX   1000 /* largest multipleOf */
#define REMAINDERS_MAX  4000 /* states of the automaton of multipleOf */

/* A number of 0 or more as decimal digits. The integer part has no zeros in front, the fraction none at the end. */
typedef struct decimal {
    bool negative;
    char whole[DIGITS_MAX + 2], fraction[DIGITS_MAX + 2];
} decimal;

/* A bound. There is none while `given` is false. */
typedef struct bound {
    bool given, strict; /* strict: the bound itself is left out */
    decimal at;
} bound;

typedef struct range {
    bound min, max;
} range;

/* ---- Decimals ---------------------------------------------------------------------------------------------------- */

static bool is_zero(const decimal *d) { return um_streq(d->whole, "0") && !d->fraction[0]; }

static int compare_natural(const char *a, const char *b) {
    const size_t n = strlen(a), m = strlen(b);
    if (n != m) return n < m ? -1 : 1;
    return strcmp(a, b);
}

static int compare_size(const decimal *a, const decimal *b) {
    const int c = compare_natural(a->whole, b->whole);
    return c ? c : strcmp(a->fraction, b->fraction);
}

static int compare(const decimal *a, const decimal *b) {
    if (a->negative != b->negative) return a->negative ? -1 : 1;
    return a->negative ? -compare_size(a, b) : compare_size(a, b);
}

/* Reads the text of a number in JSON. Returns false when it has too many digits. */
static bool parse_decimal(const char *text, decimal *d) {
    char digits[64];
    int n = 0;
    long point = -1;
    *d = (decimal){.negative = *text == '-'};
    for (text += *text == '-'; *text && *text != 'e' && *text != 'E'; text++) {
        if (*text == '.') point = n;
        else if (n < (int)sizeof digits) digits[n++] = *text;
        else return false;
    }
    if (point < 0) point = n;
    if (*text) point += strtol(text + 1, NULL, 10);
    if (point > DIGITS_MAX || point < -DIGITS_MAX || n - point > DIGITS_MAX) return false;
    int w = 0, f = 0;
    for (long i = 0; i < point; i++) {
        const char digit = i < n ? digits[i] : '0';
        if (w || digit != '0') d->whole[w++] = digit;
    }
    for (long i = point; i < n; i++) d->fraction[f++] = i < 0 ? '0' : digits[i];
    while (f > 0 && d->fraction[f - 1] == '0') d->fraction[--f] = 0;
    if (!w) d->whole[w] = '0';
    d->negative = d->negative && !is_zero(d);
    return true;
}

static um_status read_decimal(um_schema *c, const um_schema_part *p, const char *key, decimal *d) {
    const json_t *v = json_object_get(p->schema, key);
    const um_str big = um_json_big_integer(v);
    char text[UM_NUMBER_MAX + 128];
    if (!json_is_number(v) && !big.p)
        return um_schema_fail(c, p->at, UM_EINVAL, "\"%s\": expected a number, found %s", key, um_json_kind(v));
    if (big.p) snprintf(text, sizeof text, "%.*s", (int)UM_MIN(big.n, (size_t)100), big.p);
    else if (json_is_integer(v)) snprintf(text, sizeof text, "%lld", (long long)json_integer_value(v));
    else um_format_double(json_real_value(v), text);
    if (parse_decimal(text, d)) return UM_OK;
    return um_schema_fail(c, p->at, UM_EUNSUPPORTED, "\"%s\": numbers with more than %d digits on a side of the point",
                          key, DIGITS_MAX);
}

/* ---- Bounds ------------------------------------------------------------------------------------------------------ */

/* Keeps the tighter one of two bounds. sign 1: lower bounds, -1: upper bounds. */
static void tighten(bound *b, const decimal *at, bool strict, int sign) {
    const int c = b->given ? sign * compare(at, &b->at) : 1;
    if (c > 0 || (c == 0 && strict)) *b = (bound){.given = true, .strict = strict, .at = *at};
}

static um_status read_bound(um_schema *c, const um_schema_part *p, const char *key, const char *strict_key, int sign,
                            bound *b) {
    const json_t *v = json_object_get(p->schema, key), *strict = json_object_get(p->schema, strict_key);
    decimal d;
    um_status s = UM_OK;
    if (v) {
        s = read_decimal(c, p, key, &d);
        /* In old drafts exclusiveMinimum was true or false. */
        if (!s) tighten(b, &d, json_is_true(strict), sign);
    }
    if (!s && strict && !json_is_boolean(strict)) {
        s = read_decimal(c, p, strict_key, &d);
        if (!s) tighten(b, &d, true, sign);
    }
    return s;
}

static um_status read_range(um_schema *c, const um_conj *j, range *r) {
    um_status s = UM_OK;
    *r = (range){.min = {.given = false}};
    for (int32_t i = 0; i < j->n && !s; i++) {
        s = read_bound(c, &j->part[i], "minimum", "exclusiveMinimum", 1, &r->min);
        if (!s) s = read_bound(c, &j->part[i], "maximum", "exclusiveMaximum", -1, &r->max);
    }
    if (s || !r->min.given || !r->max.given) return s;
    const int order = compare(&r->min.at, &r->max.at);
    if (order > 0 || (order == 0 && (r->min.strict || r->max.strict)))
        return um_schema_never(c, um_conj_at(j), "the least number is above the greatest");
    return UM_OK;
}

/* ---- Naturals ---------------------------------------------------------------------------------------------------- */

static const um_expr *digit_between(um_rules *r, char first, char last) { return um_expr_between(r, first, last); }
static const um_expr *digits(um_rules *r, int32_t min, int32_t max) {
    return um_expr_repeat(r, digit_between(r, '0', '9'), min, max);
}

/* Digits of the same length as lo and hi, between both. NULL stands for 00... and 99.... */
static const um_expr *same_length(um_rules *r, const char *lo, const char *hi, int32_t n) {
    um_exprs list = {0};
    if (n == 0) return um_expr_nothing(r);
    if (!lo && !hi) return digits(r, n, n);
    const char a = lo ? *lo : '0', b = hi ? *hi : '9';
    const char *lo_rest = lo ? lo + 1 : NULL, *hi_rest = hi ? hi + 1 : NULL;
    if (a == b) return um_expr_join2(r, digit_between(r, a, a), same_length(r, lo_rest, hi_rest, n - 1));
    const char first = (char)(lo ? a + 1 : a), last = (char)(hi ? b - 1 : b);
    if (lo) um_exprs_push(&list, um_expr_join2(r, digit_between(r, a, a), same_length(r, lo_rest, NULL, n - 1)));
    if (first <= last) um_exprs_push(&list, um_expr_join2(r, digit_between(r, first, last), digits(r, n - 1, n - 1)));
    if (hi) um_exprs_push(&list, um_expr_join2(r, digit_between(r, b, b), same_length(r, NULL, hi_rest, n - 1)));
    return um_exprs_either(r, &list);
}

/* Numbers of n digits without a zero in front. */
static const um_expr *of_length(um_rules *r, const char *lo, const char *hi, int32_t n) {
    char least[DIGITS_MAX + 3];
    if (!lo && n > 1) {
        memset(least, '0', (size_t)n);
        least[0] = '1';
        least[n] = 0;
        lo = least;
    }
    return same_length(r, lo, hi, n);
}

/* Natural numbers from lo to hi (NULL: without end). Empty when lo is above hi. */
static const um_expr *naturals(um_rules *r, const char *lo, const char *hi) {
    um_exprs list = {0};
    const int32_t n = (int32_t)strlen(lo), m = hi ? (int32_t)strlen(hi) : -1;
    if (hi && compare_natural(lo, hi) > 0) return um_expr_either(r, NULL, 0);
    if (n == m) return of_length(r, lo, hi, n);
    um_exprs_push(&list, of_length(r, lo, NULL, n));
    if (m < 0 || m - n > 1)
        um_exprs_push(&list, um_expr_join2(r, digit_between(r, '1', '9'), digits(r, n, m < 0 ? -1 : m - 2)));
    if (m > n) um_exprs_push(&list, of_length(r, NULL, hi, m));
    return um_exprs_either(r, &list);
}

static void add_one(char *natural) {
    size_t i = strlen(natural);
    while (i > 0 && natural[i - 1] == '9') natural[--i] = '0';
    if (i > 0) {
        natural[i - 1]++;
    } else {
        memmove(natural + 1, natural, strlen(natural) + 1);
        natural[0] = '1';
    }
}

static void subtract_one(char *natural) {
    size_t i = strlen(natural);
    while (i > 0 && natural[i - 1] == '0') natural[--i] = '9';
    if (i > 0) natural[i - 1]--;
    if (natural[0] == '0' && natural[1]) memmove(natural, natural + 1, strlen(natural));
}

/* ---- Integers ---------------------------------------------------------------------------------------------------- */

/* The sizes of the integers of one sign: from lo to hi. */
typedef struct sizes {
    bool any, endless;
    char lo[DIGITS_MAX + 3], hi[DIGITS_MAX + 3];
} sizes;

/* The least natural that is not below the bound, or the greatest that is not above it. */
static bool round_up(const bound *b, char out[DIGITS_MAX + 3]) {
    snprintf(out, DIGITS_MAX + 3, "%s", b->at.whole);
    if (b->at.fraction[0] || b->strict) add_one(out);
    return true;
}

static bool round_down(const bound *b, char out[DIGITS_MAX + 3]) {
    snprintf(out, DIGITS_MAX + 3, "%s", b->at.whole);
    if (b->at.fraction[0] || !b->strict) return true;
    if (um_streq(out, "0")) return false;
    subtract_one(out);
    return true;
}

/* lower, upper: the bounds of the sizes. A negative lower bound is none, a negative upper one leaves nothing. */
static sizes sizes_between(const bound *lower, bool lower_negative, const bound *upper, bool upper_negative,
                           const char *least) {
    sizes z = {.any = true};
    snprintf(z.lo, sizeof z.lo, "%s", least);
    if (lower->given && !lower_negative) round_up(lower, z.lo);
    if (compare_natural(z.lo, least) < 0) snprintf(z.lo, sizeof z.lo, "%s", least);
    z.endless = !upper->given;
    if (upper->given && (upper_negative || !round_down(upper, z.hi))) z.any = false;
    if (z.any && !z.endless && compare_natural(z.lo, z.hi) > 0) z.any = false;
    return z;
}

static sizes positive_sizes(const range *r, const char *least) {
    return sizes_between(&r->min, r->min.at.negative, &r->max, r->max.at.negative, least);
}

static sizes negative_sizes(const range *r) {
    /* -x is between -max and -min. Zero counts as positive. */
    return sizes_between(&r->max, !r->max.at.negative, &r->min, !r->min.at.negative && !is_zero(&r->min.at), "1");
}

static const um_expr *minus(um_rules *r, const um_expr *e) { return um_expr_join2(r, um_expr_text(r, UM_STR("-")), e); }

static um_status integers(um_schema *c, const um_conj *j, const range *g, const um_expr **out) {
    um_exprs list = {0};
    const sizes p = positive_sizes(g, "0"), n = negative_sizes(g);
    if (!g->min.given && !g->max.given) return *out = um_json_any_integer(c->r), UM_OK;
    if (p.any) um_exprs_push(&list, naturals(c->r, p.lo, p.endless ? NULL : p.hi));
    if (n.any) um_exprs_push(&list, minus(c->r, naturals(c->r, n.lo, n.endless ? NULL : n.hi)));
    const size_t found = list.n;
    *out = um_exprs_either(c->r, &list);
    return found ? UM_OK : um_schema_never(c, um_conj_at(j), "no integer is within the bounds");
}

/* ---- Multiples --------------------------------------------------------------------------------------------------- */

/* The automaton of the multiples of m: its state is the remainder of the digits so far, and how these compare with the
 * beginnings of the bounds. Only numbers of `length` digits are made; 0: of any length, without bounds. */
typedef struct multiples {
    um_rules *r;
    int32_t m, length;
    const char *lo, *hi; /* [length] or NULL */
    int32_t *rule;       /* [(length + 1) * m * 4], -1: not made yet */
} multiples;

/* Returns the rule of the digits behind the first i. at_lo: they are those of lo so far. */
static int32_t multiples_rest(multiples *a, int32_t i, int32_t remainder, bool at_lo, bool at_hi) {
    um_exprs list = {0};
    char name[64];
    int32_t *slot = &a->rule[((int64_t)i * a->m + remainder) * 4 + at_lo * 2 + at_hi];
    if (*slot >= 0) return *slot;
    snprintf(name, sizeof name, "multiple of %d (rule %d)", a->m, a->r->n);
    const int32_t rule = *slot = um_rule_add(a->r, um_str_of(name));
    if (i == a->length && remainder == 0) um_exprs_push(&list, um_expr_nothing(a->r));
    const int first = at_lo ? a->lo[i] - '0' : 0, last = at_hi ? a->hi[i] - '0' : 9;
    for (int d = first; d <= last && (a->length == 0 || i < a->length); d++) {
        const int32_t next = multiples_rest(a, a->length ? i + 1 : 0, (remainder * 10 + d) % a->m, at_lo && d == first,
                                            at_hi && d == last);
        const char digit = (char)('0' + d);
        um_exprs_push(&list, um_expr_join2(a->r, digit_between(a->r, digit, digit), um_expr_call(a->r, next)));
    }
    um_rule_set(a->r, rule, um_exprs_either(a->r, &list));
    return rule;
}

/* Multiples of m with `length` digits from lo to hi, both of that length. */
static const um_expr *multiples_of_length(um_rules *r, int32_t m, const char *lo, const char *hi, int32_t length) {
    multiples a = {.r = r, .m = m, .length = length, .lo = lo, .hi = hi};
    const size_t n = um_mul((size_t)(length + 1) * 4, (size_t)m);
    a.rule = (int32_t *)um_alloc(um_mul(n, sizeof *a.rule));
    memset(a.rule, -1, n * sizeof *a.rule);
    const um_expr *e = um_expr_call(r, multiples_rest(&a, 0, 0, true, true));
    um_free(a.rule);
    return e;
}

/* Multiples of m without bounds: the digits behind the first, from its remainder on. */
static const um_expr *multiples_endless(um_rules *r, int32_t m) {
    multiples a = {.r = r, .m = m};
    um_exprs list = {0};
    a.rule = (int32_t *)um_alloc((size_t)m * 4 * sizeof *a.rule);
    memset(a.rule, -1, (size_t)m * 4 * sizeof *a.rule);
    for (char d = '1'; d <= '9'; d++) {
        const um_expr *rest = um_expr_call(r, multiples_rest(&a, 0, (d - '0') % m, false, false));
        um_exprs_push(&list, um_expr_join2(r, digit_between(r, d, d), rest));
    }
    um_free(a.rule);
    return um_exprs_either(r, &list);
}

/* The multiples of m whose sizes are given. */
static void push_multiples(um_rules *r, int32_t m, const sizes *z, bool negative, um_exprs *list) {
    const int32_t n = (int32_t)strlen(z->lo), last = (int32_t)strlen(z->hi);
    for (int32_t length = n; length <= last; length++) {
        char lo[DIGITS_MAX + 3], hi[DIGITS_MAX + 3];
        snprintf(lo, sizeof lo, "%s", z->lo);
        snprintf(hi, sizeof hi, "%s", z->hi);
        if (length > n) {
            memset(lo, '0', (size_t)length);
            lo[0] = '1', lo[length] = 0;
        }
        if (length < last) {
            memset(hi, '9', (size_t)length);
            hi[length] = 0;
        }
        const um_expr *e = multiples_of_length(r, m, lo, hi, length);
        um_exprs_push(list, negative ? minus(r, e) : e);
    }
}

static um_status integer_multiples(um_schema *c, const um_conj *j, const range *g, int32_t m, const um_expr **out) {
    um_exprs list = {0};
    const sizes p = positive_sizes(g, "0"), n = negative_sizes(g);
    if (!g->min.given && !g->max.given) {
        const um_expr *e = multiples_endless(c->r, m);
        const um_expr *sign = um_expr_repeat(c->r, um_expr_text(c->r, UM_STR("-")), 0, 1);
        *out = um_expr_either2(c->r, um_expr_text(c->r, UM_STR("0")), um_expr_join2(c->r, sign, e));
        return UM_OK;
    }
    sizes both[2] = {p, n};
    for (int k = 0; k < 2; k++) {
        /* Without an end on one side, numbers of up to 15 digits are made. */
        if (both[k].any && both[k].endless) snprintf(both[k].hi, sizeof both[k].hi, "999999999999999");
        if (!both[k].any || compare_natural(both[k].lo, both[k].hi) > 0) continue;
        const size_t n_digits = strlen(both[k].hi);
        if (n_digits * n_digits * (size_t)m > 2 * REMAINDERS_MAX * 10)
            return um_schema_fail(c, um_conj_at(j), UM_EUNSUPPORTED,
                                  "\"multipleOf\" %d with bounds of %zu digits; use smaller bounds or an enum", m,
                                  n_digits);
        push_multiples(c->r, m, &both[k], k == 1, &list);
    }
    const size_t found = list.n;
    *out = um_exprs_either(c->r, &list);
    return found ? UM_OK : um_schema_never(c, um_conj_at(j), "no multiple of %d is within the bounds", m);
}

/* ---- Fractions --------------------------------------------------------------------------------------------------- */

/* Digits behind a point. `room`: how many may come. may_end: there may be none. */
static const um_expr *any_fraction(um_rules *r, int32_t room, bool may_end) {
    return digits(r, !may_end, UM_MAX(room, 1));
}

/* Fractions that are not below that of f (above it if strict). */
static const um_expr *fraction_from(um_rules *r, const char *f, bool strict, int32_t room, bool may_end) {
    um_exprs list = {0};
    if (room <= 0) return *f || strict || !may_end ? um_expr_either(r, NULL, 0) : um_expr_nothing(r);
    if (!*f && !strict) return any_fraction(r, room, may_end);
    if (!*f) {
        for (int32_t zeros = 0; zeros < room; zeros++) {
            const um_expr *zero = um_expr_repeat(r, digit_between(r, '0', '0'), zeros, zeros);
            const int32_t rest = room - zeros - 1;
            um_exprs_push(&list, um_expr_join3(r, zero, digit_between(r, '1', '9'), digits(r, 0, rest)));
        }
        return um_exprs_either(r, &list);
    }
    um_exprs_push(&list, um_expr_join2(r, digit_between(r, *f, *f), fraction_from(r, f + 1, strict, room - 1, true)));
    if (*f < '9') um_exprs_push(&list, um_expr_join2(r, digit_between(r, (char)(*f + 1), '9'), digits(r, 0, room - 1)));
    return um_exprs_either(r, &list);
}

/* Fractions that are not above that of f (below it if strict). */
static const um_expr *fraction_to(um_rules *r, const char *f, bool strict, int32_t room, bool may_end) {
    um_exprs list = {0};
    if (!*f && strict) return um_expr_either(r, NULL, 0);
    if (!*f) return um_expr_repeat(r, digit_between(r, '0', '0'), !may_end, UM_MAX(room, !may_end));
    if (may_end) um_exprs_push(&list, um_expr_nothing(r));
    if (*f > '0' && room > 0)
        um_exprs_push(&list, um_expr_join2(r, digit_between(r, '0', (char)(*f - 1)), digits(r, 0, room - 1)));
    if (room > 0)
        um_exprs_push(&list, um_expr_join2(r, digit_between(r, *f, *f), fraction_to(r, f + 1, strict, room - 1, true)));
    return um_exprs_either(r, &list);
}

/* Fractions between those of both bounds. */
static const um_expr *fraction_between(um_rules *r, const char *a, bool a_strict, const char *b, bool b_strict,
                                       int32_t room, bool may_end) {
    um_exprs list = {0};
    if (!*b && (a_strict || b_strict)) return um_expr_either(r, NULL, 0);
    if (!*b) return fraction_to(r, b, false, room, may_end);
    const char lo = *a ? *a : '0', hi = *b;
    const char *a_rest = *a ? a + 1 : a;
    if (may_end && !*a && !a_strict) um_exprs_push(&list, um_expr_nothing(r));
    if (room > 0 && lo == hi) {
        const um_expr *rest = fraction_between(r, a_rest, a_strict, b + 1, b_strict, room - 1, true);
        um_exprs_push(&list, um_expr_join2(r, digit_between(r, lo, lo), rest));
    } else if (room > 0) {
        const um_expr *from = fraction_from(r, a_rest, a_strict, room - 1, true);
        const um_expr *to = fraction_to(r, b + 1, b_strict, room - 1, true);
        um_exprs_push(&list, um_expr_join2(r, digit_between(r, lo, lo), from));
        if (hi - lo > 1)
            um_exprs_push(&list,
                          um_expr_join2(r, digit_between(r, (char)(lo + 1), (char)(hi - 1)), digits(r, 0, room - 1)));
        um_exprs_push(&list, um_expr_join2(r, digit_between(r, hi, hi), to));
    }
    return um_exprs_either(r, &list);
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

static const um_expr *point(um_rules *r, const um_expr *fraction) {
    return um_expr_join2(r, um_expr_text(r, UM_STR(".")), fraction);
}

/* whole, alone if `alone` is set, or with a fraction. */
static void push_with_fraction(um_rules *r, um_exprs *list, const um_expr *whole, bool alone, const um_expr *fraction) {
    if (alone) um_exprs_push(list, whole);
    um_exprs_push(list, um_expr_join2(r, whole, point(r, fraction)));
}

/* Sizes of numbers with a fraction, between the sizes of two bounds. lower NULL: from 0 on; upper NULL: without end. */
static void push_sizes(um_rules *r, um_exprs *list, const bound *lower, const bound *upper) {
    const bound zero = {.given = true, .at = {.whole = "0"}};
    const bound *lo = lower ? lower : &zero;
    char from[DIGITS_MAX + 3], to[DIGITS_MAX + 3];
    const char *lo_fraction = lo->at.fraction, *hi_fraction = upper ? upper->at.fraction : "";
    const size_t n_digits = UM_MAX(strlen(lo->at.whole), upper ? strlen(upper->at.whole) : 1);
    const size_t wanted = UM_MAX(strlen(lo_fraction), strlen(hi_fraction));
    const int32_t room = (int32_t)UM_MAX(wanted, n_digits < FRACTION_DIGITS ? FRACTION_DIGITS - n_digits : 1);
    if (n_digits > FRACTION_DIGITS && wanted == 0) {
        /* With a fraction, other programs would round such a number, perhaps across the bound. */
        const bool any = round_up(lo, from) && (!upper || round_down(upper, to));
        if (any) um_exprs_push(list, naturals(r, from, upper ? to : NULL));
        return;
    }
    const um_expr *lo_whole = um_expr_text(r, um_str_of(lo->at.whole));
    if (upper && um_streq(lo->at.whole, upper->at.whole)) {
        const bool alone = !*lo_fraction && !lo->strict && (*hi_fraction || !upper->strict);
        push_with_fraction(r, list, lo_whole, alone,
                           fraction_between(r, lo_fraction, lo->strict, hi_fraction, upper->strict, room, false));
        return;
    }
    push_with_fraction(r, list, lo_whole, !*lo_fraction && !lo->strict,
                       fraction_from(r, lo_fraction, lo->strict, room, false));
    snprintf(from, sizeof from, "%s", lo->at.whole);
    add_one(from);
    if (upper) {
        snprintf(to, sizeof to, "%s", upper->at.whole);
        subtract_one(to);
        push_with_fraction(r, list, um_expr_text(r, um_str_of(upper->at.whole)), *hi_fraction || !upper->strict,
                           fraction_to(r, hi_fraction, upper->strict, room, false));
    }
    if (upper && compare_natural(from, to) > 0) return;
    push_with_fraction(r, list, naturals(r, from, upper ? to : NULL), true, any_fraction(r, room, false));
}

/* Numbers without an exponent within the bounds. */
static const um_expr *numbers(um_rules *r, const range *g) {
    const bound above_zero = {.given = true, .strict = true, .at = {.whole = "0"}};
    const bound *min = g->min.given ? &g->min : NULL, *max = g->max.given ? &g->max : NULL;
    um_exprs list = {0}, negative = {0};
    if (!max || !max->at.negative) {
        const bool zero_is_below = max && is_zero(&max->at) && max->strict;
        if (!zero_is_below) push_sizes(r, &list, min && !min->at.negative ? min : NULL, max);
    }
    if (!min || min->at.negative) {
        push_sizes(r, &negative, max && max->at.negative ? max : &above_zero, min);
        um_exprs_push(&list, minus(r, um_exprs_either(r, &negative)));
    }
    return um_exprs_either(r, &list);
}

/* ---- The keyword multipleOf -------------------------------------------------------------------------------------- */

/* multipleOf as an integer m, or as a power of ten below 1: `places` digits behind the point. */
typedef struct multiple {
    int32_t m, places;
} multiple;

static int64_t common_multiple(int64_t a, int64_t b) {
    int64_t x = a, y = b;
    while (y) {
        const int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

static um_status read_multiple(um_schema *c, const um_schema_part *p, bool is_integer, multiple *out) {
    decimal d;
    um_status s = json_object_get(p->schema, "multipleOf") ? read_decimal(c, p, "multipleOf", &d) : UM_OK;
    if (s || !json_object_get(p->schema, "multipleOf")) return s;
    if (d.negative || is_zero(&d))
        return um_schema_fail(c, p->at, UM_EINVAL, "\"multipleOf\": expected a number above 0");
    const size_t places = strlen(d.fraction);
    const bool is_power =
        um_streq(d.whole, "0") && places && strspn(d.fraction, "0") == places - 1 && d.fraction[places - 1] == '1';
    if (is_power) {
        if (!is_integer) out->places = out->places < 0 ? (int32_t)places : UM_MIN(out->places, (int32_t)places);
        return UM_OK;
    }
    int64_t m = 0;
    if (!places && strlen(d.whole) <= 4) um_parse_int(d.whole, &m);
    if (m > 0 && m <= MULTIPLES_MAX) m = common_multiple(out->m, m);
    if (m > 0 && m <= MULTIPLES_MAX) return out->m = (int32_t)m, UM_OK;
    return um_schema_fail(c, p->at, UM_EUNSUPPORTED,
                          "\"multipleOf\" is supported for integers up to %d and for 0.1, 0.01, 0.001 and so on",
                          MULTIPLES_MAX);
}

/* Numbers with up to `places` digits behind the point. */
static um_status decimals(um_schema *c, const um_conj *j, const range *g, int32_t places, const um_expr **out) {
    um_status s = integers(c, j, g, out);
    if (g->min.at.fraction[0] || g->max.at.fraction[0] || (g->min.given && (g->min.at.negative || g->min.strict)) ||
        (g->max.given && g->max.strict))
        return s; /* integers are multiples, too */
    if (s) return s;
    const um_expr *fraction = point(c->r, digits(c->r, 1, places));
    const sizes z = positive_sizes(g, "0");
    char hi[DIGITS_MAX + 3];
    if (!z.any) return s;
    snprintf(hi, sizeof hi, "%s", z.hi);
    if (!z.endless && um_streq(hi, "0")) return s;
    if (!z.endless) subtract_one(hi);
    if (!z.endless && compare_natural(z.lo, hi) > 0) return s;
    const um_expr *more = um_expr_join2(c->r, naturals(c->r, z.lo, z.endless ? NULL : hi), fraction);
    *out = um_expr_either2(c->r, *out, more);
    return s;
}

um_status um_schema_number(um_schema *c, const um_conj *j, bool is_integer, const um_expr **out) {
    range g;
    multiple mult = {.m = 1, .places = -1};
    um_status s = read_range(c, j, &g);
    for (int32_t i = 0; i < j->n && !s; i++) s = read_multiple(c, &j->part[i], is_integer, &mult);
    if (s) return s;
    if (mult.m > 1) return integer_multiples(c, j, &g, mult.m, out);
    if (is_integer || um_conj_has(j, "multipleOf")) {
        if (!is_integer && mult.places > 0) return decimals(c, j, &g, mult.places, out);
        return integers(c, j, &g, out);
    }
    if (!g.min.given && !g.max.given) return *out = um_json_any_number(c->r), UM_OK;
    *out = numbers(c->r, &g);
    return UM_OK;
}
