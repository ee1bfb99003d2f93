/* plugin: a backend in a shared library, opened when a device asks for it, so that one program runs on machines with
 * and without its hardware. */
#ifndef UM_OPS_PLUGIN_H
#define UM_OPS_PLUGIN_H

#include "ops/backend.h"
#include "ops/format.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a plugin tells of itself. Program and plugin share structs, so they must be of the same version and agree on the
 * sizes of these structs. */
typedef struct um_plugin {
    const char *version; /* UM_PLUGIN_VERSION */
    uint32_t sizes;      /* UM_PLUGIN_SIZES */
    const um_backend *backend;
} um_plugin;
#define UM_PLUGIN_TEXT(x)         #x
#define UM_PLUGIN_DOT(a, b, c)    UM_PLUGIN_TEXT(a) "." UM_PLUGIN_TEXT(b) "." UM_PLUGIN_TEXT(c)
#define UM_PLUGIN_VERSION         UM_PLUGIN_DOT_OF(UM_VERSION_MAJOR, UM_VERSION_MINOR, UM_VERSION_PATCH)
#define UM_PLUGIN_DOT_OF(a, b, c) UM_PLUGIN_DOT(a, b, c)
#define UM_PLUGIN_SIZES                                                                                                \
    ((uint32_t)(sizeof(um_backend) +                                                                                   \
                31 * (sizeof(um_network) +                                                                             \
                      31 * (sizeof(um_layer) +                                                                         \
                            31 * (sizeof(um_batch) +                                                                   \
                                  31 * (sizeof(um_row) +                                                               \
                                        31 * (sizeof(um_dev_config) +                                                  \
                                              31 * (sizeof(um_profile) +                                               \
                                                    31 * (sizeof(um_tensor) + 31 * sizeof(um_format))))))))))

/* The name of the function of a plugin that returns its um_plugin. */
#define UM_PLUGIN_SYMBOL "um_plugin_get"
typedef const um_plugin *(*um_plugin_fn)(void);

/* Loads the plugin in the file `name`. It is searched beside the program or library that contains this function, in
 * ../lib/unmask and ../lib of that folder, and where the system searches libraries. *out stays valid until the process
 * ends. Errors: UM_EUNSUPPORTED, the plugin is not there, can't be loaded, or is of another version. Any thread. */
um_status um_plugin_load(const um_backend **out, const char *name, um_err *err);

extern const um_backend um_backend_cuda; /* a row of the table of backends that loads libunmask-cuda.so */

#ifdef __cplusplus
}
#endif
#endif
