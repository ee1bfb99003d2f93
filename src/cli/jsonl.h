/* jsonl: files of one JSON value a line: a reader that holds one line at a time, and the set of ids met so far. Both
 * are for a single thread. */
#ifndef UM_CLI_JSONL_H
#define UM_CLI_JSONL_H

#include "base/base.h"

/* The longest line that is taken; one with a book as its prompt is far below. */
#define UM_LINE_MAX ((size_t)64 << 20)

typedef enum {
    UM_LINES_LINE,     /* there it is */
    UM_LINES_TOO_LONG, /* a line above UM_LINE_MAX was skipped; `number` is its number */
    UM_LINES_LATER,    /* nothing to read right now, or a signal arrived */
    UM_LINES_END,
    UM_LINES_FAILED
} um_lines_got;

typedef struct um_lines {
    const char *name; /* for messages, borrowed */
    int fd;
    um_buf buf;           /* bytes [start, buf.len) are not handed out yet */
    size_t start, looked; /* no newline in [start, looked) */
    int64_t origin;       /* where in the file the first line begins: standard input may stand in the middle */
    int64_t number;       /* of the line handed out last, from 1 */
    int64_t offset;       /* bytes from the first line up to and with the newline of that one */
    bool cut;             /* that line is the last one and has no newline */
    bool eof, skipping;
} um_lines;

/* Opens a file, "-" is standard input. UM_ENOENT, UM_EIO. */
um_status um_lines_open(um_lines *l, const char *path, um_err *err);
/* Reads from fd, which um_lines_close closes. */
void um_lines_from(um_lines *l, int fd, const char *name);
void um_lines_close(um_lines *l);
/* Back to the first line. Only for files that um_lines_is_file names so. */
um_status um_lines_rewind(um_lines *l, um_err *err);
/* An ordinary file, which can be read twice, not a pipe. */
bool um_lines_is_file(const um_lines *l);
/* The next line that is not blank, without its newline; valid until the next call. `wait`: may block; a signal ends
 * the wait with UM_LINES_LATER. */
um_lines_got um_lines_next(um_lines *l, bool wait, um_str *line, um_err *err);

/* Ids as keys: the id in JSON, so that 1 and "1" differ; lines without a usable id are "line N". */
typedef struct um_idset_entry {
    const char *key;
    int64_t line; /* of the input */
    bool answered;
} um_idset_entry;

typedef struct um_idset {
    um_arena keys;
    um_idset_entry *slot; /* [cap], cap a power of two */
    size_t n, cap;
} um_idset;

uint64_t um_key_hash(um_str key); /* FNV-1a */
/* The entry of key, or NULL. Valid until the next um_idset_add. */
um_idset_entry *um_idset_find(const um_idset *s, const char *key);
/* Adds a key that is not in the set; the key is copied. Zero is an empty set. */
um_idset_entry *um_idset_add(um_idset *s, const char *key, int64_t line);
void um_idset_free(um_idset *s);

#endif
