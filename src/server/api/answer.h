/* answer: parsers that split the text of an answer into reasoning, tool calls and content. Each model family has its
 * own markers for these parts: each row of the tables in reasoning.c and tools.c describes a format.
 *
 * Text arrives in pieces of any size. A marker may be split between pieces, and one piece may hold several parts. The
 * joined parts don't depend on where the text is cut. The parsers do no I/O. One thread uses a parser at a time. */
#ifndef UM_API_ANSWER_H
#define UM_API_ANSWER_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { UM_ANSWER_CONTENT, UM_ANSWER_REASONING, UM_ANSWER_CALL, UM_ANSWER_ARGUMENTS } um_answer_part_kind;
typedef struct um_answer_part {
    um_answer_part_kind kind;
    um_str text;  /* CONTENT, REASONING, ARGUMENTS: the next piece of the text; CALL: the arguments in JSON */
    um_str name;  /* CALL: the name of the function */
    bool is_open; /* CALL: the arguments follow as parts of their own, and the call ends with the answer */
} um_answer_part;
typedef void (*um_answer_part_fn)(void *arg, const um_answer_part *part);

/* ---- Formats ----------------------------------------------------------------------------------------------------- */

typedef struct um_tool_format {
    const char *name, *aliases; /* aliases: "a|b" or NULL */
    /* Markers around one call. begin NULL: the calls are the whole answer. end NULL: they are the rest of the answer.
     */
    const char *begin, *end;
    const char *starts; /* if begin is NULL: only an answer that starts with a word of this list, "a b", can be calls */
    /* Parses the text between two markers, or the whole answer, and passes its calls to `fn`. Returns false if it isn't
     * a call: the text is content then. tools: the tools of the request, or NULL. */
    bool (*parse)(const char *tools, um_str text, um_answer_part_fn fn, void *arg);
    /* If the request requires a call, the prompt ends with `opening`, and the answer is {"name": …, key: …}. opening
     * NULL: none; key NULL: "arguments". */
    const char *opening, *key;
    const char *sign; /* a text that only templates of this format have, for `auto` */
    bool is_special;  /* the markers are special tokens, which the text of an answer has on request only */
    bool in_pieces;   /* the whole answer is one call, which is passed on in pieces (tools_pieces.c) */
} um_tool_format;
extern const um_tool_format um_tool_formats[];
extern const size_t um_n_tool_formats;
/* The format of an answer that is one call in JSON, and nothing else. */
extern const um_tool_format um_tool_format_forced;
/* The same, passed on in pieces. */
extern const um_tool_format um_tool_format_pieces;

typedef struct um_reasoning_format {
    const char *name, *aliases;
    const char *begin, *end;
    bool is_open; /* the prompt ends with the begin marker, so the answer starts inside the reasoning */
} um_reasoning_format;
extern const um_reasoning_format um_reasoning_formats[];
extern const size_t um_n_reasoning_formats;

/* Returns the format of a server: the one with the name, for "auto" that of the template (NULL: no template). Returns
 * NULL without a parser: the name is NULL, "", "none" or unknown, or the template has no format of the table. */
const um_tool_format *um_tool_format_of(const char *name, const char *chat_template);
/* Finds a format by its name or alias. The name NULL or "" means no parser and sets *out to NULL, and so do "auto" and
 * "none" for tools. For an unknown name returns UM_EINVAL, with a message that lists the formats. */
um_status um_tool_format_find(const um_tool_format **out, const char *name, um_err *err);
um_status um_reasoning_format_find(const um_reasoning_format **out, const char *name, um_err *err);

/* ---- Parsing ----------------------------------------------------------------------------------------------------- */

/* A filter that removes white space next to markers from text that comes in pieces. */
typedef struct um_trimmer {
    um_buf space;       /* white space held back until more text or a marker follows */
    bool skip_leading;  /* white space is dropped until other text arrives */
    bool hold_trailing; /* white space at the end of the text is held back */
} um_trimmer;

