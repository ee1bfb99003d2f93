/* packed_folder: the files of a packed folder besides its weights. Used inside the model room only. */
#ifndef UM_MODEL_PACKED_FOLDER_H
#define UM_MODEL_PACKED_FOLDER_H

#include "model/model.h"
#include "model/packed.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes the folder for a copy of m. *is_new: it was not there. Errors: UM_EINVAL when it is that of m, holds weights
 * that are not packed, or is not empty and `overwrite` is not set; UM_EIO. */
um_status um_packed_folder_make(const struct um_model *m, const char *dir, bool overwrite, bool *is_new, um_err *err);
/* Copies the files of tokenizer, configuration and licence from m, and writes README.md. Removes those of
 * another model first. `name` is how the user called the model. Errors: UM_EIO. */
um_status um_packed_folder_fill(const struct um_model *m, const char *name, const char *dir, um_dtype type,
                                const um_packed_report *report, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
