/* Opens a model and its engines for a command, profiles them, and catches the signals that stop an answer. */
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/speed.h"
#include "engine/engine.h"

#define EXAMPLES_SHOWN 3

/* ---- Which model ------------------------------------------------------------------------------------------------- */

/* Returns whether both paths are the same folder. */
static bool is_same_folder(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

char *um_cli_bundled(void) {
    char *dir = um_bundled_folder();
    if (dir && !is_same_folder(dir, "models")) return dir;
    um_free(dir);
    return um_strdup("models");
}

static um_status fail_without_model(um_err *err) {
    um_buf names = {0};
    um_bundled_append_names(&names);
    um_status s = um_fail(err, UM_EINVAL,
                          "no model: name a checkpoint folder%s%s%s with --model DIR or in the environment variable "
                          "UNMASK_MODEL, which is unset",
                          names.len ? " or a bundled model (" : "", names.len ? names.data : "", names.len ? ")" : "");
    um_buf_free(&names);
    return s;
}

um_status um_cli_check_model_name(const char *model, um_err *err) {
    return model && *model ? UM_OK : fail_without_model(err);
}

um_status um_cli_check_model(const char *model, um_err *err) {
    char *path = NULL;
    um_status s = um_cli_check_model_name(model, err);
    if (s) return s;
    s = um_model_find(&path, model, err);
    um_free(path);
    return s ? um_cli_explain_model_error(err) : UM_OK;
}

um_status um_cli_check_engine_model(const um_config *c, um_err *err) {
    const bool shape = c->load_format == UM_LOAD_DUMMY && c->model && um_released_find(c->model);
    return shape ? UM_OK : um_cli_check_model(c->model, err);
}

void um_cli_print_examples(const char *const *example, int32_t n) {
    um_buf safe = {0};
    n = UM_MIN(n, EXAMPLES_SHOWN);
    for (int32_t i = 0; i < n; i++) {
        if (i) um_buf_puts(&safe, " | ");
        um_cli_put_safe(&safe, example[i], strlen(example[i]));
    }
    if (n) fprintf(stderr, "Try: %s\n", safe.data);
    um_buf_free(&safe);
}

void um_cli_print_examples_of(const char *model) {
    char *path = NULL;
    um_card card;
    if (um_model_find(&path, model, NULL)) return;
    um_card_read(&card, path);
    um_cli_print_examples(card.example, card.n_examples);
    um_card_free(&card);
    um_free(path);
}

um_status um_cli_explain_model_error(um_err *err) {
    um_status s = err->code;
    if (s == UM_ENOENT || s == UM_EIO || s == UM_EPARSE || s == UM_ETEMPLATE || s == UM_ELIMIT) err->code = UM_EMODEL;
    return err->code;
}

/* ---- Sizes for one request --------------------------------------------------------------------------------------- */

enum {
    PASS_MIN = 256,
    PASS_MAX = 8192,      /* for conversations; larger passes need more memory, so the user must ask for them */
    TEMPLATE_SLACK = 1024 /* tokens that a chat template may add to a message */
};

/* Returns the size of a pass in tokens. A token has at least one byte, so the prompt has at most prompt_bytes tokens.
 * Classifier-free guidance feeds everything twice. */
static int64_t pass_tokens(const um_config *c, const um_arch *a, size_t prompt_bytes) {
    int64_t longest = c->max_model_len ? c->max_model_len : UM_MIN(a->max_position, UM_POSITIONS_MAX);
    int64_t answer = c->sampling.max_tokens ? c->sampling.max_tokens : um_arch_answer_tokens(a);
    int64_t wanted = (int64_t)UM_MIN(prompt_bytes, (size_t)UM_POSITIONS_MAX) + TEMPLATE_SLACK + answer;
    int64_t block = um_config_block(c, a);
    int64_t window = block * UM_MAX(c->decoding.buffer_size, 1);
    int64_t tokens = UM_MIN(longest, wanted) + window;
    if (prompt_bytes == SIZE_MAX) tokens = UM_MIN(longest, PASS_MAX) + UM_MAX(window, UM_CHAT_WINDOW);
    return UM_MAX(tokens * (c->decoding.cfg_scale > 0 ? 2 : 1), PASS_MIN);
}

/* Replaces several engines by one, on the first of their devices. */
static void use_one_engine(um_config *c) {
    if (c->data_parallel_size <= 1) return;
    um_warn("data_parallel_size %d: this command has one request at a time, so it uses one engine; generate and bench "
            "use several",
            c->data_parallel_size);
    c->data_parallel_size = 1;
    c->device[strcspn(c->device, ",")] = c->device_ids[strcspn(c->device_ids, ",")] = '\0';
}

/* Ignores errors of the model: um_cli_open reports them. */
void um_cli_set_single_request_sizes(um_config *c, size_t prompt_bytes) {
    use_one_engine(c);
    if (c->max_num_batched_tokens > 0) return;
    um_arch a = {.max_position = PASS_MAX};
    char *path = NULL;
    if (c->model && !um_model_find(&path, c->model, NULL)) {
        um_log_level level = um_log_get_level();
        um_log_set_level(UM_LOG_ERROR); /* um_cli_open reads the same files again and warns then */
        const um_arch_source from = {.dir = path, .family = c->model_name, .mask_id = c->mask_token_id};
        (void)um_arch_load(&a, &from, NULL);
        um_log_set_level(level);
    }
    um_free(path);
    c->max_num_batched_tokens = (int32_t)pass_tokens(c, &a, prompt_bytes);
}

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

static void print_facts(const um_session *s, const um_config *c) {
    um_model_info info;
    um_stats stats;
    um_model_get_info(s->model, &info);
    um_router_get_stats(s->router, &stats);
    const um_model *m = s->model;
    um_device_info device;
    char parameters[UM_COUNT_TEXT], weights[UM_BYTES_TEXT], kv[UM_BYTES_TEXT], workspace[UM_BYTES_TEXT];
    m->backend->info(m->device, &device);
    fprintf(stderr, "unmask %s: %s (%s), %s parameters, %s on %s (%s", um_version(), info.path, info.family,
            um_count_text(parameters, (double)info.n_params), um_model_type_name(m), c->device, device.name);
    if (device.threads)
        fprintf(stderr, ", %d threads%s", device.threads, um_router_size(s->router) > 1 ? " for each engine" : "");
    fprintf(stderr, ")\n  "); /* both lines fit 80 columns, unless names are long */
    for (int32_t i = 0; i < info.n_adapters; i++)
        fprintf(stderr, "%s %s%s",
                i                        ? ","
                : info.adapter[0].merged ? "merged adapter"
                                         : "adapters",
                info.adapter[i].name, i + 1 < info.n_adapters ? "" : "; ");
    if (um_router_size(s->router) > 1) fprintf(stderr, "%d engines, ", um_router_size(s->router));
    fprintf(stderr, "weights %s, KV %s, workspace %s; opened in %.2f s\n",
            um_bytes_text(weights, (double)stats.weight_bytes), um_bytes_text(kv, (double)stats.kv_bytes),
            um_bytes_text(workspace, (double)stats.workspace_bytes), info.load_seconds);
    char graphs[UM_GRAPHS_TEXT_MAX];
    if (um_engine_put_graphs(um_router_engine(s->router, 0), graphs)) fprintf(stderr, "%s\n", graphs);
}

um_status um_cli_open(um_session *s, const um_config *c, bool quiet, bool facts, um_err *err) {
    um_err own;
    um_config mine = *c;
    um_loading loading;
    *s = (um_session){0};
    if (!err) err = &own;
    um_status st = um_cli_check_engine_model(c, err);
    if (st) return st;
    um_loading_begin(&loading, &mine, quiet);
    st = um_model_open(&s->model, &mine, err);
    if (st) st = um_cli_explain_model_error(err);
    else st = um_router_new(&s->router, s->model, c, err);
    um_loading_end(&loading);
    if (st) {
        um_cli_close(s);
        return st;
    }
    s->engine = um_router_engine(s->router, 0);
    if (facts) print_facts(s, c);
    return UM_OK;
}

void um_cli_close(um_session *s) {
    um_router_free(s->router);
    um_model_close(s->model);
    *s = (um_session){0};
}

/* ---- Profile ----------------------------------------------------------------------------------------------------- */

um_status um_cli_profile_check(const char *path, um_err *err) {
    um_err why;
    if (!path || !um_profile_check(path, &why)) return UM_OK;
    return um_fail(err, UM_EINVAL, "--profile: %s", why.msg);
}

um_status um_cli_profile_start(um_router *r, const char *path, um_err *err) {
    um_status st = UM_OK;
    for (int32_t i = 0; path && i < um_router_size(r) && !st; i++) {
        um_buf own = {0};
        um_buf_puts(&own, path);
        if (i > 0) um_buf_printf(&own, ".%d", i); /* each engine has its own file */
        st = um_engine_profile_start(um_router_engine(r, i), own.data, err);
        um_buf_free(&own);
    }
    return st;
}

static void print_profile(const um_profile *p) {
    um_buf table = {0};
    um_profile_put_table(p, &table);
    fputs(table.data, stderr);
    if (p->n_dropped)
        fprintf(stderr, "%lld spans are only in these totals, because the trace was full\n", (long long)p->n_dropped);
    um_buf_free(&table);
}

/* Prints the times of the ranks of an engine, since it was created. */
static void print_ranks(const um_engine *e) {
    um_rank_times t[UM_RANKS_MAX];
    const int32_t n = um_engine_get_ranks(e, t, UM_RANKS_MAX);
    if (n) fputs("  rank    passes  exchange of results, with waiting\n", stderr);
    for (int32_t r = 0; r < n; r++)
        fprintf(stderr, "%6d  %8.3f s  %8.3f s  %5.1f %%\n", r, t[r].pass_seconds, t[r].exchange_seconds,
                100 * um_ratio(t[r].exchange_seconds, t[r].pass_seconds));
}

um_status um_cli_profile_stop(um_router *r, const char *path, bool quiet, um_err *err) {
    um_status st = UM_OK; /* the first failure; all other profiles are still written */
    for (int32_t i = 0; path && i < um_router_size(r); i++) {
        um_engine *e = um_router_engine(r, i);
        const um_status own = um_engine_profile_stop(e, st ? NULL : err);
        if (!st) st = own;
        if (own || quiet) continue;
        print_profile(&e->profile);
        print_ranks(e);
    }
    return st;
}

/* ---- Signals ----------------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t interrupted, terminated, ends_at_once, clears_line;
static struct timespec last_signal; /* used by the handler only */

/* Calls only functions that a handler may call. */
static void end_at_once(int number) {
    static const char clear[] = "\r\033[K";
    if (clears_line && write(STDERR_FILENO, clear, sizeof clear - 1) < 0) clears_line = 0;
    um_cli_echo(true);
    _exit(number == SIGTERM ? UM_EXIT_TERMINATED : UM_EXIT_INTERRUPTED);
}

static void on_signal(int number) {
    struct timespec now;
    if (ends_at_once) end_at_once(number);
    clock_gettime(CLOCK_MONOTONIC, &now);
    double since = (double)(now.tv_sec - last_signal.tv_sec) + 1e-9 * (double)(now.tv_nsec - last_signal.tv_nsec);
    if (interrupted && since < 1) {
        um_cli_echo(true);
        signal(number, SIG_DFL);
        raise(number);
    }
    last_signal = now;
    interrupted = 1;
    if (number == SIGTERM) terminated = 1;
}

/* Without SA_RESTART, so that a signal interrupts a read from the terminal. */
void um_cli_catch_signals(void) {
    struct sigaction a = {.sa_handler = on_signal};
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
}

const char *um_cli_failure_of(um_finish finish) {
    if (finish == UM_FINISH_NO_PREDICTION)
        return "the model predicts no token, because its logits are not numbers; see --check-weights";
    if (finish == UM_FINISH_CONSTRAINT)
        return "the constraint needs more memory or time than a constraint may take, so the answer is incomplete";
    if (finish == UM_FINISH_SAMPLER) return "the sampler of a plugin has failed, so the answer is incomplete";
    return NULL;
}

bool um_cli_interrupted(void) { return interrupted; }
bool um_cli_terminated(void) { return terminated; }
void um_cli_clear_interrupt(void) { interrupted = 0; }
int um_cli_signal_exit(void) { return terminated ? UM_EXIT_TERMINATED : UM_EXIT_INTERRUPTED; }

bool um_cli_end_at_signal(bool on) {
    const bool before = ends_at_once;
    clears_line = um_cli_can_draw(STDERR_FILENO);
    ends_at_once = on;
    return before;
}
