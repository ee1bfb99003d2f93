/* A model and its engines for one command, and the signals that stop its answers. */
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "engine/engine.h"

/* ---- Which model ------------------------------------------------------------------------------------------------- */

/* Appends the folders of dir that hold a checkpoint, "dir/a, dir/b". */
static void list_models(const char *dir, um_buf *out) {
    DIR *d = opendir(dir);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        if (e->d_name[0] == '.') continue;
        char *path = um_path_join(dir, e->d_name), *config = um_path_join(path, "config.json");
        if (um_file_exists(config)) um_buf_printf(out, "%s%s", out->len ? ", " : "", path);
        um_free(config);
        um_free(path);
    }
    if (d) closedir(d);
}

/* Beside an installed program they lie in share/; in a source tree the current directory has them. */
char *um_cli_bundled(void) {
    char exe[4096];
    ssize_t n = um_dir_exists("models") ? 0 : readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0) return um_strdup("models");
    exe[n] = '\0';
    for (int up = 0; up < 2 && strrchr(exe, '/'); up++) *strrchr(exe, '/') = '\0';
    char *dir = um_path_join(exe, "share/unmask/models");
    if (um_dir_exists(dir)) return dir;
    um_free(dir);
    return um_strdup("models");
}

um_status um_cli_need_model(const char *model, um_err *err) {
    if (model && *model) return UM_OK;
    um_buf near = {0};
    char *bundled = um_cli_bundled();
    list_models(bundled, &near);
    um_free(bundled);
    um_status s = um_fail(err, UM_EINVAL,
                          "no model: name a checkpoint folder with --model DIR or in the environment variable "
                          "UNMASK_MODEL, which is unset%s%s",
                          near.len ? "; there are " : "", near.len ? near.data : "");
    um_buf_free(&near);
    return s;
}

um_status um_cli_blame_model(um_err *err) {
    um_status s = err->code;
    if (s == UM_ENOENT || s == UM_EIO || s == UM_EPARSE || s == UM_ETEMPLATE || s == UM_ELIMIT) err->code = UM_EMODEL;
    return err->code;
}

/* ---- Sizes for one request --------------------------------------------------------------------------------------- */

enum {
    PASS_LEAST = 256,
    PASS_MOST = 8192,     /* buffers of a pass grow with its tokens: beyond this the user decides */
    TEMPLATE_SLACK = 1024 /* tokens that a chat template may put around a message */
};

/* A token stands for one byte at least, so bytes bound tokens. Guidance feeds everything twice. */
static int64_t pass_tokens(const um_config *c, const um_arch *a, size_t prompt_bytes) {
    int64_t longest = c->max_model_len ? c->max_model_len : UM_MIN(a->max_position, UM_POSITIONS_MAX);
    int64_t answer = c->sampling.max_tokens ? c->sampling.max_tokens : um_arch_answer_tokens(a);
    int64_t wanted = (int64_t)UM_MIN(prompt_bytes, (size_t)UM_POSITIONS_MAX) + TEMPLATE_SLACK + answer;
    int64_t block = c->decoding.block_size ? c->decoding.block_size : a->block ? a->block : 32;
    int64_t window = block * UM_MAX(c->decoding.buffer_size, 1);
    int64_t tokens = UM_MIN(longest, wanted) + window;
    if (prompt_bytes == SIZE_MAX) tokens = UM_MIN(longest, PASS_MOST) + UM_MAX(window, UM_CHAT_WINDOW);
    return UM_MAX(tokens * (c->decoding.cfg_scale > 0 ? 2 : 1), PASS_LEAST);
}

