/* unmask list: prints the tables of the program. */
#include "cli/cli.h"
#include "cli/printer.h"
#include "engine/engine.h"
#include "model/model.h"
#include "server/endpoints.h"

typedef struct list_options {
    bool json;
} list_options;

static const um_option rows[] = {
    {"json", NULL, UM_OPT_BOOL, UM_FIELD(list_options, json), 0, 0, NULL, "false", NULL, NULL, "Output",
     "print a JSON object with a list for each table"},
};

/* ---- Option rows ------------------------------------------------------------------------------------------------- */

/* Appends the aliases, as in "max_num_seqs,max_running_requests". */
static void put_aliases(const um_option *row, um_buf *out) {
    um_str alias;
    for (size_t i = 0; um_option_alias(row, i, &alias); i++)
        um_buf_printf(out, "%s%.*s", i ? "," : "", (int)alias.n, alias.p);
}

/* Text output has range, default and aliases of a row on one line. */
static void put_facts(um_printer *s, const um_option *row, const char *range, const char *aliases) {
    um_buf line = {0};
    um_buf_puts(&line, *range ? range : um_option_type(row));
    if (row->def) um_buf_printf(&line, "; default %s", row->def);
    if (aliases) um_buf_printf(&line, "; also %s", aliases);
    um_printer_note(s, line.data);
    um_buf_free(&line);
}

static void put_option(um_printer *s, const um_option *row) {
    um_buf range = {0}, aliases = {0};
    um_option_range(row, &range);
    put_aliases(row, &aliases);
    um_printer_item(s, row->name, row->help);
    if (s->json) {
        um_printer_words(s, "aliases", aliases.data, ',');
        um_printer_str(s, "type", um_option_type(row));
        um_printer_str(s, "range", range.len ? range.data : NULL);
        um_printer_str(s, "default", row->def);
        um_printer_str(s, "group", row->group);
    } else {
        put_facts(s, row, range.len ? range.data : "", aliases.data);
    }
    um_printer_item_end(s);
    um_buf_free(&range);
    um_buf_free(&aliases);
}

static void put_options(um_printer *s, const char *name, const um_option *row, size_t n) {
    um_printer_list(s, name);
    for (size_t i = 0; i < n; i++) put_option(s, &row[i]);
    um_printer_list_end(s);
}

/* ---- Tables ------------------------------------------------------------------------------------------------------ */

static void put_families(um_printer *s) {
    for (const um_family *const *f = um_families; *f; f++) {
        um_printer_item(s, (*f)->name, (*f)->summary);
        um_printer_words(s, "aliases", (*f)->aliases, '|');
        um_printer_str(s, "source", (*f)->source);
        um_printer_words(s, "architectures", (*f)->architectures, '|');
        um_printer_words(s, "model_types", (*f)->model_types, '|');
        um_printer_words(s, "strategies", (*f)->strategies, '|');
        um_printer_str(s, "sampler", (*f)->sampler);
        um_printer_number(s, "accept_threshold", (*f)->accept_threshold);
        um_printer_item_end(s);
    }
}

/* Prints the families for which `fits` returns true. */
static void put_families_of(um_printer *s, const char *key, const char *name,
                            bool (*fits)(const um_family *, const char *)) {
    um_buf words = {0};
    for (const um_family *const *f = um_families; *f; f++)
        if (fits(*f, name)) um_buf_printf(&words, "%s%s", words.len ? "|" : "", (*f)->name);
    um_printer_words(s, key, words.data, '|');
    um_buf_free(&words);
}

static bool runs_strategy(const um_family *f, const char *name) {
    um_str word;
    return um_word_index(f->strategies, '|', name, &word) >= 0;
}

static bool has_sampler(const um_family *f, const char *name) { return um_streq(f->sampler, name); }

static void put_params(um_printer *s, const um_params *params) {
    if (!s->json && !params[0].rows) return;
    um_printer_list(s, "parameters");
    for (int i = 0; i < UM_PARAMS_MAX && params[i].rows; i++)
        for (size_t k = 0; k < params[i].n; k++) put_option(s, &params[i].rows[k]);
    um_printer_list_end(s);
}

