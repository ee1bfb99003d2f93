/* Time. */
#include "base/base.h"

#include <time.h>

double um_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct timeval um_timeval(double seconds) {
    seconds = UM_MAX(seconds, 0.0);
    time_t whole = (time_t)seconds;
    return (struct timeval){whole, (suseconds_t)((seconds - (double)whole) * 1e6)};
}
