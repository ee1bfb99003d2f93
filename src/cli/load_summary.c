/* Summarises records: times, rates and counts. */
#include "cli/load.h"

const char *const um_load_outcomes[5] = {"open", "answered", "refused", "broken", "aborted"};

const struct um_load_time um_load_times[UM_LOAD_TIMES] = {
    {"ttft_seconds", "first text"},       {"first_snapshot_seconds", "first snapshot"},
    {"tpot_seconds", "each later token"}, {"gap_seconds", "between chunks"},
    {"total_seconds", "whole answer"},    {"client_wait_seconds", "due, but not sent"},
};

double um_load_ttft(const um_load_record *r) { return r->first_text < 0 ? -1 : r->first_text - r->due; }

/* A chunk may have many tokens, so an answer in a single chunk has no time per token. */
double um_load_tpot(const um_load_record *r) {
    bool known = r->first_text >= 0 && r->chunks > 1 && r->usage.completion_tokens > 1;
    return known ? (r->end - r->first_text) / (double)(r->usage.completion_tokens - 1) : -1;
}

bool um_load_is_good(const um_load_record *r, const um_load_slo *slo) {
    if (r->outcome != UM_LOAD_ANSWERED) return false;
    return (slo->ttft <= 0 || um_load_ttft(r) <= slo->ttft) && (slo->tpot <= 0 || um_load_tpot(r) <= slo->tpot);
}

static void add_time(um_load_summary *s, int which, double seconds) {
    if (seconds >= 0) um_histogram_add(&s->times[which], seconds);
}

static void add_answered(um_load_summary *s, const um_load_record *r) {
    add_time(s, UM_LOAD_TTFT, um_load_ttft(r));
    add_time(s, UM_LOAD_SNAPSHOT, r->first_snapshot < 0 ? -1 : r->first_snapshot - r->due);
    add_time(s, UM_LOAD_TPOT, um_load_tpot(r));
    add_time(s, UM_LOAD_TOTAL, r->end - r->due);
    add_time(s, UM_LOAD_WAIT, r->sent - r->due);
    s->prompt_tokens += r->usage.prompt_tokens;
    s->cached_tokens += r->usage.cached_tokens;
    s->tokens += r->usage.completion_tokens;
    s->nfe += r->usage.nfe;
}

/* Adds a histogram to another. All histograms have the same buckets. */
static void merge(um_histogram *to, const um_histogram *from) {
    if (!from->n) return;
    for (int i = 0; i < UM_HISTOGRAM_BUCKETS; i++) to->bucket[i] += from->bucket[i];
    to->min = to->n ? UM_MIN(to->min, from->min) : from->min;
    to->max = to->n ? UM_MAX(to->max, from->max) : from->max;
    to->sum += from->sum;
    to->n += from->n;
}

void um_load_summarise(um_load_summary *s, const um_load_run *run, const um_load_slo *slo) {
    int64_t answered = 0, good = 0, tokens = 0;
    for (size_t i = 0; i < run->n; i++) {
        const um_load_record *r = &run->record[i];
        s->outcomes[r->outcome]++;
        good += um_load_is_good(r, slo);
        if (r->outcome == UM_LOAD_ANSWERED) {
            answered++;
            tokens += r->usage.completion_tokens;
            add_answered(s, r);
        } else if (r->outcome != UM_LOAD_ABORTED) {
            s->statuses[UM_MIN(UM_MAX(r->status, 0), 599)]++;
            if (!s->error) s->error = r->error;
        }
    }
    merge(&s->times[UM_LOAD_GAP], &run->gap);
    assert(s->n_rates < UM_LOAD_RUNS_MAX);
    s->rates[s->n_rates++] =
        (um_load_rates){um_ratio((double)answered, run->seconds), um_ratio((double)tokens, run->seconds),
                        um_ratio((double)good, run->seconds)};
}
