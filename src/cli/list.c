/* list: the tables of the program, as they are compiled in. */
#include "cli/cli.h"
#include "cli/sheet.h"
#include "engine/engine.h"
#include "model/model.h"
#include "server/server.h"

typedef struct list_options {
    bool json;
} list_options;

static const um_option rows[] = {
    {"json", NULL, UM_OPT_BOOL, UM_FIELD(list_options, json), 0, 0, NULL, "false", NULL, NULL, "Output",
     "print a JSON object with a list for each table"},
};

/* ---- Option rows ------------------------------------------------------------------------------------------------- */

/* "max_num_seqs,page_block" without the checks that an alias may carry. */
static void put_aliases(const um_option *row, um_buf *out) {
    um_str alias;
    for (size_t i = 0; um_option_alias(row, i, &alias); i++)
        um_buf_printf(out, "%s%.*s", i ? "," : "", (int)alias.n, alias.p);
}

/* For people the facts of a row fit on a line. */
static void put_facts(um_sheet *s, const um_option *row, const char *range, const char *aliases) {
    um_buf line = {0};
    um_buf_puts(&line, *range ? range : um_option_type(row));
    if (row->def) um_buf_printf(&line, "; default %s", row->def);
    if (aliases) um_buf_printf(&line, "; also %s", aliases);
    um_sheet_note(s, line.data);
    um_buf_free(&line);
}

static void put_option(um_sheet *s, const um_option *row) {
    um_buf range = {0}, aliases = {0};
    um_option_range(row, &range);
    put_aliases(row, &aliases);
    um_sheet_item(s, row->name, row->help);
    if (s->json) {
        um_sheet_words(s, "aliases", aliases.data, ',');
        um_sheet_str(s, "type", um_option_type(row));
        um_sheet_str(s, "range", range.len ? range.data : NULL);
        um_sheet_str(s, "default", row->def);
        um_sheet_str(s, "group", row->group);
    } else {
        put_facts(s, row, range.len ? range.data : "", aliases.data);
    }
    um_sheet_item_end(s);
    um_buf_free(&range);
    um_buf_free(&aliases);
}

static void put_options(um_sheet *s, const char *name, const um_option *row, size_t n) {
    um_sheet_list(s, name);
    for (size_t i = 0; i < n; i++) put_option(s, &row[i]);
    um_sheet_list_end(s);
}

/* ---- Tables ------------------------------------------------------------------------------------------------------ */

static void put_families(um_sheet *s) {
    for (const um_family *const *f = um_families; *f; f++) {
        um_sheet_item(s, (*f)->name, (*f)->summary);
        um_sheet_words(s, "aliases", (*f)->aliases, '|');
        um_sheet_str(s, "source", (*f)->source);
        um_sheet_words(s, "architectures", (*f)->architectures, '|');
        um_sheet_words(s, "model_types", (*f)->model_types, '|');
        um_sheet_words(s, "strategies", (*f)->strategies, '|');
        um_sheet_str(s, "sampler", (*f)->sampler);
        um_sheet_number(s, "accept_threshold", (*f)->accept_threshold);
        um_sheet_item_end(s);
    }
}

/* Families whose row says so: "sdar|llada2". */
static void put_families_of(um_sheet *s, const char *key, const char *name,
                            bool (*fits)(const um_family *, const char *)) {
    um_buf words = {0};
    for (const um_family *const *f = um_families; *f; f++)
        if (fits(*f, name)) um_buf_printf(&words, "%s%s", words.len ? "|" : "", (*f)->name);
    um_sheet_words(s, key, words.data, '|');
    um_buf_free(&words);
}

static bool runs_strategy(const um_family *f, const char *name) {
    um_str word;
    return um_word_index(f->strategies, '|', name, &word) >= 0;
}

static bool has_sampler(const um_family *f, const char *name) { return um_streq(f->sampler, name); }

static void put_params(um_sheet *s, const um_params *params) {
    if (!s->json && !params[0].rows) return;
    um_sheet_list(s, "parameters");
    for (int i = 0; i < UM_PARAMS_MAX && params[i].rows; i++)
        for (size_t k = 0; k < params[i].n; k++) put_option(s, &params[i].rows[k]);
    um_sheet_list_end(s);
}

static void put_strategies(um_sheet *s) {
    for (const um_strategy *const *t = um_strategies; *t; t++) {
        um_sheet_item(s, (*t)->name, (*t)->summary);
        um_sheet_words(s, "aliases", (*t)->aliases, ',');
        put_families_of(s, "families", (*t)->name, runs_strategy);
        um_sheet_str(s, "source", (*t)->source);
        put_params(s, (*t)->params);
        um_sheet_item_end(s);
    }
}

static const char *schedule_name(um_schedule s) {
    switch (s) {
    case UM_SCHEDULE_NONE: return "none: as many as it accepts";
    case UM_SCHEDULE_EVEN: return "an even number of positions a pass";
    case UM_SCHEDULE_LINEAR: return "what stays masked falls in a line";
    case UM_SCHEDULE_TIME: return "the masked share falls in a line from 1 to eps";
    }
    return "unknown";
}

