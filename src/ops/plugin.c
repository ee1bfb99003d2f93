/* Opens backends in shared libraries. */
#include "ops/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>

/* Writes the folder of the program or library that contains this function. Returns false when the system can't tell.
 * For the program, dladdr returns the word by which it was started, which may have no folder. */
static bool own_folder(char out[PATH_MAX]) {
    Dl_info info;
    char path[PATH_MAX];
    union { /* ISO C has no conversion of a function pointer to void * */
        bool (*function)(char *);
        void *address;
    } self = {.function = own_folder};
    if (!dladdr(self.address, &info) || !info.dli_fname) return false;
    if (!realpath(strchr(info.dli_fname, '/') ? info.dli_fname : "/proc/self/exe", path)) return false;
    char *slash = strrchr(path, '/');
    if (!slash) return false;
    snprintf(out, PATH_MAX, "%.*s", (int)(slash - path), path);
    return true;
}

/* Opens the library. Keeps the message of the first file that is there and can't be opened. */
static void *open_library(const char *name, um_err *err) {
    static const char *const places[] = {"", "../lib/unmask/", "../lib/"};
    char folder[PATH_MAX], path[PATH_MAX + 64];
    if (own_folder(folder)) {
        for (size_t i = 0; i < UM_LEN(places); i++) {
            snprintf(path, sizeof path, "%s/%s%s", folder, places[i], name);
            if (!um_file_exists(path)) continue;
            void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
            if (!library) um_fail(err, UM_EUNSUPPORTED, "%s", dlerror());
            return library;
        }
    }
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        um_fail(err, UM_EUNSUPPORTED,
                "%s; `make CUDA=1` builds the plugin (docs/cuda.md), which lies beside the program or in ../lib/unmask",
                dlerror());
    return library;
}

um_status um_plugin_load(const um_backend **out, const char *name, um_err *err) {
    void *library = open_library(name, err);
    if (!library) return UM_EUNSUPPORTED;
    union {
        void *address;
        um_plugin_fn function;
    } get = {.address = dlsym(library, UM_PLUGIN_SYMBOL)};
    if (!get.address) return um_fail(err, UM_EUNSUPPORTED, "%s is no plugin of unmask", name);
    const um_plugin *p = get.function();
    if (!um_streq(p->version, UM_PLUGIN_VERSION) || p->sizes != UM_PLUGIN_SIZES)
        return um_fail(err, UM_EUNSUPPORTED,
                       "%s is of version %s (%08x), the program of version %s (%08x): build both together", name,
                       p->version, (unsigned)p->sizes, UM_PLUGIN_VERSION, (unsigned)UM_PLUGIN_SIZES);
    *out = p->backend;
    return UM_OK;
}

static um_status load_cuda(const um_backend **out, um_err *err) {
    um_status s = um_plugin_load(out, "libunmask-cuda.so", err);
    return s ? um_fail_in(err, "device \"cuda\" can't be used (--device cpu works)") : s;
}

const um_backend um_backend_cuda = {
    .name = "cuda",
    .summary = "NVIDIA GPUs, compute capability 8.0 and newer; cuda:1 is the second",
    .load = load_cuda,
};
