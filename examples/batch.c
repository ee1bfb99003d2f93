/* batch: asks several questions at once. Each request has its own parameters. The requests share the steps of the
 * engine, and the callback prints each answer when it is finished.
 *
 *   cc batch.c $(pkg-config --cflags --libs unmask) -o batch && ./batch models/tiny-block */
#include <stdio.h>
#include <unmask.h>

typedef struct question {
    const char *text;
    const char *blocks; /* the largest number of blocks in flight */
} question;

static void on_event(void *arg, const um_event *ev) {
    const question *q = (const question *)arg;
    if (ev->type != UM_EVENT_FINISH) return;
    const um_result *r = ev->result;
    printf("%s\n  %s\n  (%zu tokens, %d passes with %s block(s) in flight, %s)\n", q->text, r->text, r->n_tokens,
           r->nfe, q->blocks, um_finish_name(r->finish));
}

int main(int argc, char **argv) {
    static question questions[] = {
        {"Sort these numbers: 42, 7, 19, 3", "1"},
        {"Reverse the word stream", "2"},
        {"Tell a short story about a fox and a lamp", "4"},
    };
    um_model *model = NULL;
    um_engine *engine = NULL;
    um_config config;
    um_err err;
    int status = 1;

    um_config_init(&config);
    config.model = argc > 1 ? argv[1] : "models/tiny-block";
    if (um_model_open(&model, &config, &err) || um_engine_new(&engine, model, &config, &err)) goto done;

    for (size_t i = 0; i < sizeof(questions) / sizeof(questions[0]); i++) {
        um_message message = {"user", questions[i].text};
        um_request request;
        um_request_init(engine, &request);
        request.messages = &message;
        request.n_messages = 1;
        request.on_event = on_event;
        request.arg = &questions[i];
        if (um_request_set(&request, "buffer_size", questions[i].blocks, &err)) goto done;
        if (um_engine_add(engine, &request, NULL, &err)) goto done; /* copies the request */
    }
    while (um_engine_pending(engine) > 0)
        if (um_engine_step(engine, &err)) goto done;
    status = 0;

done:
    if (status) fprintf(stderr, "batch: %s\n", err.msg);
    um_engine_free(engine);
    um_model_close(model);
    return status;
}