static void put_samplers(um_sheet *s) {
    for (const um_sampler *const *t = um_samplers; *t; t++) {
        um_sheet_item(s, (*t)->name, (*t)->summary);
        um_sheet_words(s, "aliases", (*t)->aliases, ',');
        put_families_of(s, "default_of", (*t)->name, has_sampler);
        um_sheet_str(s, "schedule", schedule_name((*t)->schedule));
        um_sheet_bool(s, "edits", (*t)->edits);
        um_sheet_bool(s, "needs_blocks", (*t)->block_only);
        um_sheet_str(s, "source", (*t)->source);
        put_params(s, (*t)->params);
        um_sheet_item_end(s);
    }
}

static void put_retentions(um_sheet *s) {
    for (const um_retention *const *t = um_retentions; *t; t++) {
        um_sheet_item(s, (*t)->name, (*t)->summary);
        um_sheet_words(s, "aliases", (*t)->aliases, ',');
        um_sheet_str(s, "source", (*t)->source);
        um_sheet_item_end(s);
    }
}

static void put_all_options(um_sheet *s) {
    um_config config;
    um_option_set sets[UM_OPTION_SETS_MAX];
    um_config_init(&config);
    size_t n = um_config_option_sets(sets, &config);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < sets[i].n; k++) put_option(s, &sets[i].rows[k]);
}

static void put_backends(um_sheet *s) {
    for (const um_ops *const *o = um_ops_all; *o; o++) {
        um_sheet_item(s, (*o)->name, (*o)->summary);
        um_sheet_item_end(s);
    }
}

static void put_commands(um_sheet *s) {
    for (const um_command *const *c = um_commands; *c; c++) {
        um_sheet_item(s, (*c)->name, (*c)->summary);
        um_sheet_str(s, "usage", (*c)->usage);
        if ((*c)->n_options) put_options(s, "options", (*c)->options, (*c)->n_options);
        um_sheet_item_end(s);
    }
}

static void put_endpoint(um_sheet *s, const um_endpoint *e) {
    char name[96];
    snprintf(name, sizeof name, "%s %s", e->method, e->path);
    um_sheet_item(s, name, e->summary);
    if (s->json) {
        um_sheet_str(s, "method", e->method);
        um_sheet_str(s, "path", e->path);
    }
    um_sheet_str(s, "known_from", e->shape);
    um_sheet_bool(s, "needs_key", !(e->flags & UM_ENDPOINT_OPEN));
    um_sheet_item_end(s);
}

static void put_endpoints(um_sheet *s) {
    for (const um_endpoint_set *const *set = um_endpoints; *set; set++)
        for (size_t i = 0; i < (*set)->n; i++) put_endpoint(s, &(*set)->rows[i]);
}

static const struct {
    const char *name;
    void (*put)(um_sheet *s);
} tables[] = {
    {"families", put_families},     {"strategies", put_strategies}, {"samplers", put_samplers},
    {"retentions", put_retentions}, {"options", put_all_options},   {"backends", put_backends},
    {"commands", put_commands},     {"endpoints", put_endpoints},
};

/* ---- The command ------------------------------------------------------------------------------------------------- */

static um_status check_words(const um_args *a, um_err *err) {
    const char *names[UM_LEN(tables)];
    for (size_t i = 0; i < UM_LEN(tables); i++) names[i] = tables[i].name;
    for (int i = 0; i < a->n_words; i++) {
        bool known = false;
        for (size_t k = 0; k < UM_LEN(tables); k++) known |= um_streq(a->word[i], names[k]);
        if (known) continue;
        const char *near = um_nearest(a->word[i], names, UM_LEN(tables));
        return um_fail(err, UM_EINVAL,
                       "no table \"%.60s\"%s%s; there are families, strategies, samplers, retentions, "
                       "options, backends, commands, endpoints",
                       a->word[i], near ? ", did you mean " : "", near ? near : "");
    }
    return UM_OK;
}

static bool is_wanted(const um_args *a, const char *name) {
    for (int i = 0; i < a->n_words; i++)
        if (um_streq(a->word[i], name)) return true;
    return a->n_words == 0;
}

static int run(const um_command *self, int argc, char **argv) {
    list_options o;
    um_args args;
    um_sheet s;
    um_err err;
    um_args_parse(&args, self, argc, argv, &o, NULL);
    int status = args.exit;
    if (args.done) goto done;
    if (check_words(&args, &err)) {
        status = um_cli_error(self, &err);
        goto done;
    }
    um_sheet_begin(&s, o.json);
    for (size_t i = 0; i < UM_LEN(tables); i++) {
        if (!is_wanted(&args, tables[i].name)) continue;
        um_sheet_list(&s, tables[i].name);
        tables[i].put(&s);
        um_sheet_list_end(&s);
    }
    um_sheet_end(&s);
done:
    um_args_free(&args);
    return status;
}

const um_command um_cmd_list = {
    .name = "list",
    .summary = "families, strategies, samplers, retentions, options, backends, commands, endpoints",
    .usage = "unmask list [--json] [TABLE ...]",
    .description = "Prints the tables of the program: families, strategies, samplers, retentions, options, backends, "
                   "commands, endpoints of the server; all of them without an argument.",
    .examples = "  unmask list families\n"
                "  unmask list strategies samplers\n"
                "  unmask list options --json\n",
    .options = rows,
    .n_options = UM_LEN(rows),
    .arguments = "families|strategies|samplers|retentions|options|backends|commands|endpoints",
    .run = run,
};
