/* The wire table: the fields of every message, in the order of the frame. Writing, reading, docs/wire.md and the tests
 * all use it. It is constant. */
#ifndef UM_WIRE_TABLE_H
#define UM_WIRE_TABLE_H

#include "server/link/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Kind, type name in docs/wire.md, size of an element in bytes. An element is aligned to its size. Texts and pairs have
 * size 0. */
#define UM_WIRE_KIND_MAP(X)                                                                                            \
    X(UM_WIRE_BOOL, "bool", 1)                                                                                         \
    X(UM_WIRE_I32, "i32", 4)                                                                                           \
    X(UM_WIRE_U32, "u32", 4)                                                                                           \
    X(UM_WIRE_I64, "i64", 8)                                                                                           \
    X(UM_WIRE_U64, "u64", 8)                                                                                           \
    X(UM_WIRE_F64, "f64", 8)                                                                                           \
    X(UM_WIRE_TEXT, "text", 0)                                                                                         \
    X(UM_WIRE_U8S, "u8", 1)                                                                                            \
    X(UM_WIRE_I32S, "i32", 4)                                                                                          \
    X(UM_WIRE_F32S, "f32", 4)                                                                                          \
    X(UM_WIRE_I64S, "i64", 8)                                                                                          \
    X(UM_WIRE_TEXTS, "text", 0)                                                                                        \
    X(UM_WIRE_PAIRS, "pair", 0)

typedef enum um_wire_kind {
#define UM_X(kind, type, bytes) kind,
    UM_WIRE_KIND_MAP(UM_X)
#undef UM_X
} um_wire_kind;

typedef struct um_wire_field {
    const char *name;
    um_wire_kind kind;
    uint16_t offset;   /* offset of the field in the message's struct */
    const char *count; /* array: name of its length field, a u32 that stands before it in the frame; else NULL */
    uint16_t count_offset;
} um_wire_field;

typedef struct um_wire_layout {
    um_msg_type type;
    const char *name, *summary;
    const um_wire_field *fields;
    size_t n_fields;
    /* Checks ranges and relations of fields that their kinds do not express; NULL: none. */
    um_status (*check)(const um_msg *m, um_err *err);
} um_wire_layout;

extern const um_wire_layout um_wire_layouts[];
extern const size_t um_n_wire_layouts;
const um_wire_layout *um_wire_layout_find(um_msg_type type); /* or NULL */

#define UM_WIRE_HEAD  16
#define UM_WIRE_MAGIC "UMSK"

/* Returns the size of a number of this kind, or of an array's element, in bytes; 0: texts and pairs. */
size_t um_wire_bytes(um_wire_kind kind);

#ifdef __cplusplus
}
#endif
#endif
