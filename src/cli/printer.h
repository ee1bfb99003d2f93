/* printer: prints facts to standard output, as text or as JSON, from the same calls. */
#ifndef UM_CLI_PRINTER_H
#define UM_CLI_PRINTER_H

#include "base/base.h"

typedef struct um_printer {
    bool json;
    int depth;      /* number of open groups and items, for the indentation */
    size_t n_items; /* items of text outside of every group, list and item */
    um_buf out;
    um_jw w;
} um_printer;

void um_printer_begin(um_printer *s, bool json);
/* Prints all facts and frees the memory. */
void um_printer_end(um_printer *s);

/* Begins a named group of facts: an object in JSON, a heading in text. */
void um_printer_group(um_printer *s, const char *name);
void um_printer_group_end(um_printer *s);
/* Begins a named list, and an item of a list: in JSON an object with "name" and "summary". summary may be NULL. */
void um_printer_list(um_printer *s, const char *name);
void um_printer_item(um_printer *s, const char *name, const char *summary);
void um_printer_note(um_printer *s, const char *text); /* a line that only text has */
void um_printer_item_end(um_printer *s);
void um_printer_list_end(um_printer *s);

/* Facts. In text, underscores of the name become spaces. Only text has the unit after a number.
 * A NULL or empty string is left out of text; NULL is null in JSON. */
void um_printer_str(um_printer *s, const char *name, const char *value);
void um_printer_int(um_printer *s, const char *name, int64_t value, const char *unit);
/* Prints the shortest digits that give the same float. NaN is "auto" in text and null in JSON. */
void um_printer_number(um_printer *s, const char *name, double value);
void um_printer_bool(um_printer *s, const char *name, bool value);
/* Prints bytes: exact in JSON, rounded to kB, MB, GB or TB in text. */
void um_printer_bytes(um_printer *s, const char *name, int64_t value);
/* Prints a large number: exact in JSON, "2.03 B" in text. Only text has the unit after it; NULL: none. */
void um_printer_count(um_printer *s, const char *name, int64_t value, const char *unit);
/* Prints the words of a list with separator `sep` ("a|b|c"); an array in JSON. NULL is an empty list. */
void um_printer_words(um_printer *s, const char *name, const char *words, char sep);
void um_printer_ints(um_printer *s, const char *name, const int32_t *v, size_t n);

/* Prints the items of the table "fields": request fields that the server accepts without effect (list_fields.c). */
void um_printer_put_fields(um_printer *s);

#endif
