/* gguf_model: reads a GGUF file as the checkpoint folder that it was made from. The functions here convert its metadata
 * to a config.json, a tokenizer.json and a tokenizer_config.json, and its names of tensors to those of the family. The
 * rest of the program then needs to know nothing of GGUF.
 *
 * The files are those of llama.cpp's converters. Only the model room uses this header. All functions are pure: any
 * thread may call them. */
#ifndef UM_MODEL_GGUF_MODEL_H
#define UM_MODEL_GGUF_MODEL_H

#include "model/gguf.h"
#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes the config.json of the file's model. um_arch_parse accepts it. The caller owns *out, which is NULL on an error.
 * Errors: UM_EUNSUPPORTED for an architecture that unmask does not run, and for metadata that contradict the family's
 * forward pass; UM_EMODEL for a missing key or tensor; UM_EPARSE for a number out of range. Messages name the file and
 * the key. */
um_status um_gguf_config(const um_gguf *g, struct json_t **out, um_err *err);

/* Appends the texts of a tokenizer.json and of a tokenizer_config.json for um_tok_parse. The second one also has the
 * chat template. NULL leaves out the first one. Errors: UM_EMODEL for a missing key; UM_EPARSE; UM_EUNSUPPORTED for a
 * vocabulary that is not byte-level BPE, or whose rule to cut text into words is unknown. */
um_status um_gguf_tokenizer(const um_gguf *g, um_buf *tokenizer_json, um_buf *config_json, um_err *err);

/* Returns the dimensions of a head of queries, 0 when the metadata don't tell. */
int64_t um_gguf_head_dim(const um_gguf *g);
/* Adds the tensors of the file `path` to a store, under the names of the family. The store owns the map. Errors: those
 * of um_gguf_open; UM_EMODEL. */
um_status um_gguf_store(um_store *s, const char *path, const um_family *f, um_err *err);

/* Room for the name of a tensor. */
#define UM_GGUF_NAME_SIZE 256
/* Writes the family's name for the tensor t. A tensor that the family does not know keeps its own name, so that the
 * loader reports it as unused. Returns false for tensors that may be ignored.
 *
 * permuted   receives whether the rows of this matrix or vector are in the order of interleaved rotary embeddings: in
 *            each head of d rows, row 2i + s of the file is row s * d/2 + i of the model, for i in [0, d/2) and s in
 *            {0, 1}. llama.cpp stores LLaDA's queries and keys so. */
bool um_gguf_tensor_name(char out[UM_GGUF_NAME_SIZE], const um_gguf *g, const um_family *f, const um_gguf_tensor *t,
                         bool *permuted);

#ifdef __cplusplus
}
#endif
#endif
