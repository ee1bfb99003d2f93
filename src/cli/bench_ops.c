/* unmask bench ops: measures single operations of the cpu backend in the shapes of released models, beside the limits
 * that the same run measures. This file has the options and goes through shapes and types. */
#include "cli/bench_ops.h"

#include "ops/backend.h"
#include "ops/cpu/cpu.h"
#include "ops/quantize.h"

#if __has_include("commit.h")
#include "commit.h"
#endif
#ifndef UM_COMMIT
#define UM_COMMIT "unknown"
#endif

enum { SHAPES_MAX = 16, ROW_MAX = 4096, CONTEXT_MAX = 1 << 16, OPERATIONS_MAX = 16, QUICK_WINDOWS = 3, WINDOWS = 7 };

typedef struct options {
    const char *shape, *operation, *type, *rows, *isa;
    int32_t context;
    float window;
    bool quick, json;
} options;

#define O(field) UM_FIELD(options, field)
static const um_option rows[] = {
    {"shape", NULL, UM_OPT_STR, O(shape), 0, 0, NULL, "llada-8b,llada-moe", NULL, "NAME,NAME", "Measurement",
     "shapes to measure: llada-8b, sdar-8b, sdar-1.7b, llada2-mini, dream-7b, llada-moe"},
    {"operation", NULL, UM_OPT_STR, O(operation), 0, 0, NULL, NULL, NULL, "NAME,NAME", "Measurement",
     "operations to measure: linear, linear_gate, gate, norm, rope_kv, attention, moe, head; all if none is given"},
    {"type", NULL, UM_OPT_STR, O(type), 0, 0, NULL, "float32,bfloat16,q8,q4", NULL, "TYPE,TYPE", "Measurement",
     "types of the matrices: float32, bfloat16, q8, q4"},
    {"rows", NULL, UM_OPT_STR, O(rows), 0, 0, NULL, NULL, NULL, "N,N", "Measurement",
     "numbers of rows (tokens) of an operation; 1,4,8,32,128,512 if none is given, with --quick 1,32"},
    {"context", NULL, UM_OPT_INT, O(context), 1, CONTEXT_MAX, NULL, "512", NULL, "N", "Measurement",
     "keys of attention; at least as many as rows"},
    {"isa", NULL, UM_OPT_STR, O(isa), 0, 0, NULL, NULL, NULL, "NAME", "Measurement",
     "instruction set, as in \"avx2\"; the best of this processor if none is given"},
    {"window", NULL, UM_OPT_FLOAT, O(window), 0.001, 10, NULL, "0.06", NULL, "S", "Measurement",
     "least seconds of each of the 7 timed windows; with --quick there are 3"},
    {"quick", NULL, UM_OPT_BOOL, O(quick), 0, 0, NULL, "false", NULL, NULL, "Measurement",
     "measure few lines: 1 and 32 rows, one choice of the head, no 8-bit keys"},
    {"json", NULL, UM_OPT_BOOL, O(json), 0, 0, NULL, "false", NULL, NULL, "Report",
     "print a JSON object for each line of the report"},
};

static const char *const engine_rows[] = {"threads", "pin", NULL};

typedef struct command {
    options opt;
    um_config config;
    const um_released *shape[SHAPES_MAX];
    const um_ops_operation *operation[OPERATIONS_MAX];
    um_dtype type[UM_OPS_TYPES];
    int n_shapes, n_operations, n_types;
    um_ops_header header;
    um_ops_bench bench;
    bool lacks_memory;
    um_buf heading; /* the last one that was printed */
} command;

/* ---- Lists ------------------------------------------------------------------------------------------------------- */

static um_status add_shape(void *arg, const char *word, um_err *err) {
    command *c = (command *)arg;
    um_buf names = {0};
    const um_released *found = um_released_find(word);
    if (found && c->n_shapes < SHAPES_MAX) {
        c->shape[c->n_shapes++] = found;
        return UM_OK;
    }
    if (found) return um_fail(err, UM_EINVAL, "--shape: more than %d shapes", SHAPES_MAX);
    for (const um_released *r = um_released_all; r->name; r++)
        um_buf_printf(&names, "%s%s", names.len ? ", " : "", r->name);
    um_status s = um_fail(err, UM_EINVAL, "--shape: unknown shape \"%.80s\"; the shapes are %s", word, names.data);
    um_buf_free(&names);
    return s;
}

