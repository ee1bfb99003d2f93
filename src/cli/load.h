/* load: many requests to a server at their times, and what became of each. Latencies count from the moment a request
 * was due, not from when it was sent: a client that falls behind must not make the server look fast.
 *
 * arrivals (load_arrivals.c) -> run (load_run.c: one event loop, any number of streams) -> records -> summary
 * (load_summary.c) -> report (load_report.c, load_files.c). One thread. */
#ifndef UM_CLI_LOAD_H
#define UM_CLI_LOAD_H

#include "cli/peer.h"
#include "cli/report.h"

struct json_t;

/* ---- When (load_arrivals.c) -------------------------------------------------------------------------------------- */

#define UM_LOAD_REQUESTS_MAX 10000000

typedef struct um_arrivals {
    double *at; /* [n] seconds since the start, ascending */
    size_t n, cap;
} um_arrivals;
/* A Poisson process: gaps are independent and exponential with mean 1 / rate; pure in (seed, rate). Ends behind n
 * arrivals, or where seconds > 0, with the last one before that time. */
void um_arrivals_poisson(um_arrivals *a, uint64_t seed, double rate, size_t n, double seconds);
/* Appends one; false when it is before the last one, negative or no number. */
bool um_arrivals_push(um_arrivals *a, double at);
void um_arrivals_free(um_arrivals *a);

/* ---- What (load_prompts.c) --------------------------------------------------------------------------------------- */

typedef struct um_load_prompt {
    const char *text;
    int64_t max_tokens; /* 0: as the rest */
} um_load_prompt;
typedef struct um_load_prompts {
    um_arena text;
    um_load_prompt *prompt; /* [n], taken in turn */
    size_t n, cap;
    char *about; /* for the report */
} um_load_prompts;
/* {"prompt"} a line; what else a line has is passed over. UM_EINVAL, UM_ENOENT, UM_EIO. */
um_status um_load_prompts_file(um_load_prompts *p, const char *path, um_err *err);
/* n prompts of least to most random words, every number as likely; the same for the same seed. */
void um_load_prompts_words(um_load_prompts *p, size_t n, int64_t least, int64_t most, uint64_t seed);
/* {"at": seconds, "prompt", "max_tokens"} a line: arrivals, and prompts where lines have some (all or none). */
um_status um_load_trace(um_load_prompts *p, um_arrivals *a, const char *path, um_err *err);
void um_load_prompts_free(um_load_prompts *p);
/* "16" or "16..64". */
um_status um_load_parse_range(const char *text, const char *option, int64_t *least, int64_t *most, um_err *err);
/* "1,8,32": numbers above 0, at most UM_LOAD_POINTS_MAX. */
#define UM_LOAD_POINTS_MAX 32
um_status um_load_parse_points(const char *text, const char *option, bool whole, double out[UM_LOAD_POINTS_MAX],
                               size_t *n, um_err *err);

/* ---- How a request went (load_run.c) ----------------------------------------------------------------------------- */

typedef enum {
    UM_LOAD_OPEN,     /* on its way */
    UM_LOAD_ANSWERED, /* complete */
    UM_LOAD_REFUSED,  /* the server said no; `status` says how */
    UM_LOAD_BROKEN,   /* no connection, no answer in time, nonsense, or an end in the middle */
    UM_LOAD_ABORTED   /* by an interrupt */
} um_load_outcome;
extern const char *const um_load_outcomes[5];

typedef struct um_load_record {
    double due, sent, first_snapshot, first_text, end; /* seconds since the run's start; < 0: it never was */
    um_load_outcome outcome;
    int status; /* of HTTP; 0: there was none */
    int32_t chunks;
    um_finish finish;
    um_peer_usage usage;
    char *error; /* of one that failed, or NULL */
} um_load_record;

typedef struct um_load {
    um_peer *peer;
    const char *path;          /* of the endpoint */
    const char *prompt_key;    /* "messages" or "prompt" */
    const struct json_t *body; /* members of every request */
    const um_load_prompts *prompts;
    double timeout;              /* seconds without a byte */
    const um_arrivals *arrivals; /* open loop; NULL: closed */
    int32_t concurrency;         /* closed loop: requests that are open at once */
    size_t requests;             /* of a closed loop; 0: until `seconds` are over */
    double seconds;
    void (*tick)(void *arg, size_t ended); /* a request ended; may be NULL */
    void *arg;
} um_load;
typedef struct um_load_run {
    um_load_record *record; /* [n] in the order of sending */
    size_t n, cap;
    double seconds;   /* from the start to the last end */
    um_histogram gap; /* between chunks with text, of all requests */
} um_load_run;
/* Runs until every request ended, or an interrupt came, which is UM_ECANCELED; the records are good then too. */
um_status um_load_run_all(const um_load *l, um_load_run *out, um_err *err);
void um_load_run_free(um_load_run *r);

/* ---- What the records say (load_summary.c) ----------------------------------------------------------------------- */

typedef struct um_load_slo {
    double ttft, tpot; /* seconds; 0: none */
} um_load_slo;
enum { UM_LOAD_TTFT, UM_LOAD_SNAPSHOT, UM_LOAD_TPOT, UM_LOAD_GAP, UM_LOAD_TOTAL, UM_LOAD_WAIT, UM_LOAD_TIMES };
extern const struct um_load_time { const char *key, *name; } um_load_times[UM_LOAD_TIMES];
typedef struct um_load_rates {
    double requests, tokens, good; /* a second */
} um_load_rates;
#define UM_LOAD_RUNS_MAX 100
typedef struct um_load_summary {
    int64_t outcomes[5];               /* by um_load_outcome */
    int64_t statuses[600];             /* of those that failed; 0: without an answer */
    um_histogram times[UM_LOAD_TIMES]; /* seconds, of answered requests */
    um_load_rates rates[UM_LOAD_RUNS_MAX];
    size_t n_rates; /* one of each run */
    int64_t prompt_tokens, cached_tokens, tokens, nfe, denoise_tokens, denoise_passes;
    const char *error; /* of the first one that failed, or NULL; borrowed from the records */
} um_load_summary;
/* Time to the first settled text; per token behind it (< 0: it has less than two, or no stream). */
double um_load_ttft(const um_load_record *r);
double um_load_tpot(const um_load_record *r);
bool um_load_is_good(const um_load_record *r, const um_load_slo *slo);
/* Adds a run. */
void um_load_summarise(um_load_summary *s, const um_load_run *r, const um_load_slo *slo);

/* ---- The report -------------------------------------------------------------------------------------------------- */

typedef struct um_load_point {
    double value; /* requests a second, or requests at once */
    um_load_run run[UM_LOAD_RUNS_MAX];
    size_t n_runs;
    um_load_summary summary;
} um_load_point;
typedef struct um_load_report {
    const char *unit; /* of a point's value: "request_rate", "concurrency", "arrivals" */
    const char *url, *endpoint, *options;
    const um_peer *peer;
    const um_load_prompts *prompts;
    um_load_slo slo;
    um_load_point *point; /* [n] */
    size_t n;
} um_load_report;
void um_load_put_text(const um_load_report *r, um_buf *out);
void um_load_put_json(const um_load_report *r, um_buf *out);
void um_load_put_csv(const um_load_report *r, um_buf *out); /* a row for each request */
/* Writes latency.svg, throughput.svg, ttft.svg and what gnuplot made them from into a folder, which is made. *drawn
 * false: there is no gnuplot, plot.gp waits for one. UM_EIO. */
um_status um_load_plot(const um_load_report *r, const char *dir, bool *drawn, um_err *err);

#endif
