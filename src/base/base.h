/* base: the utilities that all other rooms use: errors, log, memory, bytes, numbers, threads, time, JSON, YAML,
 * options.
 *
 * base contains nothing specific to models. Each section states which threads may call its functions. Where it states
 * nothing, any thread may call them on objects that no other thread uses at the same time. */
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

/* Stores code and message in err (which may be NULL) and returns the code: `return um_fail(err, UM_EPARSE, "…", …)`. */
um_status um_fail(um_err *err, um_status code, const char *fmt, ...) UM_PRINTF(3, 4);
/* Does the same for an error about one parameter: prefixes the message with "param: " and stores the name in
 * err->param. */
um_status um_fail_param(um_err *err, um_status code, const char *param, const char *fmt, ...) UM_PRINTF(4, 5);
/* Prefixes the message that err already holds with "context: " and returns its code. */
um_status um_fail_in(um_err *err, const char *fmt, ...) UM_PRINTF(2, 3);
/* Sets err->param to param unless the error already names a parameter. Returns s. Does nothing when s is UM_OK or err
 * is NULL. */
um_status um_fail_about(um_err *err, um_status s, const char *param);

/* ---- Log (log.c, log_writer.c) ----------------------------------------------------------------------------------- */

typedef enum { UM_LOG_ERROR, UM_LOG_WARN, UM_LOG_INFO, UM_LOG_DEBUG } um_log_level;
/* Any thread may log. Each line is written to stderr as a whole. The level applies to the process; its default is
 * UM_LOG_WARN. */
void um_log_set_level(um_log_level level);
um_log_level um_log_get_level(void);
void um_log(um_log_level level, const char *fmt, ...) UM_PRINTF(2, 3);
/* Sets the text in front of every message, such as "worker 0: ". Call it before other threads run. */
#define UM_LOG_PREFIX_MAX 32
void um_log_set_prefix(const char *prefix);
/* Selects JSON lines, {"time", "level", "message"}, or plain text. Call it before other threads run. */
void um_log_set_json(bool on);
bool um_log_is_json(void);
/* Writes the present time in UTC as log lines show it: "2026-01-31T23:59:59.123Z". */
#define UM_LOG_TIME_MAX 32
void um_log_time(char out[UM_LOG_TIME_MAX]);
#define um_warn(...) um_log(UM_LOG_WARN, __VA_ARGS__)
struct um_buf;
/* Appends the line that um_log would write. */
void um_log_line(um_log_level level, const char *message, struct um_buf *out);
/* Writes a complete line to the log, whatever the level. Any thread may call it. */
void um_log_write(const char *line, size_t n);
/* Starts a thread that writes the log lines. From then on logging never blocks: up to UM_LOG_BUFFER_MAX bytes are
 * buffered while the reader of stderr stalls. Further lines are dropped and counted, and a warning reports their number
 * when the reader continues. */
#define UM_LOG_BUFFER_MAX ((size_t)1 << 20)
um_status um_log_start_writer(um_err *err);
/* Waits until the buffered lines are written, at most `seconds`. Any thread may call it. */
void um_log_flush(double seconds);
/* Stops the thread once it has written the buffered lines; waits at most `seconds` for it. Later lines are written
 * directly. If the reader still stalls at the timeout, the buffered and all later lines are lost. Does nothing without
 * um_log_start_writer. */
void um_log_stop_writer(double seconds);
int64_t um_log_dropped(void); /* number of lines that were dropped or could not be written */

/* ---- Memory (mem.c, arena.c, buf.c) ------------------------------------------------------------------------------ */

/* Every allocation of the project goes through these functions. They count allocations, so that tests can prove that a
 * step allocates nothing. Small allocations print a message and abort when memory is exhausted. um_try_alloc returns
 * UM_ENOMEM instead; it is for memory that grows with the model (weights, pages, workspace). um_zalloc and um_try_alloc
 * return zeroed memory, the others don't. um_try_alloc_unset leaves the first access to the threads that will use the
 * memory. Free with um_free. */
void *um_alloc(size_t n);
void *um_zalloc(size_t n);
void *um_realloc(void *p, size_t n);
char *um_strdup(const char *s);
char *um_strndup(const char *s, size_t n);
um_status um_try_alloc(void **out, size_t n, size_t align, const char *what, um_err *err);
um_status um_try_alloc_unset(void **out, size_t n, size_t align, const char *what, um_err *err);
int64_t um_alloc_count(void);     /* number of allocations that this thread has made */
size_t um_memory_available(void); /* bytes that the process could still allocate, 0 if unknown */
/* Returns the bytes that the process could still allocate while `mapped` bytes of files stay in memory. The system
 * counts the pages of files as free. 0: unknown; at least 1 otherwise. */
size_t um_memory_available_beside(size_t mapped);
#define UM_NEW(T)          ((T *)um_zalloc(sizeof(T)))
#define UM_NEW_ARRAY(T, n) ((T *)um_zalloc(um_mul(n, sizeof(T))))

/* Checked sizes. um_mul aborts on overflow, which would be a bug of this program. um_mul_ok and um_add_ok return false
 * on overflow; they are for sizes from files and users. */
size_t um_mul(size_t a, size_t b);
bool um_mul_ok(size_t a, size_t b, size_t *out);
bool um_add_ok(size_t a, size_t b, size_t *out);

/* An arena allocates by bumping a pointer and frees everything at once. Allocations are aligned to 16 bytes. Pointers
 * stay valid until um_arena_reset or um_arena_free. A zeroed um_arena is empty and has no limit. */
