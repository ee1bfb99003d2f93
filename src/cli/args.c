/* Parses the arguments and options of subcommands, prints their help, and reports errors. */
#include <errno.h>
#include <unistd.h>

#include "cli/cli.h"
#include "engine/engine.h"
#include "server/config/options.h"

#define TEXT_MAX_BYTES ((size_t)64 << 20) /* longest prompt on standard input */

/* ---- Help -------------------------------------------------------------------------------------------------------- */

/* Appends a paragraph and breaks its lines between words. */
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
    bool first = true; /* the next word is the first of a command */
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
    um_buf_putc(&text, '\n');
    put_paragraph(
        "Options can also be set in the environment, as UNMASK_ and the name in capitals (UNMASK_MODEL), or in a "
        "file (--config). See 'man unmask'.",
        columns, &text);
    if (self->examples) {
        um_buf_puts(&text, "\nExamples:\n");
        um_cli_put_examples(self->examples, &text);
    }
    um_cli_write(&text);
    um_buf_free(&rows);
    um_buf_free(&text);
}

/* ---- Options of a command ---------------------------------------------------------------------------------------- */

typedef struct um_common common;

#define M(field) UM_FIELD(common, field)

static const um_option common_rows[] = {
    {"config", "c", UM_OPT_STR, M(config), 0, 0, NULL, NULL, NULL, "FILE", "Configuration",
     "read options from this YAML file"},
    {"print_config", NULL, UM_OPT_BOOL, M(print_config), 0, 0, NULL, "false", NULL, NULL, "Configuration",
     "print all options as a YAML file, with the source of each value, and exit"},
    {"plugin", NULL, UM_OPT_STR, M(plugin), 0, 0, NULL, NULL, NULL, "FILE,...", "Configuration",
     "load samplers from these shared libraries, before any other option is read; a configuration file can't name "
     "them"},
};

_Static_assert(UM_COMMAND_SETS_MAX >= UM_OPTION_SETS_MAX + 2, "room for the command's own rows and the common ones");

/* Appends the engine's rows that the command picks, each as a set. */
static size_t picked_sets(const um_command *self, um_config *config, um_option_set *sets) {
    um_option_set all[UM_OPTION_SETS_MAX];
    size_t n = 0;
    if (!self->engine_rows) return 0; /* such a command has no config */
    const size_t n_all = um_config_option_sets(all, config);
    for (const char *const *name = self->engine_rows; *name; name++) {
        for (size_t i = 0; i < n_all; i++) {
            const um_option *row = um_options_find(all[i].rows, all[i].n, *name);
            if (row) sets[n++] = (um_option_set){row, 1, all[i].base};
        }
    }
    return n;
}

/* The command's own rows come first and the common rows last, which is their order in --help. */
static size_t all_sets(const um_command *self, void *own, um_config *config, common *shared, um_option_set *sets) {
    size_t n = 0;
    if (self->n_options) sets[n++] = (um_option_set){self->options, self->n_options, own};
    if (self->engine_options) n += um_config_option_sets(sets + n, config);
    else n += picked_sets(self, config, sets + n);
    sets[n++] = (um_option_set){common_rows, UM_LEN(common_rows), shared};
    return n;
}

static void set_defaults(const um_command *self, const um_option_set *sets, size_t n) {
    for (size_t i = 0; i < n; i++) um_options_init(sets[i].rows, sets[i].n, sets[i].base);
    for (size_t i = 0; i < UM_LEN(self->defaults) && self->defaults[i].name; i++) {
        um_status st = um_options_set(sets, n, self->defaults[i].name, self->defaults[i].value, NULL);
        assert(st == UM_OK);
        (void)st;
    }
}

void um_command_options_init(um_command_options *o, const um_command *self) {
    size_t size = 1;
    for (size_t i = 0; i < self->n_options; i++) size = UM_MAX(size, self->options[i].offset + self->options[i].size);
    *o = (um_command_options){.own = um_zalloc(size)};
    um_config_init(&o->config);
    o->n = all_sets(self, o->own, &o->config, &o->common, o->sets);
    o->n_own = self->engine_options ? self->n_options > 0 : o->n - 1;
    o->n_shared = o->n - o->n_own - 1;
    set_defaults(self, o->sets, o->n);
}

void um_command_options_free(um_command_options *o) {
    um_free(o->own);
    o->own = NULL;
}

