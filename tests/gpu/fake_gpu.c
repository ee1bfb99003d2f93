/* A plugin in the place of libunmask-cuda.so, for tests on machines without a GPU. Its devices compute on the CPU, but
 * have numbers and memory of their own, replay graphs and can be lost, as GPUs do. The environment describes them:
 *
 *   FAKE_GPU_COUNT      number of devices; 0: none, with an error. Default 2
 *   FAKE_GPU_BYTES      memory of a device. Default 1e9
 *   FAKE_GPU_WORKSPACE  memory of the activations of an engine. Default 1e7
 *   FAKE_GPU_ODD        number of a device of another kind. Default: there is none
 *   FAKE_GPU_APART      number of a device whose memory the others can't read. Default: there is none
 *   FAKE_GPU_HOST       name of the host, for ranks in several processes. Default "host"
 *   FAKE_GPU_ALONE      the library by which ranks in several processes exchange results is missing, or with "late" a
 *                       device waits for the others without end. Default: neither
 *   FAKE_GPU_HANG       number of the pass that hangs, as on a rank that waits for others. Default: none
 *   FAKE_GPU_LOG        file that gets a line for each device that is opened, and that waits for others without end,
 *                       and one with the numbers of requests for which graphs are recorded at the start
 *   FAKE_GPU_LOSS       file; the first pass that finds it removes it and fails
 *   FAKE_GPU_PAUSE      file; while it exists, loading a matrix takes FAKE_GPU_PAUSE_MS milliseconds. Default 200
 *   FAKE_GPU_VERSION    version that the plugin claims to have */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "ops/cpu/cpu.h"
#include "ops/plugin.h"

typedef struct fake_device {
    um_device *host;
    int32_t number;
    size_t used; /* bytes of its memory */
} fake_device;

typedef struct fake_forward {
    um_forward *host;
    fake_device *d;
    um_forward_memory memory;
    um_forward_stats stats;
} fake_forward;

static double setting(const char *name, double otherwise) {
    const char *text = getenv(name);
    return text ? strtod(text, NULL) : otherwise;
}

static size_t bytes_of_device(void) { return (size_t)setting("FAKE_GPU_BYTES", 1e9); }

/* ---- Devices and weights ----------------------------------------------------------------------------------------- */

static um_status fake_count(const um_backend *self, int32_t *n, um_err *err) {
    (void)self;
    *n = (int32_t)setting("FAKE_GPU_COUNT", 2);
    return *n ? UM_OK : um_fail(err, UM_EDEVICE, "there is no fake GPU");
}

static FILE *open_log(void) {
    const char *path = getenv("FAKE_GPU_LOG");
    return path ? fopen(path, "a") : NULL;
}

/* Writes a line about a device to the log. */
static void note(int32_t number, const char *what) {
    FILE *f = open_log();
    if (!f) return;
    fprintf(f, "device %d %s\n", number, what);
    fclose(f);
}

static um_status fake_open(um_device **out, const um_backend *self, const um_dev_config *c, um_err *err) {
    um_dev_config host = *c;
    fake_device *d = UM_NEW(fake_device);
    host.number = 0;
    d->number = c->number;
    note(c->number, c->eager ? "eager 1" : "eager 0");
    um_status s = um_host_open(&d->host, self, &host, err);
    *out = (um_device *)d;
    if (!s) return UM_OK;
    um_free(d);
    *out = NULL;
    return s;
}

static void fake_close(um_device *device) {
    if (!device) return;
    um_backend_cpu.close(((fake_device *)device)->host);
    um_free(device);
}

static void fake_info(const um_device *device, um_device_info *out) {
    const fake_device *d = (const fake_device *)device;
    *out = (um_device_info){.memory = bytes_of_device()};
    out->there = out->memory - UM_MIN(d->used, out->memory);
    snprintf(out->name, sizeof out->name, d->number == (int32_t)setting("FAKE_GPU_ODD", -1) ? "odd GPU" : "fake GPU");
}

static um_status fake_reach(um_device *device, const um_device *other, bool *can, um_err *err) {
    (void)device, (void)err;
    *can = ((const fake_device *)other)->number != (int32_t)setting("FAKE_GPU_APART", -1);
    return UM_OK;
}

static um_status fake_introduce(um_device *device, bool leads, um_device_card *out, um_err *err) {
    const char *host = getenv("FAKE_GPU_HOST"), *alone = getenv("FAKE_GPU_ALONE");
    *out = (um_device_card){0};
    if (alone && strcmp(alone, "late")) return um_fail(err, UM_EUNSUPPORTED, "libfake.so is missing");
    snprintf(out->name, sizeof out->name, "%.40s/%d", host ? host : "host", ((fake_device *)device)->number);
    if (leads) snprintf(out->key, sizeof out->key, "key");
    return UM_OK;
}

static void wait_without_end(int32_t number) {
    note(number, "waits");
    for (;;) pause();
}

/* The devices are of the host, so that results go through the link all the same. */
static um_status fake_unite(um_device *device, const um_device_card *leader, int32_t rank, int32_t n, um_err *err) {
    const char *alone = getenv("FAKE_GPU_ALONE");
    if (alone && !strcmp(alone, "late")) wait_without_end(((fake_device *)device)->number);
    return strcmp(leader->key, "key") ? um_fail(err, UM_EDEVICE, "rank %d of %d has no key", rank, n) : UM_OK;
}

/* Makes loading slow for as long as a test wants. */
static void pause_loading(void) {
    const long ms = (long)setting("FAKE_GPU_PAUSE_MS", 200);
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    const char *path = getenv("FAKE_GPU_PAUSE");
    if (path && access(path, F_OK) == 0) nanosleep(&pause, NULL);
}

