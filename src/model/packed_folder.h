/* packed_folder: the files of a packed folder besides its weights. Used inside the model room only. */
#ifndef UM_MODEL_PACKED_FOLDER_H
#define UM_MODEL_PACKED_FOLDER_H

#include "model/model.h"
#include "model/packed.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes the folder. Errors: UM_EINVAL when it is not empty and `overwrite` is not set, UM_EIO. */
um_status um_packed_folder_make(const char *dir, bool overwrite, um_err *err);
/* Checks that `dir` is not the folder of m itself. Errors: UM_EINVAL. */
um_status um_packed_folder_check(const struct um_model *m, const char *dir, um_err *err);
/* Copies the files of tokenizer, configuration and licence from the folder of m, and writes README.md. `name` is how
 * the user called the model. Errors: UM_EIO. */
um_status um_packed_folder_fill(const struct um_model *m, const char *name, const char *dir, um_dtype type,
                                const um_packed_report *report, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