typedef struct um_arena {
    struct um_arena_chunk *chunk;
    size_t used, total, limit; /* limit: largest `total`, 0 = none; beyond it um_arena_alloc returns NULL */
} um_arena;
void um_arena_init(um_arena *a, size_t limit);
void *um_arena_alloc(um_arena *a, size_t n); /* zeroed */
char *um_arena_strndup(um_arena *a, const char *s, size_t n);
void um_arena_reset(um_arena *a); /* frees all allocations; keeps the largest chunk for reuse */
void um_arena_free(um_arena *a);

/* A growing byte string. A NUL follows the `len` bytes once anything was appended. A zeroed um_buf is empty. */
typedef struct um_buf {
    char *data;
    size_t len, cap;
} um_buf;
void um_buf_reserve(um_buf *b, size_t more);
void um_buf_append(um_buf *b, const void *data, size_t n);
void um_buf_puts(um_buf *b, const char *s);
void um_buf_putc(um_buf *b, char c);
void um_buf_printf(um_buf *b, const char *fmt, ...) UM_PRINTF(2, 3);
void um_buf_clear(um_buf *b); /* sets the length to 0; keeps the memory */
void um_buf_free(um_buf *b);
char *um_buf_take(um_buf *b); /* returns the string, which the caller frees (um_free), and empties b; never NULL */

/* A borrowed byte string. */
typedef struct um_str {
    const char *p;
    size_t n;
} um_str;
#define UM_STR(literal) ((um_str){(literal), sizeof(literal) - 1})
um_str um_str_of(const char *s);
bool um_str_eq(um_str a, um_str b);
bool um_streq(const char *a, const char *b); /* NULL equals only NULL */
uint64_t um_key_hash(um_str key);            /* FNV-1a */

/* ---- Files (file.c) ---------------------------------------------------------------------------------------------- */

/* Reads a whole file into `out`. UM_ELIMIT when it is longer than `max` bytes. Messages name the path. */
um_status um_file_read(const char *path, size_t max, um_buf *out, um_err *err);
/* The same for a text that has a syntax, such as JSON or a grammar: without a byte order mark. Ends it with NUL. */
um_status um_file_read_text(const char *path, size_t max, um_buf *out, um_err *err);
bool um_file_exists(const char *path); /* exists and is not a folder */
bool um_dir_exists(const char *path);
/* A file mapped read-only. data is NULL when the file is empty. */
typedef struct um_map {
    const uint8_t *data;
    size_t size;
} um_map;
um_status um_map_open(um_map *m, const char *path, um_err *err);
void um_map_close(um_map *m);
/* Returns "dir/name" as a new string (um_free). */
char *um_path_join(const char *dir, const char *name);
/* Replaces the contents of a file with `data` atomically and durably. After a crash or an error the file holds either
 * its old contents or all of the new ones. Writes a temporary file, named like the file with ".new" appended, and
 * renames it. Follows symbolic links. Writes directly to a device or a pipe. UM_ENOENT, UM_EIO. */
um_status um_file_replace(const char *path, um_str data, um_err *err);
/* Does the same for a file that only the user of the program can read, and that is no link. */
um_status um_file_replace_private(const char *path, um_str data, um_err *err);
/* Checks whether the program can write to a file, or create it if it does not exist. Creates and changes nothing.
 * UM_ENOENT, UM_EIO. */
um_status um_file_check_write(const char *path, um_err *err);
/* Does the same for um_file_replace, which writes to the folder of a file. */
um_status um_file_check_replace(const char *path, um_err *err);
/* Creates a folder that only the user of the program can read, unless it exists. Fails also if the program can't read
 * it or create files in it. UM_ENOENT, UM_EIO. */
um_status um_dir_make_private(const char *path, um_err *err);
/* Flushes the entries of a folder to disk. */
um_status um_dir_sync(const char *path, um_err *err);

/* ---- Lines of a file (lines.c) ----------------------------------------------------------------------------------- */

/* A reader that keeps one line in memory at a time. One thread uses a reader. */

/* The longest accepted line in bytes. A line with a whole book as its prompt is far shorter. */
#define UM_LINE_MAX ((size_t)64 << 20)

typedef enum {
    UM_LINES_LINE,     /* a line was read */
    UM_LINES_TOO_LONG, /* a line longer than UM_LINE_MAX was skipped; `number` is its number */
    UM_LINES_AGAIN,    /* no line is available now, or a signal arrived: try again */
    UM_LINES_END,
    UM_LINES_FAILED
} um_lines_result;

typedef struct um_lines {
    const char *name; /* name of the input in messages, borrowed */
    int fd;
    um_buf buf;           /* bytes [start, buf.len) have not been returned yet */
    size_t start, looked; /* [start, looked) contains no newline */
    int64_t origin;       /* file offset of the first line; standard input may start in the middle of a file */
    int64_t number;       /* number of the line returned last, counted from 1 */
    int64_t offset;       /* bytes from the first line to the end of the line returned last, with its newline */
    bool cut;             /* the line returned last is the end of the file and has no newline */
    bool eof, skipping;
} um_lines;

/* Opens a file; "-" is standard input. UM_ENOENT, UM_EIO. */
um_status um_lines_open(um_lines *l, const char *path, um_err *err);
/* Initializes a reader of fd. um_lines_close closes fd. */
void um_lines_from(um_lines *l, int fd, const char *name);
void um_lines_close(um_lines *l);
/* Returns to the first line. Only for inputs for which um_lines_is_file is true. */
um_status um_lines_rewind(um_lines *l, um_err *err);
/* Returns whether the input is a regular file, which can be read twice, and not a pipe. */
bool um_lines_is_file(const um_lines *l);
/* Reads the next line that is not blank, without its newline. The line is valid until the next call. Blocks for input
 * if `wait` is set; a signal interrupts the wait, and the function returns UM_LINES_AGAIN. */
um_lines_result um_lines_next(um_lines *l, bool wait, um_str *line, um_err *err);
/* Does the same without reading from the file. Returns UM_LINES_AGAIN when the buffer does not hold the whole next
 * line. */