static void put_strategies(um_printer *s) {
    for (const um_strategy *const *t = um_strategies; *t; t++) {
        um_printer_item(s, (*t)->name, (*t)->summary);
        um_printer_words(s, "aliases", (*t)->aliases, ',');
        put_families_of(s, "families", (*t)->name, runs_strategy);
        um_printer_str(s, "source", (*t)->source);
        put_params(s, (*t)->params);
        um_printer_item_end(s);
    }
}

static const char *schedule_name(um_schedule s) {
    switch (s) {
    case UM_SCHEDULE_NONE: return "none: the sampler decides how many positions a pass fills";
    case UM_SCHEDULE_EVEN: return "the same number of positions in each pass";
    case UM_SCHEDULE_LINEAR: return "the number of masks falls linearly";
    case UM_SCHEDULE_TIME: return "the share of masks falls linearly from 1 to eps";
    }
    return "unknown";
}

static void put_samplers(um_printer *s) {
    const um_sampler *t;
    for (size_t i = 0; (t = um_sampler_at(i)); i++) {
        um_printer_item(s, t->name, t->summary);
        um_printer_words(s, "aliases", t->aliases, ',');
        put_families_of(s, "default_of", t->name, has_sampler);
        um_printer_str(s, "schedule", schedule_name(t->schedule));
        um_printer_bool(s, "edits", t->edits);
        um_printer_bool(s, "needs_blocks", t->block_only);
        um_printer_str(s, "source", t->source);
        put_params(s, t->params);
        um_printer_item_end(s);
    }
}

static void put_retentions(um_printer *s) {
    for (const um_retention *const *t = um_retentions; *t; t++) {
        um_printer_item(s, (*t)->name, (*t)->summary);
        um_printer_words(s, "aliases", (*t)->aliases, ',');
        um_printer_str(s, "source", (*t)->source);
        um_printer_item_end(s);
    }
}

static void put_all_options(um_printer *s) {
    um_config config;
    um_option_set sets[UM_OPTION_SETS_MAX];
    um_config_init(&config);
    size_t n = um_config_option_sets(sets, &config);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < sets[i].n; k++) put_option(s, &sets[i].rows[k]);
}

static void put_backends(um_printer *s) {
    for (const um_backend *const *b = um_backends_all; *b; b++) {
        um_printer_item(s, (*b)->name, (*b)->summary);
        um_printer_item_end(s);
    }
}

static void put_commands(um_printer *s) {
    for (const um_command *const *c = um_commands; *c; c++) {
        um_printer_item(s, (*c)->name, (*c)->summary);
        um_printer_str(s, "usage", (*c)->usage);
        if ((*c)->n_options || s->json) put_options(s, "options", (*c)->options, (*c)->n_options);
        um_printer_item_end(s);
    }
}

static void put_endpoint(um_printer *s, const um_endpoint *e) {
    char name[96];
    snprintf(name, sizeof name, "%s %s", e->method, e->path);
    um_printer_item(s, name, e->summary);
    if (s->json) {
        um_printer_str(s, "method", e->method);
        um_printer_str(s, "path", e->path);
    }
    um_printer_str(s, "known_from", e->shape);
    um_printer_bool(s, "needs_key", !(e->flags & UM_ENDPOINT_OPEN));
    um_printer_bool(s, "admin", e->flags & UM_ENDPOINT_ADMIN);
    um_printer_item_end(s);
}

static void put_endpoints(um_printer *s) {
    for (const um_endpoint_set *const *set = um_endpoints; *set; set++)
        for (size_t i = 0; i < (*set)->n; i++) put_endpoint(s, &(*set)->rows[i]);
}

/* The first name becomes the name of the item, the others its aliases. */
static void put_foreign_option(um_printer *s, const um_foreign *f) {
    static const char *const kinds[] = {"switch", "number", "word", "switch or folder"};
    size_t n = strcspn(f->names, ",");
    char *name = um_strndup(f->names, n);
    um_printer_item(s, name, f->note);
    um_printer_words(s, "aliases", f->names[n] ? f->names + n + 1 : "", ',');
    um_printer_str(s, "type", kinds[f->kind]);
    um_printer_str(s, "accepted", f->neutral ? f->neutral : "any");
    um_printer_str(s, "option", f->option ? um_foreign_option(f) : NULL);
    um_printer_item_end(s);
    um_free(name);
}

