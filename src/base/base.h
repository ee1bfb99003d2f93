/* base: what every other room stands on: errors, log, memory, bytes, numbers, threads, time, JSON, YAML, options.
 *
 * It knows nothing of models. Each section says which thread may call what; without a word: any thread, on objects that
 * belong to it. */
#ifndef UM_BASE_H
#define UM_BASE_H

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

#include "unmask.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UM_LEN(a)         (sizeof(a) / sizeof((a)[0]))
#define UM_MIN(a, b)      ((a) < (b) ? (a) : (b))
#define UM_MAX(a, b)      ((a) > (b) ? (a) : (b))
#define UM_CEIL_DIV(a, b) (((a) + (b)-1) / (b))
#define UM_PRINTF(f, a)   __attribute__((format(printf, f, a)))

/* ---- Errors (err.c) ---------------------------------------------------------------------------------------------- */

/* Writes code and message to err (NULL is fine) and returns the code: `return um_fail(err, UM_EPARSE, "…", …)`. */
um_status um_fail(um_err *err, um_status code, const char *fmt, ...) UM_PRINTF(3, 4);
/* The same about one parameter: the message gets "param: " in front, and err->param is its name. */
um_status um_fail_param(um_err *err, um_status code, const char *param, const char *fmt, ...) UM_PRINTF(4, 5);
/* Puts "context: " before the message that is there and returns its code. */
um_status um_fail_in(um_err *err, const char *fmt, ...) UM_PRINTF(2, 3);
/* Names the parameter that the error in err (NULL is fine) is about, unless it says so itself. Returns s; success is
 * left alone. */
um_status um_fail_about(um_err *err, um_status s, const char *param);

/* ---- Log (log.c, log_writer.c) ----------------------------------------------------------------------------------- */

typedef enum { UM_LOG_ERROR, UM_LOG_WARN, UM_LOG_INFO, UM_LOG_DEBUG } um_log_level;
/* Lines go to stderr, whole, from any thread. The level is process-wide; default UM_LOG_WARN. */
void um_log_set_level(um_log_level level);
um_log_level um_log_get_level(void);
void um_log(um_log_level level, const char *fmt, ...) UM_PRINTF(2, 3);
/* Text in front of every message, as "worker 0: ". Before other threads run. */
#define UM_LOG_PREFIX_MAX 32
void um_log_set_prefix(const char *prefix);
/* From now on each line is an object {"time", "level", "message"}. Before other threads run. */
void um_log_set_json(bool on);
bool um_log_is_json(void);
/* Time of a line, UTC: "2026-01-31T23:59:59.123Z". */
#define UM_LOG_TIME_MAX 32
void um_log_time(char out[UM_LOG_TIME_MAX]);
#define um_warn(...) um_log(UM_LOG_WARN, __VA_ARGS__)
struct um_buf;
/* Appends a line as um_log writes it. */
void um_log_line(um_log_level level, const char *message, struct um_buf *out);
/* Writes a whole line, as um_log does. Any thread. */
void um_log_write(const char *line, size_t n);
/* From here on a thread writes the lines: who logs never waits for who reads. As many bytes wait as there is room for;
 * further lines are dropped and counted, and a line tells of it when the reader goes on. */
#define UM_LOG_WAITING_MAX ((size_t)1 << 20)
um_status um_log_begin_writer(um_err *err);
/* Lets the thread write what waits, for so long at most; what is logged later is written at once, or, when the reader
 * still stalls, not at all. Without um_log_begin_writer it does nothing. */
void um_log_end_writer(double seconds);
int64_t um_log_dropped(void); /* lines that nobody took */

/* ---- Memory (mem.c, arena.c, buf.c) ------------------------------------------------------------------------------ */

/* Every allocation of the project goes through these; they count, so that a test can prove that a step allocates
 * nothing. Small allocations abort with a clear line when memory is out; um_try_alloc returns UM_ENOMEM instead and is
 * for what grows with the model (weights, pages, workspace). Memory is not zeroed unless the name says so. */
