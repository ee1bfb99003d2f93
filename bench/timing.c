#include "bench.h"

#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>

#include "commit.h"

#define WINDOW_SECONDS 0.06
/* Time before each window. Threads of the previous task may still spin while they wait for work; those of libgomp do so
 * for milliseconds. */
#define WARM_SECONDS 0.01
#define RETRIES_MAX  8

/* Returns the seconds that the threads of this process have waited for a core, from Linux's schedstat; 0 where that
 * does not exist. */
static double waited_seconds(void) {
    double sum = 0;
    DIR *dir = opendir("/proc/self/task");
    for (struct dirent *d; dir && (d = readdir(dir));) {
        char path[300];
        unsigned long long ran, waited;
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", d->d_name);
        FILE *f = d->d_name[0] == '.' ? NULL : fopen(path, "re");
        if (f && fscanf(f, "%llu %llu", &ran, &waited) == 2) sum += (double)waited * 1e-9;
        if (f) fclose(f);
    }
    if (dir) closedir(dir);
    return sum;
}

/* Calls the task repeatedly for at least the given time. Returns the seconds per call. */
static double run_for(const um_bench_task *t, double seconds, int *round) {
    double begin = um_now(), now;
    int n = 0;
    do {
        t->run(t->arg, (*round)++);
        n++;
    } while ((now = um_now()) - begin < seconds);
    return (now - begin) / n;
}

static double measure_window(const um_bench_task *t, int *round, double *waited) {
    run_for(t, WARM_SECONDS, round);
    double before = waited_seconds(), begin = um_now(), seconds = run_for(t, WINDOW_SECONDS, round);
    *waited = (waited_seconds() - before) / (um_now() - begin);
    return seconds;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void um_bench_measure(const um_bench_task *task, int n, um_bench_time *out) {
    double seconds[UM_BENCH_RIVALS][UM_BENCH_REPS], waited[UM_BENCH_RIVALS] = {0};
    int round[UM_BENCH_RIVALS] = {0}, retries = RETRIES_MAX;
    assert(n <= UM_BENCH_RIVALS);
    for (int r = 0; r < UM_BENCH_REPS; r++) {
        for (int i = 0; i < n; i++) {
            double share;
            do seconds[i][r] = measure_window(&task[i], &round[i], &share);
            while (share > UM_BENCH_WAITED_MAX && retries-- > 0);
            waited[i] += share / UM_BENCH_REPS;
        }
    }
    for (int i = 0; i < n; i++) {
        qsort(seconds[i], UM_BENCH_REPS, sizeof(double), by_value);
        out[i] =
            (um_bench_time){seconds[i][UM_BENCH_REPS / 2], seconds[i][0], seconds[i][UM_BENCH_REPS - 1], waited[i]};
    }
}

const char *um_bench_machine(void) {
    static char text[400];
    char line[256], name[200] = "unknown processor";
    int family = 0, model = 0;
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && fgets(line, sizeof line, f) && line[0] != '\n') {
        sscanf(line, "model name : %199[^\n]", name);
        sscanf(line, "cpu family : %d", &family);
        sscanf(line, "model : %d", &model);
    }
    if (f) fclose(f);
    snprintf(text, sizeof text, "%s (family %d model %d), %d cores, commit %s", name, family, model, um_cpu_count(),
             UM_COMMIT);
    return text;
}

/* ---- Bandwidth ---- */

typedef struct reader {
    const char *data;
    size_t bytes_per_task;
    uint64_t sum[64]; /* keeps the compiler from removing the reads */
} reader;

static void read_task(void *arg, int task, int thread) {
    typedef uint64_t v8 __attribute__((vector_size(64)));
    reader *r = (reader *)arg;
    const v8 *p = (const v8 *)(const void *)(r->data + (size_t)task * r->bytes_per_task);
    v8 a = {0}, b = {0};
    for (size_t i = 0; i < r->bytes_per_task / sizeof(v8); i += 2) {
        __builtin_prefetch((const char *)(p + i) + 4096);
        __builtin_prefetch((const char *)(p + i + 1) + 4096);
        a ^= p[i];
        b ^= p[i + 1];
    }
    r->sum[thread % 64] += a[0] ^ b[0];
}

double um_bench_read_bandwidth(int n_threads) {
    enum { TASKS = 64, PASSES = 7 };
    const size_t bytes = (size_t)512 << 20;
    um_pool *pool;
    um_err err;
    void *data;
    double best = 0;
    if (um_pool_new(&pool, n_threads, &err)) return 0;
    if (um_try_alloc(&data, bytes, 64, "bandwidth", &err) == UM_OK) {
        reader r = {.data = data, .bytes_per_task = bytes / TASKS};
        memset(data, 1, bytes);
        for (int pass = 0; pass < PASSES; pass++) {
            double begin = um_now();
            um_pool_run(pool, read_task, &r, TASKS);
            best = UM_MAX(best, (double)bytes / (um_now() - begin) * 1e-9);
        }
        um_free(data);
    }
    um_pool_free(pool);
    return best;
}