um_lines_result um_lines_next_buffered(um_lines *l, um_str *line);

/* ---- Ids (idset.c) ----------------------------------------------------------------------------------------------- */

/* A set of the request ids read so far, each with its line number in the input. A key is the JSON text of an id, so
 * that 1 and "1" differ. One thread uses a set. */
typedef struct um_idset_entry {
    const char *key;
    int64_t line;  /* line number in the input */
    bool answered; /* for use by the caller; false in a new entry */
} um_idset_entry;

typedef struct um_idset {
    um_arena keys;
    um_idset_entry *slot; /* [cap]; cap is a power of two */
    size_t n, cap;
} um_idset;

/* Returns the entry of key, or NULL. The entry is valid until the next um_idset_add. */
um_idset_entry *um_idset_find(const um_idset *s, const char *key);
/* Adds a copy of a key that is not in the set yet. A zeroed um_idset is empty. */
um_idset_entry *um_idset_add(um_idset *s, const char *key, int64_t line);
void um_idset_free(um_idset *s);

/* ---- Ledgers (ledger.c) ------------------------------------------------------------------------------------------ */

/* An append-only file of lines that survives a crash of the program: at most its last line is incomplete, and
 * um_ledger_read finds where the complete lines end. One thread uses a ledger. */
typedef struct um_ledger {
    const char *name; /* name of the file in messages, borrowed */
    int fd;           /* -1: closed */
    bool file;        /* whether this is a regular file, which can be read again and truncated */
    int64_t keep;     /* bytes of valid lines at the start of the file */
} um_ledger;
/* Opens or creates a file ("-" is standard output) without changing its contents, and locks it against other programs.
 * UM_EINVAL when another program holds the lock. UM_EIO. */
um_status um_ledger_open(um_ledger *l, const char *path, um_err *err);
/* Calls fn for each complete line. The lines for which fn returns UM_OK are kept. fn returns UM_EPARSE for an invalid
 * line. An incomplete or invalid last line is dropped. An invalid line before the last one fails with UM_EPARSE; that
 * line and all later ones are not kept. */
typedef um_status (*um_ledger_fn)(void *arg, um_str line, int64_t number, um_err *err);
um_status um_ledger_read(um_ledger *l, um_ledger_fn fn, void *arg, um_err *err);
/* Truncates the file to the kept lines. Call it before the first write. */
um_status um_ledger_truncate(um_ledger *l, um_err *err);
/* Appends complete lines. If that fails, the file is truncated to its previous length. UM_EIO. */
um_status um_ledger_write(um_ledger *l, um_str lines, um_err *err);
/* Does the same and flushes the lines to disk. */
um_status um_ledger_commit(um_ledger *l, um_str lines, um_err *err);
/* Closes the file. UM_EIO when the system reports an earlier write error only now. */
um_status um_ledger_close(um_ledger *l, um_err *err);

/* ---- UTF-8 (utf8.c) ---------------------------------------------------------------------------------------------- */

/* Returns the length of the byte order mark that some editors write in front of a text: 3, or 0 if s has none. */
size_t um_utf8_mark(um_str s);
/* Decodes the code point at the start of s [n] and returns its length 1..4. Returns 0 when the bytes are not valid
 * UTF-8 (overlong, surrogate, above U+10FFFF, truncated). */
int um_utf8_next(const char *s, size_t n, uint32_t *cp);
/* Encodes a code point and returns its length 1..4. */
int um_utf8_put(uint32_t cp, char out[4]);
/* Returns the index of the first byte that is not valid UTF-8, or n. */
size_t um_utf8_check(const char *s, size_t n);
/* Returns the length (>= 1) of the ill-formed sequence at s that one U+FFFD replaces: Unicode's maximal subpart. Sets
 * *incomplete when the n bytes are the beginning of a well-formed sequence. */
size_t um_utf8_bad(const char *s, size_t n, bool *incomplete);
/* Returns the terminal columns that the code point takes: 0, 1 or 2. */
int um_utf8_width(uint32_t cp);
/* Returns whether a character is a C0 or C1 control other than newline and tab, or a bidirectional override, which can
 * disguise text. */
bool um_utf8_is_control(uint32_t cp);

/* ---- Random numbers (rng.c) -------------------------------------------------------------------------------------- */

/* A counter-based generator: a value is a pure function of a key and a counter, so scheduling, preemption and resuming
 * can't change it. um_rng_key mixes the parts of a key: seed, position, number of the pass within its block, use. */
uint64_t um_rng_key(uint64_t seed, uint64_t position, uint64_t count, uint64_t use);
/* The constants of um_rng_u64, for vector code that computes the same numbers. */
#define UM_RNG_STEP UINT64_C(0x9E3779B97F4A7C15) /* 2^64 divided by the golden ratio, odd: steps visit every state */
#define UM_RNG_MUL1 UINT64_C(0xBF58476D1CE4E5B9)
#define UM_RNG_MUL2 UINT64_C(0x94D049BB133111EB)
static inline uint64_t um_rng_mix(uint64_t z) {
    z = (z ^ (z >> 30)) * UM_RNG_MUL1;
    z = (z ^ (z >> 27)) * UM_RNG_MUL2;
    return z ^ (z >> 31);
}
uint64_t um_rng_u64(uint64_t key, uint64_t counter);
double um_rng_uniform(uint64_t key, uint64_t counter); /* (0, 1), both ends excluded */
/* Returns standard Gumbel noise in fp32: -ln(-ln u). */
float um_rng_gumbel(uint64_t key, uint64_t counter);
int64_t um_rng_seed(void); /* a random seed from the system, 0..2^53-1, which JSON represents exactly */

/* ---- CPUs (cpus.c) ----------------------------------------------------------------------------------------------- */

