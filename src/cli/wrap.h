/* wrap: breaks the lines of streamed text between words, for a terminal. Single-threaded. */
#ifndef UM_CLI_WRAP_H
#define UM_CLI_WRAP_H

#include "base/base.h"

/* The end of the text so far. A word, and the space before it, are kept until it is known whether they fit into the
 * row. Initialise with zero. */
typedef struct um_wrap {
    int column;     /* columns of the current row that are used */
    um_buf word;    /* the kept word, or its beginning */
    int width;      /* its columns */
    bool has_space; /* a space precedes it, which becomes a line break if the word does not fit */
} um_wrap;
/* Appends the text that can be written now to `out`. The text must be safe for a terminal (um_cli_put_safe). Words that
 * are wider than a row are left to the terminal, so that they can be copied whole. */
void um_wrap_text(um_wrap *w, um_str text, int columns, um_buf *out);
/* Appends the kept text, which is the last of an answer, and begins a new row. */
void um_wrap_end(um_wrap *w, int columns, um_buf *out);
void um_wrap_free(um_wrap *w);

#endif
