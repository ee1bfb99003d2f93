/* sheet: facts on standard output, as text for people or as JSON for programs, from the same calls. */
#ifndef UM_CLI_SHEET_H
#define UM_CLI_SHEET_H

#include "base/base.h"

typedef struct um_sheet {
    bool json;
    int depth; /* of open groups and items, for the indent */
    um_buf out;
    um_jw w;
} um_sheet;

void um_sheet_begin(um_sheet *s, bool json);
/* Prints what was gathered and frees it. */
void um_sheet_end(um_sheet *s);

/* A named group of facts: an object, or a heading. */
void um_sheet_group(um_sheet *s, const char *name);
void um_sheet_group_end(um_sheet *s);
/* A named list of items, each an object with "name" and "summary". summary may be NULL. */
void um_sheet_list(um_sheet *s, const char *name);
void um_sheet_item(um_sheet *s, const char *name, const char *summary);
void um_sheet_note(um_sheet *s, const char *text); /* a line for people only */
void um_sheet_item_end(um_sheet *s);
void um_sheet_list_end(um_sheet *s);

/* Facts. In text an underscore of the name is a space; `unit` stands behind the number and is for people only. */
void um_sheet_str(um_sheet *s, const char *name, const char *value); /* NULL or "": left out of text, null in JSON */
void um_sheet_int(um_sheet *s, const char *name, int64_t value, const char *unit);
/* A float is written as short as a float can be. NaN: "auto", null in JSON. */
void um_sheet_number(um_sheet *s, const char *name, double value);
void um_sheet_bool(um_sheet *s, const char *name, bool value);
/* Bytes: exact in JSON, rounded to MB or GB in text. */
void um_sheet_bytes(um_sheet *s, const char *name, int64_t value);
/* Words of a list with separators `sep` ("a|b|c"): an array in JSON. NULL is the empty list. */
void um_sheet_words(um_sheet *s, const char *name, const char *words, char sep);
void um_sheet_ints(um_sheet *s, const char *name, const int32_t *v, size_t n);

#endif
