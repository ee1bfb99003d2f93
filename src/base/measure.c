/* Measures functions that take between microseconds and seconds, on a machine that other programs use too. */
#include <dirent.h>
#include <stdlib.h>

#include "base/base.h"

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
static double run_for(const um_measure_task *t, double seconds, int *round) {
    double begin = um_now(), now;
    int n = 0;
    do {
        t->run(t->arg, (*round)++);
        n++;
    } while ((now = um_now()) - begin < seconds);
    return (now - begin) / n;
}

static double measure_window(const um_measure_task *t, double seconds, int *round, double *waited) {
    run_for(t, WARM_SECONDS, round);
    double before = waited_seconds(), begin = um_now(), result = run_for(t, seconds, round);
    *waited = (waited_seconds() - before) / (um_now() - begin);
    return result;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void um_measure(const um_measure_task *task, int n, int windows, double seconds, um_measured *out) {
    double value[UM_MEASURE_TASKS][UM_MEASURE_WINDOWS], waited[UM_MEASURE_TASKS] = {0};
    int round[UM_MEASURE_TASKS] = {0}, retries = RETRIES_MAX;
    assert(n <= UM_MEASURE_TASKS && windows > 0 && windows <= UM_MEASURE_WINDOWS);
    for (int r = 0; r < windows; r++) {
        for (int i = 0; i < n; i++) {
            double share;
            do value[i][r] = measure_window(&task[i], seconds, &round[i], &share);
            while (share > UM_MEASURE_WAITED_MAX && retries-- > 0);
            waited[i] += share / windows;
        }
    }
    for (int i = 0; i < n; i++) {
        qsort(value[i], (size_t)windows, sizeof(double), by_value);
        out[i] = (um_measured){value[i][windows / 2], value[i][0], value[i][windows - 1], waited[i]};
    }
}