/* What is wrong with the model is left to um_cli_open to say. */
void um_cli_size_for_one(um_config *c, size_t prompt_bytes) {
    if (c->data_parallel_size > 1)
        um_warn("data_parallel_size %d: answers come one at a time here, so there is one engine; generate and bench "
                "spread requests over several",
                c->data_parallel_size);
    c->data_parallel_size = 1;
    if (c->max_num_batched_tokens > 0) return;
    um_arch a = {.max_position = PASS_MOST};
    char *path = NULL;
    if (c->model && !um_model_find(&path, c->model, NULL)) {
        um_log_level level = um_log_get_level();
        um_log_set_level(UM_LOG_ERROR); /* um_cli_open reads the same files and warns once */
        const um_arch_source from = {.dir = path, .family = c->model_name, .mask_id = c->mask_token_id};
        (void)um_arch_load(&a, &from, NULL);
        um_log_set_level(level);
    }
    um_free(path);
    c->max_num_batched_tokens = (int32_t)pass_tokens(c, &a, prompt_bytes);
}

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

static double megabytes(size_t n) { return (double)n / 1e6; }

static void print_facts(const um_session *s, const um_config *c) {
    um_model_info info;
    um_stats stats;
    um_model_get_info(s->model, &info);
    um_router_get_stats(s->router, &stats);
    const um_model *m = s->model;
    fprintf(stderr, "unmask %s: %s (%s), %.1fM parameters, %s on %s (%s, %d threads); ", um_version(), info.path,
            info.family, (double)info.n_params / 1e6, um_dtype_name(m->dtype), c->device, m->ops->isa(m->dev),
            m->ops->threads(m->dev));
    for (int32_t i = 0; i < info.n_adapters; i++)
        fprintf(stderr, "%s %s%s",
                i                        ? ","
                : info.adapter[0].merged ? "merged adapter"
                                         : "adapters",
                info.adapter[i].name, i + 1 < info.n_adapters ? "" : "; ");
    if (um_router_size(s->router) > 1) fprintf(stderr, "%d engines, ", um_router_size(s->router));
    fprintf(stderr, "weights %.1f MB, KV %.1f MB, workspace %.1f MB; opened in %.2f s\n", megabytes(stats.weight_bytes),
            megabytes(stats.kv_bytes), megabytes(stats.workspace_bytes), info.load_seconds);
}

um_status um_cli_open(um_session *s, const um_config *c, bool quiet, um_err *err) {
    um_err own;
    *s = (um_session){0};
    if (!err) err = &own;
    um_status st = um_cli_need_model(c->model, err);
    if (st) return st;
    st = um_model_open(&s->model, c, err);
    if (st) return um_cli_blame_model(err);
    st = um_router_new(&s->router, s->model, c, err);
    if (st) {
        um_cli_close(s);
        return st;
    }
    s->engine = um_router_engine(s->router, 0);
    if (!quiet) print_facts(s, c);
    return UM_OK;
}

void um_cli_close(um_session *s) {
    um_router_free(s->router);
    um_model_close(s->model);
    *s = (um_session){0};
}

/* ---- Profile ----------------------------------------------------------------------------------------------------- */

um_status um_cli_profile_start(um_router *r, const char *path, um_err *err) {
    um_status st = UM_OK;
    for (int32_t i = 0; path && i < um_router_size(r) && !st; i++) {
        um_buf own = {0};
        um_buf_puts(&own, path);
        if (i > 0) um_buf_printf(&own, ".%d", i); /* a file for each engine */
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
        fprintf(stderr, "%lld spans are in these sums alone: the trace was full\n", (long long)p->n_dropped);
    um_buf_free(&table);
}

um_status um_cli_profile_stop(um_router *r, const char *path, bool quiet, um_err *err) {
    um_status st = UM_OK;
    for (int32_t i = 0; path && i < um_router_size(r) && !st; i++) {
        um_engine *e = um_router_engine(r, i);
        st = um_engine_profile_stop(e, err);
        if (!st && !quiet) print_profile(&e->profile);
    }
    return st;
}

/* ---- Signals ----------------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t interrupted, terminated;
static struct timespec last_signal; /* of the handler alone */

static void on_signal(int number) {
    struct timespec now;
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

/* Without SA_RESTART: a read at the prompt returns, so that it can be given up. */
void um_cli_catch_signals(void) {
    struct sigaction a = {.sa_handler = on_signal};
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
}

bool um_cli_interrupted(void) { return interrupted; }
bool um_cli_terminated(void) { return terminated; }
void um_cli_clear_interrupt(void) { interrupted = 0; }
