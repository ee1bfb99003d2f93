/* cli: the command line. main.c looks up the subcommand in the table of commands.c. Each subcommand is a file with its
 * own option rows, and may take the engine's options too. Results go to stdout, everything else to stderr. */
#ifndef UM_CLI_H
#define UM_CLI_H

#include "base/base.h"

/* Exit statuses. */
enum { UM_EXIT_OK = 0, UM_EXIT_FAILED = 1, UM_EXIT_USAGE = 2, UM_EXIT_DEVICE = 3 };
/* After Ctrl-C (SIGINT) and after SIGTERM, as shells report programs that a signal has ended. */
enum { UM_EXIT_INTERRUPTED = 130, UM_EXIT_TERMINATED = 143 };
/* The time in seconds that the program waits at its end for the last log lines to be written. */
#define UM_CLI_LOG_SECONDS 1.0

typedef struct um_command {
    const char *name;            /* one word or two; "bench serve" is looked up before "bench" */
    const char *summary, *usage; /* usage: "unmask run [options] PROMPT" */
    const char *description;     /* paragraph for --help */
    const char *examples;        /* command lines that work in the repository's root */
    const um_option *options;    /* rows for the fields of the command's own struct, or NULL */
    size_t n_options;
    bool engine_options;            /* the command also takes model, engine, decoding and sampling options */
    const char *const *engine_rows; /* without engine_options: names of those that the command takes; NULL ends them */
    bool rejoins;                   /* a rank that is not 0 joins again when rank 0 has been restarted */
    const char *arguments;          /* possible arguments, for completion: "DIR", "a|b|c", or NULL for any text */
    struct {
        const char *name, *value;
    } defaults[4]; /* defaults that differ from those of the rows; unused entries are NULL */
    /* argv[0] is the command's name. Returns an exit status. */
    int (*run)(const struct um_command *self, int argc, char **argv);
} um_command;
extern const um_command *const um_commands[]; /* NULL ends the list */
extern const um_command um_cmd_run, um_cmd_chat, um_cmd_generate, um_cmd_score, um_cmd_eval, um_cmd_inspect,
    um_cmd_list, um_cmd_quantize, um_cmd_bench, um_cmd_bench_engine, um_cmd_bench_ops, um_cmd_bench_serve,
    um_cmd_tokenize, um_cmd_serve, um_cmd_worker, um_cmd_health, um_cmd_check_plugin, um_cmd_help;

/* ---- plugin.c ---- */
/* Loads the plugins of --plugin, else those of the variable UNMASK_PLUGIN. */
um_status um_cli_load_plugins(int argc, char **argv, um_err *err);

/* ---- foreign.c: options of other engines, accepted by every command with engine options ---- */
/* Returns the option that other programs call `name` (peer_names.c), or NULL. It starts with "no_" when the option must
 * be turned off. The command may lack it. */
const char *um_cli_peer_name(const char *name);
extern const um_foreign um_foreign_options[];
extern const size_t um_n_foreign_options;

/* ---- follow.c: processes that are a rank of a group (--nnodes) ---- */
/* Returns whether this process is a rank other than 0, which only computes with rank 0. Errors: those of
 * um_config_place. */
um_status um_cli_follows(const um_config *c, bool *out, um_err *err);
/* Computes with rank 0 until it ends the group. Returns an exit status. */
int um_cli_follow(const um_command *self, const um_config *c);

/* ---- args.c: arguments and options of a subcommand ---- */
typedef struct um_args {
    const char **word; /* [n_words] arguments that are not options; owned */
    int n_words;
    bool done; /* nothing is left to do (--help, --print-config, an error): the command returns `exit` */
    int exit;
    bool has_file;    /* --config names a configuration file */
    um_arena strings; /* strings of a configuration file, which options borrow */
    struct um_args_given {
        const um_option *row;
        um_giver by;
    } * given; /* [n_given] options that were set, and where; owned */
    size_t n_given;
} um_args;
/* Reads defaults, file, environment and argv into `own` (the struct of self->options, may be NULL) and `config` (may be
 * NULL if the command takes no engine options). Strings live until um_args_free. Prints a usage error with a hint, and
 * then sets `done` to true and `exit` to 2. */
