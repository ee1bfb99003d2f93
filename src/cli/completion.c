/* The completion script for bash, from the tables. */
#include "cli/cli.h"
#include "decode/decode.h"
#include "model/model.h"

static const char head[] =
    "# Completion of unmask for bash, made by `unmask help --format bash`: change the tables instead.\n"
    "# Put it into share/bash-completion/completions/unmask, or: eval \"$(unmask help --format bash)\"\n"
    "\n"
    "# Hub names in the local Hugging Face cache, and folders.\n"
    "_unmask_models() {\n"
    "    local dir name\n"
    "    for dir in \"${HF_HUB_CACHE:-}\" \"${HF_HOME:+$HF_HOME/hub}\" \\\n"
    "        \"${XDG_CACHE_HOME:-${HOME:-}/.cache}/huggingface/hub\"; do\n"
    "        for name in \"$dir\"/models--*--*; do\n"
    "            name=${name##*/models--}\n"
    "            [ ! -d \"$dir/models--$name\" ] || compgen -W \"${name/--//}\" -- \"$1\"\n"
    "        done\n"
    "    done\n"
    "    compgen -d -- \"$1\"\n"
    "}\n"
    "\n";

static const char tail[] =
    "\n"
    "# Sets COMPREPLY to the words of list $1 that begin as the current one does, or to what a kind stands for.\n"
    "_unmask_reply() {\n"
    "    case $1 in\n"
    "    FILE) mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); compopt -o filenames 2> /dev/null ;;\n"
    "    DIR) mapfile -t COMPREPLY < <(_unmask_models \"$cur\"); compopt -o filenames 2> /dev/null ;;\n"
    "    *) mapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$cur\") ;;\n"
    "    esac\n"
    "    return 0\n"
    "}\n"
    "\n"
    "_unmask() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]} reply\n"
    "    COMPREPLY=()\n"
    "    # A name of two words.\n"
    "    if [ \"$COMP_CWORD\" -gt 2 ] && [ -n \"$(_unmask_options \"$command ${COMP_WORDS[2]}\")\" ]; then\n"
    "        command+=\" ${COMP_WORDS[2]}\"\n"
    "    fi\n"
    "    # bash makes words of --name=value: name, the sign, value.\n"
    "    if [ \"$cur\" = = ]; then\n"
    "        cur=\n"
    "    elif [ \"$prev\" = = ]; then\n"
    "        prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
    "    fi\n"
    "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
    "        _unmask_reply \"$_unmask_commands --help --version\"\n"
    "    elif [[ $prev == --* ]] && _unmask_value \"$command\" \"$prev\"; then\n"
    "        _unmask_reply \"$reply\"\n"
    "    elif [[ $cur == -* ]]; then\n"
    "        _unmask_reply \"$(_unmask_options \"$command\")\"\n"
    "    else\n"
    "        _unmask_reply \"$(_unmask_words \"$command\")\"\n"
    "    fi\n"
    "}\n"
    "complete -F _unmask unmask\n";

/* "a|b" as "a b". */
static void put_words(um_buf *out, const char *words) {
    for (const char *p = words; *p; p++) um_buf_putc(out, *p == '|' ? ' ' : *p);
}

