/* Methods of strings, lists, dicts, loops and cyclers. A method hides a dict key of the same name, as in Jinja, so the
 * methods that change their object exist too. Calling one fails, as in Jinja's sandbox. */
#include "text/template.h"
#include "text/tok.h"

#define METHOD(name) static um_val name(um_render *r, um_val self, const um_val *a, const um_arg_values *args)
#define UNUSED       (void)r, (void)self, (void)a, (void)args
#define GIVEN(v)     ((v).kind != UM_V_MISSING && (v).kind != UM_V_NONE)

static int64_t int_or(um_render *r, um_val v, int64_t def) { return GIVEN(v) ? um_as_int(r, v, "the argument") : def; }
static um_str arg_str(um_render *r, um_val v) {
    if (v.kind == UM_V_MISSING) um_render_fail(r, "a string is expected as argument");
    return um_as_str(r, v, "the argument");
}

/* ---- Strings ----------------------------------------------------------------------------------------------------- */

static um_val strip(um_render *r, um_val self, um_val chars, bool left, bool right) {
    um_str set = GIVEN(chars) ? arg_str(r, chars) : UM_STR("");
    um_render_scan(r, self.s.n * set.n);
    return um_val_str(um_strip(self.s, GIVEN(chars) ? &set : NULL, left, right));
}

METHOD(s_strip) {
    UNUSED;
    return strip(r, self, a[0], true, true);
}
METHOD(s_lstrip) {
    UNUSED;
    return strip(r, self, a[0], true, false);
}
METHOD(s_rstrip) {
    UNUSED;
    return strip(r, self, a[0], false, true);
}

static um_val split(um_render *r, um_val self, const um_val *a, bool from_right) {
    um_str sep = GIVEN(a[0]) ? arg_str(r, a[0]) : UM_STR("");
    return um_str_split(r, self.s, GIVEN(a[0]) ? &sep : NULL, int_or(r, a[1], -1), from_right);
}

METHOD(s_split) {
    UNUSED;
    return split(r, self, a, false);
}
METHOD(s_rsplit) {
    UNUSED;
    return split(r, self, a, true);
}
METHOD(s_splitlines) {
    UNUSED;
    return um_str_splitlines(r, self.s);
}

static bool has_end(um_str s, um_str with, bool front) {
    return s.n >= with.n && (with.n == 0 || memcmp(front ? s.p : s.p + s.n - with.n, with.p, with.n) == 0);
}

static um_val has_any_end(um_render *r, um_val self, um_val with, bool front) {
    if (with.kind != UM_V_TUPLE) return um_val_bool(has_end(self.s, arg_str(r, with), front));
    for (size_t i = 0; i < with.list->n; i++)
        if (has_end(self.s, arg_str(r, with.list->v[i]), front)) return um_val_bool(true);
    return um_val_bool(false);
}

METHOD(s_startswith) {
    UNUSED;
    return has_any_end(r, self, a[0], true);
}
METHOD(s_endswith) {
    UNUSED;
    return has_any_end(r, self, a[0], false);
}

METHOD(s_removeprefix) {
    UNUSED;
    um_str p = arg_str(r, a[0]);
    return has_end(self.s, p, true) ? um_val_str((um_str){self.s.p + p.n, self.s.n - p.n}) : self;
}

METHOD(s_removesuffix) {
    UNUSED;
    um_str p = arg_str(r, a[0]);
    return has_end(self.s, p, false) ? um_val_str((um_str){self.s.p, self.s.n - p.n}) : self;
}

METHOD(s_replace) {
    UNUSED;
    return um_val_str(um_str_replace(r, self.s, arg_str(r, a[0]), arg_str(r, a[1]), int_or(r, a[2], -1)));
}

METHOD(s_upper) {
    UNUSED;
    return um_val_str(um_str_case(r, self.s, 'u'));
}
METHOD(s_lower) {
    UNUSED;
    return um_val_str(um_str_case(r, self.s, 'l'));
}
METHOD(s_title) {
    UNUSED;
    return um_val_str(um_str_case(r, self.s, 't'));
}
METHOD(s_capitalize) {
    UNUSED;
    return um_val_str(um_str_case(r, self.s, 'c'));
}

/* Returns the code point index of the first or last occurrence, or -1 if there is none. */
static int64_t find(um_str s, um_str x, bool last) {
    if (x.n > s.n) return -1;
    size_t n = s.n - x.n + 1;
    for (size_t i = 0; i < n; i++) {
        size_t at = last ? n - 1 - i : i;
        if (x.n == 0 || memcmp(s.p + at, x.p, x.n) == 0) return (int64_t)um_cp_count((um_str){s.p, at});
    }
    return -1;
}

