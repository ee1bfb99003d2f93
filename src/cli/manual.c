/* Generates the manual page in roff from the tables. */
#include "cli/cli.h"

#define COLUMNS 78

/* Escapes hyphens, which roff would otherwise print as another character, and backslashes. */
static void put_escaped(um_buf *out, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '-') um_buf_puts(out, "\\-");
        else if (text[i] == '\\') um_buf_puts(out, "\\e");
        else um_buf_putc(out, text[i]);
    }
}

/* Appends text on separate lines. Escapes a dot or quote at the start of a line, which would be a roff request. */
static void put_text(um_buf *out, const char *text) {
    size_t line = out->len;
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, " ");
        if (out->len > line && out->len - line + 1 + n > COLUMNS) {
            um_buf_putc(out, '\n');
            line = out->len;
        }
        if (out->len > line) um_buf_putc(out, ' ');
        else if (*p == '.' || *p == '\'') um_buf_puts(out, "\\&");
        put_escaped(out, p, n);
        p += n + strspn(p + n, " ");
    }
    um_buf_putc(out, '\n');
}

static void put_paragraph(um_buf *out, const char *text) {
    um_buf_puts(out, ".PP\n");
    put_text(out, text);
}

static void put_example(um_buf *out, const char *lines) {
    um_buf_puts(out, ".PP\n.RS 4\n.nf\n");
    for (const char *p = lines; *p;) {
        size_t n = strcspn(p, "\n");
        put_escaped(out, p, n);
        um_buf_putc(out, '\n');
        p += n + (p[n] == '\n');
    }
    um_buf_puts(out, ".fi\n.RE\n");
}

/* ---- Options ----------------------------------------------------------------------------------------------------- */

/* Appends the aliases, as in "; also --max-num-seqs, --n". */
static void put_aliases(const um_option *row, um_buf *text) {
    um_str alias;
    for (size_t i = 0; um_option_alias(row, i, &alias); i++) {
        char *name = um_strndup(alias.p, alias.n);
        um_buf_puts(text, i ? ", --" : "; also --");
        um_option_put_flag(name, text);
        um_free(name);
    }
}

static void put_row(void *arg, const um_option_set *set, const um_option *row, bool opens_group) {
    um_buf *out = arg, text = {0};
    if (opens_group) um_buf_printf(out, ".PP\n%s:\n", row->group);
    um_option_put_usage(row, set->base, &text);
    const char *flag = text.data + (um_option_short(row) ? strlen("-m, ") : 0);
    size_t n = strcspn(flag, " ");
    um_buf_puts(out, ".TP\n\\fB");
    if (flag > text.data) um_buf_printf(out, "\\-%c\\fR, \\fB", um_option_short(row));
    put_escaped(out, flag, n);
    um_buf_puts(out, "\\fR");
    if (flag[n]) um_buf_printf(out, " \\fI%s\\fR", flag + n + 1);
    um_buf_putc(out, '\n');
    um_buf_clear(&text);
    um_buf_puts(&text, row->help);
    um_option_put_range_and_default(row, set->base, &text);
    put_aliases(row, &text);
    put_text(out, text.data);
    um_buf_free(&text);
}

static void put_command(um_buf *out, const um_command *c) {
    um_command_options o;
    um_buf text = {0};
    um_command_options_init(&o, c);
    um_buf_printf(out, ".SS \"unmask %s\"\n\\fB", c->name);
    put_escaped(out, c->usage, strlen(c->usage));
    um_buf_puts(out, "\\fR\n");
    put_paragraph(out, c->description);
    um_options_each(o.sets, o.n_own, put_row, out);
    if (c->engine_options) um_buf_puts(&text, "Also takes the options of models and decoding.");
    for (size_t i = 0; i < UM_LEN(c->defaults) && c->defaults[i].name; i++)
        um_buf_printf(&text, " The default of %s is %s.", c->defaults[i].name, c->defaults[i].value);
    if (text.len) put_paragraph(out, text.data);
    um_buf_free(&text);
    um_command_options_free(&o);
}

/* ---- The page ---------------------------------------------------------------------------------------------------- */

static void put_commands(um_buf *out) {
    um_buf_puts(out, ".SH COMMANDS\n");
    for (const um_command *const *c = um_commands; *c; c++) put_command(out, *c);
}

static void put_shared(um_buf *out) {
    um_command_options o;
    um_command_options_init(&o, &um_cmd_generate);
    um_buf text = {0};
    um_buf_puts(out, ".SH \"OPTIONS OF MODELS AND DECODING\"\n");
    for (const um_command *const *c = um_commands; *c; c++)
        if ((*c)->engine_options) um_buf_printf(&text, "%s%s", text.len ? ", " : "Commands: ", (*c)->name);
    um_buf_putc(&text, '.');
    put_text(out, text.data);
    um_buf_free(&text);
    um_options_each(o.sets + o.n_own, o.n_shared, put_row, out);
    um_buf_puts(out, ".SH \"OPTIONS OF EVERY COMMAND\"\n");
    put_text(out, "--help describes a command and its options.");
    um_options_each(o.sets + o.n - 1, 1, put_row, out);
    um_command_options_free(&o);
}

static void put_configuration(um_buf *out) {
    um_buf_puts(out, ".SH CONFIGURATION\n");
    put_text(out, um_cli_about_values);
    put_paragraph(out, um_cli_about_file);
    put_example(out, um_cli_file_example);
    put_paragraph(out, um_cli_about_environment);
}

static void put_examples(um_buf *out) {
    um_buf_puts(out, ".SH EXAMPLES\nRun in the source folder:\n");
    for (const um_command *const *c = um_commands; *c; c++) put_example(out, (*c)->examples);
}

/* The page has no date, so that it changes only if the tables do. */
void um_cli_put_man(um_buf *out) {
    um_buf_printf(out,
                  ".\\\" Generated by `unmask help --format man`; edit the option tables instead.\n"
                  ".TH UNMASK 1 \"\" \"unmask %s\" \"User Commands\"\n"
                  ".SH NAME\nunmask \\- run diffusion language models\n"
                  ".SH SYNOPSIS\n\\fBunmask\\fR \\fICOMMAND\\fR [\\fIoptions\\fR] [\\fIarguments\\fR]\n"
                  ".SH DESCRIPTION\n",
                  um_version());
    put_text(out, "Runs diffusion language models, which write text by unmasking many positions at once. It reads "
                  "checkpoints in the layout in which they are published. Results go to standard output, everything "
                  "else to standard error.");
    put_commands(out);
    put_shared(out);
    put_configuration(out);
    um_buf_puts(out, ".SH \"EXIT STATUS\"\n");
    put_text(out,
             "0: success. 1: a request failed. 2: wrong usage or input. 3: the model or the device can't be used.");
    put_examples(out);
}