static um_status add_operation(void *arg, const char *word, um_err *err) {
    command *c = (command *)arg;
    um_buf names = {0};
    for (const um_ops_operation *o = um_ops_operations; o->name; o++) {
        um_buf_printf(&names, "%s%s", names.len ? ", " : "", o->name);
        if (!um_streq(o->name, word) || c->n_operations == OPERATIONS_MAX) continue;
        c->operation[c->n_operations++] = o;
        um_buf_free(&names);
        return UM_OK;
    }
    um_status s = um_fail(err, UM_EINVAL, "--operation: expected up to %d of %s, found \"%.80s\"", OPERATIONS_MAX,
                          names.data, word);
    um_buf_free(&names);
    return s;
}

static um_status add_type(void *arg, const char *word, um_err *err) {
    command *c = (command *)arg;
    static const um_dtype types[] = {UM_F32, UM_BF16, UM_Q8, UM_Q4};
    for (size_t i = 0; i < UM_LEN(types); i++) {
        if (!um_streq(um_dtype_name(types[i]), word) || c->n_types == UM_OPS_TYPES) continue;
        c->type[c->n_types++] = types[i];
        return UM_OK;
    }
    return um_fail(err, UM_EINVAL, "--type: expected up to %d of float32, bfloat16, q8, q4, found \"%.80s\"",
                   UM_OPS_TYPES, word);
}

static um_status add_rows(void *arg, const char *word, um_err *err) {
    command *c = (command *)arg;
    int64_t v = 0;
    if (!um_parse_int(word, &v) || v < 1 || v > ROW_MAX || c->bench.n_rows == UM_OPS_ROWS_MAX)
        return um_fail(err, UM_EINVAL, "--rows: expected up to %d numbers 1..%d, separated by commas, found \"%.80s\"",
                       UM_OPS_ROWS_MAX, ROW_MAX, word);
    c->bench.rows[c->bench.n_rows++] = (int32_t)v;
    return UM_OK;
}

static um_status parse_lists(command *c, um_err *err) {
    const char *numbers = c->opt.rows ? c->opt.rows : c->opt.quick ? "1,32" : "1,4,8,32,128,512";
    um_status s = um_cli_each_word(c->opt.shape, add_shape, c, err);
    if (!s) s = um_cli_each_word(c->opt.type, add_type, c, err);
    if (!s) s = um_cli_each_word(numbers, add_rows, c, err);
    if (!s && c->opt.operation) s = um_cli_each_word(c->opt.operation, add_operation, c, err);
    for (const um_ops_operation *o = um_ops_operations; o->name && !s && !c->opt.operation; o++)
        s = add_operation(c, o->name, err);
    return s;
}

static um_status choose_isa(const char *name, um_err *err) {
    um_buf names = {0};
    um_status s = UM_OK;
    for (const char *const *isa = um_cpu_isas(); name && *isa; isa++) {
        um_buf_printf(&names, "%s%s", names.len ? ", " : "", *isa);
        if (!um_streq(*isa, name)) continue;
        um_cpu_use_isa(*isa);
        name = NULL;
        break;
    }
    if (name) s = um_fail(err, UM_EINVAL, "--isa: this processor has %s, found \"%.40s\"", names.data, name);
    um_buf_free(&names);
    return s;
}

/* ---- The run ----------------------------------------------------------------------------------------------------- */

static void print(um_buf *out) {
    um_cli_write(out);
    um_cli_flush();
    um_buf_free(out);
}

static void print_row(void *arg, const um_ops_bench *b, const um_ops_row *r) {
    command *c = (command *)arg;
    um_buf out = {0}, heading = {0};
    if (c->opt.json) {
        um_ops_put_json(&out, b, r);
        print(&out);
        return;
    }
    um_ops_put_heading(&heading, r);
    if (!c->heading.data || !um_streq(c->heading.data, heading.data)) um_buf_puts(&out, heading.data);
    um_ops_put_row(&out, r);
    print(&out);
    um_buf_free(&c->heading);
    c->heading = heading;
}

/* Measures the limits, on small devices of both arithmetics. The header of the report has them. */
static um_status measure_limits(command *c, um_err *err) {
    const um_ops *ops = c->bench.ops;
    um_ops_header *h = &c->header;
    um_buf out = {0};
    um_status s = UM_OK;
    for (um_dtype dtype = UM_F32; dtype <= UM_BF16 && !s; dtype++) {
        const um_dev_config config = {
            .threads = c->config.threads, .pin = c->config.pin, .dtype = dtype, .weights = dtype, .max_tokens = 1};
        um_dev *dev = NULL;
        s = ops->open(&dev, &config, err);
        if (s) break;
        h->isa = ops->isa(dev);
        h->threads = ops->threads(dev);
        for (int type = UM_F32; type < UM_OPS_TYPES && ops->peak; type++)
            if ((type == UM_F32) == (dtype == UM_F32) && type != UM_F16 && type != UM_F8)
                h->peak[type].operations = ops->peak(dev, (um_dtype)type, &h->peak[type].instruction);
        ops->close(dev);
    }
    /* 8-bit keys and values are widened to bf16. */
    h->peak[UM_F8] = h->peak[UM_BF16];
    if (!s) s = um_host_read_rate(h->threads, &h->read_bytes, err);
    if (s) return s;
    if (!c->opt.json) um_ops_put_header(&out, h);
    print(&out);
    return UM_OK;
}

