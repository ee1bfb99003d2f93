/* The reference of options in Markdown, from the tables, and the sentences that it shares with the manual page. */
#include "cli/cli.h"
#include "server/server.h"

const char um_cli_about_values[] =
    "Every option can be given on the command line, in the environment and in a file. The command line wins over the "
    "environment, the environment over the file, the file over the default. A bool is true, yes, on or 1, or false, "
    "no, off or 0, in any case of letters; on the command line the flag alone is true and --no-NAME is false. Where "
    "auto is allowed, the model or the machine decides. A name may be written with - or _. What other systems call "
    "an option is accepted in all places, with their check of the value. A request line takes the options of "
    "decoding, sampling and limits by the same names, with the JSON type that fits.";

const char um_cli_about_file[] =
    "--config FILE, or UNMASK_CONFIG, names a file in YAML: an option a line by its name. Options of one command may "
    "stand in a section of its name, where they win over those at the top; a section engine, and in each "
    "decoding_thresholds, only group. A file may serve several commands: an option that another command knows is "
    "passed over. Unknown and doubled names, lists, anchors, aliases, tags and further documents are errors with "
    "line and column. null, or nothing, leaves an option as it is. --print-config writes such a file.";

const char um_cli_file_example[] = "model: models/tiny-block\n"
                                   "threads: 4\n"
                                   "accept_threshold: 0.9\n"
                                   "eval:\n"
                                   "  limit: 50\n";

const char um_cli_about_environment[] =
    "In the environment an option is UNMASK_ and its name in capitals (UNMASK_MAX_MODEL_LEN). An empty variable counts "
    "as unset. A variable of this kind that is no option of any command is warned of.";

/* ---- Tables ------------------------------------------------------------------------------------------------------ */

/* A bar would end the cell. */
static void put_cell(um_buf *out, const char *text) {
    for (const char *p = text; *p; p++) {
        if (*p == '|') um_buf_putc(out, '\\');
        um_buf_putc(out, *p);
    }
}

static void put_aliases(const um_option *row, um_buf *out) {
    um_str alias;
    for (size_t i = 0; um_option_alias(row, i, &alias); i++) {
        char *name = um_strndup(alias.p, alias.n);
        um_buf_printf(out, "%s`%s`", i ? ", " : "", name);
        if (um_option_multiple(row, name) > 1) um_buf_printf(out, " (multiples of %d)", um_option_multiple(row, name));
        um_free(name);
    }
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
    bool in_file; /* can a file set these? */
    um_buf *out;
} table;

static void put_row(void *arg, const um_option_set *set, const um_option *row, bool opens_group) {
    const table *t = arg;
    um_buf *out = t->out, range = {0};
    if (opens_group)
        um_buf_printf(out,
                      "\n%s:\n\n| flag | in a file | in the environment | type | range | default | also | |\n"
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
    um_buf_puts(out, " |\n");
    um_buf_free(&range);
}

static void put_command(um_buf *out, const um_command *c) {
    um_command_options o;
    um_command_options_init(&o, c);
    um_buf_printf(out, "\n## unmask %s\n\n`%s`: %s.", c->name, c->usage, c->summary);
    if (c->engine_options) um_buf_puts(out, " Takes the [options of models and decoding](#models-and-decoding) too.");
    for (size_t i = 0; i < UM_LEN(c->defaults) && c->defaults[i].name; i++)
        um_buf_printf(out, " The default of `%s` is %s here.", c->defaults[i].name, c->defaults[i].value);
    um_buf_putc(out, '\n');
    um_options_each(o.sets, o.n_own, put_row, &(table){true, out});
    um_command_options_free(&o);
}

static void put_endpoints(um_buf *out) {
    um_buf_puts(out, "\n## Endpoints of the server\n\nAll but those marked open ask for a key where --api-key gave "
                     "one. {id} is one part of a path, {rest} may be several.\n\n"
                     "| method | path | known from | | |\n| --- | --- | --- | --- | --- |\n");
    for (const um_endpoint_set *const *set = um_endpoints; *set; set++) {
        for (const um_endpoint *e = (*set)->rows; e < (*set)->rows + (*set)->n; e++) {
            um_buf_printf(out, "| %s | `%s` | %s | %s | ", e->method, e->path, e->shape,
                          e->flags & UM_ENDPOINT_OPEN ? "open" : "");
            put_cell(out, e->summary);
            um_buf_puts(out, " |\n");
        }
    }
}

void um_cli_put_markdown(um_buf *out) {
    um_command_options o;
    um_command_options_init(&o, &um_cmd_generate);
    um_buf_printf(out,
                  "<!-- Made by `unmask help --format markdown`: change the tables instead. -->\n# Options\n\n%s\n\n"
                  "%s\n\n```yaml\n%s```\n\n%s\n",
                  um_cli_about_values, um_cli_about_file, um_cli_file_example, um_cli_about_environment);
    um_buf_puts(out, "\n## Every command\n");
    um_options_each(o.sets + o.n - 1, 1, put_row, &(table){false, out});
    um_buf_puts(out, "\n## Models and decoding\n");
    um_options_each(o.sets + o.n_own, o.n_shared, put_row, &(table){true, out});
    for (const um_command *const *c = um_commands; *c; c++) put_command(out, *c);
    put_endpoints(out);
    um_command_options_free(&o);
}
