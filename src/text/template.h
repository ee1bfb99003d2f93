/* The internal interfaces of the chat template engine: a subset of Jinja2 as Hugging Face runs it.
 *
 *   tmpl_lex.c                  source -> tokens, and the rules of white space
 *   tmpl_parse.c, tmpl_expr.c   tokens -> tree, in the arena of the template
 *   tmpl_run.c, tmpl_eval.c     run statements and evaluate expressions
 *   tmpl_scan.c                 finds out whether a template iterates over the parts of a content
 *   tmpl_value.c                values: truth, equality, order, text
 *   tmpl_dict.c, tmpl_json.c    dictionaries; conversion from and to JSON
 *   tmpl_filter.c, tmpl_filter_list.c, tmpl_test.c, tmpl_method.c, tmpl_global.c   built-in filters, tests, methods and
 *                               functions
 *   tmpl_str.c                  Python's str operations, shared by filters and methods
 *
 * A request may bring its own template, so every resource has a limit. Errors leave compiling and rendering by longjmp,
 * as in Lua. Nothing leaks, because all memory belongs to one arena or to a buffer of the run. The many small
 * operations need no status checks. */
#ifndef UM_TEMPLATE_H
#define UM_TEMPLATE_H

#include <jansson.h>
#include <setjmp.h>

#include "text/text.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UM_NORETURN __attribute__((noreturn)) /* the keyword differs between C and C++ */

#define UM_TMPL_SOURCE_MAX ((size_t)256 << 10)
#define UM_TMPL_NEST_MAX   100 /* nesting depth of statements and brackets */
#define UM_TMPL_TREE_MAX   500 /* depth of the tree, which long chains of operators increase too */
#define UM_TMPL_MACRO_MAX  100
#define UM_TMPL_DEPTH_MAX  2500 /* depth of nested evaluations: bounds the C stack */
#define UM_TMPL_STEPS_MAX  10000000
#define UM_TMPL_ARENA_MAX  ((size_t)64 << 20)
#define UM_TMPL_OUTPUT_MAX ((size_t)16 << 20)
#define UM_TMPL_RANGE_MAX  100000
#define UM_TMPL_VALUE_MAX  200 /* nesting depth of a value that is converted, printed or compared */

/* ---- Values ------------------------------------------------------------------------------------------------------ */

typedef enum um_kind {
    UM_V_MISSING, /* an argument that was not given; never seen by templates */
    UM_V_UNDEF,   /* s: its name */
    UM_V_NONE,
    UM_V_BOOL,
    UM_V_INT,
    UM_V_FLOAT,
    UM_V_STR,
    UM_V_LIST,
    UM_V_TUPLE,
    UM_V_DICT,
    UM_V_RANGE,
    UM_V_NAMESPACE, /* dict */
    UM_V_MACRO,
    UM_V_GLOBAL, /* i: index of a built-in function */
    UM_V_METHOD,
    UM_V_LOOP,
    UM_V_CYCLER,
    UM_V_JOINER,
    UM_V_BIGINT /* s: the digits of an integer beyond 64 bits; can be printed but not used in arithmetic */
} um_kind;

typedef struct um_val {
    um_kind kind;
    union {
        bool b;
        int64_t i;
        double f;
        um_str s;
        struct um_list *list; /* LIST, TUPLE, CYCLER */
        struct um_dict *dict; /* DICT, NAMESPACE */
        struct um_int_range *range;
        struct um_macro *macro;
        struct um_bound *bound;
        struct um_loop *loop;
        struct um_joiner *joiner;
    };
} um_val;

typedef struct um_list {
    um_val *v;
    size_t n, cap;
    size_t at; /* CYCLER: next element */
} um_list;

typedef struct um_dict {
    um_val *key, *val; /* [n] in order of insertion */
    size_t n, cap;
    uint32_t *slot; /* [slots] 1 + index, 0 = unused; NULL while the dict is small */
    size_t slots;
} um_dict;

