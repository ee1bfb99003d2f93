/* Arena: a list of chunks, the newest first. Allocations come from the newest chunk only. */
#include "base/base.h"

#define ALIGN     16u
#define CHUNK_MIN ((size_t)4 << 10)
#define CHUNK_MAX ((size_t)1 << 20)

typedef struct um_arena_chunk {
    struct um_arena_chunk *prev;
    size_t size;
} chunk;

_Static_assert(sizeof(chunk) % ALIGN == 0, "the bytes after the header must be aligned");

/* `used` counts bytes of the newest chunk, `total` bytes of all chunks. */
void um_arena_init(um_arena *a, size_t limit) { *a = (um_arena){.limit = limit}; }

/* Each chunk is twice as large as the one before, so small arenas stay small and large ones need few chunks. */
static void push_chunk(um_arena *a, size_t n) {
    size_t size = a->chunk ? UM_MIN(a->chunk->size * 2, CHUNK_MAX) : CHUNK_MIN;
    size = UM_MAX(size, n);
    chunk *c = (chunk *)um_alloc(sizeof(chunk) + size);
    *c = (chunk){.prev = a->chunk, .size = size};
    a->chunk = c;
    a->used = 0;
}

void *um_arena_alloc(um_arena *a, size_t n) {
    if (n > SIZE_MAX / 2) return NULL;
    n = (n + ALIGN - 1) / ALIGN * ALIGN;
    if (a->limit && (n > a->limit || a->total > a->limit - n)) return NULL;
    if (!a->chunk || a->chunk->size - a->used < n) push_chunk(a, n);
    char *p = (char *)(a->chunk + 1) + a->used;
    a->used += n;
    a->total += n;
    return memset(p, 0, n);
}

char *um_arena_strndup(um_arena *a, const char *s, size_t n) {
    char *p = (char *)um_arena_alloc(a, n + 1);
    if (p && n) memcpy(p, s, n);
    return p;
}

void um_arena_reset(um_arena *a) {
    chunk *keep = a->chunk;
    for (chunk *c = a->chunk; c; c = c->prev)
        if (c->size > keep->size) keep = c;
    for (chunk *c = a->chunk, *prev; c; c = prev) {
        prev = c->prev;
        if (c != keep) um_free(c);
    }
    if (keep) keep->prev = NULL;
    *a = (um_arena){.chunk = keep, .limit = a->limit};
}

void um_arena_free(um_arena *a) {
    um_arena_reset(a);
    um_free(a->chunk);
    *a = (um_arena){.limit = a->limit};
}