static um_status fake_weight(um_device *device, um_weight **out, const um_tensor *part, int n, um_dtype type,
                             um_err *err) {
    fake_device *d = (fake_device *)device;
    pause_loading();
    um_status s = um_backend_cpu.weight(d->host, out, part, n, type, err);
    if (!s) d->used += um_backend_cpu.weight_bytes(*out);
    return s;
}

static void fake_weight_free(um_device *device, um_weight *w) {
    fake_device *d = (fake_device *)device;
    d->used -= um_backend_cpu.weight_bytes(w);
    um_backend_cpu.weight_free(d->host, w);
}

static um_status fake_vector(um_device *d, um_vector **out, const um_tensor *part, int n, const char *what,
                             um_err *err) {
    return um_backend_cpu.vector(((fake_device *)d)->host, out, part, n, what, err);
}

static void fake_vector_free(um_device *d, um_vector *v) { um_backend_cpu.vector_free(((fake_device *)d)->host, v); }

/* ---- Passes ------------------------------------------------------------------------------------------------------ */

static size_t fake_workspace(um_device *d, const um_network *n, const um_forward_config *c) {
    (void)d, (void)n, (void)c;
    return (size_t)setting("FAKE_GPU_WORKSPACE", 1e7);
}

static um_status fake_forward_new(um_forward **out, um_device *device, const um_network *n, const um_forward_config *c,
                                  um_err *err) {
    fake_forward *f = UM_NEW(fake_forward);
    f->d = (fake_device *)device;
    um_status s = um_backend_cpu.forward_new(&f->host, f->d->host, n, c, err);
    if (s) {
        um_free(f);
        f = NULL;
    } else {
        f->memory = um_backend_cpu.memory(f->host);
        f->memory.workspace = fake_workspace(device, n, c);
        f->d->used += f->memory.kv + f->memory.workspace;
        f->stats.graphs = 3;
    }
    *out = (um_forward *)f;
    return s;
}

static void fake_forward_free(um_forward *forward) {
    fake_forward *f = (fake_forward *)forward;
    if (!f) return;
    um_backend_cpu.forward_free(f->host);
    f->d->used -= f->memory.kv + f->memory.workspace;
    um_free(f);
}

static um_forward_memory fake_memory(const um_forward *f) { return ((const fake_forward *)f)->memory; }
static um_forward_stats fake_stats(const um_forward *f) { return ((const fake_forward *)f)->stats; }

/* Notes the numbers of requests of the first context. */
static um_status fake_warm(um_forward *forward, const um_pass_size *size, int32_t n, um_err *err) {
    FILE *f = open_log();
    int32_t last = 0;
    (void)forward, (void)err;
    if (!f) return UM_OK;
    fprintf(f, "graphs");
    for (int32_t i = 0; i < n && size[i].keys == size[0].keys; i++) {
        if (size[i].n_spans != last) fprintf(f, " %d", size[i].n_spans);
        last = size[i].n_spans;
    }
    fprintf(f, "\n");
    fclose(f);
    return UM_OK;
}

static void fake_copy_page(um_forward *f, int32_t from, int32_t to, int32_t n) {
    um_backend_cpu.copy_page(((fake_forward *)f)->host, from, to, n);
}

static um_status fake_submit(um_forward *forward, const um_batch *b, um_err *err) {
    fake_forward *f = (fake_forward *)forward;
    const char *loss = getenv("FAKE_GPU_LOSS");
    if (loss && unlink(loss) == 0) return um_fail(err, UM_EDEVICE, "fake GPU %d has fallen off the bus", f->d->number);
    f->stats.passes++;
    if (f->stats.passes == (int64_t)setting("FAKE_GPU_HANG", -1)) wait_without_end(f->d->number);
    f->stats.replays++;
    return um_backend_cpu.submit(f->host, b, err);
}

static um_status fake_wait(um_forward *f, um_err *err) { return um_backend_cpu.wait(((fake_forward *)f)->host, err); }

static void fake_profile(um_forward *f, um_profile *p) { um_backend_cpu.profile(((fake_forward *)f)->host, p); }

/* ---- The plugin -------------------------------------------------------------------------------------------------- */

static const um_backend backend = {
    .name = "cuda",
    .summary = "fake GPUs",
    .ops = &um_ops_cpu, /* um_host_open reads it */
    .count = fake_count,
    .open = fake_open,
    .close = fake_close,
    .info = fake_info,
    .weight = fake_weight,
    .weight_free = fake_weight_free,
    .weight_bytes = NULL, /* set by um_plugin_get */
    .vector = fake_vector,
    .vector_free = fake_vector_free,
    .reach = fake_reach,
    .introduce = fake_introduce,
    .unite = fake_unite,
    .workspace = fake_workspace,
    .forward_new = fake_forward_new,
    .forward_free = fake_forward_free,
    .memory = fake_memory,
    .stats = fake_stats,
    .warm = fake_warm,
    .copy_page = fake_copy_page,
    .submit = fake_submit,
    .wait = fake_wait,
    .profile = fake_profile,
};

__attribute__((visibility("default"))) const um_plugin *um_plugin_get(void);

const um_plugin *um_plugin_get(void) {
    static um_backend fake;
    static um_plugin plugin = {UM_PLUGIN_VERSION, UM_PLUGIN_SIZES, &fake};
    const char *version = getenv("FAKE_GPU_VERSION");
    fake = backend;
    fake.weight_bytes = um_backend_cpu.weight_bytes;
    if (version) plugin.version = version;
    return &plugin;
}
