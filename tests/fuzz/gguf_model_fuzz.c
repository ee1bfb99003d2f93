/* Fuzzes the model and the tokenizer in GGUF files. An accepted config.json is one that um_arch_parse accepts, and an
 * accepted tokenizer is a JSON text. */
#include <jansson.h>
#include <stdlib.h>

#include "model/gguf_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void map_names(const um_gguf *g, const um_family *f) {
    for (size_t i = 0; i < um_gguf_count(g); i++) {
        char name[UM_GGUF_NAME_SIZE];
        bool permuted;
        um_gguf_tensor_name(name, g, f, um_gguf_at(g, i), &permuted);
        if (!*name) abort();
    }
}

static void read_config(const um_gguf *g) {
    json_t *config;
    um_arch a;
    if (um_gguf_config(g, &config, NULL)) return;
    if (um_arch_parse(&a, config, "fuzz", NULL, NULL)) abort();
    map_names(g, a.family);
    json_decref(config);
}

static void read_tokenizer(const um_gguf *g) {
    um_buf tokenizer = {0}, config = {0};
    um_tok *t;
    if (!um_gguf_tokenizer(g, &tokenizer, &config, NULL)) {
        json_t *json = json_loadb(tokenizer.data, tokenizer.len, 0, NULL);
        if (!json) abort();
        json_decref(json);
        if (!um_tok_parse(&t, (um_str){tokenizer.data, tokenizer.len}, (um_str){config.data, config.len},
                          (um_str){NULL, 0}, "fuzz", NULL))
            um_tok_close(t);
    }
    um_buf_free(&tokenizer);
    um_buf_free(&config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    um_gguf *g;
    um_log_set_level(UM_LOG_ERROR);
    if (um_gguf_parse(&g, data, n, "fuzz", NULL)) return 0;
    read_config(g);
    read_tokenizer(g);
    um_gguf_close(g);
    return 0;
}
