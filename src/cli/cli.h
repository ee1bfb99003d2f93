/* cli: the command line. main.c finds the subcommand in the table of commands.c; every subcommand is one file with a
 * row of its own options beside the engine's. Results go to stdout, everything else to stderr. */
#ifndef UM_CLI_H
#define UM_CLI_H

#include "base/base.h"

/* Exit statuses. */
enum { UM_EXIT_OK = 0, UM_EXIT_FAILED = 1, UM_EXIT_USAGE = 2, UM_EXIT_DEVICE = 3 };
/* That the last lines of the log may take to be read when a program ends. */
#define UM_CLI_LOG_SECONDS 1.0

typedef struct um_command {
    const char *name;            /* a word, or two: "bench serve" is looked up before "bench" */
    const char *summary, *usage; /* usage: "unmask run [options] PROMPT" */
    const char *description;     /* a paragraph for --help */
    const char *examples;        /* lines that work as pasted from the repository's root */
    const um_option *options;    /* rows over the command's own struct, or NULL */
    size_t n_options;
    bool engine_options;   /* takes model, engine, decoding and sampling options too */
    const char *arguments; /* what its words may be, for completion: "DIR", "a|b|c", or NULL for text */
    struct {
        const char *name, *value;
    } defaults[4]; /* where they differ from those of the rows; unused ones are NULL */
    /* argv[0] is the command's name. Returns an exit status. */
    int (*run)(const struct um_command *self, int argc, char **argv);
} um_command;
extern const um_command *const um_commands[]; /* NULL ends the list */
extern const um_command um_cmd_run, um_cmd_chat, um_cmd_generate, um_cmd_eval, um_cmd_inspect, um_cmd_list,
    um_cmd_bench, um_cmd_bench_serve, um_cmd_tokenize, um_cmd_serve, um_cmd_worker, um_cmd_health, um_cmd_help;

/* ---- args.c: what every subcommand does with its arguments ---- */
typedef struct um_args {
    const char **word; /* [n_words] arguments that are no options; owned */
    int n_words;
    bool done; /* --help or --print-config was answered: return `exit` */
    int exit;
    um_arena strings; /* what options borrow from a configuration file */
    struct um_args_given {
        const um_option *row;
        um_giver by;
    } * given; /* [n_given] the options that are not left at their defaults; owned */
    size_t n_given;
} um_args;
/* Takes defaults, file, environment and argv into `own` (the struct of self->options, may be NULL) and `config` (may be
 * NULL when the command takes no engine options); texts live until um_args_free. On a usage error prints it with a hint
 * and sets done and exit 2. */
void um_args_parse(um_args *a, const um_command *self, int argc, char **argv, void *own, um_config *config);
void um_args_free(um_args *a);
/* The option tables of a command, over structs that hold its defaults, for whoever prints them. `own` is the command's
 * own table, `shared` those of the engine, `common` what every command takes; the parts of `sets` in this order. Not to
 * be copied: sets point into it. */
#define UM_COMMAND_SETS_MAX 56
typedef struct um_command_options {
    um_option_set sets[UM_COMMAND_SETS_MAX];
    size_t n, n_own, n_shared;
    void *own;
    um_config config;
    struct um_common {
        const char *config;
        bool print_config;
    } common;
} um_command_options;
void um_command_options_init(um_command_options *o, const um_command *self);
void um_command_options_free(um_command_options *o);
/* Prints "unmask NAME: message" to stderr and returns the exit status that belongs to the code. */
int um_cli_error(const um_command *self, const um_err *err);
int um_exit_of(um_status s); /* 2 for usage and input, 3 for model or device, 1 for what failed on the way */
/* Text from the words joined by spaces, or from standard input when the word is "-" or there is none and standard input
 * is no terminal; one newline at its end is taken off. UM_EINVAL when there is neither. */
um_status um_cli_text(const um_args *a, um_buf *out, um_err *err);
/* The command takes no words: `instead` says where what they might be comes from. */
um_status um_cli_no_words(const um_args *a, const char *instead, um_err *err);
/* How the program was called, for examples; borrowed. Default "unmask". */
void um_cli_set_program(const char *name);
/* Appends lines of examples as they work here: "unmask" at the start of a command becomes the program as it was called,
 * "models/" the folder of the bundled checkpoints. */
void um_cli_put_examples(const char *lines, um_buf *out);
/* Looks up a subcommand by name, NULL if there is none. */
const um_command *um_command_find(const char *name);
/* The subcommand that n words begin with, the longest name first: "bench serve" before "bench". *used: its words. */
const um_command *um_command_match(int n, char *const *words, int *used);
/* Says that there is no such command or option and what is nearest; returns UM_EXIT_USAGE. */
int um_cli_unknown_command(const char *name);
/* Appends the page that `unmask --help` prints. */
void um_cli_put_overview(um_buf *out);
/* Append what describes the whole program, made from its tables: a manual page (roff), a reference (Markdown), and a
 * completion script for bash. */
void um_cli_put_man(um_buf *out);
void um_cli_put_markdown(um_buf *out);
void um_cli_put_completion(um_buf *out);
/* Paragraphs that the first two share: values, the file with an example, the environment. */
extern const char um_cli_about_values[], um_cli_about_file[], um_cli_file_example[], um_cli_about_environment[];

/* Opens model and engines with one line of start-up facts on stderr (unless `quiet`). All are closed by um_cli_close.
 */
