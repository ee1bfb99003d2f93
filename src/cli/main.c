/* unmask: finds the subcommand and hands over to it; the process ends here only. */
#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "cli/cli.h"

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
    if (um_streq(name, "--version") || um_streq(name, "version")) {
        printf("unmask %s (%s)\n", um_version(), UM_COMMIT);
        return UM_EXIT_OK;
    }
    if (um_streq(name, "--help") || um_streq(name, "-h")) return um_cmd_help.run(&um_cmd_help, argc - 1, argv + 1);
    int used;
    const um_command *c = um_command_match(argc - 1, argv + 1, &used);
    return c ? c->run(c, argc - used, argv + used) : um_cli_unknown_command(name);
}

/* stdio keeps no reason of a write that failed earlier, but a pipe tells whether its reader is gone. */
static bool reader_is_gone(void) {
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&p, 1, 0) == 1 && (p.revents & POLLERR);
}

/* A full disk shows at the last flush at the latest. A reader that went away knows why, and is told nothing. */
static int close_stdout(int status) {
    bool failed = ferror(stdout) != 0;
    errno = 0;
    failed |= fflush(stdout) != 0;
    if (!failed) return status;
    if (!reader_is_gone()) fprintf(stderr, "unmask: standard output: %s\n", errno ? strerror(errno) : "writing failed");
    return status == UM_EXIT_OK ? UM_EXIT_FAILED : status;
}

int main(int argc, char **argv) {
    if (argc > 0) um_cli_set_program(argv[0]);
    setlocale(LC_CTYPE, ""); /* characters only: numbers keep their decimal point */
    signal(SIGPIPE, SIG_IGN);
    int status = dispatch(argc, argv);
    um_cli_echo(true);
    return close_stdout(status);
}