typedef struct um_int_range {
    int64_t start, step, n;
} um_int_range;

typedef struct um_macro {
    const struct um_node *node;
    struct um_scope *frame; /* the enclosing scope: that of the `call` block; NULL: the top level */
} um_macro;

/* A method bound to its object. */
typedef struct um_bound {
    um_val self;
    const struct um_method *method;
} um_bound;

typedef struct um_loop {
    um_list *items; /* NULL: the loop runs over range */
    const um_int_range *range;
    size_t n, at;
    int depth;
    const struct um_node *node; /* the statement of a recursive loop, else NULL */
    um_val changed;             /* the arguments of the last loop.changed(), or MISSING */
} um_loop;

typedef struct um_joiner {
    um_str sep;
    bool used;
} um_joiner;

/* ---- Trees ------------------------------------------------------------------------------------------------------- */

typedef enum um_node_kind {
    /* statements */
    UM_N_TEXT,     /* s */
    UM_N_PRINT,    /* a */
    UM_N_SET,      /* list: targets (one or several), a: value; op 1: several */
    UM_N_SETBLOCK, /* list[0]: target, a: filters around UM_E_CAPTURED or NULL, body */
    UM_N_FOR,      /* list: targets; op 1: unpack; a: iterable, b: filter or NULL, body, other; flag: recursive */
    UM_N_IF,       /* a, body, other */
    UM_N_MACRO,    /* sym; list: parameters (UM_E_NAME, a: default or NULL), body; flag: varargs or kwargs used */
    UM_N_CALL,     /* a: UM_E_CALL; list and body as a macro's */
    UM_N_SCOPE,    /* body: generation */
    UM_N_WITH,     /* list: UM_N_SET nodes, body */
    UM_N_FILTER,   /* a: filters around UM_E_CAPTURED, body */
    UM_N_BREAK,
    UM_N_CONTINUE,
    /* expressions */
    UM_E_CONST,    /* val */
    UM_E_NAME,     /* sym */
    UM_E_CAPTURED, /* the rendered body of the enclosing set or filter block */
    UM_E_LIST,
    UM_E_TUPLE,
    UM_E_DICT,   /* list: key, value, key, value … */
    UM_E_ATTR,   /* a, s */
    UM_E_ITEM,   /* a, b */
    UM_E_SLICE,  /* a, list[3]: start, stop, step or NULL */
    UM_E_CALL,   /* a, args */
    UM_E_FILTER, /* a, op: index, args */
    UM_E_TEST,   /* a, op: index, args */
    UM_E_NEG,
    UM_E_POS,
    UM_E_NOT,
    UM_E_BINARY,  /* op: UM_OP_*, a, b */
    UM_E_COMPARE, /* a, then list[i] by ops[i] */
    UM_E_AND,
    UM_E_OR,
    UM_E_COND /* a if b else c (NULL: undefined) */
} um_node_kind;

typedef enum um_op {
    UM_OP_ADD,
    UM_OP_SUB,
    UM_OP_MUL,
    UM_OP_DIV,
    UM_OP_FLOOR,
    UM_OP_MOD,
    UM_OP_POW,
    UM_OP_JOIN,
    UM_OP_EQ,
    UM_OP_NE,
    UM_OP_LT,
    UM_OP_LE,
    UM_OP_GT,
    UM_OP_GE,
    UM_OP_IN,
    UM_OP_NOT_IN
} um_op;

typedef struct um_block_list {
    struct um_node **v;
    size_t n, cap;
} um_block_list;

typedef struct um_call_args {
    um_block_list pos, kw;
    um_str *kw_name;                 /* [kw.n] */
    struct um_node *star, *starstar; /* *args, **kwargs, or NULL */
} um_call_args;

typedef struct um_node {
    um_node_kind kind;
    int line, depth, op, sym;
    bool flag;
    um_str s;
    um_val val;
    struct um_node *a, *b, *c;
    um_block_list list, body, other;
    int *ops;
    um_call_args *args;
} um_node;

