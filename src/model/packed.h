/* packed: folders whose weights are stored as the cpu backend uses them, so that opening a model maps them and converts
 * nothing. `unmask quantize` writes them.
 *
 * The weights are in the file packed.safetensors, a valid safetensors file. A matrix is a tensor of bytes: its panels
 * (ops/panels.h). Vectors are stored as numbers. The metadata of the header hold
 *   "format"   "unmask-panels"
 *   "version"  "1"
 *   "dtype"    "float32" or "bfloat16", which --dtype auto stands for
 *   NAME       for each tensor: "q8 4096x4096 0123456789abcdef" (type of the panels, shape, XXH3-64 of the data), or
 *              "numbers 0123456789abcdef" for a vector
 * Each matrix begins at a multiple of 64 bytes. Those that the engine stacks (queries, keys and values) follow each
 * other, so that their panels are those of the stacked matrix. */
#ifndef UM_MODEL_PACKED_H
#define UM_MODEL_PACKED_H

#include "model/store.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UM_PACKED_FILE    "packed.safetensors"
#define UM_PACKED_FORMAT  "unmask-panels"
#define UM_PACKED_VERSION "1"
#define UM_PACKED_NUMBERS "numbers"
/* A line of the README.md of a packed folder. */
#define UM_PACKED_CARD_LINE "library_name: unmask"
enum { UM_PACKED_ALIGN = 64 };

/* Returns whether the folder holds packed weights. */
bool um_packed_exists(const char *dir);
/* Adds the tensors of the folder to a store. Errors: UM_EPARSE (the message names the tensor), UM_EUNSUPPORTED (another
 * version). */
um_status um_packed_open(um_store *s, const char *dir, um_err *err);
/* The same for the n bytes of a file in memory, aligned to UM_PACKED_ALIGN, which the caller keeps valid as long as s.
 */
um_status um_packed_parse(um_store *s, const uint8_t *data, size_t n, const char *path, um_err *err);

/* What um_packed_write tells of its progress, on the calling thread. False stops the writing. */
typedef bool (*um_packed_progress)(void *arg, int64_t bytes_done, int64_t bytes_in_all);
/* What has been written. The counts and `again` are complete when um_packed_write first tells of its progress. */
typedef struct um_packed_report {
    int64_t bytes_in, bytes_out; /* of the weights */
    int64_t n_params;
    double error;    /* root mean square of the rounding errors by that of the weights, of a sample of the matrices */
    bool is_rounded; /* matrices of the source are integers or 8-bit floats: `error` is that of rounding them again */
    int64_t n_matrices, n_again; /* matrices; those that were rounded before and get other numbers now */
    char again[64];              /* the formats of the n_again matrices in the source: "Q4_K, Q6_K" */
} um_packed_report;
/* Writes the model that c names into the folder `dir`, with matrices of the type UM_Q8, UM_Q4 or UM_BF16: weights, the
 * files of tokenizer and configuration, and a README.md. Makes the folder; one that is not empty is refused unless
 * `overwrite`. Reads one matrix at a time, so the model may be larger than memory. progress may be NULL. *report is
 * complete after UM_OK. Errors: those of um_model_open, UM_EINVAL (the folder), UM_EIO, UM_EMODEL (weights that are NaN
 * or infinite), UM_ECANCELED. */
um_status um_packed_write(const um_config *c, const char *dir, um_dtype type, bool overwrite,
                          um_packed_progress progress, void *arg, um_packed_report *report, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