void *um_alloc(size_t n);
void *um_zalloc(size_t n);
void *um_realloc(void *p, size_t n);
char *um_strdup(const char *s);
char *um_strndup(const char *s, size_t n);
um_status um_try_alloc(void **out, size_t n, size_t align, const char *what, um_err *err); /* zeroed; um_free */
int64_t um_alloc_count(void);     /* allocations made so far by this thread */
size_t um_memory_available(void); /* bytes the system could still give, 0 if unknown */
#define UM_NEW(T)          ((T *)um_zalloc(sizeof(T)))
#define UM_NEW_ARRAY(T, n) ((T *)um_zalloc(um_mul(n, sizeof(T))))

/* Checked sizes. um_mul aborts on overflow (our own mistake); um_mul_ok answers, for sizes from files and users. */
size_t um_mul(size_t a, size_t b);
bool um_mul_ok(size_t a, size_t b, size_t *out);
bool um_add_ok(size_t a, size_t b, size_t *out);

/* Arena: bump allocation, freed as a whole. Aligned to 16. Pointers stay valid until um_arena_free. */
typedef struct um_arena {
    struct um_arena_chunk *chunk;
    size_t used, total, limit; /* limit: bytes in all, 0 = none; exceeding it makes um_arena_alloc return NULL */
} um_arena;
void um_arena_init(um_arena *a, size_t limit);
void *um_arena_alloc(um_arena *a, size_t n); /* zeroed */
char *um_arena_strndup(um_arena *a, const char *s, size_t n);
void um_arena_reset(um_arena *a); /* keeps the largest chunk */
void um_arena_free(um_arena *a);

/* Buffer: a growing byte string, always NUL-terminated behind `len` once something was appended. Zero is an empty one.
 */
typedef struct um_buf {
    char *data;
    size_t len, cap;
} um_buf;
void um_buf_reserve(um_buf *b, size_t more);
void um_buf_append(um_buf *b, const void *data, size_t n);
void um_buf_puts(um_buf *b, const char *s);
void um_buf_putc(um_buf *b, char c);
void um_buf_printf(um_buf *b, const char *fmt, ...) UM_PRINTF(2, 3);
void um_buf_clear(um_buf *b); /* keeps the memory */
void um_buf_free(um_buf *b);
char *um_buf_take(um_buf *b); /* hands the string over (um_free); never NULL */

/* A run of bytes that somebody else owns. */
typedef struct um_str {
    const char *p;
    size_t n;
} um_str;
#define UM_STR(literal) ((um_str){(literal), sizeof(literal) - 1})
um_str um_str_of(const char *s);
bool um_str_eq(um_str a, um_str b);
bool um_streq(const char *a, const char *b); /* NULL equals NULL only */
uint64_t um_key_hash(um_str key);            /* FNV-1a */

/* ---- Files (file.c) ---------------------------------------------------------------------------------------------- */

/* Reads a whole file, at most `max` bytes, NUL-terminated behind. Messages name the path. */
um_status um_file_read(const char *path, size_t max, um_buf *out, um_err *err);
bool um_file_exists(const char *path);
bool um_dir_exists(const char *path);
/* Maps a file read-only; *size its length (0 gives NULL). */
typedef struct um_map {
    const uint8_t *data;
    size_t size;
} um_map;
um_status um_map_open(um_map *m, const char *path, um_err *err);
void um_map_close(um_map *m);
/* "dir/name" in a new string. */
char *um_path_join(const char *dir, const char *name);
/* Makes the file be `data`: whatever happens meanwhile, it is afterwards what it was before or all of the new, on the
 * disk. A file beside it, with ".new" behind the name, is used. Links stay; a device or a pipe is written to. UM_EIO.
 */
um_status um_file_replace(const char *path, um_str data, um_err *err);
/* The entries of a folder are on the disk behind this. */
um_status um_dir_sync(const char *path, um_err *err);

/* ---- Lines of a file (lines.c) ----------------------------------------------------------------------------------- */

