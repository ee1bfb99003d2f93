/* options: rows of `unmask serve` and `unmask worker`. */
#ifndef UM_SERVER_OPTIONS_H
#define UM_SERVER_OPTIONS_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { UM_LOG_FORMAT_TEXT, UM_LOG_FORMAT_JSON };

typedef struct um_server_config {
    const um_config *engine; /* the engine's part, filled in by the command */
    const char *engine_yaml; /* the same as a configuration file, for worker processes; filled in by the command */

    const char *host;
    int32_t port;
    const char *served_model_name; /* "a,b": the first is written, all are understood; NULL: the folder's name */
    const char *api_key;           /* "a,b"; NULL: no key is asked for */
    const char *cors_allow_origin; /* "*", an origin, or NULL: none */
    const char *root_path;         /* prefix that a proxy leaves on, or NULL */
    int32_t max_queue;             /* generations that have not ended, in all; 0 = any number */
    float request_timeout;         /* seconds, 0 = none */
    int64_t max_body_bytes;
    int32_t max_connections;
    float keep_alive;     /* seconds between requests of a connection */
    float shutdown_grace; /* seconds */
    int32_t log_format;   /* UM_LOG_FORMAT_* */
    bool access_log;
    int32_t log_level;
    bool metrics, metrics_vllm_aliases, usage_extensions, page;
    const char *tool_call_parser, *reasoning_parser; /* names, or NULL */
    int32_t snapshot_interval;                       /* passes from one snapshot of a stream to the next */
    float snapshot_max_hz;                           /* of a stream; 0 = every pass */
    int32_t result_ttl, result_max;                  /* of /v1/result */
    const char *state_dir;                           /* of files and batches; NULL: they are not offered */
    int32_t file_ttl;                                /* seconds that files are kept, 0: until they are deleted */
    int32_t batch_concurrency;                       /* lines of batches that run at once */

    bool in_process;
    const char *zmq_command_addr, *zmq_event_addr; /* NULL or "": made up */
    int32_t remote_workers;                        /* that somebody else starts; 0: started here */
    int32_t restart_backend;                       /* times in a row that a worker is started again */
    float start_timeout;                           /* seconds to load; 0 = any */
    float backend_timeout;                         /* seconds without a sign of life */
    float heartbeat;                               /* seconds between pings */
} um_server_config;

#define UM_SERVER_OPTIONS 36
extern const um_option um_server_options[UM_SERVER_OPTIONS];

#ifdef __cplusplus
}
#endif
#endif
