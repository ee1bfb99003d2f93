/* panels: the layout of matrices in the cpu backend (cpu/kernels.h), which is also the layout of packed folders. A
 * matrix [rows, in] is a list of panels of 32 rows. All instruction sets read the same panels. */
#ifndef UM_OPS_PANELS_H
#define UM_OPS_PANELS_H

#include "ops/format.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { UM_PANEL_ROWS = 32 };

/* The type of a panel's elements is UM_F32, UM_BF16, UM_Q8 or UM_Q4. */

/* Returns the format of tensors that are stored as panels of this type. */
const um_format *um_panels_format(um_dtype type);
/* Stores the type of the panels of t. Returns false when t is not stored as panels. */
bool um_panels_type(const um_tensor *t, um_dtype *type);
/* Returns the bytes of one panel of a matrix with rows of this length. */
size_t um_panel_bytes(um_dtype type, int64_t in);
/* Returns the bytes of a matrix. The last panel is padded. */
size_t um_panels_bytes(um_dtype type, int64_t rows, int64_t in);
/* Returns the type of the panels for products of `type`: that type, but for UM_F32 bf16 when the rows of all parts are
 * stored in it. */
um_dtype um_panels_choose(um_dtype type, const um_tensor *part, int n_parts);

/* A matrix of the rows of `part` [n_parts], each [rows_i, in], that is packed. */
typedef struct um_packing {
    const um_tensor *part;
    int n_parts;
    um_dtype type;
    int64_t rows, in;
} um_packing;
/* Describes the parts; type is um_panels_choose of the products' type. */
um_packing um_packing_of(const um_tensor *part, int n_parts, um_dtype type);
/* Returns the number of panels. */
int um_packing_panels(const um_packing *p);
/* Writes panel i, which is um_panel_bytes long and aligned to 64. Rows and elements that are not there are zeros.
 * Threads: any number at once. */
void um_packing_write(const um_packing *p, int i, void *to);
/* Returns the panels of p in the memory of its parts. Returns NULL unless the parts are adjacent, have this layout, and
 * stay where they are while the device is open. */
const void *um_packing_in_place(const um_packing *p);

/* Returns whether the scales of n panels of a quantized type are finite; true for other types. */
bool um_panels_are_finite(um_dtype type, const void *panels, int n, int64_t in);
/* Reads the elements [k, k + n) of row r of a panel; of quantized types k is a multiple of 32. */
void um_panel_read(um_dtype type, const void *panel, int r, int64_t k, int64_t n, float *out);

#ifdef __cplusplus
}
#endif
#endif
