/* The messages of a conversation. */
#include "cli/chat.h"

void um_history_push(um_history *h, const char *role, const char *text) {
    if (h->n == h->cap) {
        h->cap = UM_MAX(2 * h->cap, (size_t)16);
        h->message = (um_message *)um_realloc(h->message, um_mul(h->cap, sizeof(um_message)));
    }
    h->message[h->n++] = (um_message){role, um_strdup(text)};
}

/* Removes n messages from index `at` on. */
static void drop(um_history *h, size_t at, size_t n) {
    if (n == 0) return;
    for (size_t i = at; i < at + n; i++) um_free((void *)h->message[i].content);
    memmove(h->message + at, h->message + at + n, (h->n - at - n) * sizeof(um_message));
    h->n -= n;
}

void um_history_pop(um_history *h) { drop(h, h->n - 1, 1); }

void um_history_reset(um_history *h) { drop(h, h->n_system, h->n - h->n_system); }

bool um_history_can_shrink(const um_history *h) { return h->n >= h->n_system + 3; }

void um_history_shrink(um_history *h) { drop(h, h->n_system, 2); }

void um_history_free(um_history *h) {
    drop(h, 0, h->n);
    um_free(h->message);
    *h = (um_history){0};
}
