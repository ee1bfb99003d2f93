/* store: the tensors of a checkpoint by name, whatever files hold them. The readers of file formats fill a store
 * (safetensors.c, packed.c); the loader and `inspect` read it and know no format by name.
 *
 * Files are mapped, never copied. A store does not change once it is open, so any thread may read it. */
#ifndef UM_MODEL_STORE_H
#define UM_MODEL_STORE_H

#include "ops/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_store um_store;

/* Opens the weights of a checkpoint: those of a packed folder (packed.h), else the safetensors of a folder
 * (model.safetensors, or the shards of model.safetensors.index.json). Joins the tensors of quantised matrices
 * (quantized.h). *out is released with um_store_close. Errors: UM_ENOENT (no weights, or a shard is missing), UM_EPARSE
 * (the message names file and tensor), UM_EMODEL (index and shards, or tensors of a matrix, contradict each other),
 * UM_EUNSUPPORTED (weights of another kind). */
um_status um_store_open(um_store **out, const char *path, um_err *err);
/* Opens the single safetensors file dir/name. *out is released with um_store_close. */
um_status um_store_open_file(um_store **out, const char *dir, const char *name, um_err *err);
/* Creates a store of the tensors t [n], whose data lie in the caller's memory. Copies the list with its names; the
 * caller keeps the data valid as long as *out, which is released with um_store_close. `where` stands for the name of
 * their file in messages. Errors: UM_EMODEL when a name occurs twice. */
um_status um_store_list(um_store **out, const um_tensor *t, size_t n, const char *where, um_err *err);
/* Unmaps the files; their tensors are invalid afterwards. NULL is allowed. */
void um_store_close(um_store *s);

/* Returns the number of tensors. */
size_t um_store_count(const um_store *s);
/* Returns tensor i in [0, count), in the order of the names. */
const um_tensor *um_store_at(const um_store *s, size_t i);
/* Returns the tensor with this name, or NULL. */
const um_tensor *um_store_find(const um_store *s, const char *name);
/* Returns the index of t, a tensor of s, in um_store_at. */
size_t um_store_index(const um_store *s, const um_tensor *t);
/* Returns the name of the file that contains t, a tensor of s, without its folder. */
const char *um_store_file(const um_store *s, const um_tensor *t);
/* Returns the element type of a tensor of a store as its file spells it ("BF16"). */
const char *um_store_type(const um_tensor *t);
/* Returns whether tensors of s stay in place (um_tensor): then s must outlive the weights. */
bool um_store_stays(const um_store *s);
/* Stores the dtype of um_store_set_dtype. Returns false when there is none. */
bool um_store_dtype(const um_store *s, um_dtype *out);
/* Computes the checksums of all tensors that have one, in the threads of the pool, and compares them. Reads all of the
 * data. Errors: UM_EMODEL; the message names the damaged tensors. */
um_status um_store_verify(const um_store *s, um_pool *pool, um_err *err);
/* Tells the system that it may reclaim the memory of t, a tensor of s or some of its rows, which has been read. The
 * data stays readable; it is then read from the file again. */
void um_store_release(const um_store *s, const um_tensor *t);

/* ---- For the readers of file formats ---- */
enum { UM_STORE_TYPE_SIZE = 16 };
/* Creates an empty store. It is released with um_store_close. */
um_store *um_store_new(void);
/* Begins a file with this path. The tensors that are added from now on are in it. */
void um_store_begin_file(um_store *s, const char *path);
/* Hands the map of the last file to the store. Without this the caller owns the bytes. */
void um_store_own_map(um_store *s, um_map map);
/* Adds a tensor to the last file: copies the name; `type` is the name of its type in the file, cut to
 * UM_STORE_TYPE_SIZE - 1 bytes. The result has no other field yet and is valid until the next call. */
um_tensor *um_store_add(um_store *s, const char *name, const char *type);
/* Sorts the tensors after the last change. Errors: UM_EMODEL for a name that occurs twice, because it is unknown
 * which tensor is meant. */
um_status um_store_sort(um_store *s, um_err *err);
/* Replaces t, a tensor of s, by another one in the same file. Copies it with its name; `type` as in um_store_add.
 * Afterwards no tensor may be searched for before um_store_sort. */
void um_store_replace(um_store *s, const um_tensor *t, const um_tensor *by, const char *type);
/* Removes t, a tensor of s, with the next um_store_sort. Until then it stays where it is. */
void um_store_drop(um_store *s, const um_tensor *t);
/* Returns memory that lives as long as the store, for what tensors point to. */
um_arena *um_store_arena(um_store *s);
/* Returns tensor i of um_store_at for changes of all but its name. */
um_tensor *um_store_edit(um_store *s, size_t i);
/* Sets the checksum of a tensor, XXH3-64 of its data. */
void um_store_set_checksum(um_store *s, size_t i, uint64_t checksum);
/* Says that "auto" stands for this dtype, whatever the types of the tensors. */
void um_store_set_dtype(um_store *s, um_dtype dtype);
/* Returns whether the file with this path contains t, a tensor of s. */
bool um_store_is_in(const um_store *s, const um_tensor *t, const char *path);

/* ---- safetensors (safetensors.c) ---- */
/* Reads a file of n bytes from memory and adds its tensors to s. The caller keeps the bytes valid as long as s.
 * `metadata` may be NULL; it gets the texts of the header that are not tensors, for json_decref, or NULL when there are
 * none. Errors: UM_EPARSE, UM_ELIMIT. */
um_status um_safetensors_parse(um_store *s, const uint8_t *data, size_t n, const char *path, struct json_t **metadata,
                               um_err *err);

#ifdef __cplusplus
}
#endif
#endif
