/* unmask worker: runs engines for a server, which started this process or runs elsewhere. */
#include <signal.h>
#include <unistd.h>

#include "cli/cli.h"
#include "server/config/options.h"
#include "server/worker/worker.h"

#define STATS_INTERVAL 1.0 /* seconds */

typedef struct worker_options {
    const char *zmq_command_addr, *zmq_event_addr;
    int32_t index, incarnation;
    int64_t parent;
    int32_t log_level, log_format;
} worker_options;

#define O(field) UM_FIELD(worker_options, field)
static const um_option rows[] = {
    {"zmq_command_addr", NULL, UM_OPT_STR, O(zmq_command_addr), 0, 0, NULL, NULL, NULL, "ADDRESS", "Server",
     "address where the server sends commands (its --zmq-command-addr): tcp://host:port or ipc://path"},
    {"zmq_event_addr", NULL, UM_OPT_STR, O(zmq_event_addr), 0, 0, NULL, NULL, NULL, "ADDRESS", "Server",
     "address where the server receives events (its --zmq-event-addr)"},
    {"index", NULL, UM_OPT_INT, O(index), 0, 63, NULL, "0", NULL, "N", "Server",
     "number of this worker among the server's workers, from 0"},
    {"incarnation", NULL, UM_OPT_INT, O(incarnation), 0, 65535, NULL, "auto", "-1", "N", "Server",
     "number that distinguishes this process from an earlier one with the same index; auto draws one"},
    {"parent", NULL, UM_OPT_INT64, O(parent), 0, 4194304, NULL, "0", NULL, "PID", "Server",
     "process that started this worker; the worker exits when that process ends; 0 means none"},
    {"log_format", NULL, UM_OPT_CHOICE, O(log_format), 0, 0, "text|json", "text", NULL, "FORMAT", "Server",
     "format of log lines"},
    {"log_level", NULL, UM_OPT_CHOICE, O(log_level), 0, 0, "error|warn|info|debug", "info", NULL, "LEVEL", "Server",
     "lowest level of messages to log"},
};

/* ---- Signals ----------------------------------------------------------------------------------------------------- */

static pid_t server; /* the process that started this one */

static void on_terminate(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    if (info->si_pid == server) _exit(UM_EXIT_FAILED);
}

/* Accepts SIGTERM only from the server, and ignores SIGINT and SIGHUP. A terminal or service manager sends signals to
 * the workers too, but they must run until the server ends them. */
static void ignore_signals_of_others(pid_t pid) {
    struct sigaction terminate = {.sa_sigaction = on_terminate, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    server = pid;
    sigaction(SIGTERM, &terminate, NULL);
    sigaction(SIGINT, &ignore, NULL);
    sigaction(SIGHUP, &ignore, NULL);
}

/* ---- Running ----------------------------------------------------------------------------------------------------- */

static um_status check(const worker_options *o, const um_config *config, um_err *err) {
    if (!o->zmq_command_addr || !*o->zmq_command_addr || !o->zmq_event_addr || !*o->zmq_event_addr)
        return um_fail(err, UM_EINVAL,
                       "--zmq-command-addr and --zmq-event-addr are missing; use the addresses of the server's options "
                       "of the same names, or join a group with --nnodes N --rank R, where R is not 0");
    /* um_worker_run looks for the model, and reports to the server if it is missing. */
    return um_cli_check_model_name(config->model, err);
}

static void set_log(const worker_options *o) {
    char prefix[UM_LOG_PREFIX_MAX];
    snprintf(prefix, sizeof prefix, "worker %d: ", o->index);
    um_log_set_prefix(prefix);
}

static bool is_interrupted(void *arg) {
    (void)arg;
    return um_cli_interrupted();
}

static um_status run_worker(const worker_options *o, const um_config *config, um_err *err) {
    um_worker_config c = {
        .engine = config, .index = (uint16_t)o->index, .parent = o->parent, .stats_interval = STATS_INTERVAL};
    c.incarnation = (uint16_t)(o->incarnation >= 0 ? o->incarnation : 1 + um_rng_seed() % UINT16_MAX);
    if (!o->parent) c.is_stopped = is_interrupted;
    um_status st = um_port_open_zmq(&c.port, o->zmq_command_addr, o->zmq_event_addr, c.index, c.incarnation, err);
    if (st) return st;
    st = um_worker_run(&c, err);
    um_port_close(c.port);
    return st;
}

static int run(const um_command *self, int argc, char **argv) {
    worker_options o;
    um_config config;
    um_args args;
    um_err err;
    um_args_parse(&args, self, argc, argv, &o, &config);
    int status = args.exit;
    if (args.done) goto done;
    um_status st = check(&o, &config, &err);
    if (st) {
        status = um_cli_error(self, &err);
        goto done;
    }
    set_log(&o);
    if (o.parent) ignore_signals_of_others((pid_t)o.parent);
    else um_cli_catch_signals();
    st = um_log_start_writer(&err);
    if (!st) st = run_worker(&o, &config, &err);
    bool is_stopped = st == UM_ECANCELED && um_cli_interrupted();
    if (st && !is_stopped) um_log(UM_LOG_ERROR, "%s", err.msg);
    um_log_stop_writer(UM_CLI_LOG_SECONDS);
    status = st && !is_stopped ? UM_EXIT_DEVICE : UM_EXIT_OK;
done:
    um_args_free(&args);
    return status;
}

const um_command um_cmd_worker = {
    .name = "worker",
    .summary = "run an engine, or a rank of one, on this or another host",
    .usage = "unmask worker --model DIR (--zmq-command-addr ADDRESS --zmq-event-addr ADDRESS | --nnodes N --rank R) "
             "[options]",
    .description =
        "A server starts its workers itself, unless --remote-workers makes it wait for workers on other hosts. Start "
        "such a worker with the server's two addresses, an --index that no other worker has, and a folder with the "
        "same model. With --nnodes and --rank, the worker computes a part of the model of another command, which is "
        "rank "
        "0 and has the same --nnodes (docs/cluster.md). It joins again when that command is restarted. The messages "
        "are "
        "neither encrypted nor authenticated, so use a network that you trust.",
    .examples = "  unmask serve --model models/tiny-block --remote-workers 2 --zmq-command-addr tcp://127.0.0.1:5555 "
                "--zmq-event-addr tcp://127.0.0.1:5556\n"
                "  unmask worker --model models/tiny-block --index 0 --zmq-command-addr tcp://127.0.0.1:5555 "
                "--zmq-event-addr tcp://127.0.0.1:5556\n"
                "  unmask worker --model models/tiny-block --index 1 --zmq-command-addr tcp://127.0.0.1:5555 "
                "--zmq-event-addr tcp://127.0.0.1:5556\n",
    .options = rows,
    .n_options = UM_LEN(rows),
    .engine_options = true,
    .rejoins = true,
    .run = run,
};