typedef struct um_tool_parser {
    const um_tool_format *format; /* NULL: all text is content */
    const char *tools;            /* JSON of the request's tools, borrowed; NULL: not known */
    um_trimmer trimmer;
    um_buf pending; /* text that may turn out to be a marker or a call */
    int state;      /* see tools.c, tools_pieces.c */
    /* Inside of arguments that are passed on in pieces: open brackets, and where in a string the text ends. */
    int32_t depth;
    bool in_string, is_escaped;
} um_tool_parser;

typedef struct um_reasoning_parser {
    const um_reasoning_format *format; /* NULL: all text is content */
    um_trimmer trimmer;
    um_buf pending; /* text that may turn out to be a marker */
    int state;      /* see reasoning.c */
} um_reasoning_parser;

/* The parser of an answer. The text goes through the reasoning parser first. The tool parser reads the content that
 * follows the reasoning. */
typedef struct um_answer_parser {
    um_reasoning_parser reasoning;
    um_tool_parser tools;
} um_answer_parser;

/* Initializes a parser. Each format may be NULL. */
void um_answer_parser_init(um_answer_parser *a, const um_tool_format *tools, const um_reasoning_format *reasoning);
void um_answer_parser_free(um_answer_parser *a);
/* Parses the next piece of the text and passes the parts that are certain to `fn`. */
void um_answer_parser_push(um_answer_parser *a, um_str text, um_answer_part_fn fn, void *arg);
/* Returns the number of bytes at the end of the pushed text that are undecided: neither passed on as a part nor
 * dropped. */
size_t um_answer_parser_pending(const um_answer_parser *a);
/* Ends the text and passes on the pending bytes: an incomplete marker or call is text. */
void um_answer_parser_end(um_answer_parser *a, um_answer_part_fn fn, void *arg);
/* Returns whether the text so far is a part of a call that is passed on in pieces. */
bool um_answer_parser_is_cut(const um_answer_parser *a);

/* ---- Formats of calls (tools_xml.c) ------------------------------------------------------------------------------ */

/* Parses <function=NAME><parameter=KEY>VALUE</parameter>…</function>. A value is JSON if the tool's schema says that
 * the parameter is no string, or if there is no schema and it is valid JSON; else it is a string. */
bool um_tool_parse_xml(const char *tools, um_str text, um_answer_part_fn fn, void *arg);

/* ---- Internals --------------------------------------------------------------------------------------------------- */

void um_tool_parser_push(um_tool_parser *t, um_str text, um_answer_part_fn fn, void *arg);
void um_tool_parser_end(um_tool_parser *t, um_answer_part_fn fn, void *arg);
void um_tool_push_pieces(um_tool_parser *t, um_answer_part_fn fn, void *arg);
size_t um_tool_parser_pending(const um_tool_parser *t);
void um_reasoning_parser_push(um_reasoning_parser *r, um_str text, um_answer_part_fn fn, void *arg);
void um_reasoning_parser_end(um_reasoning_parser *r, um_answer_part_fn fn, void *arg);

/* Passes text on as parts of a kind, without the white space that the trimmer drops or holds back. */
void um_trimmer_put(um_trimmer *t, um_answer_part_kind kind, um_str text, um_answer_part_fn fn, void *arg);
/* Passes on the white space that was held back: more text of the same part follows. */
void um_trimmer_flush(um_trimmer *t, um_answer_part_kind kind, um_answer_part_fn fn, void *arg);
/* Drops the white space that was held back before a marker, and the white space after the marker. */
void um_trimmer_drop(um_trimmer *t);
/* Returns the offset of the first whole marker in text, or of a beginning of the marker at the end of text (*whole is
 * false then). Returns text.n if there is neither. */
size_t um_marker_find(um_str text, const char *marker, bool *whole);
/* Returns 1 if the text begins with a word of the list "a b", 0 if it may do so when more text follows, else -1. */
int um_begins_with(um_str text, const char *words);

#ifdef __cplusplus
}
#endif
#endif
