/* line_editor: edits a line on the terminal, with history, through libedit. A program built without libedit has no
 * editor; it then reads lines as the terminal's driver edits them. Single-threaded. */
#ifndef UM_CLI_LINE_EDITOR_H
#define UM_CLI_LINE_EDITOR_H

#include "base/base.h"

typedef struct um_line_editor um_line_editor;
typedef enum { UM_LINE_READ, UM_LINE_END, UM_LINE_INTERRUPTED } um_line_result;

/* Returns the name of the library that edits lines, or NULL. */
const char *um_line_editor_library(void);
/* Creates an editor for the terminal at standard input, which writes to standard error. Reads the history from a file;
 * NULL: the history lasts as long as the editor. Returns NULL when lines can't be edited: without libedit, without a
 * terminal that moves its cursor, or when the locale is not UTF-8. */
um_line_editor *um_line_editor_new(const char *history_file);
/* Reads a line without its end. Line breaks of pasted text are part of the line. *was_empty tells after an interrupt
 * whether nothing was typed. */
um_line_result um_line_editor_read(um_line_editor *e, const char *prompt, um_buf *line, bool *was_empty);
/* Adds text to the history, and saves the file. A file that can't be written is ignored. */
void um_line_editor_add(um_line_editor *e, const char *text);
void um_line_editor_free(um_line_editor *e); /* NULL is fine */

#endif