/* A reader that holds one line at a time. One thread. */

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
/* The same among what was read already: UM_LINES_LATER says that the next line is not in memory, or not all of it. */
um_lines_got um_lines_here(um_lines *l, um_str *line);

/* ---- Ids (idset.c) ----------------------------------------------------------------------------------------------- */

/* The ids met so far, with the lines that they stand in. Keys are texts: of JSON ids the JSON, so that 1 and "1"
 * differ. One thread. */
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

/* The entry of key, or NULL. Valid until the next um_idset_add. */
um_idset_entry *um_idset_find(const um_idset *s, const char *key);
/* Adds a key that is not in the set; the key is copied. Zero is an empty set. */
um_idset_entry *um_idset_add(um_idset *s, const char *key, int64_t line);
void um_idset_free(um_idset *s);

/* ---- Ledgers (ledger.c) ------------------------------------------------------------------------------------------ */

/* A file of lines that only grows, and that survives whatever ends the program: at most its end is torn, and reading it
 * says how much of it holds. One thread. */
typedef struct um_ledger {
    const char *name; /* for messages, borrowed */
    int fd;           /* -1: closed */
    bool file;        /* an ordinary file: it can be read again and cut */
    int64_t keep;     /* bytes of whole lines, which stay */
} um_ledger;
/* Opens or creates a file ("-" is standard output) without changing what is in it, and locks it against another
 * program. UM_EINVAL when one has it, UM_EIO. */
um_status um_ledger_open(um_ledger *l, const char *path, um_err *err);
/* Hands out every whole line and counts those that fn takes as kept. A last line that is torn, or that fn calls broken
 * (UM_EPARSE), is left out; a broken one with others behind it is UM_EPARSE, and nothing from there on is kept. */
typedef um_status (*um_ledger_fn)(void *arg, um_str line, int64_t number, um_err *err);
um_status um_ledger_read(um_ledger *l, um_ledger_fn fn, void *arg, um_err *err);
/* Cuts the file behind what is kept; from here on it is written. */
um_status um_ledger_begin(um_ledger *l, um_err *err);
/* Writes whole lines at once. A file to which not all could be written is as it was before. UM_EIO. */
um_status um_ledger_write(um_ledger *l, um_str lines, um_err *err);
/* The same, and the lines are on the disk behind this. */
um_status um_ledger_commit(um_ledger *l, um_str lines, um_err *err);
/* UM_EIO when the system only now says that it could not write. */
um_status um_ledger_close(um_ledger *l, um_err *err);

/* ---- UTF-8 (utf8.c) ---------------------------------------------------------------------------------------------- */

/* Reads the code point at s[0..n); returns its length 1..4, or 0 when the bytes there are not valid UTF-8 (overlong,
 * surrogate, above U+10FFFF, cut). */
int um_utf8_next(const char *s, size_t n, uint32_t *cp);
/* Writes a code point, returns 1..4. */
int um_utf8_put(uint32_t cp, char out[4]);
/* Index of the first byte that is not valid UTF-8, or n. */
size_t um_utf8_check(const char *s, size_t n);
/* Length of the maximal subpart of an ill-formed sequence at s (>= 1): what one U+FFFD replaces. *incomplete: the
 * sequence was well-formed as far as the bytes go. */
size_t um_utf8_bad(const char *s, size_t n, bool *incomplete);
/* Columns a terminal uses for the code point: 0, 1 or 2. */
int um_utf8_width(uint32_t cp);

/* ---- Random numbers (rng.c) -------------------------------------------------------------------------------------- */

/* Counter-based: a value is a pure function of the key and a counter, so nothing that schedules or resumes can move it.
 * um_rng_key mixes the parts of a key (seed, position, pass of its block, use). */
uint64_t um_rng_key(uint64_t seed, uint64_t position, uint64_t count, uint64_t use);
uint64_t um_rng_u64(uint64_t key, uint64_t counter);
double um_rng_uniform(uint64_t key, uint64_t counter); /* (0, 1), both ends excluded */
/* Standard Gumbel noise, fp32: -ln(-ln u). */
float um_rng_gumbel(uint64_t key, uint64_t counter);
int64_t um_rng_seed(void); /* fresh, from the system, 0..2^53-1 so that JSON keeps it */

