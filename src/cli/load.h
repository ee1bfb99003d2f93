/* load: sends many requests to a server at given times and records what happened to each. Latencies count from the time
 * a request was due, not from when it was sent: a slow client must not make the server look fast.
 *
 * arrivals (load_arrivals.c) -> run (load_run.c: one event loop, any number of streams) -> records -> summary
 * (load_summary.c) -> report (load_report.c, load_files.c). Single-threaded. */
#ifndef UM_CLI_LOAD_H
#define UM_CLI_LOAD_H

#include "cli/peer.h"
#include "cli/report.h"

struct json_t;

/* ---- Arrival times (load_arrivals.c) ----------------------------------------------------------------------------- */

#define UM_LOAD_REQUESTS_MAX 10000000

typedef struct um_arrivals {
    double *at; /* [n] seconds since the start, ascending */
    size_t n, cap;
} um_arrivals;
/* Appends the arrivals of a Poisson process: independent, exponentially distributed gaps with mean 1 / rate. The same
 * seed and rate give the same times. Stops after n arrivals, or, if seconds > 0, at that time instead. */
void um_arrivals_poisson(um_arrivals *a, uint64_t seed, double rate, size_t n, double seconds);
/* Appends an arrival. Returns false if it is negative, not finite, or earlier than the last one. */
bool um_arrivals_push(um_arrivals *a, double at);
void um_arrivals_free(um_arrivals *a);

/* ---- Prompts (load_prompts.c) ------------------------------------------------------------------------------------ */

typedef struct um_load_prompt {
    const char *text;
    int64_t max_tokens; /* 0: the value of --max-tokens */
} um_load_prompt;
typedef struct um_load_prompts {
    um_arena text;
    um_load_prompt *prompt; /* [n], used in turn */
    size_t n, cap;
    char *about; /* description for the report */
} um_load_prompts;
/* Reads a file of {"prompt"} lines; other members are ignored. UM_EINVAL, UM_ENOENT, UM_EIO. */
um_status um_load_prompts_file(um_load_prompts *p, const char *path, um_err *err);
/* Makes n prompts of random words. Their lengths are uniform in min..max words. The same seed gives the same prompts.
 */
void um_load_prompts_words(um_load_prompts *p, size_t n, int64_t min, int64_t max, uint64_t seed);
/* Reads a file of {"at": seconds, "prompt", "max_tokens"} lines: arrival times, and prompts if all lines have one. It
 * is an error if only some lines have a prompt. */
um_status um_load_trace(um_load_prompts *p, um_arrivals *a, const char *path, um_err *err);
void um_load_prompts_free(um_load_prompts *p);
/* Parses "16" or "16..64". `option` is for the message. */
um_status um_load_parse_range(const char *text, const char *option, int64_t *min, int64_t *max, um_err *err);
#define UM_LOAD_POINTS_MAX 32
/* Parses "1,8,32": up to UM_LOAD_POINTS_MAX numbers above 0; whole numbers only if `whole`. */
um_status um_load_parse_points(const char *text, const char *option, bool whole, double out[UM_LOAD_POINTS_MAX],
                               size_t *n, um_err *err);

/* ---- A run (load_run.c) ------------------------------------------------------------------------------------------ */

typedef enum {
    UM_LOAD_OPEN,     /* in flight */
    UM_LOAD_ANSWERED, /* answered completely */
    UM_LOAD_REFUSED,  /* refused by the server with an error */
    UM_LOAD_BROKEN,   /* no connection, timeout, malformed response, or incomplete answer */
    UM_LOAD_ABORTED   /* aborted by an interrupt */
} um_load_outcome;
extern const char *const um_load_outcomes[5];

typedef struct um_load_record {
    double due, sent, first_snapshot, first_text, end; /* seconds since the start of the run; < 0: never happened */
    um_load_outcome outcome;
    int status; /* HTTP status; 0: no response */
    int32_t chunks;
    um_finish finish;
    um_peer_usage usage;
    char *error; /* message of a failed request, or NULL */
} um_load_record;

