/* denoise: prints the answer after every forward pass, with masks as underscores. The callback aborts the request after
 * PASSES_MAX passes. Parameters of the request follow the prompt on the command line as pairs of name and value.
 *
 *   cc denoise.c $(pkg-config --cflags --libs unmask) -o denoise
 *   ./denoise models/tiny-full "Count from 3 to 30 in steps of 3" max_tokens 32 steps 12 */
#include <stdio.h>
#include <unmask.h>

enum { PASSES_MAX = 40 };

/* What the callback needs. */
typedef struct context {
    const um_model *model;
    um_engine *engine;
} context;

static void print_token(const um_model *m, int32_t id) {
    char *text = NULL;
    size_t n = 0;
    if (um_model_decode(m, &id, 1, false, &text, &n, NULL)) return;
    for (size_t i = 0; i < n; i++) putchar(text[i] == '\n' ? ' ' : text[i]); /* keep each pass on one line */
    um_free(text);
}

static void on_event(void *arg, const um_event *ev) {
    context *c = (context *)arg;
    if (ev->type == UM_EVENT_FINISH) printf("=> %s\n", um_finish_name(ev->result->finish));
    if (ev->type != UM_EVENT_SNAPSHOT) return;
    printf("%3d ", ev->snapshot->nfe);
    for (size_t i = 0; i < ev->snapshot->n; i++) {
        if (ev->snapshot->state[i] == UM_TOKEN_MASK) putchar('_');
        else print_token(c->model, ev->snapshot->id[i]);
    }
    putchar('\n');
    if (ev->snapshot->nfe == PASSES_MAX) (void)um_engine_abort(c->engine, ev->id, NULL);
}

int main(int argc, char **argv) {
    um_model *model = NULL;
    um_engine *engine = NULL;
    um_config config;
    um_request request;
    um_err err;
    int status = 1;

    um_config_init(&config);
    config.model = argc > 1 ? argv[1] : "models/tiny-block";
    if (um_model_open(&model, &config, &err) || um_engine_new(&engine, model, &config, &err)) goto done;

    context c = {model, engine};
    um_message message = {"user", argc > 2 ? argv[2] : "Count from 3 to 30 in steps of 3"};
    um_request_init(engine, &request);
    request.messages = &message;
    request.n_messages = 1;
    request.events = UM_EVENT_SNAPSHOT;
    request.on_event = on_event;
    request.arg = &c;
    for (int i = 3; i + 1 < argc; i += 2)
        if (um_request_set(&request, argv[i], argv[i + 1], &err)) goto done;
    if (um_engine_add(engine, &request, NULL, &err)) goto done;
    while (um_engine_pending(engine) > 0)
        if (um_engine_step(engine, &err)) goto done;
    status = 0;

done:
    if (status) fprintf(stderr, "denoise: %s\n", err.msg);
    um_engine_free(engine);
    um_model_close(model);
    return status;
}
