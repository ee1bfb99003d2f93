/* Fuzzes the wire format: reads the input as a frame, at its address and one byte after an aligned one. A valid frame
 * must be written as the same bytes again. An invalid one must give an error with a message. */
#include <stdlib.h>

#include "server/link/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool claim) {
    if (!claim) abort();
}

static void read_at(um_str frame) {
    um_arena arena;
    um_msg m;
    um_err err = {0};
    um_buf again = {0};
    um_arena_init(&arena, 0);
    if (um_wire_read(&m, &arena, frame, &err)) {
        require(err.code < 0 && err.msg[0]);
    } else {
        um_wire_write(&again, &m);
        require(again.len == frame.n && memcmp(again.data, frame.p, frame.n) == 0);
    }
    um_buf_free(&again);
    um_arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *moved = (char *)um_alloc(size + 1);
    memcpy(moved + 1, data, size);
    read_at((um_str){(const char *)data, size});
    read_at((um_str){moved + 1, size});
    um_free(moved);
    return 0;
}