/* Measures the operations of one shape in one type. One that needs too much memory is reported, and the rest goes on.
 */
static um_status measure_type(command *c, um_dtype type, um_err *err) {
    um_ops_bench *b = &c->bench;
    b->type = type;
    const um_dev_config config = um_ops_device(b, &c->config);
    um_status s = b->ops->open(&b->dev, &config, err);
    for (int i = 0; i < c->n_operations && !s; i++) {
        s = c->operation[i]->measure(b, err);
        if (s != UM_ENOMEM) continue;
        fprintf(stderr, "unmask bench ops: %s of %s in %s: %s\n", c->operation[i]->name, b->shape->name,
                um_dtype_name(type), err->msg);
        c->lacks_memory = true;
        s = UM_OK;
    }
    b->ops->close(b->dev);
    b->dev = NULL;
    return s;
}

static um_status measure_shape(command *c, const um_released *shape, um_err *err) {
    um_buf out = {0};
    um_status s = um_released_arch(&c->bench.arch, shape, 0, err);
    if (s) return s;
    c->bench.shape = shape;
    um_buf_free(&c->heading);
    if (!c->opt.json) um_ops_put_title(&out, &c->bench);
    print(&out);
    for (int i = 0; i < c->n_types && !s; i++) {
        c->bench.first = i == 0;
        s = measure_type(c, c->type[i], err);
    }
    return s;
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

static int run_command(const um_command *self, command *c, const um_args *words) {
    um_err err = {0};
    c->bench.ops = &um_ops_cpu;
    c->bench.header = &c->header;
    c->bench.context = c->opt.context;
    c->bench.quick = c->opt.quick;
    c->bench.windows = c->opt.quick ? QUICK_WINDOWS : WINDOWS;
    c->bench.window_seconds = (double)c->opt.window;
    c->bench.report = print_row;
    c->bench.arg = c;
    um_machine_get(&c->header.machine);
    c->header.commit = UM_COMMIT;
    um_status s = um_cli_no_words(words, "the operations are given by --operation", &err);
    if (!s) s = parse_lists(c, &err);
    if (!s) s = choose_isa(c->opt.isa, &err);
    if (!s) s = measure_limits(c, &err);
    for (int i = 0; i < c->n_shapes && !s; i++) s = measure_shape(c, c->shape[i], &err);
    if (s) return um_cli_error(self, &err);
    return c->lacks_memory ? UM_EXIT_DEVICE : UM_EXIT_OK;
}

static int run(const um_command *self, int argc, char **argv) {
    command *c = UM_NEW(command);
    um_args args;
    um_args_parse(&args, self, argc, argv, &c->opt, &c->config);
    const int code = args.done ? args.exit : run_command(self, c, &args);
    um_args_free(&args);
    um_buf_free(&c->heading);
    um_free(c);
    return code;
}

const um_command um_cmd_bench_ops = {
    .name = "bench ops",
    .summary = "measure single operations beside the limits of the machine",
    .usage = "unmask bench ops [--shape NAME,NAME] [--operation linear,head] [--type q8] [--rows 1,32] [options]",
    .description =
        "Times the operations of the cpu backend on random matrices in the shapes of released models, without a "
        "checkpoint: products with weights in several types and with several numbers of rows, attention, the head, and "
        "mixtures of experts. Each line has a limit: the bytes that the operation must read at the rate at which the "
        "same run reads memory, or its additions and multiplications at the peak of the instruction that its type "
        "uses, whichever takes longer. The time contains the packing of activations, not the making of weights. "
        "docs/bench-ops.md explains the report.",
    .examples =
        "unmask bench ops --shape sdar-1.7b --operation gate,norm --quick\n"
        "unmask bench ops --shape sdar-1.7b --operation attention --type bfloat16 --rows 1,32 --context 256 --quick\n"
        "unmask bench ops --shape sdar-1.7b --operation linear --type q8 --rows 8 --quick --json\n",
    .options = rows,
    .n_options = UM_LEN(rows),
    .engine_rows = engine_rows,
    .run = run,
};