void um_args_parse(um_args *a, const um_command *self, int argc, char **argv, void *own, um_config *config);
void um_args_free(um_args *a);
/* Reads the same sources again, because a file may have changed. Strings live in `strings`. Logs and prints nothing. */
um_status um_args_read_again(const um_command *self, int argc, char **argv, um_arena *strings, void *own,
                             um_config *config, um_err *err);
/* The option tables of a command with its defaults, for printing. `sets` has first the command's own table and the rows
 * that it picks, then the tables that it shares with other commands (engine options), then the options of every
 * command. Must not be copied: the sets point into the struct. */
#define UM_COMMAND_SETS_MAX 56
typedef struct um_command_options {
    um_option_set sets[UM_COMMAND_SETS_MAX];
    size_t n, n_own, n_shared;
    void *own;
    um_config config;
    struct um_common {
        const char *config;
        bool print_config;
        const char *plugin;
    } common;
} um_command_options;
void um_command_options_init(um_command_options *o, const um_command *self);
void um_command_options_free(um_command_options *o);
/* Prints "unmask NAME: message" to stderr and returns the exit status for the code. */
int um_cli_error(const um_command *self, const um_err *err);
/* 2 for usage and input, 3 for model or device, 1 for failures at run time; after a signal 130 or 143 for
 * UM_ECANCELED. */
int um_exit_of(um_status s);
/* Appends the arguments joined by spaces. If the only argument is "-", or there is none and standard input is not a
 * terminal, reads standard input instead and removes one newline at its end. UM_EINVAL if there is no text. */
um_status um_cli_text(const um_args *a, um_buf *out, um_err *err);
/* Write a text, or flush the buffer, to standard output. They keep the errno of the first failure, because stdio does
 * not; the program reports it when it ends. */
void um_cli_write(const um_buf *text);
void um_cli_flush(void);
/* From now on they write to standard error, because standard output is the file "-" of an option. */
void um_cli_write_to_stderr(void);
int um_cli_write_errno(void); /* errno of the first failure, 0 if none */
/* Calls fn for each word of a list that is separated by commas, until one call fails. */
um_status um_cli_each_word(const char *list, um_status (*fn)(void *arg, const char *word, um_err *err), void *arg,
                           um_err *err);
/* UM_EINVAL if there are arguments. `instead` ends the message: it names the option to use instead. */
um_status um_cli_no_words(const um_args *a, const char *instead, um_err *err);
/* Sets the name of the program in examples (argv[0]); borrowed. Default "unmask". */
void um_cli_set_program(const char *name);
/* Appends example lines so that they work as printed: replaces "unmask" at the start of a command by the name that the
 * program was called by, and "models/" by the folder of the bundled checkpoints. */
void um_cli_put_examples(const char *lines, um_buf *out);
/* Returns the subcommand with this name, or NULL. */
const um_command *um_command_find(const char *name);
/* Returns the subcommand with which n words begin, or NULL. Tries "bench serve" before "bench". *used receives the
 * number of words of its name. */
const um_command *um_command_match(int n, char *const *words, int *used);
/* Reports an unknown command or option with the nearest known name. Returns UM_EXIT_USAGE. */
int um_cli_unknown_command(const char *name);
/* Appends the text of `unmask --help`. */
void um_cli_put_overview(um_buf *out);
/* Append descriptions of the whole program, generated from its tables: a manual page (roff), a reference (Markdown),
 * and a completion script for bash (completion.h has those for other shells). */
void um_cli_put_man(um_buf *out);
void um_cli_put_markdown(um_buf *out);
void um_cli_put_completion(um_buf *out);
/* Paragraphs of both the manual page and the reference: values, the file with an example, the environment. */
extern const char um_cli_about_values[], um_cli_about_file[], um_cli_file_example[], um_cli_about_environment[];

/* A model and its engines. um_cli_open shows the progress of loading on stderr, unless `quiet`, and then prints two
 * lines of facts there if `facts` is set. It catches signals. */
typedef struct um_session {
    um_model *model;
    um_router *router;
    um_engine *engine; /* the router's first engine, for commands with one request at a time */
} um_session;
um_status um_cli_open(um_session *s, const um_config *c, bool quiet, bool facts, um_err *err);
void um_cli_close(um_session *s);