typedef struct um_session {
    um_model *model;
    um_router *router;
    um_engine *engine; /* the router's first, for commands that have one request at a time */
} um_session;
um_status um_cli_open(um_session *s, const um_config *c, bool quiet, um_err *err);
void um_cli_close(um_session *s);

/* The row of --profile, over a const char * of the command's options. */
#define UM_PROFILE_ROW(field, group)                                                                                   \
    {                                                                                                                  \
        "profile", NULL, UM_OPT_STR, field, 0, 0, NULL, NULL, NULL, "FILE", group,                                     \
            "write a trace of every step for ui.perfetto.dev, and sums beside it, \"x.json\" and \"x.csv\""            \
    }
/* Starts a profile, unless path is NULL; ends the one that runs, and, unless `quiet`, prints its sums to stderr. */
um_status um_cli_profile_start(um_router *r, const char *path, um_err *err);
um_status um_cli_profile_stop(um_router *r, const char *path, bool quiet, um_err *err);

/* Fails with UM_EINVAL when no model was named, and says how to name one and which ones lie nearby. */
um_status um_cli_need_model(const char *model, um_err *err);
/* Folder of the bundled checkpoints: "models" in the current directory, else the one beside the program; um_free.
 * "models" when there is none. */
char *um_cli_bundled(void);
/* What is malformed or missing in a model folder is the model's fault, not the input's: turns the code into UM_EMODEL.
 */
um_status um_cli_blame_model(um_err *err);
/* Sizes for one request at a time: one engine, and where max_num_batched_tokens is auto, room for a prompt of up to
 * prompt_bytes (SIZE_MAX: as long as the model allows) and its answer in one pass. */
void um_cli_size_for_one(um_config *c, size_t prompt_bytes);
/* Tokens that an open-ended pass keeps free behind the prompt, for blocks in flight: a conversation may change them. */
#define UM_CHAT_WINDOW 512

/* Raised by SIGINT and SIGTERM after um_cli_catch_signals; a second signal within a second ends the process. */
void um_cli_catch_signals(void);
bool um_cli_interrupted(void);
bool um_cli_terminated(void); /* SIGTERM came: stays true, for programs that outlive an interrupt */
void um_cli_clear_interrupt(void);

/* ---- view.c: an answer drawn while it is denoised ---- */
/* A token that may still change, as text. */
typedef struct um_piece {
    int state;       /* UM_TOKEN_MASK, UM_TOKEN_FRESH, UM_TOKEN_SET */
    bool is_special; /* a token that is no text: `text` is empty */
    um_str text;
} um_piece;
/* An answer as it stands. */
typedef struct um_frame {
    um_str settled;        /* all that can no longer change: whole characters; a later frame begins with the same */
    const um_piece *piece; /* [n] what is behind it */
    size_t n;
} um_frame;

typedef struct um_view um_view;
/* Draws to stderr-or-stdout fd when it is a terminal. Colours follow NO_COLOR; width is the terminal's. */
um_view *um_view_new(int fd);
void um_view_free(um_view *v);
/* Another answer follows on the same view. */
void um_view_reset(um_view *v);
/* Would a frame be drawn now? Not faster than eyes follow, and not on what can't draw. */
bool um_view_is_due(const um_view *v);
void um_view_draw(um_view *v, const um_frame *f);
/* The end: the answer as ordinary text in place of the last frame. */
void um_view_finish(um_view *v, um_str text);
/* The line of numbers below an answer: tokens, tokens/s, tokens per forward, passes, finish reason. */
void um_view_summary(FILE *f, const um_result *r, bool colour);

/* ---- spell.c: snapshots of an engine as frames ---- */
typedef struct um_speller um_speller;
um_speller *um_speller_new(const um_model *m);
void um_speller_free(um_speller *s);
void um_speller_reset(um_speller *s); /* another answer follows */
/* The frame of a snapshot; valid until the next call. */
const um_frame *um_speller_read(um_speller *s, const um_snapshot *snapshot);

/* ---- progress.c: a bar with ETA on stderr ---- */
typedef struct um_progress um_progress;
#define UM_PROGRESS_INTERVAL 10
/* `what` names the unit ("requests"). When stderr is no terminal, nothing is drawn, but a line written every `interval`
 * seconds; 0 is never. */
um_progress *um_progress_new(const char *what, int64_t total, int64_t done, double interval);
/* Sets done so far; `note` stands behind the bar ("512 tok/s"). */
void um_progress_set(um_progress *p, int64_t done, const char *note);
void um_progress_free(um_progress *p); /* finishes the line */

/* Columns of the terminal at fd, 80 when unknown. */
int um_cli_columns(int fd);
int um_cli_lines(int fd); /* rows, 24 when unknown */
bool um_cli_colour(int fd);
/* Is fd a terminal that understands cursor movement? */
bool um_cli_can_draw(int fd);
bool um_cli_utf8(void); /* does the locale write UTF-8? */
/* Stops (or allows again) the echo of typed characters, which would break what is drawn. Does nothing when standard
 * input is no terminal of ours. um_cli_echo(true) may be called from a signal handler. */
void um_cli_echo(bool on);
/* Appends text for a terminal: control characters but newline and tab, and bytes that are not UTF-8, become U+FFFD or
 * '?'. An answer may spell escape sequences. */
void um_cli_put_safe(um_buf *out, const char *text, size_t n);

#endif
