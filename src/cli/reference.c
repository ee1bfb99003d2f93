/* Generates the reference of options in Markdown from the tables. Has the paragraphs that it shares with the manual
 * page. */
#include "cli/cli.h"
#include "server/endpoints.h"
#include "server/keys/keys.h"

const char um_cli_about_values[] =
    "Every option can be set on the command line, in the environment and in a file. The command line wins over the "
    "environment, the environment over the file, and the file over the default. A bool is true, yes, on or 1, or "
    "false, no, off or 0, in upper or lower case; on the command line, the flag alone means true and --no-NAME means "
    "false. Where auto is allowed, the value depends on the model or the machine. A name may be written with - or _. "
    "Names that other systems use for an option are accepted everywhere. So are options of other systems whose value "
    "makes no difference here (`unmask list foreign`). Short options (-m, -t) are for the command line only: -t 4 and "
    "-t4 "
    "are --threads 4. A request line of `unmask generate` takes the options of "
    "decoding, sampling and limits by the same names, with the matching JSON type.";

const char um_cli_about_file[] =
    "--config FILE, or UNMASK_CONFIG, names a YAML file with one option per line. A section with the name of a command "
    "sets options for that command only; they win over options at the top level. The sections engine and "
    "decoding_thresholds only group options. Several commands can share a file: a command ignores options that only "
    "other commands have. Unknown and duplicate names, lists, anchors, aliases, tags and further documents are errors, "
    "reported with line and column. null, or an empty value, leaves an option unset. --print-config writes such a "
    "file.";

const char um_cli_file_example[] = "model: models/tiny-block\n"
                                   "threads: 4\n"
                                   "accept_threshold: 0.9\n"
                                   "eval:\n"
                                   "  limit: 50\n";

const char um_cli_about_environment[] =
    "In the environment, the name of an option is UNMASK_ and its name in capitals (UNMASK_MAX_MODEL_LEN). An empty "
    "variable counts as unset. The program warns about variables with this prefix that no command has as an option.";

/* ---- Tables ------------------------------------------------------------------------------------------------------ */

/* Escapes bars, which would end the cell. */
static void put_cell(um_buf *out, const char *text) {
    for (const char *p = text; *p; p++) {
        if (*p == '|') um_buf_putc(out, '\\');
        um_buf_putc(out, *p);
    }
}

static void put_aliases(const um_option *row, um_buf *out) {
    um_str alias;
    for (size_t i = 0; um_option_alias(row, i, &alias); i++)
        um_buf_printf(out, "%s`%.*s`", i ? ", " : "", (int)alias.n, alias.p);
}

static void put_names(const um_option *row, const void *base, bool in_file, um_buf *out) {
    um_buf_puts(out, "| `");
    um_option_put_usage(row, base, out);
    if (in_file) um_buf_printf(out, "` | `%s` | `", row->name);
    else um_buf_puts(out, "` | no | `");
    um_option_put_env(row->name, out);
    um_buf_puts(out, "` | ");
}

typedef struct table {
    bool in_file; /* a configuration file can set these options */
    um_buf *out;
} table;

static void put_row(void *arg, const um_option_set *set, const um_option *row, bool opens_group) {
    const table *t = arg;
    um_buf *out = t->out, range = {0};
    if (opens_group)
        um_buf_printf(
            out,
            "\n%s:\n\n| flag | in a file | in the environment | type | range | default | also | description |\n"
            "| --- | --- | --- | --- | --- | --- | --- | --- |\n",
            row->group);
    put_names(row, set->base, t->in_file, out);
    um_buf_puts(&range, "");
    um_option_range(row, &range);
    um_buf_printf(out, "%s | ", um_option_type(row));
    put_cell(out, range.data);
    um_buf_puts(out, " | ");
    um_option_get_text(row, set->base, out);
    um_buf_puts(out, " | ");
    put_aliases(row, out);
    um_buf_puts(out, " | ");
    put_cell(out, row->help);
    um_buf_puts(out, row->is_live ? " (SIGHUP) |\n" : " |\n");
    um_buf_free(&range);
}

static void put_command(um_buf *out, const um_command *c) {
    um_command_options o;
    um_command_options_init(&o, c);
    um_buf_printf(out, "\n## unmask %s\n\n`%s`: %s.", c->name, c->usage, c->summary);
    if (c->engine_options) um_buf_puts(out, " Also takes the [options of models and decoding](#models-and-decoding).");
    for (size_t i = 0; i < UM_LEN(c->defaults) && c->defaults[i].name; i++)
        um_buf_printf(out, " The default of `%s` is %s.", c->defaults[i].name, c->defaults[i].value);
    um_buf_putc(out, '\n');
    um_options_each(o.sets, o.n_own, put_row, &(table){true, out});
    um_command_options_free(&o);
}

