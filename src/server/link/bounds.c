/* Bucket bounds of the histograms that workers count and the metrics page shows. A bound is a label of its Prometheus
 * series, so changing one would start a new series. They never change. */
#include "server/link/wire.h"

const double um_stats_bounds_seconds[UM_STATS_BUCKETS - 1] = {
    0.0001, 0.00025, 0.0005, 0.00075, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.075,
    0.1,    0.25,    0.5,    0.75,    1,     2.5,    5,     7.5,    10,   25,    50,
};

const double um_stats_bounds_tokens[UM_STATS_BUCKETS - 1] = {
    1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 1536, 2048, 3072, 4096, 8192, 16384, 32768,
};

int32_t um_stats_bucket(const double bounds[UM_STATS_BUCKETS - 1], double value) {
    int32_t i = 0;
    while (i < UM_STATS_BUCKETS - 1 && value > bounds[i]) i++;
    return i;
}