METHOD(s_find) {
    UNUSED;
    return um_val_int(find(self.s, arg_str(r, a[0]), false));
}
METHOD(s_rfind) {
    UNUSED;
    return um_val_int(find(self.s, arg_str(r, a[0]), true));
}

METHOD(s_index) {
    UNUSED;
    int64_t at = find(self.s, arg_str(r, a[0]), false);
    if (at < 0) um_render_fail(r, "index: the text is not there");
    return um_val_int(at);
}

METHOD(s_count) {
    UNUSED;
    um_str x = arg_str(r, a[0]), s = self.s;
    int64_t n = 0;
    if (x.n == 0) return um_val_int((int64_t)um_cp_count(s) + 1);
    for (const char *hit; s.n && (hit = (const char *)memmem(s.p, s.n, x.p, x.n)); n++) {
        size_t at = (size_t)(hit - s.p) + x.n;
        s = (um_str){s.p + at, s.n - at};
    }
    return um_val_int(n);
}

METHOD(s_join) {
    UNUSED;
    if (a[0].kind == UM_V_MISSING) um_render_fail(r, "join: a list is expected");
    const um_list *l = um_elements(r, a[0]);
    um_sb out = {.r = r};
    for (size_t i = 0; i < l->n; i++) {
        if (i) um_sb_add(&out, self.s);
        um_sb_add(&out, um_as_str(r, l->v[i], "join: an element"));
    }
    return um_val_str(um_sb_str(&out));
}

static um_val three(um_render *r, um_str before, um_str sep, um_str after) {
    um_val v = um_val_list(r, UM_V_TUPLE, 3);
    um_list_push(r, v.list, um_val_str(before));
    um_list_push(r, v.list, um_val_str(sep));
    um_list_push(r, v.list, um_val_str(after));
    return v;
}

static um_val partition(um_render *r, um_str s, um_str sep, bool last) {
    if (sep.n == 0) um_render_fail(r, "partition: the separator is empty");
    um_list *p = um_str_split(r, s, &sep, 1, last).list;
    if (p->n == 2) return three(r, p->v[0].s, sep, p->v[1].s);
    return last ? three(r, UM_STR(""), UM_STR(""), s) : three(r, s, UM_STR(""), UM_STR(""));
}

METHOD(s_partition) {
    UNUSED;
    return partition(r, self.s, arg_str(r, a[0]), false);
}
METHOD(s_rpartition) {
    UNUSED;
    return partition(r, self.s, arg_str(r, a[0]), true);
}

/* ---- Predicates on strings --------------------------------------------------------------------------------------- */

static bool is_letter(uint32_t cp) { return um_is_word(cp) && !um_is_number(cp) && cp != '_'; }
static bool is_alnum(uint32_t cp) { return is_letter(cp) || um_is_number(cp); }

static um_val all_are(um_str s, bool (*is)(uint32_t)) {
    int len;
    for (size_t i = 0; i < s.n; i += (size_t)len)
        if (!is(um_cp_at(s.p + i, s.n - i, &len))) return um_val_bool(false);
    return um_val_bool(s.n > 0);
}

METHOD(s_isdigit) {
    UNUSED;
    return all_are(self.s, um_is_number);
}
METHOD(s_isalpha) {
    UNUSED;
    return all_are(self.s, is_letter);
}
METHOD(s_isalnum) {
    UNUSED;
    return all_are(self.s, is_alnum);
}
METHOD(s_isspace) {
    UNUSED;
    return all_are(self.s, um_is_blank);
}

static um_val has_case(um_render *r, um_str s, char how) {
    um_str same = um_str_case(r, s, how), other = um_str_case(r, s, how == 'l' ? 'u' : 'l');
    return um_val_bool(um_str_eq(s, same) && !um_str_eq(same, other));
}

METHOD(s_isupper) {
    UNUSED;
    return has_case(r, self.s, 'u');
}
METHOD(s_islower) {
    UNUSED;
    return has_case(r, self.s, 'l');
}

/* ---- Padding and formatting -------------------------------------------------------------------------------------- */

static um_str fill_char(um_render *r, um_val v) {
    um_str f = GIVEN(v) ? arg_str(r, v) : UM_STR(" ");
    if (um_cp_count(f) != 1) um_render_fail(r, "the fill must be one character");
    return f;
}