static bool has_option(const um_command *c, const char *name) {
    um_command_options o;
    bool found = false;
    um_command_options_init(&o, c);
    for (size_t i = 0; i < o.n; i++) found = found || um_options_find(o.sets[i].rows, o.sets[i].n, name);
    if (c->engine_options)
        found = found || um_foreign_find(um_foreign_options, um_n_foreign_options, o.sets, o.n, name);
    um_command_options_free(&o);
    return found;
}

static bool is_known(const char *command, const char *option) {
    for (const um_command *const *c = um_commands; *c; c++) {
        bool matches = !command || um_streq(command, (*c)->name);
        if (matches && (!option || has_option(*c, option))) return true;
    }
    return false;
}

/* ---- Parsing ----------------------------------------------------------------------------------------------------- */

static void fail_usage(um_args *a, const um_command *self, const um_err *err) {
    fprintf(stderr, "unmask %s: %s\nTry 'unmask %s --help'.\n", self->name, err->msg, self->name);
    a->done = true;
    a->exit = UM_EXIT_USAGE;
}

static um_status print_config(const um_command *self, const um_settings *s, um_err *err) {
    um_buf text = {0};
    um_buf_printf(&text, "# Options of unmask %s\n", self->name);
    um_status st = um_settings_print(s, &text, err);
    if (!st) um_cli_write(&text);
    um_buf_free(&text);
    return st;
}

/* Reads the command line first, because it names the file. It wins over the other sources in any order. */
static um_status read_all(um_settings *s, int argc, char **argv, const common *shared, const char **word, int *n_words,
                          bool *help, um_err *err) {
    um_status st = um_settings_argv(s, argc, argv, word, n_words, help, err);
    if (*help) return UM_OK; /* --help ignores errors in the rest of the line */
    if (!st) st = um_settings_env(s, err);
    if (!st && shared->config && *shared->config) st = um_settings_file(s, shared->config, err);
    return st;
}

/* Applies the log options now, so that messages about other options follow them. */
static void set_log(const um_settings *s) {
    um_setting o;
    if (um_settings_find(s, "log_level", &o))
        um_log_set_level((um_log_level) * (const int32_t *)(const void *)((const char *)o.base + o.row->offset));
    if (um_settings_find(s, "log_format", &o))
        um_log_set_json(*(const int32_t *)(const void *)((const char *)o.base + o.row->offset) == UM_LOG_FORMAT_JSON);
}

/* An option that only GPUs, or only the other devices, read. */
typedef struct device_option {
    const char *name;
    bool is_of_gpu;
    const char *note; /* a clause for the log: what holds on the other devices */
} device_option;

static const device_option device_options[] = {
    {"gpu_memory_utilization", true, "--kv-memory-share and --num-pages limit the KV pages in the CPU's memory"},
    {"enforce_eager", true, "only a GPU records graphs"},
    {"kv_memory_share", false, "--gpu-memory-utilization and --num-pages limit the KV pages on a GPU"},
};

/* A server starts its workers with --parent, and sets these options for each of them, whatever the device is. */
static bool is_started_by_server(const um_settings *s) {
    um_setting o;
    return um_settings_find(s, "parent", &o) && o.given->by == UM_BY_ARGV;
}

/* Logs the options of the command line that the device does not read. A file or the environment may serve several
 * devices, so their options are not logged. */
static void warn_of_device_options(const um_settings *s, const um_config *config) {
    bool is_gpu = strncmp(config->device, "cuda", 4) == 0;
    if (is_started_by_server(s)) return;
    for (size_t i = 0; i < UM_LEN(device_options); i++) {
        const device_option *d = &device_options[i];
        um_setting o;
        if (d->is_of_gpu == is_gpu || !um_settings_find(s, d->name, &o) || o.given->by != UM_BY_ARGV) continue;
        um_warn("%s has no effect on the device %s: %s", o.given->where, config->device, d->note);
    }
}

static void keep_given(um_args *a, const um_settings *s) {
    const um_given *g = s->given;
    for (size_t i = 0; i < s->n_sets; i++) {
        a->given = um_realloc(a->given, um_mul(a->n_given + s->sets[i].n + 1, sizeof *a->given));
        for (size_t k = 0; k < s->sets[i].n; k++, g++)
            if (g->by != UM_BY_DEFAULT) a->given[a->n_given++] = (struct um_args_given){&s->sets[i].rows[k], g->by};
    }
}

/* The settings of a command while they are read. Must not be copied: the settings point into the struct. */
typedef struct parse {
    um_option_set sets[UM_COMMAND_SETS_MAX];
    common shared;
    um_settings s;
} parse;

