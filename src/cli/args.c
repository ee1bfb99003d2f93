/* What every subcommand does with its arguments, and how it says that something is wrong. */
#include <errno.h>
#include <unistd.h>

#include "cli/cli.h"
#include "engine/engine.h"

#define TEXT_MAX_BYTES ((size_t)64 << 20) /* of a prompt on standard input */

/* ---- Help -------------------------------------------------------------------------------------------------------- */

/* Writes a paragraph, broken between words. */
static void put_paragraph(const char *text, int columns, um_buf *out) {
    int column = 0;
    for (const char *p = text; *p;) {
        int n = (int)strcspn(p, " ");
        if (column && column + 1 + n > columns) {
            um_buf_putc(out, '\n');
            column = 0;
        }
        um_buf_printf(out, "%s%.*s", column ? " " : "", n, p);
        column += n + (column > 0);
        p += n + (p[n] == ' ');
    }
    um_buf_putc(out, '\n');
}

static const char *program = "unmask";

void um_cli_set_program(const char *name) { program = name; }

void um_cli_put_examples(const char *lines, um_buf *out) {
    char *models = um_cli_bundled();
    bool first = true; /* the first word of a command */
    for (const char *p = lines; *p;) {
        size_t space = strspn(p, " \n|"), n = strcspn(p + space, " \n|");
        first |= memchr(p, '\n', space) || memchr(p, '|', space);
        um_buf_append(out, p, space);
        p += space;
        if (first && n == 6 && strncmp(p, "unmask", n) == 0) um_buf_puts(out, program);
        else if (n > 7 && strncmp(p, "models/", 7) == 0) um_buf_printf(out, "%s/%.*s", models, (int)n - 7, p + 7);
        else um_buf_append(out, p, n);
        first &= n == 0;
        p += n;
    }
    um_free(models);
}

static void print_help(const um_command *self, const um_option_set *sets, size_t n_sets) {
    int columns = UM_MIN(um_cli_columns(STDOUT_FILENO), 100);
    um_buf text = {0}, rows = {0};
    um_buf_printf(&text, "unmask %s: %s\n\nUsage: %s\n\n", self->name, self->summary, self->usage);
    if (self->description) put_paragraph(self->description, columns, &text);
    um_options_help(sets, n_sets, columns, &rows);
    if (rows.len) um_buf_printf(&text, "\n%s", rows.data);
    um_buf_puts(&text, "\nAn option may also come from the environment: UNMASK_ and its name in capitals "
                       "(UNMASK_MODEL).\n");
    if (self->examples) {
        um_buf_puts(&text, "\nExamples:\n");
        um_cli_put_examples(self->examples, &text);
    }
    fwrite(text.data, 1, text.len, stdout);
    um_buf_free(&rows);
    um_buf_free(&text);
}

/* ---- Parsing ----------------------------------------------------------------------------------------------------- */

/* The command's own rows come first, so that --help starts with them. */
static size_t all_sets(const um_command *self, void *own, um_config *config, um_option_set *sets) {
    size_t n = 0;
    if (self->n_options) sets[n++] = (um_option_set){self->options, self->n_options, own};
    if (self->engine_options) n += um_config_option_sets(sets + n, config);
    return n;
}

static void fail_usage(um_args *a, const um_command *self, const um_err *err) {
    fprintf(stderr, "unmask %s: %s\nTry 'unmask %s --help'.\n", self->name, err->msg, self->name);
    a->done = true;
    a->exit = UM_EXIT_USAGE;
}

void um_args_parse(um_args *a, const um_command *self, int argc, char **argv, void *own, um_config *config) {
    um_option_set sets[UM_CONFIG_SETS_MAX + 1];
    um_err err;
    bool help = false;
    *a = (um_args){.word = UM_NEW_ARRAY(const char *, (size_t)argc + 1)};
    /* A command that wants other defaults has initialised the configuration itself (um_cli_one_request). */
    if (self->engine_options && config->size != sizeof *config) um_config_init(config);
    if (self->n_options) um_options_init(self->options, self->n_options, own);
    size_t n = all_sets(self, own, config, sets);
    um_status s = um_options_argv(sets, n, argc, argv, a->word, &a->n_words, &help, &err);
    if (help) { /* asked for help, a person is not told off for the rest of the line */
        print_help(self, sets, n);
        a->done = true;
        a->exit = UM_EXIT_OK;
        return;
    }
    /* The environment is weaker than the command line: take it first, then the arguments again over it. */
    if (!s) s = um_options_env(sets, n, &err);
    if (!s) s = um_options_argv(sets, n, argc, argv, a->word, &a->n_words, &help, &err);
    if (s) fail_usage(a, self, &err);
}

void um_args_free(um_args *a) {
    um_free(a->word);
    a->word = NULL;
}

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

int um_exit_of(um_status s) {
    switch (s) {
    case UM_OK: return UM_EXIT_OK;
    case UM_EINVAL:
    case UM_ENOENT:
    case UM_EPARSE:
    case UM_ETEMPLATE:
    case UM_ERANGE:
    case UM_ELIMIT: return UM_EXIT_USAGE;
    case UM_EMODEL:
    case UM_EUNSUPPORTED:
    case UM_EDEVICE:
    case UM_ENOMEM: return UM_EXIT_DEVICE;
    case UM_EIO:
    case UM_ECANCELED: return UM_EXIT_FAILED;
    }
    return UM_EXIT_FAILED;
}

int um_cli_error(const um_command *self, const um_err *err) {
    fprintf(stderr, "unmask %s: %s\n", self->name, err->msg);
    return um_exit_of(err->code);
}

/* ---- Text -------------------------------------------------------------------------------------------------------- */

static um_status read_stdin(um_buf *out, um_err *err) {
    for (;;) {
        um_buf_reserve(out, 4096);
        ssize_t n = read(STDIN_FILENO, out->data + out->len, out->cap - out->len - 1);
        if (n < 0 && errno == EINTR && !um_cli_interrupted()) continue;
        if (n < 0) return um_fail(err, UM_EIO, "standard input: %s", strerror(errno));
        if (n == 0) break;
        out->len += (size_t)n;
        if (out->len > TEXT_MAX_BYTES)
            return um_fail(err, UM_ELIMIT, "standard input: more than %zu bytes of text", TEXT_MAX_BYTES);
    }
    out->data[out->len] = '\0';
    if (out->len && out->data[out->len - 1] == '\n') out->data[--out->len] = '\0';
    return UM_OK;
}

um_status um_cli_text(const um_args *a, um_buf *out, um_err *err) {
    bool piped = !a->n_words && !isatty(STDIN_FILENO);
    if (piped || (a->n_words == 1 && um_streq(a->word[0], "-"))) return read_stdin(out, err);
    if (!a->n_words) return um_fail(err, UM_EINVAL, "no text: give it as arguments, or - to read standard input");
    for (int i = 0; i < a->n_words; i++) um_buf_printf(out, "%s%s", i ? " " : "", a->word[i]);
    return UM_OK;
}