typedef struct um_load {
    um_peer *peer;
    const char *path;          /* path of the endpoint */
    const char *prompt_key;    /* member for the prompt: "messages" or "prompt" */
    const struct json_t *body; /* members that all requests have */
    const um_load_prompts *prompts;
    double timeout;              /* seconds without data; 0: none */
    const um_arrivals *arrivals; /* open loop: times of the requests; NULL: closed loop */
    int32_t concurrency;         /* closed loop: requests that are open at once */
    size_t requests;             /* closed loop: number of requests; 0: send for `seconds` */
    double seconds;
    void (*tick)(void *arg, size_t ended); /* called when a request has ended, with their number; may be NULL */
    void *arg;
} um_load;
typedef struct um_load_run {
    um_load_record *record; /* [n] in the order in which requests were sent */
    size_t n, cap;
    double seconds;   /* from the start to the end of the last request */
    um_histogram gap; /* seconds between chunks with text, of all requests */
} um_load_run;
/* Runs until every request has ended. UM_ECANCELED after an interrupt; the records are valid then too. */
um_status um_load_run_all(const um_load *l, um_load_run *out, um_err *err);
void um_load_run_free(um_load_run *r);

/* ---- The summary of records (load_summary.c) --------------------------------------------------------------------- */

typedef struct um_load_slo {
    double ttft, tpot; /* latency goals in seconds; 0: none */
} um_load_slo;
enum { UM_LOAD_TTFT, UM_LOAD_SNAPSHOT, UM_LOAD_TPOT, UM_LOAD_GAP, UM_LOAD_TOTAL, UM_LOAD_WAIT, UM_LOAD_TIMES };
extern const struct um_load_time { const char *key, *name; } um_load_times[UM_LOAD_TIMES];
typedef struct um_load_rates {
    double requests, tokens, good; /* per second; good: requests within the latency goals */
} um_load_rates;
#define UM_LOAD_RUNS_MAX 100
typedef struct um_load_summary {
    int64_t outcomes[5];               /* number of requests for each um_load_outcome */
    int64_t statuses[600];             /* failed requests by HTTP status; 0: no response */
    um_histogram times[UM_LOAD_TIMES]; /* seconds; answered requests only */
    um_load_rates rates[UM_LOAD_RUNS_MAX];
    size_t n_rates; /* number of runs */
    int64_t prompt_tokens, cached_tokens, tokens, nfe;
    const char *error; /* message of the first failed request, or NULL; borrowed from the records */
} um_load_summary;
/* Returns the seconds from the due time to the first settled text; < 0: no text came. */
double um_load_ttft(const um_load_record *r);
/* Returns the seconds per token after the first text; < 0 if unknown: less than two tokens, or a single chunk. */
double um_load_tpot(const um_load_record *r);
/* Returns whether the request was answered within the latency goals. */
bool um_load_is_good(const um_load_record *r, const um_load_slo *slo);
/* Adds the records of a run. */
void um_load_summarise(um_load_summary *s, const um_load_run *r, const um_load_slo *slo);

/* ---- The report -------------------------------------------------------------------------------------------------- */

typedef struct um_load_point {
    double value; /* requests per second, or open requests */
    um_load_run run[UM_LOAD_RUNS_MAX];
    size_t n_runs;
    um_load_summary summary;
} um_load_point;
typedef struct um_load_report {
    const char *unit; /* unit of the points' values: "request_rate", "concurrency", "arrivals" */
    const char *url, *endpoint, *options;
    const um_peer *peer;
    const um_load_prompts *prompts;
    um_load_slo slo;
    um_load_point *point; /* [n] */
    size_t n;
} um_load_report;
void um_load_put_header(const um_load_report *r, um_buf *out);
void um_load_put_point(const um_load_report *r, const um_load_point *p, um_buf *out);
void um_load_put_json(const um_load_report *r, um_buf *out);
void um_load_put_csv(const um_load_report *r, um_buf *out); /* one row per request */
/* Creates a folder and writes plot.gp to it, then runs gnuplot, which makes latency.svg, throughput.svg and ttft.svg.
 * *drawn is false if gnuplot is not installed. UM_EIO. */
um_status um_load_plot(const um_load_report *r, const char *dir, bool *drawn, um_err *err);

#endif