static void put_foreign(um_printer *s) {
    for (size_t i = 0; i < um_n_foreign_options; i++) put_foreign_option(s, &um_foreign_options[i]);
}

static const struct {
    const char *name, *summary;
    void (*put)(um_printer *s);
} tables[] = {
    {"families", "model families that can be run", put_families},
    {"strategies", "what each pass feeds and which keys are stored", put_strategies},
    {"samplers", "which predictions of a pass become tokens", put_samplers},
    {"retentions", "which keys outside a block are kept", put_retentions},
    {"options", "options of models and decoding", put_all_options},
    {"backends", "devices that can compute a pass", put_backends},
    {"commands", "commands of the program", put_commands},
    {"endpoints", "routes of the server", put_endpoints},
    {"fields", "request fields that the server accepts without effect", um_printer_put_fields},
    {"foreign", "options of other engines that are accepted", put_foreign},
};
#define ALL "all" /* the word for every table */

/* Prints a line for each table: its name, the number of its items and its summary. */
static void print_overview(void) {
    um_buf out = {0};
    for (size_t i = 0; i < UM_LEN(tables); i++) {
        um_printer s = {0};
        tables[i].put(&s);
        um_buf_printf(&out, "%-12s %4zu  %s\n", tables[i].name, s.n_items, tables[i].summary);
        um_buf_free(&s.out);
    }
    um_buf_puts(&out, "\n'unmask list TABLE' prints a table, 'unmask list all' every table.\n");
    um_cli_write(&out);
    um_buf_free(&out);
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

static um_status check_words(const um_args *a, um_err *err) {
    const char *names[UM_LEN(tables) + 1];
    for (size_t i = 0; i < UM_LEN(tables); i++) names[i] = tables[i].name;
    names[UM_LEN(tables)] = ALL;
    for (int i = 0; i < a->n_words; i++) {
        bool known = false;
        for (size_t k = 0; k < UM_LEN(names); k++) known |= um_streq(a->word[i], names[k]);
        if (known) continue;
        const char *near = um_nearest(a->word[i], names, UM_LEN(names));
        return um_fail(err, UM_EINVAL,
                       "unknown table \"%.60s\"%s%s; the tables are families, strategies, samplers, retentions, "
                       "options, backends, commands, endpoints, fields, foreign; all names every table",
                       a->word[i], near ? ", did you mean " : "", near ? near : "");
    }
    return UM_OK;
}

static bool is_wanted(const um_args *a, const char *name) {
    for (int i = 0; i < a->n_words; i++)
        if (um_streq(a->word[i], name) || um_streq(a->word[i], ALL)) return true;
    return a->n_words == 0;
}

static int run(const um_command *self, int argc, char **argv) {
    list_options o;
    um_args args;
    um_printer s;
    um_err err;
    um_args_parse(&args, self, argc, argv, &o, NULL);
    int status = args.exit;
    if (args.done) goto done;
    if (check_words(&args, &err)) {
        status = um_cli_error(self, &err);
        goto done;
    }
    if (!args.n_words && !o.json) {
        print_overview();
        goto done;
    }
    um_printer_begin(&s, o.json);
    for (size_t i = 0; i < UM_LEN(tables); i++) {
        if (!is_wanted(&args, tables[i].name)) continue;
        um_printer_list(&s, tables[i].name);
        tables[i].put(&s);
        um_printer_list_end(&s);
    }
    um_printer_end(&s);
done:
    um_args_free(&args);
    return status;
}

const um_command um_cmd_list = {
    .name = "list",
    .summary = "list families, strategies, samplers, options and other tables",
    .usage = "unmask list [--json] [all | TABLE ...]",
    .description =
        "Prints tables of the program: families, strategies, samplers, retentions, options, backends, commands, "
        "endpoints of the server, request fields that the server accepts without effect (fields), and accepted options "
        "of other engines (foreign). The word all names every table. Without an argument it prints the names and sizes "
        "of the tables; with --json alone, all tables.",
    .examples = "  unmask list\n"
                "  unmask list families\n"
                "  unmask list strategies samplers\n"
                "  unmask list options --json\n",
    .options = rows,
    .n_options = UM_LEN(rows),
    .arguments = "all|families|strategies|samplers|retentions|options|backends|commands|endpoints|fields|foreign",
    .run = run,
};