/* First words: the second of a name is an argument of the first. */
static void put_commands(um_buf *out) {
    for (const um_command *const *c = um_commands; *c; c++)
        if (!strchr((*c)->name, ' ')) um_buf_printf(out, "%s%s", c == um_commands ? "" : " ", (*c)->name);
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

/* What a value may be: words, FILE, DIR, or nothing that could be guessed. */
static void put_value(um_buf *out, const um_option *row) {
    if (row->autos && row->type == UM_OPT_NAME && !row->choices) um_buf_puts(out, "auto");
    if (row->choices) put_words(out, row->choices);
    else if (row->metavar && (um_streq(row->metavar, "FILE") || um_streq(row->metavar, "DIR")))
        um_buf_puts(out, row->metavar);
    else if (um_streq(row->name, "decoding_strategy"))
        for (const um_strategy *const *s = um_strategies; *s; s++) um_buf_printf(out, " %s", (*s)->name);
    else if (um_streq(row->name, "sampler"))
        for (const um_sampler *const *s = um_samplers; *s; s++) um_buf_printf(out, " %s", (*s)->name);
    else if (um_streq(row->name, "retention"))
        for (const um_retention *const *s = um_retentions; *s; s++) um_buf_printf(out, " %s", (*s)->name);
    else if (um_streq(row->name, "model_name"))
        for (const um_family *const *f = um_families; *f; f++) um_buf_printf(out, " %s", (*f)->name);
}

typedef struct cases {
    const char *pattern; /* of the command: "'run", "*'" for any */
    um_buf *out;
} cases;

static void put_value_case(void *arg, const um_option_set *set, const um_option *row, bool opens_group) {
    const cases *c = arg;
    (void)set;
    (void)opens_group;
    if (row->type == UM_OPT_BOOL) return;
    um_buf_printf(c->out, "    %s --", c->pattern);
    um_option_put_flag(row->name, c->out);
    um_buf_puts(c->out, "') reply='");
    put_value(c->out, row);
    um_buf_puts(c->out, "' ;;\n");
}

static void put_option(void *arg, const um_option_set *set, const um_option *row, bool opens_group) {
    um_buf *out = arg;
    (void)opens_group;
    bool is_on = row->type == UM_OPT_BOOL && *(const bool *)((const char *)set->base + row->offset);
    um_buf_puts(out, is_on ? " --no-" : " --");
    um_option_put_flag(row->name, out);
}

/* ---- Functions of the script ------------------------------------------------------------------------------------- */

static void put_options_function(um_buf *out) {
    um_command_options o;
    um_buf_puts(out, "_unmask_options() {\n    local shared='");
    um_command_options_init(&o, &um_cmd_generate);
    um_options_each(o.sets + o.n_own, o.n_shared, put_option, out);
    um_command_options_free(&o);
    um_buf_puts(out, "'\n    case $1 in\n");
    for (const um_command *const *c = um_commands; *c; c++) {
        um_command_options_init(&o, *c);
        um_buf_printf(out, "    '%s') echo \"--help", (*c)->name);
        um_options_each(o.sets + o.n - 1, 1, put_option, out);
        um_options_each(o.sets, o.n_own, put_option, out);
        um_buf_puts(out, (*c)->engine_options ? "$shared\" ;;\n" : "\" ;;\n");
        um_command_options_free(&o);
    }
    um_buf_puts(out, "    esac\n}\n\n");
}

/* Shared options come behind the commands' own, which may have the same name. */
static void put_value_function(um_buf *out) {
    um_command_options o;
    um_buf_puts(out, "# Sets reply to what the value of an option may be; fails when it takes none.\n"
                     "_unmask_value() {\n    case \"$1 $2\" in\n");
    for (const um_command *const *c = um_commands; *c; c++) {
        char pattern[32];
        snprintf(pattern, sizeof pattern, "'%s", (*c)->name);
        um_command_options_init(&o, *c);
        um_options_each(o.sets, o.n_own, put_value_case, &(cases){pattern, out});
        um_command_options_free(&o);
    }
    um_command_options_init(&o, &um_cmd_generate);
    um_options_each(o.sets + o.n_own, o.n - o.n_own, put_value_case, &(cases){"*'", out});
    um_command_options_free(&o);
    um_buf_puts(out, "    *) return 1 ;;\n    esac\n}\n\n");
}

static void put_words_function(um_buf *out) {
    um_buf_puts(out, "_unmask_words() {\n    case $1 in\n");
    for (const um_command *const *c = um_commands; *c; c++) {
        if (!(*c)->arguments) continue;
        um_buf_printf(out, "    '%s') echo '", (*c)->name);
        if (um_streq((*c)->arguments, "COMMAND")) put_commands(out);
        else put_words(out, (*c)->arguments);
        um_buf_puts(out, "' ;;\n");
    }
    um_buf_puts(out, "    esac\n}\n");
}

void um_cli_put_completion(um_buf *out) {
    um_buf_puts(out, head);
    um_buf_puts(out, "_unmask_commands='");
    put_commands(out);
    um_buf_puts(out, "'\n\n");
    put_options_function(out);
    put_value_function(out);
    put_words_function(out);
    um_buf_puts(out, tail);
}