/* ---- Threads (pool.c) -------------------------------------------------------------------------------------------- */

/* A fixed pool. um_pool_run calls fn(arg, task, thread) for every task in [0, n) on the pool's threads and the caller
 * (thread 0), and returns when all are done. Thread t begins with the t-th of n_threads even shares of the tasks, and
 * then takes over what others have left: results must not depend on who runs a task.
 * One caller at a time. */
typedef struct um_pool um_pool;
typedef void (*um_task_fn)(void *arg, int task, int thread);
um_status um_pool_new(um_pool **out, int n_threads, um_err *err); /* 0 = one per core this process may use */
void um_pool_free(um_pool *p);
int um_pool_threads(const um_pool *p);
void um_pool_run(um_pool *p, um_task_fn fn, void *arg, int n);

/* ---- Time (clock.c) ---------------------------------------------------------------------------------------------- */

double um_now(void);                       /* seconds, monotonic */
struct timeval um_timeval(double seconds); /* the same as timers take it; below 0 it is 0 */

/* ---- Profile (profile.c) ----------------------------------------------------------------------------------------- */

/* Records how long named stretches of work take, spans: as a trace that Perfetto and chrome://tracing open, and as sums
 * per name. Off, a span costs one branch at each of its ends. On, entering and leaving allocate nothing. Spans nest:
 * what was entered last is left first. One thread. Zero is a profile that is off. */
#define UM_PROFILE_DEPTH   8 /* spans inside of each other */
#define UM_PROFILE_NAMES   48
#define UM_PROFILE_SPANS   ((size_t)1 << 16)  /* held until they are written */
#define UM_PROFILE_WRITTEN ((int64_t)2000000) /* of a trace; what comes later is in the sums alone */

typedef struct um_profile_span {
    const char *name;
    double start, end;
    int32_t size;
} um_profile_span;

typedef struct um_profile_sum {
    const char *name;
    int64_t n;
    double seconds, self; /* self: without the spans inside */
} um_profile_sum;

typedef struct um_profile {
    bool on;
    int32_t depth;
    double origin, total;                /* when it began; seconds of the outermost spans */
    double inside[UM_PROFILE_DEPTH + 1]; /* at each depth: seconds of the spans left since the one above was entered */
    um_profile_sum sum[UM_PROFILE_NAMES];
    int32_t n_sums;
    um_profile_span *span; /* [UM_PROFILE_SPANS] */
    size_t n_spans;
    int64_t n_written, n_dropped;
    int fd;
    char *path;
    um_buf text; /* lines on their way to the file */
    um_err err;  /* why the file could not be written */
} um_profile;

/* Begins a trace in a file, anew when there is one; sums start at 0. Does nothing when it is on already. UM_EIO. */
um_status um_profile_start(um_profile *p, const char *path, um_err *err);
/* Ends the trace and writes the sums to a table beside it ("x.json" -> "x.csv"). Sums stay until the next start. Does
 * nothing when it is off. UM_EIO when something could not be written. */
um_status um_profile_stop(um_profile *p, um_err *err);
/* Writes what is held once it is much; for where time does not count. Spans for which no room is left are dropped from
 * the trace and counted. */
void um_profile_flush(um_profile *p);
/* Appends the sums, the longest first, as CSV and as text for people. */
void um_profile_put_csv(const um_profile *p, um_buf *out);
void um_profile_put_table(const um_profile *p, um_buf *out);

/* What the two below do when it is on. */
double um_profile_open(um_profile *p);
void um_profile_close(um_profile *p, double since, const char *name, int32_t size);
/* Enters a span; gives what leaving it wants. */
static inline double um_profile_enter(um_profile *p) { return p->on ? um_profile_open(p) : 0; }
/* Leaves it. `name` outlives the profile and needs no escapes in JSON; size: of the work, whatever its unit. */
static inline void um_profile_leave(um_profile *p, double since, const char *name, int32_t size) {
    if (p->on) um_profile_close(p, since, name, size);
}

