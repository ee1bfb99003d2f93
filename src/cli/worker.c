/* worker: engines for a server that runs elsewhere, or that started this process. */
#include <signal.h>
#include <unistd.h>

#include "cli/cli.h"
#include "server/options.h"
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
     "where the server hands out commands, tcp://host:port or ipc://path: its --zmq-command-addr"},
    {"zmq_event_addr", NULL, UM_OPT_STR, O(zmq_event_addr), 0, 0, NULL, NULL, NULL, "ADDRESS", "Server",
     "where it takes events: its --zmq-event-addr"},
    {"index", NULL, UM_OPT_INT, O(index), 0, 63, NULL, "0", NULL, "N", "Server",
     "number of this worker among those of the server, from 0"},
    {"incarnation", NULL, UM_OPT_INT, O(incarnation), 0, 65535, NULL, "auto", "-1", "N", "Server",
     "tells this process from an earlier one of the same number; auto draws one"},
    {"parent", NULL, UM_OPT_INT64, O(parent), 0, 4194304, NULL, "0", NULL, "PID", "Server",
     "process that started this one and without which it ends; 0 is none"},
    {"log_format", NULL, UM_OPT_CHOICE, O(log_format), 0, 0, "text|json", "text", NULL, "FORMAT", "Server",
     "form of messages"},
    {"log_level", NULL, UM_OPT_CHOICE, O(log_level), 0, 0, "error|warn|info|debug", "info", NULL, "LEVEL", "Server",
     "least important messages that are written"},
};

/* ---- Signals ----------------------------------------------------------------------------------------------------- */

static pid_t server; /* the process that started this one */

static void on_terminate(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    if (info->si_pid == server) _exit(UM_EXIT_FAILED);
}

/* What a terminal or a service manager sends goes to the server's workers, too, which have to go on until the server
 * ends them. */
static void heed_server_alone(pid_t pid) {
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
                       "--zmq-command-addr and --zmq-event-addr are needed: the addresses that the server was given by "
                       "the same names");
    return um_cli_need_model(config->model, err);
}

static void set_log(const worker_options *o) {
    char prefix[UM_LOG_PREFIX_MAX];
    snprintf(prefix, sizeof prefix, "worker %d: ", o->index);
    um_log_set_prefix(prefix);
    um_log_set_level((um_log_level)o->log_level);
    um_log_set_json(o->log_format == UM_LOG_FORMAT_JSON);
}

static um_status work(const worker_options *o, const um_config *config, um_err *err) {
    um_worker_config c = {
        .engine = config, .index = (uint16_t)o->index, .parent = o->parent, .stats_interval = STATS_INTERVAL};
    c.incarnation = (uint16_t)(o->incarnation >= 0 ? o->incarnation : 1 + um_rng_seed() % UINT16_MAX);
    if (!o->parent) c.is_stopped = um_cli_interrupted;
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
    if (o.parent) heed_server_alone((pid_t)o.parent);
    else um_cli_catch_signals();
    st = um_log_begin_writer(&err);
    if (!st) st = work(&o, &config, &err);
    bool is_told = st == UM_ECANCELED && um_cli_interrupted();
    if (st && !is_told) um_log(UM_LOG_ERROR, "%s", err.msg);
    um_log_end_writer(UM_CLI_LOG_SECONDS);
    status = st && !is_told ? UM_EXIT_DEVICE : UM_EXIT_OK;
done:
    um_args_free(&args);
    return status;
}

const um_command um_cmd_worker = {
    .name = "worker",
    .summary = "run the engine of a server, on this or another host",
    .usage = "unmask worker --model DIR --zmq-command-addr ADDRESS --zmq-event-addr ADDRESS [options]",
    .description =
        "The server starts its workers itself, unless it was told by --remote-workers to wait for those of other "
        "hosts. Such a worker is given the server's two addresses, a number that no other worker has, and a folder "
        "with the same model. What it takes from these addresses is not checked for who sent it: use a network that "
        "you trust.",
    .examples = "  unmask serve --model models/tiny-block --remote-workers 2 --zmq-command-addr tcp://127.0.0.1:5555 "
                "--zmq-event-addr tcp://127.0.0.1:5556\n"
                "  unmask worker --model models/tiny-block --index 0 --zmq-command-addr tcp://127.0.0.1:5555 "
                "--zmq-event-addr tcp://127.0.0.1:5556\n"
                "  unmask worker --model models/tiny-block --index 1 --zmq-command-addr tcp://127.0.0.1:5555 "
                "--zmq-event-addr tcp://127.0.0.1:5556\n",
    .options = rows,
    .n_options = UM_LEN(rows),
    .engine_options = true,
    .run = run,
};
