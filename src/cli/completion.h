/* The completion scripts for shells. completion.c generates the one for bash, completion_zsh.c and completion_fish.c
 * those for zsh and fish. All read the same tables through these functions. */
#ifndef UM_CLI_COMPLETION_H
#define UM_CLI_COMPLETION_H

#include "cli/cli.h"

/* Appends the words of a list "a|b" with spaces between them. */
void um_completion_put_words(um_buf *out, const char *words);
/* Appends the commands whose names have one word. */
void um_completion_put_commands(um_buf *out);
/* Appends the possible values of an option: words, FILE, DIR, or nothing if they are not known. */
void um_completion_put_value(um_buf *out, const um_option *row);
/* Appends the flag that changes the option from its default: "--json", or "--no-view" for an option that is on. Without
 * `dashes`, appends the flag without the two dashes. */
void um_completion_put_flag(um_buf *out, const um_option_set *set, const um_option *row, bool dashes);
/* Appends a text up to its first semicolon or full stop, for a string in single quotes. Puts a backslash in front of
 * each character of `special`. */
void um_completion_put_summary(um_buf *out, const char *text, const char *special);
/* Appends the summary of an option in that way, after "off: " if its flag turns it off. */
void um_completion_put_help(um_buf *out, const um_option_set *set, const um_option *row, const char *special);

/* Append the whole script. */
void um_completion_put_zsh(um_buf *out);
void um_completion_put_fish(um_buf *out);

#endif
