/* The command line of checkpoint. */
#include <unistd.h>

#include "checkpoint.h"
#include "cli/cli.h"

#define GIGABYTE 1e9

typedef struct options {
    int32_t layers, type;
    float shard_size;
    const char *tokenizer;
    int64_t seed;
    bool list;
} options;

#define O(field) UM_FIELD(options, field)
static const um_option rows[] = {
    {"layers", NULL, UM_OPT_INT, O(layers), 1, UM_LAYERS_MAX, NULL, "all", "all=0", "N", "Shape",
     "write the first N layers only; each has the weights that it has among all layers"},
    {"list", NULL, UM_OPT_BOOL, O(list), 0, 0, NULL, "false", NULL, NULL, "Shape",
     "print the shapes with their sizes and the models that have them"},
    {"type", NULL, UM_OPT_CHOICE, O(type), 0, 0, "bfloat16|float32", "bfloat16", NULL, "TYPE", "Weights",
     "type of the stored weights"},
    {"seed", NULL, UM_OPT_INT64, O(seed), 0, 1e15, NULL, "0", NULL, "N", "Weights",
     "other weights; the same seed gives the same files"},
    {"shard_size", NULL, UM_OPT_FLOAT, O(shard_size), 0.001, 1000, NULL, "5", NULL, "GB", "Weights",
     "begin another file where this one would grow larger"},
    {"tokenizer", NULL, UM_OPT_STR, O(tokenizer), 0, 0, NULL, NULL, NULL, "PATH", "Tokenizer",
     "folder or tokenizer.json to take in place of the release's own from build/data/tokenizers"},
};

static const char usage[] =
    "Usage: checkpoint [options] SHAPE FOLDER\n"
    "       checkpoint --list\n"
    "\n"
    "Writes a checkpoint folder with the configuration, the tokenizer and the tensors of a released model. The "
    "weights\n"
    "are random: such a model answers nonsense, but it loads, runs and takes the time and memory of the released one.\n"
    "SHAPE is a name of --list, or that of a released model (JetLM/SDAR-8B-Chat). FOLDER is new or empty.\n";

static void print_help(const um_option_set *set) {
    um_buf text = {0};
    um_buf_puts(&text, usage);
    um_options_init(set->rows, set->n, set->base);
    um_options_help(set, 1, UM_MIN(um_cli_columns(STDOUT_FILENO), 100), &text);
    fputs(text.data, stdout);
    um_buf_free(&text);
}

static int fail(const um_err *err) {
    fprintf(stderr, "checkpoint: %s\n", err->msg);
    return um_exit_of(err->code);
}

static int fail_usage(const char *message) {
    fprintf(stderr, "checkpoint: %s\nTry 'checkpoint --help'.\n", message);
    return UM_EXIT_USAGE;
}

static int print_list(void) {
    um_buf text = {0};
    um_releases_print(&text);
    fputs(text.data, stdout);
    um_buf_free(&text);
    return UM_EXIT_OK;
}

static int write_folder(const options *o, const char *shape, const char *dir) {
    const um_folder_options f = {.dir = dir,
                                 .tokenizer = o->tokenizer,
                                 .weights = {.type = o->type ? UM_F32 : UM_BF16,
                                             .seed = (uint64_t)o->seed,
                                             .shard_bytes = (size_t)((double)o->shard_size * GIGABYTE)}};
    um_release r;
    um_err err;
    um_status s = um_release_find(&r, shape, o->layers, &err);
    if (s) return fail(&err);
    s = um_folder_write(&r, &f, &err);
    um_release_free(&r);
    return s ? fail(&err) : UM_EXIT_OK;
}

static int run(const options *o, const char **word, int n_words) {
    if (o->list) return n_words ? fail_usage("--list stands alone") : print_list();
    if (n_words < 2) return fail_usage("expected a shape and a folder");
    if (n_words > 2) return fail_usage("expected a shape and a folder, found a third word");
    return write_folder(o, word[0], word[1]);
}

int main(int argc, char **argv) {
    options o;
    const um_option_set set = {rows, UM_LEN(rows), &o};
    const char **word = UM_NEW_ARRAY(const char *, (size_t)argc + 1);
    int n_words;
    bool help;
    um_arena strings;
    um_err err;
    um_settings s = {.sets = &set, .n_sets = 1, .strings = &strings};
    um_arena_init(&strings, 0);
    um_settings_init(&s);
    um_options_init(rows, UM_LEN(rows), &o);
    const um_status st = um_settings_argv(&s, argc, argv, word, &n_words, &help, &err);
    if (help) print_help(&set);
    const int status = help ? UM_EXIT_OK : st ? fail_usage(err.msg) : run(&o, word, n_words);
    um_settings_free(&s);
    um_arena_free(&strings);
    um_free(word);
    return status;
}