/* The help of --raw, which means the same in every command. */
#define UM_RAW_HELP                                                                                                    \
    "send prompts as they are, without the model's chat template; by default the template is applied if the model "    \
    "has "                                                                                                             \
    "one"
/* The row of --profile. `field` is a const char * of the command's options. */
#define UM_PROFILE_ROW(field, group)                                                                                   \
    {                                                                                                                  \
        "profile", NULL, UM_OPT_STR, field, 0, 0, NULL, NULL, NULL, "FILE", group,                                     \
            "file for a trace of every step (x.json, for ui.perfetto.dev); the totals go to x.csv next to it"          \
    }
/* Checks whether the file of --profile can be written; NULL is fine. Any error is UM_EINVAL and names the option. */
um_status um_cli_profile_check(const char *path, um_err *err);
/* Start and stop a profile of every engine; do nothing if path is NULL. Stopping prints the totals to stderr, unless
 * `quiet`. */
um_status um_cli_profile_start(um_router *r, const char *path, um_err *err);
um_status um_cli_profile_stop(um_router *r, const char *path, bool quiet, um_err *err);

/* Checks before a long measurement whether um_file_replace can write the file of an option ("--csv"). "-" and NULL are
 * fine. Any error is UM_EINVAL and names the option. */
um_status um_cli_check_output(const char *flag, const char *path, um_err *err);
/* Checks that a model is given and found. UM_EINVAL if none is given, UM_EMODEL if it is not found. The message of
 * UM_EINVAL explains how to name a model and lists the bundled ones. */
um_status um_cli_check_model(const char *model, um_err *err);
/* The same for the model of an engine, which may be a released shape with random weights. */
um_status um_cli_check_engine_model(const um_config *c, um_err *err);
/* Checks only that a model is given. UM_EINVAL. */
um_status um_cli_check_model_name(const char *model, um_err *err);
/* Returns the folder of the bundled checkpoints for use in messages: "models" if it is in the current directory or does
 * not exist, else its path. The caller frees it with um_free. */
char *um_cli_bundled(void);
/* Changes the code of an error about missing or malformed files in a model folder to UM_EMODEL: the model is at fault,
 * not the input. Returns the new code. */
um_status um_cli_explain_model_error(um_err *err);
/* Sets sizes for one request at a time: one engine. If max_num_batched_tokens is auto, sets it so that one pass has
 * room for a prompt of prompt_bytes and its answer. SIZE_MAX: a prompt as long as the model allows. */
void um_cli_set_single_request_sizes(um_config *c, size_t prompt_bytes);
/* Tokens that a pass of a conversation keeps free after the prompt for blocks in flight. Their number is not known in
 * advance, because /set can change it. */
#define UM_CHAT_WINDOW 512

/* Returns why an answer with this end is of no use, for a message; NULL if it is. */
const char *um_cli_failure_of(um_finish finish);
/* um_cli_interrupted is true after SIGINT or SIGTERM, once um_cli_catch_signals was called. A second signal within a
 * second ends the process. */
void um_cli_catch_signals(void);
bool um_cli_interrupted(void);
bool um_cli_terminated(void); /* SIGTERM has arrived; um_cli_clear_interrupt does not reset it */
void um_cli_clear_interrupt(void);
int um_cli_signal_exit(void); /* the exit status after a signal: 130, or 143 after SIGTERM */
/* While `on`, a signal ends the process at once, because nothing has been written that needs an end. Returns whether it
 * was on before. */
bool um_cli_end_at_signal(bool on);
/* Prints a line with up to three of the n examples of a model's card to stderr; nothing when n is 0. */
void um_cli_print_examples(const char *const *example, int32_t n);
/* Does the same for a model that is not open. Ignores errors. */
void um_cli_print_examples_of(const char *model);

/* ---- view.c: draws an answer while it is denoised ---- */
/* The text of a token that may still change. */
typedef struct um_piece {
    int state;       /* UM_TOKEN_MASK, UM_TOKEN_FRESH, UM_TOKEN_SET */
    bool is_special; /* a special token; `text` is empty */
    um_str text;
} um_piece;
/* The state of an answer after a pass. */
typedef struct um_frame {
    um_str settled;        /* text that can no longer change, in whole characters; later frames start with it */
    const um_piece *piece; /* [n] the tokens after it */
    size_t n;
} um_frame;

