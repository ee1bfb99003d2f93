/* GET /metrics. It is not in api/ because its page also shows batches, which api/ does not know. */
#include "server/endpoints.h"
#include "server/metrics_page.h"
#include "server/respond/reply.h"

static void get_metrics(um_service *s, um_exchange *x, const char *id) {
    (void)id;
    um_buf text = {0};
    if (!s->setup.config->metrics) {
        um_reply_error(x, 404, NULL, NULL, "this server runs with --no-metrics");
        return;
    }
    um_metrics_page_put(s, &text);
    um_exchange_send(x, 200, "text/plain; version=0.0.4; charset=utf-8", text.data, text.len);
    um_buf_free(&text);
}

static const um_endpoint endpoints[] = {
    {"GET", "/metrics", get_metrics, UM_ENDPOINT_ADMIN, "Prometheus", "counters, gauges and histograms"},
};
const um_endpoint_set um_metrics_endpoints = {endpoints, UM_LEN(endpoints)};
