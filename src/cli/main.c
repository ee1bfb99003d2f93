/* The main function: runs the subcommand and returns its exit status. */
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/line_editor.h"
#include "server/http/coding.h"

#if __has_include("commit.h")
#include "commit.h"
#endif
#ifndef UM_COMMIT
#define UM_COMMIT "unknown"
#endif

static int fail_without_command(void) {
    um_buf text = {0};
    um_cli_put_overview(&text);
    fputs(text.data, stderr);
    um_buf_free(&text);
    return UM_EXIT_USAGE;
}

static int dispatch(int argc, char **argv) {
    if (argc < 2) return fail_without_command();
    const char *name = argv[1];
    if (um_streq(name, "--version") || um_streq(name, "-v") || um_streq(name, "version")) {
        const char *editor = um_line_editor_library();
        printf("unmask %s (%s, %s, %s)\n", um_version(), UM_COMMIT, editor ? editor : "without libedit",
               um_coding_names());
        return UM_EXIT_OK;
    }
    if (um_streq(name, "--help") || um_streq(name, "-h")) return um_cmd_help.run(&um_cmd_help, argc - 1, argv + 1);
    int used;
    const um_command *c = um_command_match(argc - 1, argv + 1, &used);
    return c ? c->run(c, argc - used, argv + used) : um_cli_unknown_command(name);
}

static int fail_plugin(const um_err *err) {
    fprintf(stderr, "unmask: plugin: %s\n", err->msg);
    return UM_EXIT_USAGE;
}

/* Returns whether standard output is a pipe whose reader has closed it. */
static bool reader_is_gone(void) {
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&p, 1, 0) == 1 && (p.revents & POLLERR);
}

/* Flushes standard output and reports a write error, such as a full disk. Prints nothing if the reader of a pipe has
 * closed it. Returns the exit status. */
static int close_stdout(int status) {
    um_cli_flush();
    const int reason = um_cli_write_errno();
    if (!reason && !ferror(stdout)) return status;
    if (!reader_is_gone())
        fprintf(stderr, "unmask: cannot write standard output: %s\n", reason ? strerror(reason) : "writing failed");
    return status == UM_EXIT_OK ? UM_EXIT_FAILED : status;
}

int main(int argc, char **argv) {
    if (argc > 0) um_cli_set_program(argv[0]);
    setlocale(LC_CTYPE, ""); /* character encoding only: numbers keep the decimal point */
    signal(SIGPIPE, SIG_IGN);
    um_err err;
    int status = um_cli_load_plugins(argc, argv, &err) ? fail_plugin(&err) : dispatch(argc, argv);
    um_cli_echo(true);
    return close_stdout(status);
}