/* Returns the number of CPUs that this process may use, at least 1: the CPUs of its affinity mask, but no more than the
 * CPU quotas of its control groups allow. Rounds a quota up to whole CPUs. Reads /proc/self/cgroup and
 * /sys/fs/cgroup. */
int um_cpu_count(void);
/* Returns the smallest CPU quota of a process's control group and its ancestors, rounded up to whole CPUs, or 0 where
 * no group has a quota.
 *
 * root        folder where the groups are mounted, as /sys/fs/cgroup: version 2 in the folder itself, version 1 in its
 *             folder "cpu"
 * membership  contents of /proc/self/cgroup */
int um_cgroup_cpu_limit(const char *root, const char *membership);

/* ---- Places of threads (topology.c) ------------------------------------------------------------------------------ */

#define UM_CPUS_MAX 1024 /* CPUs with higher numbers are not used for pinned threads */
/* Reads a list of CPUs as the kernel writes it, "0-3,8", until the end or the first error. Returns their number, at
 * most `max`; CPUs from UM_CPUS_MAX on are left out. */
int um_cpu_list(const char *text, int *cpu, int max);
/* Writes the CPUs of this thread's affinity mask in ascending order to cpu [UM_CPUS_MAX] and returns their number; 0
 * when the mask can't be read. */
int um_cpu_usable(int *cpu);
/* Chooses a CPU for each of n threads. Neighbouring threads are on the same memory node, and the nodes get threads in
 * proportion to their usable CPUs. Cores are used before second hardware threads of cores.
 *
 * root    folder as /sys/devices/system; without its files, all CPUs are cores of one node
 * usable  [n_usable] CPUs that may be used, ascending; n <= n_usable <= UM_CPUS_MAX
 * cpu     [n] receives the CPU of each thread
 * Returns the number of nodes with usable CPUs. */
int um_cpu_places(const char *root, const int *usable, int n_usable, int n, int *cpu);

/* ---- Threads (pool.c) -------------------------------------------------------------------------------------------- */

/* A pool with a fixed number of threads. um_pool_run calls fn(arg, task, thread) for every task in [0, n) on the pool's
 * threads and on the calling thread (thread 0), and returns when all tasks are done. Thread t runs the t-th of
 * n_threads equal shares of the tasks. A thread that is done takes tasks that are left in other shares after a few
 * microseconds, so results must not depend on the thread that runs a task. Only one thread may call um_pool_run at a
 * time. */
typedef struct um_pool um_pool;
/* Returns the first of n things in the share of part t of `parts` parts; for t = parts, returns n. */
static inline int um_share_begin(int n, int t, int parts) { return (int)(((int64_t)n * t + parts - 1) / parts); }
typedef void (*um_task_fn)(void *arg, int task, int thread);
um_status um_pool_new(um_pool **out, int n_threads, um_err *err); /* n_threads 0: um_cpu_count() */
/* Does the same and keeps thread t on the CPU cpu[t], if that is not negative. cpu [n_threads]; NULL keeps no thread
 * anywhere. The system chooses the CPU of thread 0, the caller's: threads that the caller starts later would inherit
 * its place. */
um_status um_pool_new_on(um_pool **out, int n_threads, const int *cpu, um_err *err);
void um_pool_free(um_pool *p);
int um_pool_threads(const um_pool *p);
void um_pool_run(um_pool *p, um_task_fn fn, void *arg, int n);
/* Does the same, but no thread takes tasks of other shares. For work that must be done by a certain thread, such as
 * writing memory for the first time. */
void um_pool_run_fixed(um_pool *p, um_task_fn fn, void *arg, int n);

/* ---- Time (clock.c) ---------------------------------------------------------------------------------------------- */

double um_now(void);                       /* monotonic time in seconds */
struct timeval um_timeval(double seconds); /* converts a duration for timers; negative ones become 0 */

/* ---- Measuring (measure.c) --------------------------------------------------------------------------------------- */

enum { UM_MEASURE_WINDOWS = 15, UM_MEASURE_TASKS = 4 }; /* the most windows, and tasks that are measured in turns */
#define UM_MEASURE_WAITED_MAX 0.05                      /* largest share of a window that other processes may take */

/* A function to measure. round counts its calls, so that it can alternate between copies of its data. */
typedef struct um_measure_task {
    void (*run)(void *arg, int round);
    void *arg;
} um_measure_task;

/* Seconds per call in the windows. */
typedef struct um_measured {
    double median, min, max;
    double waited; /* share of the time in which threads were ready to run but other processes used the cores */
} um_measured;

/* Measures n tasks in turns, one window of at least `seconds` each, so that disturbances of the machine affect all of
 * them. Repeats a window in which other processes took more than UM_MEASURE_WAITED_MAX, but only a few times. */
void um_measure(const um_measure_task *task, int n, int windows, double seconds, um_measured *out);

/* ---- Profile (profile.c) ----------------------------------------------------------------------------------------- */

/* A recorder of spans, the durations of named pieces of work. It writes a trace that Perfetto and chrome://tracing
 * open, and sums per name. While it is off, a span costs one branch at its start and one at its end. While it is on,
 * entering and leaving allocate nothing. Spans nest: the span entered last is left first. One thread uses a profile. A
 * zeroed um_profile is off. */
#define UM_PROFILE_DEPTH   8                  /* largest number of nested spans */
#define UM_PROFILE_NAMES   48                 /* largest number of different names */
#define UM_PROFILE_SPANS   ((size_t)1 << 16)  /* largest number of spans held in memory before they are written */
#define UM_PROFILE_WRITTEN ((int64_t)2000000) /* largest number of spans in a trace; the sums count all */

typedef struct um_profile_span {
    const char *name;
    double start, end;
    int32_t size;
} um_profile_span;

