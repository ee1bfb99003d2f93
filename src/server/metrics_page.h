/* metrics_page: the text of GET /metrics. */
#ifndef UM_METRICS_PAGE_H
#define UM_METRICS_PAGE_H

#include "server/service/service.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Appends the page: the counters of the frontend, the workers' statistics and the state of the batches. */
void um_metrics_page_put(const um_service *s, um_buf *out);

#ifdef __cplusplus
}
#endif
#endif
