/* Shows the progress of loading a model, which takes minutes for a large model on a slow disk. */
#include "cli/cli.h"

/* Models that load faster than this show nothing. */
#define DELAY_SECONDS 1.0
/* From one line to the next where stderr is not a terminal. */
#define LINE_SECONDS 5.0

static bool on_load(void *arg, const um_load_progress *p) {
    um_loading *l = (um_loading *)arg;
    if (!l->bar) l->bar = um_progress_new_bytes("loading weights", (int64_t)p->bytes_all, DELAY_SECONDS, LINE_SECONDS);
    um_progress_set(l->bar, (int64_t)p->bytes, NULL);
    return true;
}

void um_loading_begin(um_loading *l, um_config *c, bool quiet) {
    *l = (um_loading){0};
    um_cli_catch_signals();
    l->ended_before = um_cli_end_at_signal(true);
    if (quiet) return;
    c->on_load = on_load;
    c->on_load_arg = l;
}

void um_loading_end(um_loading *l) {
    um_cli_end_at_signal(l->ended_before);
    um_progress_hide(l->bar);
    um_progress_free(l->bar);
    l->bar = NULL;
}
