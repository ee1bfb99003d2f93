/* answer: what is inside the text of an answer: reasoning, tool calls, and what is said to the user. Models mark these
 * in words of their own; a format is one row of a table (reasoning.c, tools.c).
 *
 * Text comes in pieces of any size: a marker may be split anywhere, or several parts may come in one piece. However it
 * is cut, the parts joined are the same. Pure; an object belongs to one thread. */
#ifndef UM_API_ANSWER_H
#define UM_API_ANSWER_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { UM_PART_CONTENT, UM_PART_REASONING, UM_PART_CALL } um_part_kind;
typedef struct um_part {
    um_part_kind kind;
    um_str text; /* of CONTENT and REASONING, to be joined; of CALL the arguments, as JSON */
    um_str name; /* of a CALL: the function */
} um_part;
typedef void (*um_part_fn)(void *arg, const um_part *part);

/* ---- Formats ----------------------------------------------------------------------------------------------------- */

typedef struct um_tool_format {
    const char *name, *aliases, *summary; /* aliases: "a|b" or NULL */
    const char *begin, *end;              /* around one call; NULL: the calls are all of the answer */
    const char *starts;                   /* without begin: an answer that starts with one of these, "a b", is calls */
    /* Says the calls in a text without its markers; false: it is none, and stays text. */
    bool (*read)(um_str text, um_part_fn fn, void *arg);
    /* What an answer is made to begin with when a call is asked for, of any function, of the one named (%s). */
    const char *opening, *opening_named;
} um_tool_format;
extern const um_tool_format um_tool_formats[];
extern const size_t um_n_tool_formats;

typedef struct um_reasoning_format {
    const char *name, *aliases, *summary;
    const char *begin, *end;
    bool is_open; /* the prompt has begun the reasoning already */
} um_reasoning_format;
extern const um_reasoning_format um_reasoning_formats[];
extern const size_t um_n_reasoning_formats;

/* By name or alias; NULL or "": *out NULL, nothing is looked for. UM_EINVAL names those that there are. */
um_status um_tool_format_find(const um_tool_format **out, const char *name, um_err *err);
um_status um_reasoning_format_find(const um_reasoning_format **out, const char *name, um_err *err);

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

/* Text between two markers, without the white space at its edges. */
typedef struct um_edges {
    um_buf space;      /* that may turn out to be the end */
    bool skips, holds; /* white space at the front is dropped; that at the end waits */
} um_edges;

typedef struct um_tool_reader {
    const um_tool_format *format;
    um_edges edges;
    um_buf held;
    int state;
} um_tool_reader;

typedef struct um_reasoning_reader {
    const um_reasoning_format *format;
    um_edges edges;
    um_buf held;
    int state;
} um_reasoning_reader;

typedef struct um_answer_reader {
    um_reasoning_reader reasoning;
    um_tool_reader tools;
} um_answer_reader;

/* Either format may be NULL. */
void um_answer_init(um_answer_reader *a, const um_tool_format *tools, const um_reasoning_format *reasoning);
void um_answer_free(um_answer_reader *a);
void um_answer_push(um_answer_reader *a, um_str text, um_part_fn fn, void *arg);
/* Bytes at the end of what was pushed that wait: no part has them yet, and they are not dropped. */
size_t um_answer_waiting(const um_answer_reader *a);
/* There is no more: what waited is said as what it is then. */
void um_answer_end(um_answer_reader *a, um_part_fn fn, void *arg);

/* ---- Inside ------------------------------------------------------------------------------------------------------ */

void um_tools_push(um_tool_reader *t, um_str text, um_part_fn fn, void *arg);
void um_tools_end(um_tool_reader *t, um_part_fn fn, void *arg);
size_t um_tools_waiting(const um_tool_reader *t);
void um_reasoning_push(um_reasoning_reader *r, um_str text, um_part_fn fn, void *arg);
void um_reasoning_end(um_reasoning_reader *r, um_part_fn fn, void *arg);

/* Says text as parts of a kind, without the white space that the edges hold back. */
void um_edges_put(um_edges *e, um_part_kind kind, um_str text, um_part_fn fn, void *arg);
void um_edges_flush(um_edges *e, um_part_kind kind, um_part_fn fn, void *arg); /* what waited belongs to the text */
void um_edges_drop(um_edges *e);                                               /* a marker follows: it does not */
/* Where the marker begins in text, or where it may begin when more comes (*whole false), or text.n. */
size_t um_marker_find(um_str text, const char *marker, bool *whole);
/* How text may begin, of the words of a list "a b": 1 with one of them, 0 perhaps with one when more comes, -1 not. */
int um_begins_with(um_str text, const char *words);

#ifdef __cplusplus
}
#endif
#endif
