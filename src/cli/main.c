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

enum { COMMANDS_MAX = 32 };

static const char examples[] = "  unmask run --model models/tiny-block \"What is 12 + 30?\"\n"
                               "  unmask chat --model models/tiny-block\n"
                               "  unmask inspect models/tiny-full\n";

static void print_help(FILE *f) {
    um_buf text = {0};
    um_buf_puts(&text,
                "unmask: runs diffusion language models, which write a text by unmasking many positions at once\n\n"
                "Usage: unmask COMMAND [options] [arguments]\n\nCommands:\n");
    for (const um_command *const *c = um_commands; *c; c++)
        um_buf_printf(&text, "  %-10s %s\n", (*c)->name, (*c)->summary);
    um_buf_puts(&text, "\nOptions:\n"
                       "  --help     this page; 'unmask COMMAND --help' and 'unmask help COMMAND' tell about one\n"
                       "  --version  version and commit\n\nExamples:\n");
    um_cli_put_examples(examples, &text);
    um_buf_puts(&text, "\nExit status: 0 all fine, 1 some request failed, 2 bad usage or input, 3 the model or device "
                       "can't be used.\n");
    fputs(text.data, f);
    um_buf_free(&text);
}

static int unknown_command(const char *name) {
    const char *words[COMMANDS_MAX] = {"help", "--help", "--version"};
    size_t n = 3;
    for (const um_command *const *c = um_commands; *c && n < COMMANDS_MAX; c++) words[n++] = (*c)->name;
    const char *near = um_nearest(name, words, n);
    const char *what = name[0] == '-' ? "option" : "command";
    fprintf(stderr, "unmask: unknown %s %.80s", what, name);
    if (near) fprintf(stderr, "; did you mean %s?\n", near);
    else fprintf(stderr, "\nTry 'unmask --help'.\n");
    return UM_EXIT_USAGE;
}

static int help(int argc, char **argv) {
    if (argc < 3) {
        print_help(stdout);
        return UM_EXIT_OK;
    }
    const um_command *c = um_command_find(argv[2]);
    if (!c) return unknown_command(argv[2]);
    return c->run(c, 2, (char *[]){argv[2], "--help", NULL});
}

static int dispatch(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return UM_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (um_streq(name, "help") || um_streq(name, "--help") || um_streq(name, "-h")) return help(argc, argv);
    if (um_streq(name, "--version") || um_streq(name, "version")) {
        printf("unmask %s (%s)\n", um_version(), UM_COMMIT);
        return UM_EXIT_OK;
    }
    const um_command *c = um_command_find(name);
    return c ? c->run(c, argc - 1, argv + 1) : unknown_command(name);
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