/* ---- Numbers as text (number.c) ---------------------------------------------------------------------------------- */

/* Decimal point '.', whatever the locale. Parsing takes the whole text or nothing: no space, no hexadecimal, no
 * infinity; false: not a number or out of range. Formatting gives the shortest text that reads back. */
bool um_parse_int(const char *s, int64_t *out);
bool um_parse_double(const char *s, double *out);
#define UM_NUMBER_MAX 32
void um_format_double(double v, char out[UM_NUMBER_MAX]); /* finite */
void um_format_float(float v, char out[UM_NUMBER_MAX]);   /* finite; reads back as a float */

/* ---- JSON (json.c, jwriter.c) ------------------------------------------------------------------------------------ */

/* Reading is jansson's; these add messages with file, line and column, and typed access with the key in the message.
 * U+0000 in strings is accepted; doubled keys: the last wins. Depth is bounded by jansson (2048). */
struct json_t;
um_status um_json_parse(struct json_t **out, const char *text, size_t len, const char *where, um_err *err);
um_status um_json_load(struct json_t **out, const char *path, um_err *err); /* UM_ENOENT when missing */
/* The same for JSON that is handed on (json_exact.c): an integer beyond 64 bits keeps its digits, in an object that
 * um_json_big_integer knows and that survives being written and read again; half a surrogate pair becomes U+FFFD. */
um_status um_json_parse_exact(struct json_t **out, const char *text, size_t len, const char *where, um_err *err);
void um_json_put_exact(const struct json_t *v, um_buf *out); /* as text, with these digits again */
/* The same for what somebody asks for: an object that has a key twice, of which only one could hold, is refused with
 * the key as the error's param. */
um_status um_json_parse_request(struct json_t **out, const char *text, size_t len, const char *where, um_err *err);
um_str um_json_big_integer(const struct json_t *v); /* the digits with their sign; p NULL: v is something else */
/* um_json_get_*: value of key in obj. Missing or null: *out is left alone, UM_OK. Wrong type or range: UM_EPARSE and a
 * message with `where`, key, what was expected and what was found. */
um_status um_json_get_int(const struct json_t *obj, const char *key, const char *where, int64_t min, int64_t max,
                          int64_t *out, um_err *err);
um_status um_json_get_int32(const struct json_t *obj, const char *key, const char *where, int32_t min, int32_t max,
                            int32_t *out, um_err *err);
um_status um_json_get_double(const struct json_t *obj, const char *key, const char *where, double *out, um_err *err);
um_status um_json_get_bool(const struct json_t *obj, const char *key, const char *where, bool *out, um_err *err);
/* Borrowed from obj. */
um_status um_json_get_str(const struct json_t *obj, const char *key, const char *where, const char **out, um_err *err);
/* Values of requests (json_take.c). `what` is how messages call them ("\"prompt\"", "stop string 2"); UM_EINVAL for
 * another type, UM_ERANGE for a number outside. */
const char *um_json_kind(const struct json_t *v); /* "an object", "an integer beyond 64 bits"; of NULL "nothing" */
um_status um_json_take_text(const struct json_t *v, const char *what, const char **out, um_err *err); /* no U+0000 */
um_status um_json_take_bool(const struct json_t *v, const char *what, bool *out, um_err *err);
um_status um_json_take_int(const struct json_t *v, const char *what, int64_t min, int64_t max, int64_t *out,
                           um_err *err);
/* An array of token ids into out [json_array_size(v)]; which of them exist is the model's to say. */
um_status um_json_take_ids(const struct json_t *v, const char *what, int32_t *out, um_err *err);

/* Streaming writer into a buffer: commas and escapes are its work. Numbers that JSON lacks (NaN, infinity) become null.
 */
