/* unmask quantize: writes a packed folder, whose weights are mapped and used as they lie. */
#include "cli/cli.h"
#include "model/model.h"
#include "model/packed.h"

typedef struct quantize_options {
    const char *out;
    int32_t type;
    bool overwrite, quiet;
} quantize_options;

#define Q(field) UM_FIELD(quantize_options, field)

static const um_dtype types[] = {UM_Q8, UM_Q4, UM_BF16}; /* the choices of --type, in their order */

static const um_option rows[] = {
    {"out", "o,output", UM_OPT_STR, Q(out), 0, 0, NULL, NULL, NULL, "DIR", "Output",
     "folder to write; it must be empty"},
    {"type", NULL, UM_OPT_CHOICE, Q(type), 0, 0, "q8|q4|bf16", "q8", NULL, "TYPE", "Output",
     "how matrices are stored: as integers of 8 or 4 bits with a scale for each 32, or as bfloat16"},
    {"overwrite", NULL, UM_OPT_BOOL, Q(overwrite), 0, 0, NULL, "false", NULL, NULL, "Output",
     "write into a folder that is not empty"},
    {"quiet", "q", UM_OPT_BOOL, Q(quiet), 0, 0, NULL, "false", NULL, NULL, "Output", "print errors only"},
};

static const char *const engine_rows[] = {"model", "model_name", "mask_token_id", "lora", "lora_merge", NULL};

/* ---- Progress ---------------------------------------------------------------------------------------------------- */

#define DELAY_SECONDS 1.0
#define LINE_SECONDS  5.0

typedef struct state {
    um_progress *bar; /* NULL: quiet, or not begun */
    um_dtype type;
    um_packed_report report;
    bool quiet, has_begun;
} state;

/* The user can still stop the command: packing a large model takes minutes. */
static void warn_of_rounding(const state *s) {
    const um_packed_report *r = &s->report;
    if (r->n_again && !s->quiet)
        fprintf(stderr,
                "unmask quantize: rounding %lld of %lld matrices a second time, from %s to %s, adds to their error; "
                "quantize the original weights instead\n",
                (long long)r->n_again, (long long)r->n_matrices, r->again, um_dtype_name(s->type));
}

static bool on_progress(void *arg, int64_t done, int64_t all) {
    state *s = (state *)arg;
    if (!s->has_begun) warn_of_rounding(s);
    s->has_begun = true;
    if (!s->bar && !s->quiet) s->bar = um_progress_new_bytes("packing", all, DELAY_SECONDS, LINE_SECONDS);
    um_progress_set(s->bar, done, NULL);
    return !um_cli_interrupted();
}

static void print_report(const quantize_options *o, const um_packed_report *r, double seconds) {
    char in[UM_BYTES_TEXT], size[UM_BYTES_TEXT];
    um_buf out = {0};
    um_buf_printf(&out, "%s: %s instead of %s, rounding error %.2f %%%s, %.1f s\n", o->out,
                  um_bytes_text(size, (double)r->bytes_out), um_bytes_text(in, (double)r->bytes_in), 100 * r->error,
                  r->is_rounded ? " against weights that were rounded before" : "", seconds);
    um_cli_write(&out);
    um_buf_free(&out);
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

static um_status quantize(const um_args *a, const quantize_options *o, const um_config *c, um_err *err) {
    state progress = {.type = types[o->type], .quiet = o->quiet};
    const double start = um_now();
    um_status s = um_cli_no_words(a, "the model is named by --model", err);
    if (!s) s = um_cli_check_model(c->model, err);
    if (!s && (!o->out || !*o->out)) s = um_fail(err, UM_EINVAL, "--out is missing: name the folder to write");
    if (s) return s;
    um_cli_catch_signals();
    s = um_packed_write(c, o->out, progress.type, o->overwrite, on_progress, &progress, &progress.report, err);
    um_progress_free(progress.bar);
    if (!s && !o->quiet) print_report(o, &progress.report, um_now() - start);
    return s;
}

static int run(const um_command *self, int argc, char **argv) {
    quantize_options o;
    um_config c;
    um_args args;
    um_err err;
    um_args_parse(&args, self, argc, argv, &o, &c);
    int status = args.exit;
    if (!args.done && quantize(&args, &o, &c, &err)) status = um_cli_error(self, &err);
    um_args_free(&args);
    return status;
}

const um_command um_cmd_quantize = {
    .name = "quantize",
    .summary = "write a model with small weights that opens at once",
    .usage = "unmask quantize --model DIR --out DIR [options]",
    .description =
        "Writes a folder with the same model and weights of 8, 4 or 16 bits. The command reads one matrix at a time, "
        "so "
        "the model may be larger than memory. The file of weights has the memory layout of the CPU kernels: opening "
        "the "
        "folder maps the file, and all processes share its memory. It is no GGUF file. The folder also has the files "
        "of "
        "the tokenizer and a README.md that says how it was made. The command "
        "warns of matrices that are rounded a second time. --lora with --lora-merge adds an adapter to the "
        "weights.",
    .examples = "  unmask quantize --model models/tiny-block --out tiny-q8\n"
                "  unmask quantize --model models/tiny-block --out tiny-q8 --type q4 --overwrite\n"
                "  unmask run --model ./tiny-q8 \"What is 12 + 30?\"\n",
    .options = rows,
    .n_options = UM_LEN(rows),
    .engine_rows = engine_rows,
    .run = run,
};
