/* The option rows of the server. */
#include "server/config/options.h"

#define S(field)    UM_FIELD(um_server_config, field)
#define LIVE(field) UM_LIVE_FIELD(um_server_config, field)

const um_option um_server_options[] = {
    {"host", NULL, UM_OPT_STR, S(host), 0, 0, NULL, "127.0.0.1", NULL, "ADDRESS", "Server",
     "address to listen on; 0.0.0.0 or :: means every address of this machine"},
    {"port", NULL, UM_OPT_INT, S(port), 0, 65535, NULL, "8000", NULL, "N", "Server", "TCP port; 0 means any free port"},
    {"uds", NULL, UM_OPT_STR, S(uds), 0, 0, NULL, NULL, NULL, "PATH", "Server",
     "path of a Unix socket to listen at in place of --host and --port"},
    {"served_model_name", "alias", UM_OPT_STR, S(served_model_name), 0, 0, NULL, NULL, NULL, "NAME,...", "Server",
     "names of the model that requests may use; responses show the first one; without this option, the name of the "
     "model's folder"},
    {"lora_dir", NULL, UM_OPT_STR, S(lora_dir), 0, 0, NULL, NULL, NULL, "DIR", "Server",
     "folder from which admins may load adapters while the server runs (POST /v1/load_lora_adapter); without it nobody "
     "may"},
    {"api_key", NULL, UM_OPT_STR, S(api_key), 0, 0, NULL, NULL, NULL, "KEY,...", "Server",
     "accepted API keys, better set in the environment; a request must send one of them as a bearer token; each is an "
     "admin's"},
    {"api_key_file", NULL, UM_OPT_STR, S(api_key_file), 0, 0, NULL, NULL, NULL, "FILE", "Server",
     "file of further API keys: a line has a name, the SHA-256 hash of the key, and settings (docs/server.md); SIGHUP "
     "reads it again"},
    {"cors_allow_origin", "allowed_origins", UM_OPT_STR, LIVE(cors_allow_origin), 0, 0, NULL, NULL, NULL, "ORIGIN,...",
     "Server", "origins whose web pages may call the server; * means any"},
    {"allowed_hosts", NULL, UM_OPT_STR, LIVE(allowed_hosts), 0, 0, NULL, NULL, NULL, "NAME,...", "Server",
     "further names under which clients may address the server (header Host), besides IP addresses, localhost, --host, "
     "the name of the machine and the hosts of --cors-allow-origin; without a key, others get status 421; * means "
     "any"},
    {"root_path", NULL, UM_OPT_STR, S(root_path), 0, 0, NULL, NULL, NULL, "PATH", "Server",
     "path prefix that a proxy leaves on requests"},
    {"max_queue", NULL, UM_OPT_INT, LIVE(max_queue), 0, 1e6, NULL, "1024", NULL, "N", "Server",
     "largest number of generations that wait or run; further requests get status 429; 0 means no limit"},
    {"request_timeout", NULL, UM_OPT_FLOAT, LIVE(request_timeout), 0, 1e6, NULL, "0", NULL, "SECONDS", "Server",
     "time limit for a request in seconds; after it, the request is aborted with status 504; 0 means no limit"},
    {"max_body_bytes", NULL, UM_OPT_INT64, S(max_body_bytes), 1024, 1e10, NULL, "16777216", NULL, "N", "Server",
     "largest size of a request body in bytes"},
    {"max_body_ratio", NULL, UM_OPT_INT, S(max_body_ratio), 1, 1e6, NULL, "200", NULL, "N", "Server",
     "largest size of a compressed body (gzip, zstd) when it is decoded, as a multiple of its compressed size; "
     "--max-body-bytes "
     "limits both sizes"},
    {"max_body_memory", NULL, UM_OPT_INT64, S(max_body_memory), 1 << 20, 1e12, NULL, "67108864", NULL, "N", "Server",
     "largest memory of the parsed JSON of a request body in bytes; a larger one gets status 413"},
    {"max_bodies_memory", NULL, UM_OPT_INT64, S(max_bodies_memory), 1 << 20, 1e12, NULL, "268435456", NULL, "N",
     "Server",
     "largest memory of all request bodies that arrive, and largest memory of their parsed JSON, in bytes; a body for "
     "which none is left gets status 503; a body of up to 64 KiB always arrives"},
    {"ignore_unknown_fields", NULL, UM_OPT_BOOL, S(ignore_unknown_fields), 0, 0, NULL, "false", NULL, NULL, "Server",
     "accept unknown fields in request bodies, which get status 400 otherwise; their names are logged"},
    {"max_connections", NULL, UM_OPT_INT, LIVE(max_connections), 1, 1e6, NULL, "4096", NULL, "N", "Server",
     "largest number of open connections; beyond it the longest idle one is closed, and if none is idle, requests get "
     "status 503, except for /health"},
    {"max_connections_per_peer", NULL, UM_OPT_INT, LIVE(max_connections_per_peer), 0, 1e6, NULL, "1024", NULL, "N",
     "Server",
     "largest number of connections from one address that is not of this machine; requests beyond it get status 429; "
     "0 means no limit"},
    {"trusted_proxies", "forwarded_allow_ips", UM_OPT_STR, LIVE(trusted_proxies), 0, 0, NULL, NULL, NULL, "ADDRESS,...",
     "Server",
     "addresses, networks (10.0.0.0/8) or unix: proxies whose X-Forwarded-For or Forwarded headers name the client, "
     "for "
     "the access log and --max-connections-per-peer"},
    {"head_timeout", NULL, UM_OPT_FLOAT, LIVE(head_timeout), 0, 1e6, NULL, "30", NULL, "SECONDS", "Server",
     "seconds in which the head of a request must arrive; 0 means no limit"},
    {"body_timeout", NULL, UM_OPT_FLOAT, LIVE(body_timeout), 0, 1e6, NULL, "60", NULL, "SECONDS", "Server",
     "longest pause of a body that arrives, in seconds; 0 means no limit"},
    {"min_body_rate", NULL, UM_OPT_INT, LIVE(min_body_rate), 0, 1e9, NULL, "1000", NULL, "N", "Server",
     "smallest rate in bytes per second of a body that takes longer than --body-timeout; 0 means any"},
    {"write_timeout", NULL, UM_OPT_FLOAT, LIVE(write_timeout), 0, 1e6, NULL, "60", NULL, "SECONDS", "Server",
     "seconds after which the connection of a client that reads nothing is closed; 0 means no limit"},
    {"keep_alive", "timeout_keep_alive", UM_OPT_FLOAT, LIVE(keep_alive), 0, 1e6, NULL, "75", NULL, "SECONDS", "Server",
     "seconds after which an idle connection is closed; 0 closes it after each response"},
    {"shutdown_grace", NULL, UM_OPT_FLOAT, LIVE(shutdown_grace), 0, 1e6, NULL, "30", NULL, "SECONDS", "Server",
     "seconds for running requests to finish when the server shuts down"},
    {"access_log", NULL, UM_OPT_BOOL, LIVE(access_log), 0, 0, NULL, "true", NULL, NULL, "Server",
     "log a line for each request to standard error"},
    {"log_format", NULL, UM_OPT_CHOICE, S(log_format), 0, 0, "text|json", "text", NULL, "FORMAT", "Server",
     "format of log lines"},
    {"log_level", NULL, UM_OPT_CHOICE, LIVE(log_level), 0, 0, "error|warn|info|debug", "info", NULL, "LEVEL", "Server",
     "lowest level of messages to log"},
    {"otlp_traces", NULL, UM_OPT_STR, S(otlp_traces), 0, 0, NULL, NULL, NULL, "FILE", "Server",
     "file to which a line of OpenTelemetry's JSON is appended for each generation, with the times of its queue, "
     "prefill "
     "and decoding; the collector's otlpjsonfile receiver reads it"},
    {"metrics", NULL, UM_OPT_BOOL, LIVE(metrics), 0, 0, NULL, "true", NULL, NULL, "Server",
     "serve Prometheus metrics at /metrics"},
    {"metrics_vllm_aliases", NULL, UM_OPT_BOOL, LIVE(metrics_vllm_aliases), 0, 0, NULL, "false", NULL, NULL, "Server",
     "also export six series of /metrics under vLLM's names"},
    {"usage_extensions", NULL, UM_OPT_BOOL, LIVE(usage_extensions), 0, 0, NULL, "false", NULL, NULL, "Server",
     "add forward passes, tokens per forward pass and times to `usage` in responses"},
    {"page", NULL, UM_OPT_BOOL, LIVE(page), 0, 0, NULL, "true", NULL, NULL, "Server", "serve the web page at /"},
    {"tool_call_parser", NULL, UM_OPT_STR, S(tool_call_parser), 0, 0, NULL, "auto", NULL, "NAME", "Server",
     "format of the model's tool calls (docs/chat.md); auto: that of the chat template; none: they stay text"},
    {"reasoning_parser", NULL, UM_OPT_STR, S(reasoning_parser), 0, 0, NULL, NULL, NULL, "NAME", "Server",
     "format of the model's reasoning (docs/chat.md); without it the reasoning stays text"},
    {"snapshot_interval", NULL, UM_OPT_INT, S(snapshot_interval), 1, 1e6, NULL, "1", NULL, "N", "Server",
     "number of forward passes from one snapshot of a stream to the next"},
    {"snapshot_max_hz", NULL, UM_OPT_FLOAT, S(snapshot_max_hz), 0, 1000, NULL, "0", NULL, "HZ", "Server",
     "largest number of snapshots per second in a stream; 0 means no limit"},
    {"result_ttl", NULL, UM_OPT_INT, LIVE(result_ttl), 1, 1e6, NULL, "600", NULL, "SECONDS", "Server",
     "seconds for which the results of /v1/generate and /v1/responses are kept"},
    {"result_max", NULL, UM_OPT_INT, LIVE(result_max), 1, 1e6, NULL, "10000", NULL, "N", "Server",
     "largest number of results of /v1/generate and /v1/responses that are kept"},
    {"state_dir", NULL, UM_OPT_STR, S(state_dir), 0, 0, NULL, NULL, NULL, "DIR", "Server",
     "folder for uploaded files, batches and stored responses; without it, /v1/files and /v1/batches are not "
     "available, "
     "and responses are lost when the server ends"},
    {"file_ttl", NULL, UM_OPT_INT, S(file_ttl), 0, 315360000, NULL, "0", NULL, "SECONDS", "Server",
     "seconds for which uploaded files and batch results are kept, unless the request sets an expiry; 0 means until "
     "they are deleted"},
    {"max_files", NULL, UM_OPT_INT, LIVE(max_files), 1, 1e6, NULL, "10000", NULL, "N", "Server",
     "largest number of stored files, uploads and answers of batches; further uploads and batches get 507"},
    {"max_file_bytes", NULL, UM_OPT_INT64, LIVE(max_file_bytes), 0, 1e15, NULL, "0", NULL, "BYTES", "Server",
     "largest sum of the bytes of stored files; further uploads and batches get 507; 0 means no limit"},
    {"max_tenant_files", NULL, UM_OPT_INT, LIVE(max_tenant_files), 0, 1e6, NULL, "0", NULL, "N", "Server",
     "largest number of stored files of one client; further uploads and batches get 413; 0 means no limit"},
    {"max_tenant_file_bytes", NULL, UM_OPT_INT64, LIVE(max_tenant_file_bytes), 0, 1e15, NULL, "0", NULL, "BYTES",
     "Server",
     "largest sum of the bytes of stored files of one client; further uploads and batches get 413; 0 means no limit"},
    {"batch_concurrency", NULL, UM_OPT_INT, LIVE(batch_concurrency), 1, 4096, NULL, "8", NULL, "N", "Server",
     "largest number of batch lines that run at once"},
    {"in_process", NULL, UM_OPT_BOOL, S(in_process), 0, 0, NULL, "false", NULL, NULL, "Workers",
     "run the engines in a thread of the server instead of in worker processes"},
    {"zmq_command_addr", NULL, UM_OPT_STR, S(zmq_command_addr), 0, 0, NULL, NULL, NULL, "ADDRESS", "Workers",
     "address where workers receive commands: tcp://host:port or ipc://path; without it, the server chooses one"},
    {"zmq_event_addr", NULL, UM_OPT_STR, S(zmq_event_addr), 0, 0, NULL, NULL, NULL, "ADDRESS", "Workers",
     "address where workers send events; without it, the server chooses one"},
    {"remote_workers", NULL, UM_OPT_INT, S(remote_workers), 0, 64, NULL, "0", NULL, "N", "Workers",
     "number of workers to wait for that are started elsewhere with `unmask worker`; the server then starts none "
     "itself, and needs --zmq-command-addr and --zmq-event-addr"},
    {"restart_backend", NULL, UM_OPT_INT, LIVE(restart_backend), 0, 1e6, NULL, "5", NULL, "N", "Workers",
     "number of times in a row that a crashed worker is restarted; a minute of health resets the count"},
    {"start_timeout", NULL, UM_OPT_FLOAT, LIVE(start_timeout), 0, 1e6, NULL, "1800", NULL, "SECONDS", "Workers",
     "seconds for a worker to load the model, after which it is killed; 0 means no limit"},
    {"backend_timeout", NULL, UM_OPT_FLOAT, LIVE(backend_timeout), 0.1, 1e6, NULL, "60", NULL, "SECONDS", "Workers",
     "seconds without any message after which a worker is killed; with ranks (--tensor-parallel-size) at least 15 more "
     "than --distributed-timeout-seconds, so that the worker can say which rank hangs"},
    {"heartbeat", NULL, UM_OPT_FLOAT, S(heartbeat), 0.05, 1e6, NULL, "5", NULL, "SECONDS", "Workers",
     "seconds between two pings of a worker"},
};
_Static_assert(UM_LEN(um_server_options) == UM_SERVER_OPTIONS, "options.h counts the rows");
