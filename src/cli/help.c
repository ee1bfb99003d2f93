/* unmask help: describes the program and its commands, as text, manual page, reference or shell completion. */
#include "cli/completion.h"

enum { COMMANDS_MAX = 32 };
enum { FORMAT_TEXT, FORMAT_MAN, FORMAT_MARKDOWN, FORMAT_BASH, FORMAT_ZSH, FORMAT_FISH };

typedef struct help_options {
    int32_t format;
} help_options;

static const um_option rows[] = {
    {"format", NULL, UM_OPT_CHOICE, UM_FIELD(help_options, format), 0, 0, "text|man|markdown|bash|zsh|fish", "text",
     NULL, "FORMAT", "Output",
     "text, or everything as a manual page, a Markdown reference or a completion script for a shell"},
};

static const char examples[] = "  unmask run --model models/tiny-block \"What is 12 + 30?\"\n"
                               "  unmask chat --model models/tiny-block\n"
                               "  unmask inspect models/tiny-full\n";

void um_cli_put_overview(um_buf *out) {
    um_buf_puts(out, "unmask: runs diffusion language models, which unmask many positions at once\n\n"
                     "Usage: unmask COMMAND [options] [arguments]\n\nCommands:\n");
    for (const um_command *const *c = um_commands; *c; c++)
        um_buf_printf(out, "  %-13s %s\n", (*c)->name, (*c)->summary);
    um_buf_puts(out, "\nOptions:\n"
                     "  -h, --help     print this page; 'unmask COMMAND --help' describes one command\n"
                     "  -v, --version  print version and commit\n\nExamples:\n");
    um_cli_put_examples(examples, out);
    um_buf_puts(out, "\nExit status: 0 success, 1 a request failed, 2 wrong usage or input,\n"
                     "3 model or device unusable.\n");
}

int um_cli_unknown_command(const char *name) {
    const char *words[COMMANDS_MAX] = {"--help", "--version"};
    size_t n = 2;
    for (const um_command *const *c = um_commands; *c && n < COMMANDS_MAX; c++) words[n++] = (*c)->name;
    const char *near = um_nearest(name, words, n);
    const char *what = name[0] == '-' ? "option" : "command";
    fprintf(stderr, "unmask: unknown %s %.80s", what, name);
    if (near) fprintf(stderr, "; did you mean %s?\n", near);
    else fprintf(stderr, "\nTry 'unmask --help'.\n");
    return UM_EXIT_USAGE;
}

static int help_of(const um_command *c) {
    char flag[] = "--help", *argv[] = {(char *)(uintptr_t)c->name, flag, NULL};
    return c->run(c, 2, argv);
}

static void print_everything(int32_t format) {
    um_buf text = {0};
    if (format == FORMAT_TEXT) um_cli_put_overview(&text);
    if (format == FORMAT_MAN) um_cli_put_man(&text);
    if (format == FORMAT_MARKDOWN) um_cli_put_markdown(&text);
    if (format == FORMAT_BASH) um_cli_put_completion(&text);
    if (format == FORMAT_ZSH) um_completion_put_zsh(&text);
    if (format == FORMAT_FISH) um_completion_put_fish(&text);
    um_cli_write(&text);
    um_buf_free(&text);
}

static int answer(const um_command *self, const um_args *args, int32_t format) {
    um_err err;
    int status = UM_EXIT_OK;
    if (!args->n_words) print_everything(format);
    if (args->n_words && format != FORMAT_TEXT) {
        um_fail(&err, UM_EINVAL, "this format holds every command; leave out \"%.80s\"", args->word[0]);
        return um_cli_error(self, &err);
    }
    for (int i = 0, used = 1; i < args->n_words && !status; i += used) {
        const um_command *c = um_command_match(args->n_words - i, (char *const *)(uintptr_t)(args->word + i), &used);
        status = c ? help_of(c) : um_cli_unknown_command(args->word[i]);
    }
    return status;
}

static int run(const um_command *self, int argc, char **argv) {
    help_options o;
    um_args args;
    um_args_parse(&args, self, argc, argv, &o, NULL);
    int status = args.done ? args.exit : answer(self, &args, o.format);
    um_args_free(&args);
    return status;
}

const um_command um_cmd_help = {
    .name = "help",
    .summary = "print help for the program or a command",
    .usage = "unmask help [--format FORMAT] [COMMAND ...]",
    .description =
        "Describes a command, like COMMAND --help. Without a command, it lists all commands. The formats man and "
        "markdown describe every command and option. The formats bash, zsh and fish are scripts with which these "
        "shells "
        "complete commands, options and values. All are generated from the tables that parse the options.",
    .examples = "  unmask help run\n"
                "  unmask help --format man | man -l -\n"
                "  unmask help --format markdown > options.md\n"
                "  eval \"$(unmask help --format bash)\"\n"
                "  unmask help --format zsh > _unmask\n"
                "  unmask help --format fish > unmask.fish\n",
    .options = rows,
    .n_options = UM_LEN(rows),
    .arguments = "COMMAND",
    .run = run,
};