static void parse_begin(parse *p, const um_command *self, void *own, um_config *config, um_arena *strings) {
    if (self->engine_options || self->engine_rows) um_config_init(config);
    size_t n = all_sets(self, own, config, &p->shared, p->sets);
    p->s = (um_settings){.sets = p->sets, .n_sets = n, .n_outer = 1, .command = self->name, .known = is_known};
    p->s.strings = strings;
    p->s.peer_name = um_cli_peer_name;
    if (self->engine_options) {
        p->s.foreign = um_foreign_options;
        p->s.n_foreign = um_n_foreign_options;
    }
    um_settings_init(&p->s);
    set_defaults(self, p->sets, n);
}

void um_args_parse(um_args *a, const um_command *self, int argc, char **argv, void *own, um_config *config) {
    parse p;
    um_err err;
    bool help = false, follows = false;
    *a = (um_args){.word = UM_NEW_ARRAY(const char *, (size_t)argc + 1)};
    um_arena_init(&a->strings, 0);
    parse_begin(&p, self, own, config, &a->strings);
    um_status st = read_all(&p.s, argc, argv, &p.shared, a->word, &a->n_words, &help, &err);
    a->has_file = p.shared.config && *p.shared.config;
    if (!st && !help) {
        set_log(&p.s);
        st = um_settings_finish(&p.s, &err);
        if (!st && self->engine_options) warn_of_device_options(&p.s, config);
        if (!st && self->engine_options && !p.shared.print_config) st = um_cli_follows(config, &follows, &err);
    }
    a->done = help || p.shared.print_config;
    if (help) {
        set_defaults(self, p.sets, p.s.n_sets);
        print_help(self, p.sets, p.s.n_sets);
    } else if (!st && p.shared.print_config) {
        st = print_config(self, &p.s, &err);
    }
    if (st) fail_usage(a, self, &err);
    keep_given(a, &p.s);
    um_settings_free(&p.s);
    if (st || !follows) return;
    a->exit = um_cli_follow(self, config);
    a->done = true;
}

um_status um_args_read_again(const um_command *self, int argc, char **argv, um_arena *strings, void *own,
                             um_config *config, um_err *err) {
    parse p;
    bool help = false;
    int n_words = 0;
    const char **word = UM_NEW_ARRAY(const char *, (size_t)argc + 1);
    parse_begin(&p, self, own, config, strings);
    um_status st = read_all(&p.s, argc, argv, &p.shared, word, &n_words, &help, err);
    um_settings_free(&p.s);
    um_free(word);
    return st;
}

void um_args_free(um_args *a) {
    um_free(a->word);
    um_free(a->given);
    a->word = NULL;
    a->given = NULL;
    um_arena_free(&a->strings);
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
    case UM_EIO: return UM_EXIT_FAILED;
    case UM_ECANCELED: return um_cli_interrupted() ? um_cli_signal_exit() : UM_EXIT_FAILED;
    }
    return UM_EXIT_FAILED;
}

um_status um_cli_check_output(const char *flag, const char *path, um_err *err) {
    um_err why;
    if (!path || um_streq(path, "-") || !um_file_check_replace(path, &why)) return UM_OK;
    return um_fail(err, UM_EINVAL, "%s: %s", flag, why.msg);
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

um_status um_cli_each_word(const char *list, um_status (*fn)(void *arg, const char *word, um_err *err), void *arg,
                           um_err *err) {
    um_status s = UM_OK;
    for (const char *p = list; !s; p++) {
        const size_t n = strcspn(p, ",");
        char *word = um_strndup(p, n);
        s = fn(arg, word, err);
        um_free(word);
        p += n;
        if (!*p) break;
    }
    return s;
}

um_status um_cli_no_words(const um_args *a, const char *instead, um_err *err) {
    if (!a->n_words) return UM_OK;
    return um_fail(err, UM_EINVAL, "unexpected argument \"%.80s\"; %s", a->word[0], instead);
}

/* ---- Standard output --------------------------------------------------------------------------------------------- */

static int write_errno;
static bool writes_to_stderr;

static FILE *output(void) { return writes_to_stderr ? stderr : stdout; }

void um_cli_write(const um_buf *text) {
    if (text->len && fwrite(text->data, 1, text->len, output()) < text->len && !write_errno) write_errno = errno;
}

void um_cli_flush(void) {
    if (fflush(output()) != 0 && !write_errno) write_errno = errno;
}

void um_cli_write_to_stderr(void) { writes_to_stderr = true; }

int um_cli_write_errno(void) { return write_errno; }