/* The names in a template. A symbol is a name's index. */
typedef struct um_symbols {
    um_str *name;
    uint32_t *slot; /* 1 + symbol, 0 = unused */
    size_t n, cap, slots;
} um_symbols;

struct um_template {
    um_arena arena;
    um_symbols symbols;
    um_block_list body;
    int sym_loop, sym_caller, sym_varargs, sym_kwargs;
};

/* ---- Tokens (tmpl_lex.c) ----------------------------------------------------------------------------------------- */

typedef enum um_token_kind {
    UM_T_DATA,
    UM_T_PRINT_BEGIN,
    UM_T_PRINT_END,
    UM_T_BLOCK_BEGIN,
    UM_T_BLOCK_END,
    UM_T_NAME,
    UM_T_INT,
    UM_T_FLOAT,
    UM_T_STR,
    UM_T_OP,
    UM_T_END
} um_token_kind;

typedef struct um_token {
    um_token_kind kind;
    int line, column;
    um_str s;
    int64_t i;
    double f;
} um_token;

typedef struct um_compile {
    um_template *t;
    um_err *err;
    jmp_buf jump;
    um_str source; /* with \n line ends */
    um_token *token;
    size_t n, cap, at;
    int nest, loops;
    int line; /* line of the last token that was read or parsed */
} um_compile;

void um_lex(um_compile *c);
UM_NORETURN void um_compile_fail(um_compile *c, int line, int column, const char *fmt, ...) UM_PRINTF(4, 5);
void *um_compile_alloc(um_compile *c, size_t n); /* zeroed, in the template's arena */

/* ---- Parser (tmpl_parse.c, tmpl_expr.c) -------------------------------------------------------------------------- */

void um_parse_template(um_compile *c);
um_node *um_node_new(um_compile *c, um_node_kind kind);
void um_node_add(um_compile *c, um_block_list *list, um_node *node);
/* Computes the depth of a node from its children. Call it when all of them are set. Returns n. */
um_node *um_node_done(um_compile *c, um_node *n);
int um_symbol(um_compile *c, um_str name);
/* Parses one expression. */
um_node *um_parse_expr(um_compile *c);
/* Parses expressions separated by commas. Several become a tuple. `conditional` allows `a if b else c`. */
um_node *um_parse_exprs(um_compile *c, bool conditional);
/* Parses the filters, tests and calls after an operand. `inline_start`: the first filter comes without its `|`. */
um_node *um_parse_filters(um_compile *c, um_node *inner, bool inline_start);
/* Parses a unary expression with filters, for `call`. */
um_node *um_parse_postfix_expr(um_compile *c);
um_token *um_peek(um_compile *c);
um_token *um_take(um_compile *c);
bool um_is_op(const um_token *t, const char *op);
bool um_is_name(const um_token *t, const char *name);
bool um_accept_op(um_compile *c, const char *op);
bool um_accept_name(um_compile *c, const char *name);
void um_expect_op(um_compile *c, const char *op);
um_str um_expect_name(um_compile *c);
UM_NORETURN void um_unexpected(um_compile *c, const char *wanted);
void um_nest(um_compile *c, int by);

/* ---- Rendering (tmpl_run.c, tmpl_eval.c) ------------------------------------------------------------------------- */

typedef struct um_var {
    int sym;
    um_val v;
} um_var;

typedef struct um_scope {
    struct um_scope *parent; /* NULL: the top level */
    um_var *var;
    int n, cap;
} um_scope;

typedef struct um_render {
    const um_template *t;
    const json_t *vars;
    um_arena arena;
    um_buf *out;
    size_t out_start;
    um_buf scratch;
    um_err *err;
    jmp_buf jump;
    um_scope *frame;
    um_val *global; /* [symbols] top-level variables; MISSING: not looked up yet */
    um_val captured;
    int64_t steps, now; /* now: seconds since 1970 */
    int depth, macros, line;
} um_render;