static um_val pad(um_render *r, um_str s, int64_t width, um_str fill, bool left) {
    um_sb out = {.r = r};
    int64_t n = width - (int64_t)um_cp_count(s);
    if (!left) um_sb_add(&out, s);
    for (int64_t i = 0; i < n; i++) um_sb_add(&out, fill);
    if (left) um_sb_add(&out, s);
    return um_val_str(um_sb_str(&out));
}

METHOD(s_center) {
    UNUSED;
    return um_val_str(um_str_center(r, self.s, int_or(r, a[0], 0), fill_char(r, a[1])));
}
METHOD(s_ljust) {
    UNUSED;
    return pad(r, self.s, int_or(r, a[0], 0), fill_char(r, a[1]), false);
}
METHOD(s_rjust) {
    UNUSED;
    return pad(r, self.s, int_or(r, a[0], 0), fill_char(r, a[1]), true);
}

METHOD(s_zfill) {
    UNUSED;
    um_sb out = {.r = r};
    um_str s = self.s;
    int64_t n = int_or(r, a[0], 0) - (int64_t)um_cp_count(s);
    if (s.n && (*s.p == '-' || *s.p == '+')) {
        um_sb_putc(&out, *s.p);
        s = (um_str){s.p + 1, s.n - 1};
    }
    for (int64_t i = 0; i < n; i++) um_sb_putc(&out, '0');
    um_sb_add(&out, s);
    return um_val_str(um_sb_str(&out));
}

METHOD(s_expandtabs) {
    UNUSED;
    um_sb out = {.r = r};
    int64_t size = int_or(r, a[0], 8), column = 0;
    for (size_t i = 0; i < self.s.n; i++) {
        char c = self.s.p[i];
        if (c != '\t') {
            um_sb_putc(&out, c);
            column = c == '\n' || c == '\r' ? 0 : column + (((uint8_t)c & 0xC0) != 0x80);
            continue;
        }
        for (int64_t n = size > 0 ? size - column % size : 0; n > 0; n--, column++) um_sb_putc(&out, ' ');
    }
    return um_val_str(um_sb_str(&out));
}

METHOD(s_format) {
    UNUSED;
    return um_val_str(um_str_format(r, self.s, args));
}

/* ---- Lists and dicts --------------------------------------------------------------------------------------------- */

METHOD(refused) {
    UNUSED;
    um_render_fail(r, "a method that changes its object is not allowed; use a namespace and + instead");
}

METHOD(l_index) {
    UNUSED;
    for (size_t i = 0; i < self.list->n; i++)
        if (um_equal(r, self.list->v[i], a[0])) return um_val_int((int64_t)i);
    um_render_fail(r, "index: the value is not in the list");
}

METHOD(l_count) {
    UNUSED;
    int64_t n = 0;
    for (size_t i = 0; i < self.list->n; i++) n += um_equal(r, self.list->v[i], a[0]);
    return um_val_int(n);
}

METHOD(d_get) {
    UNUSED;
    if (a[0].kind == UM_V_MISSING) um_render_fail(r, "get: a key is expected");
    um_val *v = um_dict_get(r, self.dict, a[0]);
    if (v) return *v;
    return a[1].kind == UM_V_MISSING ? um_val_of(UM_V_NONE) : a[1];
}

METHOD(d_keys) {
    UNUSED;
    um_val out = um_val_list(r, UM_V_LIST, self.dict->n);
    for (size_t i = 0; i < self.dict->n; i++) um_list_push(r, out.list, self.dict->key[i]);
    return out;
}

METHOD(d_values) {
    UNUSED;
    um_val out = um_val_list(r, UM_V_LIST, self.dict->n);
    for (size_t i = 0; i < self.dict->n; i++) um_list_push(r, out.list, self.dict->val[i]);
    return out;
}

METHOD(d_items) {
    UNUSED;
    um_val out = um_val_list(r, UM_V_LIST, self.dict->n);
    for (size_t i = 0; i < self.dict->n; i++)
        um_list_push(r, out.list, um_val_pair(r, self.dict->key[i], self.dict->val[i]));
    return out;
}

/* ---- Loops and cyclers ------------------------------------------------------------------------------------------- */

METHOD(loop_cycle) {
    UNUSED;
    if (args->n == 0) um_render_fail(r, "loop.cycle takes at least one value");
    return args->pos[self.loop->at % args->n];
}