typedef struct um_jw {
    um_buf *out;
    int depth;
    bool comma[64];
} um_jw;
void um_jw_init(um_jw *w, um_buf *out);
void um_jw_begin_object(um_jw *w);
void um_jw_end_object(um_jw *w);
void um_jw_begin_array(um_jw *w);
void um_jw_end_array(um_jw *w);
void um_jw_key(um_jw *w, const char *key);
void um_jw_str(um_jw *w, const char *s, size_t n); /* UTF-8; invalid bytes become U+FFFD */
void um_jw_cstr(um_jw *w, const char *s);          /* NULL gives null */
void um_jw_int(um_jw *w, int64_t v);
void um_jw_double(um_jw *w, double v); /* shortest text that reads back */
void um_jw_float(um_jw *w, float v);   /* no more digits than a float has */
void um_jw_share(um_jw *w, double v);  /* 0..1 to six decimals, for where there are many */
void um_jw_bool(um_jw *w, bool v);
void um_jw_null(um_jw *w);
void um_jw_raw(um_jw *w, const char *json, size_t n);  /* a value that is JSON already */
void um_jw_ints(um_jw *w, const int32_t *v, size_t n); /* an array */

/* A member of an object: its key and its value. */
void um_jw_put_str(um_jw *w, const char *key, um_str v);
void um_jw_put_cstr(um_jw *w, const char *key, const char *v);
void um_jw_put_int(um_jw *w, const char *key, int64_t v);
void um_jw_put_double(um_jw *w, const char *key, double v);
void um_jw_put_ratio(um_jw *w, const char *key, double a, double b); /* a / b; null when either is not above 0 */
void um_jw_put_bool(um_jw *w, const char *key, bool v);
void um_jw_put_null(um_jw *w, const char *key);
void um_jw_put_ints(um_jw *w, const char *key, const int32_t *v, size_t n);
void um_jw_put_bytes(um_jw *w, const char *key, um_str v); /* an array of 0..255 */

/* ---- YAML (yaml.c) ----------------------------------------------------------------------------------------------- */

/* A configuration file: names and scalars in sections. Scalars stay text, the option's row gives them a type. Lists,
 * anchors, aliases, tags, doubled keys and further documents are refused. Positions count from 1. */
typedef enum { UM_YAML_PLAIN, UM_YAML_QUOTED, UM_YAML_NULL, UM_YAML_SECTION } um_yaml_kind;
typedef struct um_yaml_entry {
    const char *section; /* the names above, with dots: "", "engine", "engine.decoding_thresholds" */
    const char *key, *value;
    um_yaml_kind kind; /* SECTION: `key` opens one; value is NULL, as for NULL */
    int key_line, key_column, line, column;
} um_yaml_entry;
typedef struct um_yaml {
    um_yaml_entry *entry;
    size_t n, cap;
} um_yaml;
#define UM_YAML_BYTES_MAX   ((size_t)1 << 20)
#define UM_YAML_ENTRIES_MAX 1000
#define UM_YAML_DEPTH_MAX   3 /* mappings, the outermost counted */
/* Strings go into `strings`; um_yaml_free frees the entries alone. `where` names the text in messages. */
um_status um_yaml_parse(um_yaml *out, um_arena *strings, const char *text, size_t len, const char *where, um_err *err);
void um_yaml_free(um_yaml *y);
/* Appends UTF-8 text as a double-quoted scalar. */
void um_yaml_put_quoted(um_buf *out, const char *s);
/* Appends text that can stand in a comment: what can't becomes '?'. */
void um_yaml_put_comment(um_buf *out, const char *s);

/* ---- Options (option.c, option_name.c, option_help.c) ------------------------------------------------------------ */

/* One row describes one option; parsing, --help, docs and messages all come from it. The flag is the name with dashes
 * ("--accept-threshold"), the environment name UNMASK_ and the name in capitals. A bool flag takes no value on the
 * command line ("--ignore-eos", "--no-ignore-eos"); in text it is true/false, yes/no, on/off or 1/0. */
typedef enum {
    UM_OPT_BOOL,   /* bool */
    UM_OPT_INT,    /* int32_t */
    UM_OPT_INT64,  /* int64_t */
    UM_OPT_FLOAT,  /* float */
    UM_OPT_NAME,   /* char[size]: a word, perhaps one of choices */
    UM_OPT_CHOICE, /* int32_t: index into choices */
    UM_OPT_STR     /* const char *: borrowed text (paths, prompts) */
} um_opt_type;

