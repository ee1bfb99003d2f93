/* constraint: the options that constrain answers, for the commands that answer. */
#ifndef UM_CLI_CONSTRAINT_H
#define UM_CLI_CONSTRAINT_H

#include "cli/cli.h"

typedef struct um_constraint_options {
    bool json_object;
    const char *json_schema, *regex, *grammar, *choice;
} um_constraint_options;

/* Option rows of a command. `field` is a um_constraint_options. */
/* clang-format off */
#define UM_CONSTRAINT_ROWS(type, field)                                                                                \
    {"json_object", NULL, UM_OPT_BOOL, UM_FIELD(type, field.json_object), 0, 0, NULL, "false", NULL, NULL,             \
     "Constraints", "the answer is a JSON object"},                                                                    \
    {"json_schema", NULL, UM_OPT_STR, UM_FIELD(type, field.json_schema), 0, 0, NULL, NULL, NULL, "FILE",               \
     "Constraints", "the answer is JSON that the JSON schema in FILE allows; a text that begins with { is the schema"},\
    {"regex", NULL, UM_OPT_STR, UM_FIELD(type, field.regex), 0, 0, NULL, NULL, NULL, "PATTERN", "Constraints",         \
     "the regular expression matches the whole answer"},                                                               \
    {"grammar", "grammar_file", UM_OPT_STR, UM_FIELD(type, field.grammar), 0, 0, NULL, NULL, NULL, "FILE",             \
     "Constraints", "the answer is a text of the grammar in FILE, in GBNF; a text that contains ::= is the grammar"},  \
    {"choice", NULL, UM_OPT_STR, UM_FIELD(type, field.choice), 0, 0, NULL, NULL, NULL, "A|B", "Constraints",           \
     "the answer is one of these texts, which | separates"}
/* clang-format on */

typedef struct um_cli_constraint {
    int32_t kind; /* UM_CONSTRAINT_* */
    um_buf text;
} um_cli_constraint;
/* Reads the constraint that the options name, with its file, and checks it beside the defaults of requests. Two are an
 * error. Errors: UM_EINVAL, UM_EPARSE, UM_EUNSUPPORTED, UM_ELIMIT, UM_ENOENT, UM_EIO; they name the option. */
um_status um_cli_constraint_read(um_cli_constraint *c, const um_constraint_options *o, const um_config *config,
                                 um_err *err);
void um_cli_constraint_free(um_cli_constraint *c);
/* Constrains a request, which borrows the text. Does nothing without a constraint. */
void um_cli_constraint_apply(const um_cli_constraint *c, um_request *r);

#endif
