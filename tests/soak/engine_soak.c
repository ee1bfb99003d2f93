/* Soak test: sends random requests to an engine with the bundled model for a given time: engine_soak SECONDS [SEED]
 *
 * Up to 12 requests are pending, and up to four run together. Some are aborted, and some are invalid. An answer must
 * keep its limits and must not contain a mask. The same question with the same seed must get the same answer, whatever
 * else runs. An idle engine must hold no pages, and memory must stop growing. Prints a line every ten seconds, and
 * exits with status 1 at the first violation. */
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"

#define N_PROBES    12
#define WARM_UP     400 /* finished requests before memory is measured */
#define GROWTH_MAX  ((int64_t)16 << 20)
#define PENDING_MAX 12

typedef struct soak {
    um_model *model;
    um_engine *engine;
    um_model_info info;
    uint64_t key, draws;
    char *probe[N_PROBES]; /* first answer of each probe */
    int64_t n_finished, n_aborted, n_refused, n_tokens, rss_warm;
} soak;

/* The values against which the answer of a pending request is checked. */
typedef struct ticket {
    soak *soak;
    int probe; /* number of a question that is repeated; -1: a random question */
    int32_t max_tokens;
} ticket;

static void die(const char *what, const char *detail) {
    fprintf(stderr, "soak: %s: %s\n", what, detail);
    exit(1);
}

static void must(um_status s, const um_err *err, const char *what) {
    if (s) die(what, err->msg);
}

static uint64_t draw(soak *s, uint64_t n) { return um_rng_u64(s->key, s->draws++) % n; }