typedef struct um_option {
    const char *name;  /* "accept_threshold" */
    const char *alias; /* other names, comma-separated, or NULL; "name%256" takes multiples of 256 only */
    um_opt_type type;
    size_t offset, size; /* of the field in its struct */
    double min, max;     /* numbers; ignored when both are 0 */
    const char *choices; /* "a|b|c" for NAME and CHOICE, or NULL */
    const char *def;     /* default as text; NULL: no default (STR) */
    const char *autos;   /* what "auto" stores, as text ("nan", "0", "-1"), or NULL when auto is not allowed; programs
                            write -1 for it, so that means auto too where it is stored; "off=nan": the word is off */
    const char *metavar; /* "N", "DIR" */
    const char *group;   /* heading in --help */
    const char *help;    /* one sentence without full stop */
} um_option;

#define UM_FIELD(type, field) offsetof(type, field), sizeof(((type *)0)->field)

/* Several tables over one struct each. */
typedef struct um_option_set {
    const um_option *rows;
    size_t n;
    void *base; /* struct that the offsets of these rows refer to */
} um_option_set;

/* Stores the default of every row into base. */
void um_options_init(const um_option *rows, size_t n, void *base);
/* The row with this name or alias ('-' and '_' are the same), or NULL. */
const um_option *um_options_find(const um_option *rows, size_t n, const char *name);
/* Parses text into the field; the message names option, value and range. */
um_status um_option_set_text(const um_option *row, void *base, const char *value, um_err *err);
/* The same for a value that was given by `name`, perhaps an alias with a check of its own, and is called `label` in
 * messages. base NULL: the value is checked and not stored. */
um_status um_option_set_as(const um_option *row, void *base, const char *name, const char *label, const char *value,
                           um_err *err);
/* A JSON value as the text that the row reads (json_take.c); its type must be the row's, or the word that stands for
 * "auto". `number` holds what *text may point to. UM_EINVAL. */
um_status um_option_json_text(const um_option *row, const char *label, const struct json_t *v,
                              char number[UM_NUMBER_MAX], const char **text, um_err *err);
/* Value of the field as text, "auto" where it holds that. */
void um_option_get_text(const um_option *row, const void *base, um_buf *out);
/* Two structs hold the same value. */
bool um_option_equal(const um_option *row, const void *a, const void *b);
/* The word that stands for row->autos ("auto"), of length 0 when there is none; and whether `text` is that word. */
um_str um_option_auto(const um_option *row);
bool um_option_is_auto(const um_option *row, const char *text);
/* "integer", "text"; a type of its own for people and other programs. */
const char *um_option_type(const um_option *row);
/* Range or choices as text: "0..1", "a, b or c"; empty when free. */
void um_option_range(const um_option *row, um_buf *out);
/* Sets an option by name in the first set that has it. Unknown: UM_EINVAL with the nearest name. */
um_status um_options_set(const um_option_set *sets, size_t n_sets, const char *name, const char *value, um_err *err);
/* Every field holds a value that its row allows: a program may have stored one without its name. */
um_status um_options_check(const um_option_set *sets, size_t n_sets, um_err *err);

/* The name behind the dashes of the flag, and the name of the environment variable. */
void um_option_put_flag(const char *name, um_buf *out);
void um_option_put_env(const char *name, um_buf *out);
/* Other name number i; false behind the last. */
bool um_option_alias(const um_option *row, size_t i, um_str *name);
/* What values given by this name must be a multiple of; 1 is any. */
int32_t um_option_multiple(const um_option *row, const char *name);
/* Place of a word in a list with separators, or -1; '-' and '_' are the same. *at: the list's own spelling. */
int um_word_index(const char *list, char separator, const char *word, um_str *at);
/* The name in the sets that is nearest to a mistyped one, or NULL. */
const char *um_options_nearest(const um_option_set *sets, size_t n_sets, const char *name);
/* The word of `words` [n] nearest to `word` by edit distance, or NULL when none is near. */
const char *um_nearest(const char *word, const char *const *words, size_t n);