/* The evaluated arguments of a call. */
typedef struct um_arg_values {
    um_val *pos;
    size_t n;
    um_str *kw_name;
    um_val *kw;
    size_t n_kw;
} um_arg_values;

UM_NORETURN void um_render_fail(um_render *r, const char *fmt, ...) UM_PRINTF(2, 3);
UM_NORETURN void um_render_undefined(um_render *r, um_val v); /* "'name' is undefined" */
void *um_render_alloc(um_render *r, size_t n);                /* zeroed */
um_str um_render_copy(um_render *r, um_str s);
void um_render_step(um_render *r);
/* Count the steps of an operation that reads memory without allocating. um_render_scan counts one step, and one
 * more per 8 bytes. um_render_work counts one step, and one more per 8 bytes of a string or per element of a list,
 * tuple or dict. */
void um_render_scan(um_render *r, size_t bytes);
void um_render_work(um_render *r, um_val v);
um_val um_eval(um_render *r, const um_node *n);
um_val um_call(um_render *r, um_val callee, const um_arg_values *args);
um_val um_call_macro(um_render *r, const um_macro *m, const um_arg_values *args); /* tmpl_run.c */
um_val um_loop_recurse(um_render *r, um_loop *loop, um_val items);                /* tmpl_run.c */
/* Returns element i of a loop. */
um_val um_loop_item(const um_loop *loop, size_t i);
um_val um_binary(um_render *r, int op, um_val a, um_val b);
bool um_compare(um_render *r, int op, um_val a, um_val b);
bool um_contains(um_render *r, um_val in, um_val x);
um_val um_attr(um_render *r, um_val obj, um_str name); /* a.b */
um_val um_item(um_render *r, um_val obj, um_val key);  /* a[b] */
/* Resolves an attribute path such as "a.b.0", as map, sort and other filters take it. An integer is an index. */
um_val um_attr_path(um_render *r, um_val obj, um_val path);
/* Assigns arguments to the parameters named in params ("sep attribute"). A parameter without an argument is MISSING. */
#define UM_PARAMS_MAX 8
void um_args_bind(um_render *r, const char *what, const um_arg_values *args, const char *params,
                  um_val out[UM_PARAMS_MAX]);
/* Renders like um_template_render, but strftime_now uses the time `now` (seconds since 1970). */
um_status um_template_render_at(const um_template *t, const json_t *vars, int64_t now, um_buf *out, um_err *err);

/* ---- Values (tmpl_value.c, tmpl_dict.c, tmpl_json.c) ------------------------------------------------------------- */

um_val um_val_of(um_kind k); /* zeroed content: complete for NONE and MISSING, the caller sets it for other kinds */
um_val um_val_bool(bool b);
um_val um_val_int(int64_t i);
um_val um_val_float(double f);
um_val um_val_str(um_str s);
um_val um_val_undef(um_str name);
um_val um_val_list(um_render *r, um_kind kind, size_t cap); /* LIST or TUPLE */
um_val um_val_pair(um_render *r, um_val a, um_val b);       /* a tuple */
void um_list_push(um_render *r, um_list *l, um_val v);
const char *um_kind_name(um_kind k);

bool um_truth(um_val v);
bool um_is_numeric(um_val v); /* integer, float, boolean */
double um_as_double(um_val v);
int64_t um_as_int(um_render *r, um_val v, const char *what); /* integer or boolean, else an error */
um_str um_as_str(um_render *r, um_val v, const char *what);  /* a string, else an error */
bool um_equal(um_render *r, um_val a, um_val b);
bool um_same(um_val a, um_val b);               /* Python's `is`: equal scalars, or the same object */
int um_order(um_render *r, um_val a, um_val b); /* < 0, 0, > 0; an error if the two kinds can't be compared */
/* Sorts at[0..n), a list of indices into key, by key. The sort is stable in both directions. */
void um_sort(um_render *r, const um_val *key, size_t *at, size_t n, bool reverse);
um_str um_text(um_render *r, um_val v);       /* str() */
um_list *um_elements(um_render *r, um_val v); /* elements in iteration order; read-only, may be v's own list */
size_t um_length(um_render *r, um_val v);
uint64_t um_val_hash(um_render *r, um_val key);