static int64_t resident_bytes(void) {
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%*s %ld", &pages) != 1) die("memory", "/proc/self/statm cannot be read");
    fclose(f);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

static void check_probe(soak *s, int probe, const char *text) {
    if (!s->probe[probe]) s->probe[probe] = um_strdup(text);
    else if (strcmp(s->probe[probe], text) != 0) die("another answer to the same question", text);
}

static void on_event(void *arg, const um_event *ev) {
    ticket *t = (ticket *)arg;
    soak *s = t->soak;
    if (ev->type != UM_EVENT_FINISH) return;
    const um_result *r = ev->result;
    if (r->n_tokens > (size_t)t->max_tokens) die("more tokens than max_tokens", r->text);
    if (um_utf8_check(r->text, r->text_len) != r->text_len) die("not UTF-8", r->text);
    for (size_t i = 0; i < r->n_tokens; i++)
        if (r->token_ids[i] == s->info.mask_id) die("a mask left the engine", r->text);
    if (r->finish == UM_FINISH_ABORTED) s->n_aborted++;
    else if (t->probe >= 0) check_probe(s, t->probe, r->text);
    s->n_finished++;
    s->n_tokens += (int64_t)r->n_tokens;
    um_free(t);
}

/* Fills a request. Its question, limits and sampling depend only on `key`. */
static void fill_request(um_request *r, uint64_t key, um_buf *text) {
    static const char *const words[] = {"house", "river", "seven", "12", "reverse", "upper", "case", "what", "is", "+"};
    size_t n = 1 + um_rng_u64(key, 0) % 40;
    um_buf_clear(text);
    for (size_t i = 0; i < n; i++) um_buf_printf(text, "%s ", words[um_rng_u64(key, i + 10) % UM_LEN(words)]);
    r->text = text->data;
    r->text_len = text->len;
    r->sampling.seed = (int64_t)(um_rng_u64(key, 1) >> 12);
    r->sampling.temperature = um_rng_u64(key, 2) % 2 ? 0.0f : 0.8f;
    r->sampling.top_p = um_rng_u64(key, 3) % 2 ? 1.0f : 0.9f;
    r->sampling.max_tokens = 1 + (int32_t)(um_rng_u64(key, 4) % 90);
    r->sampling.ignore_eos = um_rng_u64(key, 5) % 4 == 0;
}

static int64_t add_request(soak *s) {
    um_err err;
    um_buf text = {0};
    um_request r;
    int64_t id = 0;
    ticket *t = UM_NEW(ticket);
    *t = (ticket){.soak = s, .probe = draw(s, 3) ? -1 : (int)draw(s, N_PROBES)};
    um_request_init(s->engine, &r);
    fill_request(&r, t->probe >= 0 ? (uint64_t)t->probe : 1000 + draw(s, UINT64_MAX), &text);
    r.events = UM_EVENT_FINISH | (draw(s, 2) ? UM_EVENT_TEXT | UM_EVENT_SNAPSHOT : 0);
    r.on_event = on_event;
    r.arg = t;
    t->max_tokens = r.sampling.max_tokens;
    must(um_engine_add(s->engine, &r, &id, &err), &err, "a good request was refused");
    um_buf_free(&text);
    return id;
}

/* Adds a prompt that is longer than the model's context. The engine must reject it. */
static void add_bad_request(soak *s) {
    um_request r;
    size_t n = (size_t)s->info.max_position + 1;
    int32_t *ids = UM_NEW_ARRAY(int32_t, n);
    um_request_init(s->engine, &r);
    r.ids = ids;
    r.n_ids = n;
    if (um_engine_add(s->engine, &r, NULL, NULL) == UM_OK) die("accepted", "a prompt longer than the model");
    s->n_refused++;
    um_free(ids);
}

static void check_idle(soak *s) {
    um_stats st;
    um_engine_get_stats(s->engine, &st);
    if (st.pages_used != 0) die("pages", "an idle engine holds pages");
    if (s->n_finished < WARM_UP) return;
    int64_t rss = resident_bytes();
    if (!s->rss_warm) s->rss_warm = rss;
    if (rss > s->rss_warm + GROWTH_MAX) die("memory", "grew by more than 16 MiB since the warm-up");
}

/* Adds up to PENDING_MAX requests while it steps, aborts some, and continues until none is pending. */
static void run_wave(soak *s) {
    um_err err;
    int64_t last = 0;
    for (uint64_t n = 1 + draw(s, PENDING_MAX); n > 0 || um_engine_pending(s->engine) > 0;) {
        if (n > 0 && draw(s, 2)) last = add_request(s), n--;
        if (draw(s, 50) == 0) add_bad_request(s);
        if (last && draw(s, 20) == 0) um_engine_abort(s->engine, last, NULL); /* fails if the request has ended */
        must(um_engine_step(s->engine, &err), &err, "step");
    }
    check_idle(s);
}

static void open_engine(soak *s) {
    um_config c;
    um_err err;
    um_config_init(&c);
    c.model = "models/tiny-block";
    c.max_num_reqs = 4;
    must(um_model_open(&s->model, &c, &err), &err, "model");
    must(um_engine_new(&s->engine, s->model, &c, &err), &err, "engine");
    um_model_get_info(s->model, &s->info);
}

static void close_engine(soak *s) {
    um_engine_free(s->engine);
    um_model_close(s->model);
    for (int i = 0; i < N_PROBES; i++) um_free(s->probe[i]);
}

int main(int argc, char **argv) {
    int64_t seconds = 0, seed = um_rng_seed();
    if (argc < 2 || !um_parse_int(argv[1], &seconds) || (argc > 2 && !um_parse_int(argv[2], &seed))) {
        fprintf(stderr, "usage: engine_soak SECONDS [SEED]\n");
        return 2;
    }
    soak s = {.key = um_rng_key((uint64_t)seed, 0, 0, 0)};
    open_engine(&s);
    printf("soak: %" PRId64 " s, seed %" PRId64 "\n", seconds, seed);
    double start = um_now(), next = start + 10;
    while (um_now() < start + (double)seconds) {
        run_wave(&s);
        if (um_now() < next) continue;
        next += 10;
        printf("soak: %.0f s, %" PRId64 " answers (%" PRId64 " aborted), %" PRId64 " refused, %" PRId64
               " tokens, %.1f MiB\n",
               um_now() - start, s.n_finished, s.n_aborted, s.n_refused, s.n_tokens,
               (double)resident_bytes() / (1 << 20));
        fflush(stdout);
    }
    printf("soak: held for %" PRId64 " answers\n", s.n_finished);
    close_engine(&s);
    return 0;
}
