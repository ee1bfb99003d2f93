/* Compiles the JSON schemas on standard input, one on each line, for the vocabulary of a model without its weights:
 * compile_times MODEL. Prints for each "ok" or the status, the time in milliseconds up to the first allowed tokens, and
 * the message. */
#include <stdlib.h>

#include "model/languages.h"

static void time_schema(um_model *m, const char *schema) {
    const um_constraint c = {.kind = UM_CONSTRAINT_SCHEMA, .text = schema, .style = {.space_max = 0}, .depth = 8};
    um_shared_language *l = NULL;
    um_err err = {.code = UM_OK};
    const double start = um_now();
    const um_status s = um_model_get_language(m, &c, &l, &err);
    if (!s) {
        um_language_lock(l->language);
        um_language_moves(l->language, um_language_start(l->language));
        um_language_unlock(l->language);
    }
    const double ms = (um_now() - start) * 1e3;
    printf("%s %.3f %s\n", s ? um_status_name(s) : "ok", ms, s ? err.msg : "");
    um_model_release_language(m, l);
}

int main(int argc, char **argv) {
    um_config config;
    um_model *m;
    um_lines lines;
    um_str line;
    um_err err;
    um_config_init(&config);
    config.model = argc > 1 ? argv[1] : "models/tiny-block";
    if (um_model_open_text(&m, &config, &err)) {
        fprintf(stderr, "compile_times: %s\n", err.msg);
        return 1;
    }
    um_lines_from(&lines, 0, "standard input");
    time_schema(m, "{\"const\": 0}"); /* sorts the vocabulary */
    while (um_lines_next(&lines, true, &line, &err) == UM_LINES_LINE) {
        char *schema = um_strdup(line.p);
        schema[line.n] = 0;
        time_schema(m, schema);
        um_free(schema);
    }
    um_lines_close(&lines);
    um_model_close(m);
    return 0;
}