/* A string builder in the arena of a run. */
typedef struct um_sb {
    um_render *r;
    char *p;
    size_t n, cap;
} um_sb;
void um_sb_add(um_sb *b, um_str s);
void um_sb_puts(um_sb *b, const char *s);
void um_sb_putc(um_sb *b, char c);
um_str um_sb_str(const um_sb *b);
void um_sb_float(um_sb *b, double f); /* as Python's repr */
void um_sb_repr(um_sb *b, um_val v);

um_val um_dict_new(um_render *r);
void um_dict_set(um_render *r, um_dict *d, um_val key, um_val val);
um_val *um_dict_get(um_render *r, const um_dict *d, um_val key); /* NULL: unknown key */
um_val *um_dict_get_str(um_render *r, const um_dict *d, um_str key);

um_val um_val_from_json(um_render *r, const json_t *j, int nest);
um_str um_val_to_json(um_render *r, um_val v, bool ascii, int indent, um_str comma, um_str colon, bool sort_keys);

/* Code points of UTF-8. */
size_t um_cp_count(um_str s);
um_str um_cp_slice(um_str s, size_t from, size_t to);
bool um_is_blank(uint32_t cp); /* Python's str.isspace: White_Space and U+001C–001F */
um_str um_strip(um_str s, const um_str *chars, bool left, bool right); /* chars NULL: white space */

/* ---- Built-in filters, tests, methods and functions -------------------------------------------------------------- */

typedef struct um_filter {
    const char *name, *params; /* params NULL: the function reads args */
    um_val (*fn)(um_render *r, um_val in, const um_val *a, const um_arg_values *args);
} um_filter;
int um_filter_find(um_str name); /* index or -1 */
um_val um_filter_apply(um_render *r, int index, um_val in, const um_arg_values *args);
extern const um_filter um_filters_text[], um_filters_list[];
extern const size_t um_filters_text_n, um_filters_list_n;

int um_test_find(um_str name);
bool um_test_apply(um_render *r, int index, um_val in, const um_arg_values *args);

typedef struct um_method {
    const char *name, *params;
    um_val (*fn)(um_render *r, um_val self, const um_val *a, const um_arg_values *args);
} um_method;
/* Returns the method of a string, list, tuple, dict, loop or cycler, or NULL. */
const um_method *um_method_find(um_kind kind, um_str name);
um_val um_method_call(um_render *r, const um_bound *b, const um_arg_values *args);

int um_global_find(um_str name);
um_val um_global_call(um_render *r, int index, const um_arg_values *args);

/* Python's str operations, shared by filters and methods (tmpl_str.c). */
um_str um_str_case(um_render *r, um_str s, char how); /* 'u'pper, 'l'ower, 't'itle, 'c'apitalize */
um_str um_str_replace(um_render *r, um_str s, um_str old, um_str by, int64_t count); /* count < 0: all */
um_str um_str_center(um_render *r, um_str s, int64_t width, um_str fill);
um_str um_str_printf(um_render *r, um_str format, const um_arg_values *args); /* %s %d %i %f %x %% */
um_str um_str_format(um_render *r, um_str format, const um_arg_values *args); /* {} {0} {name} {{ }} */
/* Splits s at separators, at most `max` times (< 0: no limit), from the left or the right. sep NULL: white space. */
um_val um_str_split(um_render *r, um_str s, const um_str *sep, int64_t max, bool from_right);
um_val um_str_splitlines(um_render *r, um_str s);

#ifdef __cplusplus
}
#endif
#endif