METHOD(loop_changed) {
    UNUSED;
    um_val now = um_val_list(r, UM_V_TUPLE, args->n);
    for (size_t i = 0; i < args->n; i++) um_list_push(r, now.list, args->pos[i]);
    bool changed = self.loop->changed.kind == UM_V_MISSING || !um_equal(r, self.loop->changed, now);
    self.loop->changed = now;
    return um_val_bool(changed);
}

METHOD(cycler_next) {
    UNUSED;
    um_val v = self.list->v[self.list->at];
    self.list->at = (self.list->at + 1) % self.list->n;
    return v;
}

METHOD(cycler_reset) {
    UNUSED;
    self.list->at = 0;
    return um_val_of(UM_V_NONE);
}

/* ---- Tables ------------------------------------------------------------------------------------------------------ */

static const um_method str_methods[] = {
    {"strip", "chars", s_strip},
    {"lstrip", "chars", s_lstrip},
    {"rstrip", "chars", s_rstrip},
    {"split", "sep maxsplit", s_split},
    {"rsplit", "sep maxsplit", s_rsplit},
    {"splitlines", "", s_splitlines},
    {"startswith", "prefix", s_startswith},
    {"endswith", "suffix", s_endswith},
    {"removeprefix", "prefix", s_removeprefix},
    {"removesuffix", "suffix", s_removesuffix},
    {"replace", "old new count", s_replace},
    {"upper", "", s_upper},
    {"lower", "", s_lower},
    {"title", "", s_title},
    {"capitalize", "", s_capitalize},
    {"find", "sub", s_find},
    {"rfind", "sub", s_rfind},
    {"index", "sub", s_index},
    {"count", "sub", s_count},
    {"join", "iterable", s_join},
    {"partition", "sep", s_partition},
    {"rpartition", "sep", s_rpartition},
    {"isdigit", "", s_isdigit},
    {"isalpha", "", s_isalpha},
    {"isalnum", "", s_isalnum},
    {"isspace", "", s_isspace},
    {"isupper", "", s_isupper},
    {"islower", "", s_islower},
    {"center", "width fillchar", s_center},
    {"ljust", "width fillchar", s_ljust},
    {"rjust", "width fillchar", s_rjust},
    {"zfill", "width", s_zfill},
    {"expandtabs", "tabsize", s_expandtabs},
    {"format", NULL, s_format},
};

static const um_method list_methods[] = {
    {"index", "value", l_index}, {"count", "value", l_count}, {"append", NULL, refused}, {"extend", NULL, refused},
    {"insert", NULL, refused},   {"pop", NULL, refused},      {"remove", NULL, refused}, {"clear", NULL, refused},
    {"reverse", NULL, refused},  {"sort", NULL, refused},     {"copy", NULL, refused},
};

static const um_method dict_methods[] = {
    {"get", "key default", d_get}, {"keys", "", d_keys},       {"values", "", d_values},    {"items", "", d_items},
    {"pop", NULL, refused},        {"update", NULL, refused},  {"copy", NULL, refused},     {"clear", NULL, refused},
    {"setdefault", NULL, refused}, {"popitem", NULL, refused}, {"fromkeys", NULL, refused},
};

static const um_method loop_methods[] = {{"cycle", NULL, loop_cycle}, {"changed", NULL, loop_changed}};
static const um_method cycler_methods[] = {{"next", "", cycler_next}, {"reset", "", cycler_reset}};

static const um_method *search(const um_method *m, size_t n, um_str name) {
    for (size_t i = 0; i < n; i++)
        if (um_str_eq(name, um_str_of(m[i].name))) return &m[i];
    return NULL;
}

const um_method *um_method_find(um_kind kind, um_str name) {
    switch (kind) {
    case UM_V_STR: return search(str_methods, UM_LEN(str_methods), name);
    case UM_V_LIST: return search(list_methods, UM_LEN(list_methods), name);
    case UM_V_TUPLE: return search(list_methods, 2, name);
    case UM_V_DICT: return search(dict_methods, UM_LEN(dict_methods), name);
    case UM_V_LOOP: return search(loop_methods, UM_LEN(loop_methods), name);
    case UM_V_CYCLER: return search(cycler_methods, UM_LEN(cycler_methods), name);
    default: return NULL;
    }
}

um_val um_method_call(um_render *r, const um_bound *b, const um_arg_values *args) {
    um_val a[UM_PARAMS_MAX];
    um_render_work(r, b->self);
    if (b->method->params) um_args_bind(r, b->method->name, args, b->method->params, a);
    return b->method->fn(r, b->self, a, args);
}