typedef struct um_view um_view;
/* Creates a view that draws to fd if it is a terminal. It respects NO_COLOR and the terminal's width. */
um_view *um_view_new(int fd);
void um_view_free(um_view *v);
/* Prepares the view for another answer. */
void um_view_reset(um_view *v);
/* Returns whether a frame would be drawn now: fd can draw, and the last frame is at least 1/60 s old. */
bool um_view_is_due(const um_view *v);
void um_view_draw(um_view *v, const um_frame *f);
/* Replaces the last frame by the final answer as ordinary text. */
void um_view_finish(um_view *v, um_str text);
/* Prints a line of statistics about an answer: tokens, passes, tokens/s, tokens per forward pass, finish reason. */
void um_view_summary(FILE *f, const um_result *r, bool colour);

/* ---- frame_builder.c: converts snapshots of an engine to frames ---- */
typedef struct um_frame_builder um_frame_builder;
um_frame_builder *um_frame_builder_new(const um_model *m);
void um_frame_builder_free(um_frame_builder *s);
void um_frame_builder_reset(um_frame_builder *s); /* prepares for another answer */
/* Returns the frame of a snapshot; valid until the next call. */
const um_frame *um_frame_builder_read(um_frame_builder *s, const um_snapshot *snapshot);

/* ---- progress.c: a progress bar with ETA on stderr ---- */
typedef struct um_progress um_progress;
#define UM_PROGRESS_INTERVAL 10
/* Creates a bar. `what` names the unit ("requests"). total < 0: unknown. `done` units were done before. If stderr is
 * not a terminal, the bar prints a line every `interval` seconds instead; 0 prints none. */
um_progress *um_progress_new(const char *what, int64_t total, int64_t done, double interval);
/* Creates a bar whose units are bytes. `what` begins its lines ("loading weights"). Nothing is drawn in the first
 * `delay` seconds. */
um_progress *um_progress_new_bytes(const char *what, int64_t total, double delay, double interval);
/* Removes the bar from the terminal, before a message; the next um_progress_set draws it again. NULL is fine. */
void um_progress_hide(um_progress *p);
/* Sets the number of finished units and the note after the bar ("512 tok/s"); NULL: no note. */
void um_progress_set(um_progress *p, int64_t done, const char *note);
/* Removes the bar from a terminal, so that another line can be printed. The next call of um_progress_set draws it
 * again. NULL is allowed. */
void um_progress_clear(um_progress *p);
void um_progress_free(um_progress *p); /* also finishes the line */

/* ---- loading.c: shows the progress of um_model_open on stderr ---- */
typedef struct um_loading {
    um_progress *bar;  /* NULL: quiet, or no weight has been loaded yet */
    bool ended_before; /* the result of um_cli_end_at_signal */
} um_loading;
/* Catches signals, and lets `c` show its progress once loading has taken a second: a bar if stderr is a terminal, else
 * a line every few seconds. `quiet` shows none. Until um_loading_end, Ctrl-C ends the process at once. */
void um_loading_begin(um_loading *l, um_config *c, bool quiet);
/* Ends the display, also after an error. The callback of the configuration must not be called again. */
void um_loading_end(um_loading *l);

/* Columns of the terminal at fd, 80 if unknown. */
int um_cli_columns(int fd);
int um_cli_lines(int fd);   /* rows, 24 if unknown */
bool um_cli_colour(int fd); /* whether to use colours at fd */
/* Returns whether fd is a terminal that can move its cursor. */
bool um_cli_can_draw(int fd);
bool um_cli_utf8(void); /* whether the locale's encoding is UTF-8 */
/* Turns the echo of typed characters off or on; echoed characters would destroy a drawn frame. Does nothing unless this
 * process is in the foreground of the terminal at standard input. um_cli_echo(true) may be called from a signal
 * handler. */
void um_cli_echo(bool on);
/* Appends text for a terminal. Replaces control characters, except newline and tab, and bytes that are not UTF-8, by
 * U+FFFD or '?', because an answer may contain escape sequences. */
void um_cli_put_safe(um_buf *out, const char *text, size_t n);

#endif