typedef struct um_profile_sum {
    const char *name;
    int64_t n;
    double seconds, self; /* self: without the nested spans */
} um_profile_sum;

typedef struct um_profile {
    bool on;
    int32_t depth;
    double origin, total;                /* start time; seconds of the outermost spans */
    double inside[UM_PROFILE_DEPTH + 1]; /* [depth]: seconds of the finished spans nested in the open span */
    um_profile_sum sum[UM_PROFILE_NAMES];
    int32_t n_sums;
    um_profile_span *span; /* [UM_PROFILE_SPANS] */
    size_t n_spans;
    int64_t n_written, n_dropped;
    int fd;
    char *path;
    um_buf text; /* lines that are not written to the file yet */
    um_err err;  /* the first write error */
} um_profile;

/* Checks whether a profile can be written to a path, before a model is loaded for example. UM_ENOENT, UM_EIO. */
um_status um_profile_check(const char *path, um_err *err);
/* Starts a trace in a file, overwriting an existing one, and sets the sums to 0. Without a path it keeps the sums only.
 * Does nothing when the profile is on. UM_EIO. */
um_status um_profile_start(um_profile *p, const char *path, um_err *err);
/* Adds a span that was measured elsewhere, within the open span. start and end are times of um_now. */
void um_profile_add(um_profile *p, const char *name, double start, double end, int32_t size);
/* Ends the trace and writes the sums to a table in the same folder ("x.json" -> "x.csv"). The sums stay until the next
 * start. Does nothing when the profile is off. UM_EIO when a file could not be written. */
um_status um_profile_stop(um_profile *p, um_err *err);
/* Writes the held spans to the file when more than half of UM_PROFILE_SPANS are held. Call it outside of measured work.
 * While UM_PROFILE_SPANS are held, further spans are dropped from the trace and counted. */
void um_profile_flush(um_profile *p);
/* Appends the sums, the longest first, as CSV or as a text table. */
void um_profile_put_csv(const um_profile *p, um_buf *out);
void um_profile_put_table(const um_profile *p, um_buf *out);

/* The parts of um_profile_enter and um_profile_leave that run while the profile is on. */
double um_profile_open(um_profile *p);
void um_profile_close(um_profile *p, double since, const char *name, int32_t size);
/* Enters a span and returns the `since` argument of um_profile_leave. */
static inline double um_profile_enter(um_profile *p) { return p->on ? um_profile_open(p) : 0; }
/* Leaves a span. `name` must outlive the profile and need no escapes in JSON. size is the amount of work in any unit.
 */
static inline void um_profile_leave(um_profile *p, double since, const char *name, int32_t size) {
    if (p->on) um_profile_close(p, since, name, size);
}

/* ---- Numbers as text (number.c) ---------------------------------------------------------------------------------- */

/* The decimal point is '.' in every locale. Parsing returns false unless the whole text is a number in range; spaces,
 * hexadecimal and infinity are invalid. Formatting writes the shortest text that parses back to the same value. */
bool um_parse_int(const char *s, int64_t *out);
bool um_parse_double(const char *s, double *out);
#define UM_NUMBER_MAX 32
void um_format_double(double v, char out[UM_NUMBER_MAX]); /* finite */
void um_format_float(float v, char out[UM_NUMBER_MAX]);   /* finite; parses back to the same float */
/* Write a number of bytes (>= 0) for people, "16.1 GB", and a large count (>= 0) with three digits, "2.03 B". Both
 * return out. */
#define UM_BYTES_TEXT 32
#define UM_COUNT_TEXT 32
const char *um_bytes_text(char out[UM_BYTES_TEXT], double bytes);
const char *um_count_text(char out[UM_COUNT_TEXT], double n);

/* ---- JSON (json.c, json_exact.c, json_take.c, jwriter.c) --------------------------------------------------------- */

/* jansson parses JSON. These functions add messages with file, line and column, and typed access with the key in the
 * message. U+0000 in strings is accepted. Of duplicate keys the last one counts. jansson limits the depth to 2048. */
struct json_t;
um_status um_json_parse(struct json_t **out, const char *text, size_t len, const char *where, um_err *err);
um_status um_json_load(struct json_t **out, const char *path, um_err *err); /* UM_ENOENT when missing */
/* Parses JSON that will be written again for another reader (json_exact.c). An integer beyond 64 bits keeps its digits:
 * it becomes an object that um_json_big_integer recognizes and that can be written and parsed again. A lone surrogate
 * becomes U+FFFD. */
um_status um_json_parse_exact(struct json_t **out, const char *text, size_t len, const char *where, um_err *err);
void um_json_put_exact(const struct json_t *v, um_buf *out); /* writes these integers as digits again */
/* Parses a request as um_json_parse_exact does. Duplicate keys in an object fail with the key as the error's param. */
um_status um_json_parse_request(struct json_t **out, const char *text, size_t len, const char *where, um_err *err);
/* Returns an upper bound of the memory that the values of a JSON text take, in bytes, without parsing it
 * (json_memory.c). The text may be invalid. */
size_t um_json_memory(um_str text);
/* Returns the index after the closing quote of the string whose first character is at `at`; s.n if there is none. */
size_t um_json_string_end(um_str s, size_t at);
bool um_json_in_number(char c); /* whether numbers have this character */
/* Returns the digits and sign of an integer beyond 64 bits; p is NULL when v is anything else. */
um_str um_json_big_integer(const struct json_t *v);
/* The um_json_get_* functions read the value of key in obj. When it is missing or null, they leave *out unchanged and
 * return UM_OK. A wrong type or range fails with UM_EPARSE; the message has `where`, the key, the expected and the
 * found value. */
um_status um_json_get_int(const struct json_t *obj, const char *key, const char *where, int64_t min, int64_t max,
                          int64_t *out, um_err *err);
