/* quantized: safetensors whose matrices are stored in 8 or 4 bits. Such a matrix is spread over several tensors:
 * integers or small floats, scales, zeros. Joining replaces them by one tensor in a format (format.h), so that the rest
 * of the program reads it like any other. Used inside the model room only.
 *
 * "quantization_config" of config.json names the method. A method is a function that reads this object
 * (quantized_config.c, quantized_compressed.c). It chooses a layout, a row that joins the tensors of a matrix:
 *
 *   fp8         quantized_fp8.c         8-bit floats with a scale for the matrix, for each row or for each block
 *   gptq        quantized_gptq.c        integers packed along the columns of [in, out]
 *   awq         quantized_awq.c         integers packed along the rows of [in, out]
 *   compressed  quantized_compressed.c  integers packed along the rows of [out, in]
 *
 * The integers of the last three have a scale and a zero for each group of a row (quantized_groups.c). */
#ifndef UM_MODEL_QUANTIZED_H
#define UM_MODEL_QUANTIZED_H

#include "model/store.h"

#ifdef __cplusplus
extern "C" {
#endif

struct json_t;
typedef struct um_quantized_layout um_quantized_layout;

/* How a checkpoint is quantised. */
typedef struct um_quantized {
    const um_quantized_layout *layout; /* NULL: not at all */
    int32_t bits;                      /* of an integer: 4 or 8 */
    int32_t group;                     /* columns that share a scale; 0: all columns of a row */
    int32_t block_rows, block_cols;    /* rows and columns that share a scale of 8-bit floats; 0: no blocks */
    int32_t added;                     /* gptq: what must be added to a stored zero */
    bool is_reordered;                 /* gptq: columns are assigned to groups by a list */
} um_quantized;

/* Reads how the checkpoint of this config.json is quantised. Errors: UM_EPARSE; UM_EUNSUPPORTED for a method that
 * unmask can't read, with the methods that it can read. */
um_status um_quantized_read(um_quantized *q, const struct json_t *config, const char *where, um_err *err);
/* Joins the tensors of the quantised matrices of s, as dir/config.json describes them. Without this file, or without
 * "quantization_config" in it, nothing happens. Errors: those of um_quantized_read; UM_EMODEL for tensors that are
 * missing or contradict each other, with the name and the file of the tensor. */
um_status um_store_join_quantized(um_store *s, const char *dir, um_err *err);
/* Does the same with a parsed config.json. */
um_status um_quantized_join(um_store *s, const struct json_t *config, const char *where, um_err *err);

/* ---- For the methods --------------------------------------------------------------------------------------------- */

/* Reads the fields of "quantization_config". */
typedef um_status (*um_quantized_method)(um_quantized *q, const struct json_t *fields, const char *where, um_err *err);
um_status um_quantized_compressed(um_quantized *q, const struct json_t *fields, const char *where, um_err *err);
/* Fails because unmask can't read `what`, such as "bitsandbytes". */
um_status um_quantized_refuse(const char *where, const char *what, um_err *err);
/* Reads the number of bits, which must be 4 or, if `eight` is set, 8. `method` names the method in a message. */
um_status um_quantized_bits(um_quantized *q, const struct json_t *fields, const char *key, bool eight,
                            const char *method, const char *where, um_err *err);
/* Reads "group_size"; -1 and null stand for all columns. */
um_status um_quantized_group(um_quantized *q, const struct json_t *fields, const char *where, um_err *err);
/* Reads the numbers of rows and columns of a block, [128, 128] or "128x128". */
um_status um_quantized_block(um_quantized *q, const struct json_t *fields, const char *key, const char *where,
                             um_err *err);

/* ---- For the layouts --------------------------------------------------------------------------------------------- */

/* A matrix that is being joined. */
typedef struct um_joining {
    um_store *s;
    const um_quantized *q;
    const um_tensor *main; /* the tensor that holds the integers or floats */
    um_str module;         /* the name of main without its ending */
} um_joining;

struct um_quantized_layout {
    const char *ending; /* of the names of the main tensors, ".qweight"; NULL: `type` alone identifies them */
    const char *type;   /* their type as the file spells it */
    /* Describes the matrix: dims, data, format, extra. */
    um_status (*join)(const um_joining *j, um_tensor *out, um_err *err);
};
extern const um_quantized_layout um_quantized_fp8, um_quantized_gptq, um_quantized_awq, um_quantized_packed;

/* Returns the tensor whose name is that of the module and this ending, or NULL. It will be dropped from the store. */
const um_tensor *um_joining_find(const um_joining *j, const char *ending);
/* Does the same for a tensor that must be there. */
um_status um_joining_need(const um_joining *j, const char *ending, const um_tensor **out, um_err *err);
/* Fails unless the tensor has this type in the file and the shape [rows, cols]; cols 0: [rows]. The type NULL stands
 * for plain numbers: F32, F16 and BF16. */
um_status um_joining_check(const um_joining *j, const um_tensor *t, const char *type, int64_t rows, int64_t cols,
                           um_err *err);
/* Fails unless the main tensor is a matrix that is not empty. */
um_status um_joining_check_main(const um_joining *j, um_err *err);

/* Returns number i of `data`, plain numbers of this type at any address. */
float um_quantized_number(um_dtype type, const void *data, size_t i);
/* Stores v in to [n]. */
void um_quantized_fill(float *to, int64_t n, float v);

/* ---- Integers in groups (quantized_groups.c) --------------------------------------------------------------------- */

/* How the integers of a matrix [out, in], and the zeros and scales of their groups, lie in memory. An element is
 * (integer - zero) * scale. Words have 32 bits. Integers and zeros fill a word from its lowest bits on, but `order` can
 * permute those of consecutive rows. Distances are counted in words and in scales. */
typedef struct um_groups {
    int32_t bits;                   /* 4 or 8 */
    bool along_rows;                /* a word holds integers of consecutive rows, else of consecutive columns */
    const uint8_t *order;           /* [8] place in its word of the integer or zero of row % 8; NULL: in order */
    int64_t word_row, word_col;     /* from the word of a row to that of the next row, or, when a word holds rows,
                                       to the word of the next 32 / bits rows; the same for columns */
    const void *zeros;              /* NULL: all zeros are `zero` */
    int64_t zero_row, zero_group;   /* from the zeros of the rows of a word to the next; from a group to the next */
    int32_t zero;                   /* added to each stored zero */
    const void *scales;             /* plain numbers of scale_type */
    int64_t scale_row, scale_group; /* from a row to the next; from a group to the next */
    um_dtype scale_type;
    int64_t n_groups, group; /* number of groups of a row, and their length */
    const void *group_of;    /* int32 [in], the group of each column; NULL: k / group */
} um_groups;

/* Reads elements of a tensor whose `extra` is a um_groups, as um_tensor_read does; k and n are any numbers. */
void um_groups_read(const um_tensor *t, int64_t row, int64_t k, int64_t n, float *out);
/* Returns the number of groups of a row with `in` columns. */
int64_t um_groups_count(const um_quantized *q, int64_t in);
/* Fails unless t lists a group below n_groups for each of the `in` columns. Sets g->group_of unless the groups are
 * simply consecutive. */
um_status um_groups_set_list(um_groups *g, const um_joining *j, const um_tensor *t, int64_t in, um_err *err);
/* Stores the matrix [out, in]: `data` are the words. Copies g to the arena of the store. */
void um_groups_put(um_tensor *to, const um_joining *j, const um_format *format, const um_groups *g, int64_t out,
                   int64_t in);

#ifdef __cplusplus
}
#endif
#endif
