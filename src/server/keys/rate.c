/* Rates: token buckets. Requests reserve what they may use and give back what they did not. */
#include <math.h>

#include "server/keys/keys.h"

/* Lets the allowance grow up to now. */
static void grow(um_rate *r, double now) {
    double full = (double)r->per_minute;
    r->left = UM_MIN(r->left + UM_MAX(now - r->time, 0) * full / 60, full);
    r->time = now;
}

void um_rate_set(um_rate *r, int64_t per_minute, double now) {
    bool had_limit = r->per_minute > 0;
    if (had_limit) grow(r, now);
    r->left = had_limit ? UM_MIN(r->left, (double)per_minute) : (double)per_minute;
    r->per_minute = per_minute;
    r->time = now;
}

int64_t um_rate_left(um_rate *r, double now) {
    if (!r->per_minute) return 0;
    grow(r, now);
    return (int64_t)UM_MAX(floor(r->left), 0);
}

double um_rate_wait(um_rate *r, int64_t n, double now) {
    if (!r->per_minute) return 0;
    grow(r, now);
    double missing = (double)UM_MIN(n, r->per_minute) - r->left;
    return missing > 0 ? missing * 60 / (double)r->per_minute : 0;
}

void um_rate_take(um_rate *r, int64_t n, double now) {
    if (!r->per_minute) return;
    grow(r, now);
    r->left = UM_MIN(r->left - (double)n, (double)r->per_minute);
}

double um_rate_reset(um_rate *r, double now) { return um_rate_wait(r, r->per_minute, now); }