um_status um_json_get_int32(const struct json_t *obj, const char *key, const char *where, int32_t min, int32_t max,
                            int32_t *out, um_err *err);
um_status um_json_get_double(const struct json_t *obj, const char *key, const char *where, double *out, um_err *err);
um_status um_json_get_bool(const struct json_t *obj, const char *key, const char *where, bool *out, um_err *err);
/* *out is borrowed from obj. */
um_status um_json_get_str(const struct json_t *obj, const char *key, const char *where, const char **out, um_err *err);
/* Checked values of requests (json_take.c). `what` names the value in messages ("\"prompt\"", "stop string 2").
 * UM_EINVAL for a wrong type, UM_ERANGE for a number out of range. */
const char *um_json_kind(const struct json_t *v); /* "an object", "an integer beyond 64 bits"; "nothing" for NULL */
um_status um_json_take_text(const struct json_t *v, const char *what, const char **out, um_err *err); /* no U+0000 */
um_status um_json_take_bool(const struct json_t *v, const char *what, bool *out, um_err *err);
um_status um_json_take_int(const struct json_t *v, const char *what, int64_t min, int64_t max, int64_t *out,
                           um_err *err);
/* Reads an array of token ids into out [json_array_size(v)]. Checks only the range 0..INT32_MAX, not the vocabulary. */
um_status um_json_take_ids(const struct json_t *v, const char *what, int32_t *out, um_err *err);

/* A streaming JSON writer into a buffer. It adds commas and escapes. NaN and infinity, which JSON lacks, become null.
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
void um_jw_double(um_jw *w, double v); /* shortest text that parses back to the same double */
void um_jw_float(um_jw *w, float v);   /* shortest text that parses back to the same float */
void um_jw_share(um_jw *w, double v);  /* 0..1 with six decimals; faster than um_jw_double */
void um_jw_bool(um_jw *w, bool v);
void um_jw_null(um_jw *w);
void um_jw_raw(um_jw *w, const char *json, size_t n);  /* a value that is already JSON text */
void um_jw_ints(um_jw *w, const int32_t *v, size_t n); /* an array */

/* The um_jw_put_* functions write a member of an object: its key and its value. */
void um_jw_put_str(um_jw *w, const char *key, um_str v);
void um_jw_put_cstr(um_jw *w, const char *key, const char *v);
void um_jw_put_int(um_jw *w, const char *key, int64_t v);
void um_jw_put_double(um_jw *w, const char *key, double v);
/* Writes a duration below 1e12 seconds with six decimals and without an exponent: "0.000091". Other values are written
 * as um_jw_put_double writes them. */
void um_jw_put_seconds(um_jw *w, const char *key, double seconds);
void um_jw_put_ratio(um_jw *w, const char *key, double a, double b); /* a / b, or null unless both are above 0 */
void um_jw_put_bool(um_jw *w, const char *key, bool v);
void um_jw_put_null(um_jw *w, const char *key);
void um_jw_put_ints(um_jw *w, const char *key, const int32_t *v, size_t n);
void um_jw_put_bytes(um_jw *w, const char *key, um_str v); /* an array of 0..255 */

/* ---- YAML (yaml.c) ----------------------------------------------------------------------------------------------- */

/* A parsed configuration file: names and scalars in sections. Scalars stay text; the option's row defines their type.
 * Lists, anchors, aliases, tags, duplicate keys and further documents are errors. Lines and columns count from 1. */
typedef enum { UM_YAML_PLAIN, UM_YAML_QUOTED, UM_YAML_NULL, UM_YAML_SECTION } um_yaml_kind;
typedef struct um_yaml_entry {
    const char *section; /* the enclosing names, joined by dots: "", "engine", "engine.decoding_thresholds" */
    const char *key, *value;
    um_yaml_kind kind; /* UM_YAML_SECTION: `key` opens a section. value is NULL for it and for UM_YAML_NULL */
    int key_line, key_column, line, column;
} um_yaml_entry;
typedef struct um_yaml {
    um_yaml_entry *entry;
    size_t n, cap;
} um_yaml;
#define UM_YAML_BYTES_MAX   ((size_t)1 << 20)
#define UM_YAML_ENTRIES_MAX 1000
#define UM_YAML_DEPTH_MAX   3 /* nested mappings, including the outermost */
/* Parses a text. The strings of the entries are allocated in `strings`; um_yaml_free frees only the entries. `where`
 * names the text in messages. */
um_status um_yaml_parse(um_yaml *out, um_arena *strings, const char *text, size_t len, const char *where, um_err *err);
void um_yaml_free(um_yaml *y);
/* Reads the texts of the list `key` of the outermost mapping into out [most]; they are allocated in `strings`. Returns
 * their number. The rest of the document may use the whole language and is skipped, and so are items that are no
 * texts. A malformed document is read up to the place where libyaml notices it. */
size_t um_yaml_texts(const char *text, size_t len, const char *key, um_arena *strings, const char **out, size_t most);
/* Appends UTF-8 text as a double-quoted scalar. */
void um_yaml_put_quoted(um_buf *out, const char *s);
/* Appends text for a comment. Characters that a comment can't contain become '?'. */
void um_yaml_put_comment(um_buf *out, const char *s);

/* ---- Options (option.c, option_name.c, option_help.c) ------------------------------------------------------------ */

/* A row that describes one option. Parsing, --help, the docs and messages all use it. The flag is the name with dashes
 * ("--accept-threshold"). The environment variable is UNMASK_ and the name in capitals. A bool flag needs no value on
 * the command line ("--ignore-eos", "--no-ignore-eos"); as text its value is true/false, yes/no, on/off or 1/0. */