/* Calls fn for every row, those of a group together, groups in the order of their first rows. */
typedef void (*um_option_fn)(void *arg, const um_option_set *set, const um_option *row, bool opens_group);
void um_options_each(const um_option_set *sets, size_t n_sets, um_option_fn fn, void *arg);
/* Appends "--flag METAVAR"; "--[no-]flag" for a bool that is on. */
void um_option_put_usage(const um_option *row, const void *base, um_buf *out);
/* Appends " (0..1; default 0.5)", nothing for a flag that is off. The value in base is taken for the default. */
void um_option_put_facts(const um_option *row, const void *base, um_buf *out);
/* Prints the rows by group with range and default, wrapped to `columns`. The values in base are taken for defaults. */
void um_options_help(const um_option_set *sets, size_t n_sets, int columns, um_buf *out);

/* ---- Settings (settings.c, settings_argv.c, settings_env.c, settings_file.c, settings_print.c) --------------------
 */

/* Who gave an option its value; a later one wins over an earlier one, in whatever order they are read. SECTION is the
 * part of a file that is for one command. */
typedef enum { UM_BY_DEFAULT, UM_BY_FILE, UM_BY_SECTION, UM_BY_ENV, UM_BY_ARGV } um_giver;
typedef struct um_given {
    um_giver by;
    const char *where; /* "unmask.yaml:3:5", "UNMASK_THREADS", "--threads"; NULL for a default */
} um_given;

/* The options of one command while they are read. */
typedef struct um_settings {
    const um_option_set *sets;
    size_t n_sets;
    size_t n_outer;      /* the last so many sets are about the file itself (--config), which can't set them */
    const char *command; /* its section in a file */
    /* Does a command (NULL: any) know the option? Asked with option NULL: is there such a command? File and environment
     * serve all commands, so what another one knows is no mistake. */
    bool (*known)(const char *command, const char *option);
    um_arena *strings; /* what fields borrow from files */
    um_given *given;   /* beside each row */
} um_settings;
void um_settings_init(um_settings *s); /* after the fields above `given` are set */
void um_settings_free(um_settings *s); /* leaves `strings` */

/* One option and its value as somebody wrote them. */
typedef struct um_setting {
    const um_option *row;
    void *base;
    um_given *given;
    bool is_outer;
} um_setting;
typedef struct um_written {
    um_giver by;
    const char *where, *name, *value; /* value is borrowed where the row is UM_OPT_STR */
} um_written;
bool um_settings_find(const um_settings *s, const char *name, um_setting *out);
/* Checks the value and stores it, unless a stronger giver was there before. Twice from one giver is an error, but not
 * on the command line, where the last one counts. */
um_status um_settings_give(um_settings *s, const um_setting *o, const um_written *w, um_err *err);

/* Parses argv[1..argc): flags ("--name value", "--name=value", "--no-name"); the other words go to `rest` (capacity
 * argc), *n_rest their number. "--" ends the flags. "-h" and "--help" set *help. */
um_status um_settings_argv(um_settings *s, int argc, char **argv, const char **rest, int *n_rest, bool *help,
                           um_err *err);
/* Takes UNMASK_NAME of the environment; warns of names that no command knows. An empty variable counts as unset. */
um_status um_settings_env(um_settings *s, um_err *err);
/* Takes a YAML file: options by their names, at the top, in a section `engine` or in one named after a command, the
 * thresholds perhaps in a section `decoding_thresholds` there. null leaves an option as it is. */
um_status um_settings_file(um_settings *s, const char *path, um_err *err);
/* The same from text; `where` stands for the path. */
um_status um_settings_yaml(um_settings *s, const char *text, size_t len, const char *where, um_err *err);
/* Writes all options as such a file, each with the giver of its value. UM_EINVAL when a text is not UTF-8. */
um_status um_settings_print(const um_settings *s, um_buf *out, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