static void put_foreign(um_buf *out) {
    um_buf_puts(
        out, "\n## Options of other engines\n\nThe commands that take the options of models and decoding also accept "
             "these options of Diffulex, dLLM-Serve, vLLM, SGLang and llama.cpp: on the command line, in the "
             "environment and "
             "in a file. The program logs each use. Values that are not in the table are refused. Options that "
             "other engines have under another name are in the tables above, in the column also.\n\n"
             "| option | accepted values | sets | reason |\n| --- | --- | --- | --- |\n");
    for (const um_foreign *f = um_foreign_options; f < um_foreign_options + um_n_foreign_options; f++) {
        um_buf_puts(out, "| ");
        for (const char *p = f->names; *p; p += strcspn(p, ",")) {
            if (*p == ',') um_buf_puts(out, ", "), p++;
            um_buf_printf(out, "`%.*s`", (int)strcspn(p, ","), p);
        }
        um_buf_puts(out, " | ");
        put_cell(out, f->neutral ? f->neutral : "any");
        um_buf_printf(out, " | %s | ", f->option ? um_foreign_option(f) : "");
        put_cell(out, f->note);
        um_buf_puts(out, " |\n");
    }
}

static void put_key_setting(void *arg, const um_option_set *set, const um_option *row, bool opens_group) {
    um_buf *out = arg, range = {0};
    (void)opens_group;
    um_buf_puts(&range, "");
    um_option_range(row, &range);
    um_buf_printf(out, "| `%s` | %s | %s | ", row->name, um_option_type(row), range.data);
    um_option_get_text(row, set->base, out);
    um_buf_puts(out, " | ");
    put_cell(out, row->help);
    um_buf_puts(out, " |\n");
    um_buf_free(&range);
}

static void put_key_settings(um_buf *out) {
    um_key_limits limits;
    um_options_init(um_key_options, UM_KEY_OPTIONS, &limits);
    um_buf_puts(out, "\n## Settings of an API key\n\nA line of `--api-key-file` has a name, the SHA-256 hash of the "
                     "key and these settings, as `name=value`, `admin` also alone ([server.md](server.md#keys)).\n\n"
                     "| setting | type | range | default | description |\n| --- | --- | --- | --- | --- |\n");
    um_options_each(&(um_option_set){um_key_options, UM_KEY_OPTIONS, &limits}, 1, put_key_setting, out);
}

static const char *access_of(const um_endpoint *e) {
    if (e->flags & UM_ENDPOINT_OPEN) return "open";
    return e->flags & UM_ENDPOINT_ADMIN ? "admin" : "";
}

static void put_endpoints(um_buf *out) {
    um_buf_puts(out, "\n## Endpoints of the server\n\nIf the server has keys, all endpoints require one, except those "
                     "marked open; those marked admin take keys of admins only. {id} stands for one segment of a path, "
                     "{rest} for one or more.\n\n"
                     "| method | path | known from | access | description |\n| --- | --- | --- | --- | --- |\n");
    for (const um_endpoint_set *const *set = um_endpoints; *set; set++) {
        for (const um_endpoint *e = (*set)->rows; e < (*set)->rows + (*set)->n; e++) {
            um_buf_printf(out, "| %s | `%s` | %s | %s | ", e->method, e->path, e->shape, access_of(e));
            put_cell(out, e->summary);
            um_buf_puts(out, " |\n");
        }
    }
}

void um_cli_put_markdown(um_buf *out) {
    um_command_options o;
    um_command_options_init(&o, &um_cmd_generate);
    um_buf_printf(
        out,
        "<!-- Generated by `unmask help --format markdown`; edit the option tables instead. -->\n# Options\n\n%s\n\n"
        "%s\n\n```yaml\n%s```\n\n%s\n",
        um_cli_about_values, um_cli_about_file, um_cli_file_example, um_cli_about_environment);
    um_buf_puts(out, "\n## Every command\n");
    um_options_each(o.sets + o.n - 1, 1, put_row, &(table){false, out});
    um_buf_puts(out, "\n## Models and decoding\n");
    um_options_each(o.sets + o.n_own, o.n_shared, put_row, &(table){true, out});
    for (const um_command *const *c = um_commands; *c; c++) put_command(out, *c);
    put_foreign(out);
    put_key_settings(out);
    put_endpoints(out);
    um_command_options_free(&o);
}
