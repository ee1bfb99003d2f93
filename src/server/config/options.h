/* options: the configuration of the server, and the option rows of `unmask serve`. */
#ifndef UM_SERVER_OPTIONS_H
#define UM_SERVER_OPTIONS_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { UM_LOG_FORMAT_TEXT, UM_LOG_FORMAT_JSON };

typedef struct um_server_config {
    /* The command (src/cli) sets these fields. */
    const um_config *engine; /* configuration of the engine */
    const char *engine_yaml; /* the text of a configuration file with the same values, for worker processes */
    /* Reads the options from their sources again, on SIGHUP; NULL: there is no file. *c and *engine borrow from
     * `strings`. Logs nothing. */
    um_status (*reread)(void *arg, um_arena *strings, struct um_server_config *c, um_config *engine, um_err *err);
    void *reread_arg;

    const char *host;
    int32_t port;
    const char *uds; /* path of a Unix socket in place of host and port, or NULL */
    /* "a,b": requests may use each of the names, and responses have the first. NULL: the name of the folder. */
    const char *served_model_name;
    const char *lora_dir;          /* folder from which adapters may be loaded later, or NULL: none */
    const char *api_key;           /* one or more keys, "a,b"; NULL: requests need no key */
    const char *api_key_file;      /* path of a file of keys, or NULL */
    const char *cors_allow_origin; /* "*", an origin, or NULL: none */
    const char *allowed_hosts;     /* further names of the server, "a,b"; "*": any; NULL: none */
    const char *root_path;         /* path prefix that a proxy does not remove, or NULL */
    int32_t max_queue;             /* limit of the unfinished generations; 0: no limit */
    float request_timeout;         /* seconds until a generation is aborted; 0: no timeout */
    int64_t max_body_bytes;
    int32_t max_body_ratio;                     /* of the decoded to the coded size of a compressed body */
    int64_t max_body_memory, max_bodies_memory; /* limits of the parsed values of one body, and of all, in bytes */
    bool ignore_unknown_fields;
    const char *trusted_proxies; /* addresses and networks, "a,b/8"; NULL: none */
    int32_t max_connections, max_connections_per_peer;
    float head_timeout, body_timeout, write_timeout; /* seconds */
    int32_t min_body_rate;                           /* bytes per second */
    float keep_alive;                                /* seconds that an idle connection stays open */
    float shutdown_grace;                            /* seconds that running requests get at a shutdown */
    int32_t log_format;                              /* UM_LOG_FORMAT_* */
    bool access_log;
    const char *otlp_traces; /* path of the file of traces, or NULL */
    int32_t log_level;
    bool metrics, metrics_vllm_aliases, usage_extensions, page;
    const char *tool_call_parser, *reasoning_parser; /* names of the formats, "auto" or "none", or NULL */
    int32_t snapshot_interval;                       /* passes between two snapshots of a stream */
    float snapshot_max_hz;                           /* limit of snapshots per second of a stream; 0: no limit */
    int32_t result_ttl, result_max;      /* lifetime in seconds, and largest number, of the results of /v1/result */
    const char *state_dir;               /* folder of files, batches and responses; NULL: no files and batches */
    int32_t file_ttl;                    /* seconds until a file expires; 0: never */
    int32_t max_files, max_tenant_files; /* in all, and of one client; 0: no limit */
    int64_t max_file_bytes, max_tenant_file_bytes; /* likewise */
    int32_t batch_concurrency;                     /* limit of the batch lines that run at once */

    bool in_process;
    const char *zmq_command_addr, *zmq_event_addr; /* NULL or "": the server chooses them */
    int32_t remote_workers;                        /* workers started elsewhere; 0: the server starts its workers */
    int32_t restart_backend;                       /* largest number of restarts of a worker in a row */
    float start_timeout;                           /* seconds that a worker may load; 0: no limit */
    float backend_timeout; /* seconds without a message until a worker is killed; ranks can prolong it */
    float heartbeat;       /* seconds between two pings */
} um_server_config;

#define UM_SERVER_OPTIONS 55
extern const um_option um_server_options[UM_SERVER_OPTIONS];

#ifdef __cplusplus
}
#endif
#endif
