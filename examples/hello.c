/* hello: opens a model, asks one question and prints the answer.
 *
 *   cc hello.c $(pkg-config --cflags --libs unmask) -o hello && ./hello models/tiny-block "What is 12 + 30?" */
#include <stdio.h>
#include <unmask.h>

int main(int argc, char **argv) {
    um_model *model = NULL;
    um_engine *engine = NULL;
    um_config config;
    um_request request;
    um_err err;
    char *answer = NULL;

    um_config_init(&config);
    config.model = argc > 1 ? argv[1] : "models/tiny-block";
    if (um_model_open(&model, &config, &err) || um_engine_new(&engine, model, &config, &err)) goto failed;

    um_message question = {"user", argc > 2 ? argv[2] : "What is 12 + 30?"};
    um_request_init(engine, &request);
    request.messages = &question;
    request.n_messages = 1;
    if (um_generate(engine, &request, &answer, &err)) goto failed;

    puts(answer);
    um_free(answer);
    um_engine_free(engine);
    um_model_close(model);
    return 0;

failed:
    fprintf(stderr, "hello: %s\n", err.msg);
    um_engine_free(engine);
    um_model_close(model);
    return 1;
}