typedef enum {
    UM_OPT_BOOL,   /* bool */
    UM_OPT_INT,    /* int32_t */
    UM_OPT_INT64,  /* int64_t */
    UM_OPT_FLOAT,  /* float */
    UM_OPT_NAME,   /* char[size]: a word, one of `choices` if the row has any */
    UM_OPT_CHOICE, /* int32_t: index into `choices` */
    UM_OPT_STR     /* const char *: borrowed text (paths, prompts) */
} um_opt_type;

typedef struct um_option {
    const char *name;  /* "accept_threshold" */
    const char *alias; /* other names, comma-separated, or NULL. A name of one letter is the short option: "m" is -m */
    um_opt_type type;
    size_t offset, size; /* place and size of the field in its struct */
    bool is_live;        /* the server reads the option again on SIGHUP, and applies it while it runs */
    double min, max; /* range of a number; both 0: no range. A UM_OPT_NAME with choices whose max is above 1 is a list
                        of up to max words with commas between them */
    const char *choices; /* "a|b|c" for UM_OPT_NAME and UM_OPT_CHOICE, or NULL. The N of "N" and "a:N" of UM_OPT_NAME
                            stands for a number */
    const char *def;     /* default as text; NULL: no default (UM_OPT_STR only) */
    /* The value that "auto" stores, as text ("nan", "0", "-1"), or NULL when "auto" is not allowed. Where it is "-1",
     * the text "-1" means "auto" too. "off=nan" allows the word "off" in place of "auto". */
    const char *autos;
    const char *metavar; /* "N", "DIR" */
    const char *group;   /* heading in --help */
    const char *help;    /* one sentence without a full stop */
} um_option;

#define UM_FIELD(type, field)      offsetof(type, field), sizeof(((type *)0)->field), false
#define UM_LIVE_FIELD(type, field) offsetof(type, field), sizeof(((type *)0)->field), true

/* A table of options and the struct that holds their values. */
typedef struct um_option_set {
    const um_option *rows;
    size_t n;
    void *base; /* the struct that the rows' offsets refer to */
} um_option_set;

/* Stores the default of every row into base. */
void um_options_init(const um_option *rows, size_t n, void *base);
/* Returns the row with this name or alias ('-' and '_' are equal), or NULL. */
const um_option *um_options_find(const um_option *rows, size_t n, const char *name);
/* Parses text into the field. Error messages name the option, the value and the range. */
um_status um_option_set_text(const um_option *row, void *base, const char *value, um_err *err);
/* Does the same for an option that the user called `name`, which may be an alias. Messages call it `label`. With base
 * NULL, checks the value without storing it. */
um_status um_option_set_as(const um_option *row, void *base, const char *name, const char *label, const char *value,
                           um_err *err);
/* Converts a JSON value to the text form of an option's value (json_take.c). The JSON type must match the row's type,
 * or the value must be the row's word for "auto". *text may point into `number` or into v. UM_EINVAL. */
um_status um_option_json_text(const um_option *row, const char *label, const struct json_t *v,
                              char number[UM_NUMBER_MAX], const char **text, um_err *err);
/* Appends the value of the field as text, or the row's word for "auto" when the field holds its value. */
void um_option_get_text(const um_option *row, const void *base, um_buf *out);
/* Returns whether two structs hold the same value. */
bool um_option_equal(const um_option *row, const void *a, const void *b);
/* Returns the row's word for its automatic value, usually "auto"; length 0 when the row has none. */
um_str um_option_auto(const um_option *row);
/* Returns whether `text` is that word. */
bool um_option_is_auto(const um_option *row, const char *text);
/* Returns the name of the row's type for people and other programs: "integer", "text". */
const char *um_option_type(const um_option *row);
/* Appends the range or the choices: "0..1", "a, b or c". Appends nothing when any value is allowed. */
void um_option_range(const um_option *row, um_buf *out);
/* Sets an option by name in the first set that has it. UM_EINVAL for an unknown name; the message suggests the nearest
 * one. */
um_status um_options_set(const um_option_set *sets, size_t n_sets, const char *name, const char *value, um_err *err);
/* Checks that every field holds a value that its row allows. Programs may store values in the structs directly. */
um_status um_options_check(const um_option_set *sets, size_t n_sets, um_err *err);

/* Append the name of the flag, without its leading dashes, and the name of the environment variable. */
void um_option_put_flag(const char *name, um_buf *out);
void um_option_put_env(const char *name, um_buf *out);
/* Finds alias number i; the short option is not an alias. Returns false when the row has fewer. */
bool um_option_alias(const um_option *row, size_t i, um_str *name);
/* Returns the letter of the short option, or 0. */
char um_option_short(const um_option *row);
/* Returns the index of a word in a separated list, or -1; '-' and '_' are equal. *at receives the word as the list
 * spells it. */
int um_word_index(const char *list, char separator, const char *word, um_str *at);
/* Returns the option name in the sets that is nearest to a mistyped one, or NULL. */
const char *um_options_nearest(const um_option_set *sets, size_t n_sets, const char *name);
/* Returns the word of `words` [n] nearest to `word` by edit distance, or NULL when none is near. */
const char *um_nearest(const char *word, const char *const *words, size_t n);

/* Calls fn for every row, group by group, in the order of the groups' first rows. */
typedef void (*um_option_fn)(void *arg, const um_option_set *set, const um_option *row, bool opens_group);
void um_options_each(const um_option_set *sets, size_t n_sets, um_option_fn fn, void *arg);
/* Appends "-f, --flag METAVAR"; "--[no-]flag" for a bool that is on. */
void um_option_put_usage(const um_option *row, const void *base, um_buf *out);
/* Appends range and default, " (0..1; default 0.5)", or nothing for a flag that is off. The default is the value in
 * base. */
void um_option_put_range_and_default(const um_option *row, const void *base, um_buf *out);
/* Appends the rows by group with range and default, wrapped to `columns`. The defaults are the values in base. */
void um_options_help(const um_option_set *sets, size_t n_sets, int columns, um_buf *out);

/* ---- Settings (settings.c, settings_*.c) ------------------------------------------------------------------------- */

/* The source of an option's value. A later source in this list has precedence over an earlier one, whatever the order
 * in which they are read. UM_BY_SECTION is a section of the file for one command. */
typedef enum { UM_BY_DEFAULT, UM_BY_FILE, UM_BY_SECTION, UM_BY_ENV, UM_BY_ARGV } um_giver;
typedef struct um_given {
    um_giver by;
    const char *where; /* "unmask.yaml:3:5", "UNMASK_THREADS", "--threads"; NULL for a default */
} um_given;

/* An option of another engine's command line. Values that would change nothing in this program are accepted, so that
 * scripts written for that engine run. Other values are rejected. */
typedef enum {
    UM_FOREIGN_SWITCH, /* a flag without a value, "--trust-remote-code", or with true or false */
    UM_FOREIGN_NUMBER,
    UM_FOREIGN_WORD,
    UM_FOREIGN_FOLDER /* a switch, or a folder that is passed to `option` */
} um_foreign_kind;
typedef struct um_foreign {
    const char *names; /* "tensor_parallel_size,tp_size": all names, the usual one first */
    um_foreign_kind kind;
    const char *neutral; /* the accepted values, "auto|safetensors"; NULL: every value of the kind */
    /* Option of this program that gets the value. "!name" gets the inverse of a switch. NULL: none. */
    const char *option;
    const char *note; /* a clause for the log, messages and docs: what this program does in place of the option */
} um_foreign;
typedef struct um_foreign_given {
    um_giver by;
    const char *label; /* "--tensor-parallel-size" or "unmask.yaml:3:5: tensor_parallel_size" */
    const char *value; /* text of the value as the user wrote it */
} um_foreign_given;
/* Returns the name in f->option without the '!', or NULL when f has no option. */
const char *um_foreign_option(const um_foreign *f);
/* Returns the row with this name ('-' and '_' are equal), or NULL. A row whose option is in none of the sets counts as
 * missing. */
const um_foreign *um_foreign_find(const um_foreign *rows, size_t n, const um_option_set *sets, size_t n_sets,
                                  const char *name);

/* The options of one command while they are read from their sources. */
typedef struct um_settings {
    const um_option_set *sets;
    size_t n_sets;
    size_t n_outer;      /* the last n_outer sets are about the file itself (--config); a file can't set them */
    const char *command; /* name of the command and of its section in a file */
    /* Returns whether a command (NULL: any command) has the option. With option NULL it returns whether the command
     * exists. A file and the environment serve all commands, so an option of another command is not an error. */
    bool (*known)(const char *command, const char *option);
    um_arena *strings;         /* memory of the strings that fields borrow from files */
    const um_foreign *foreign; /* [n_foreign] options of other engines that the command accepts */
    size_t n_foreign;
    /* Returns the name of the option that does what another program calls `name`, or NULL. Such a name is an error,
     * whose message names the option. NULL: no names are known. */
    const char *(*peer_name)(const char *name);
    um_given *given;                 /* [rows of all sets] the source of each option's value */
    um_foreign_given *foreign_given; /* [n_foreign] */
} um_settings;
void um_settings_init(um_settings *s); /* call it after setting the fields above `given` */
void um_settings_free(um_settings *s); /* does not free `strings` */

/* An option that was found by name, and the text from which it gets its value. */
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
bool um_settings_find_short(const um_settings *s, char letter, um_setting *out); /* "-m" by its letter */
/* Checks the value, and stores it unless a source of higher precedence has set the option. The same source setting an
 * option twice is an error, except for the command line, where the last value counts. */
um_status um_settings_set(um_settings *s, const um_setting *o, const um_written *w, um_err *err);
/* Appends the name of the option in messages: "--threads", "UNMASK_THREADS", "unmask.yaml:3:5: threads". */
void um_written_put_label(const um_written *w, um_buf *out);

/* Returns the foreign option of this name that the command accepts, or NULL. */
const um_foreign *um_settings_find_foreign(const um_settings *s, const char *name);
/* Checks the value of a foreign option. Passes it on when the row names an option of this program. UM_EUNSUPPORTED when
 * the value is not among the accepted ones. */
um_status um_settings_set_foreign(um_settings *s, const um_foreign *f, const um_written *w, um_err *err);
/* Call it when all sources are read. Logs a line for each foreign option that was given, with the note of its row.
 * UM_EINVAL when a switch contradicts the folder of its option. */
um_status um_settings_finish(um_settings *s, um_err *err);

/* Parses the flags of argv[1..argc): "--name value", "--name=value", "--no-name". Stores the other words in `rest`
 * (capacity argc) and their number in *n_rest. "--" ends the flags. "-h" and "--help" set *help. */
um_status um_settings_argv(um_settings *s, int argc, char **argv, const char **rest, int *n_rest, bool *help,
                           um_err *err);
/* Reads the variables UNMASK_NAME of the environment. Warns about names that no command has. An empty variable counts
 * as unset. */
um_status um_settings_env(um_settings *s, um_err *err);
/* Reads a YAML file. Options are at the top level, in the section `engine` or in the section of a command. Each of
 * these may hold some of them in a section `decoding_thresholds`. null leaves an option unchanged. */
um_status um_settings_file(um_settings *s, const char *path, um_err *err);
/* Reads the same from text; `where` stands for the path in messages. */
um_status um_settings_yaml(um_settings *s, const char *text, size_t len, const char *where, um_err *err);
/* Writes all options as a YAML file, each with the source of its value. UM_EINVAL when a text is not UTF-8. */
um_status um_settings_print(const um_settings *s, um_buf *out, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
