/* Fuzzes chat templates. Compiling and rendering must succeed or give an error message. A rendered text must be valid
 * UTF-8. The bytes after the first NUL byte of the input are the variables, a JSON object. Without a NUL byte the
 * variables below are used. */
#include <stdlib.h>

#include "text/template.h"

static const char variables[] =
    "{\"x\": 3, \"s\": \"Hello\", \"e\": \"\", \"z\": 0, \"n\": null, \"t\": true, \"f\": false, \"l\": [1, 2, 3],"
    " \"d\": {\"a\": 1, \"b\": {\"c\": \"deep\"}, \"items\": [9]}, \"u\": \"\\u00e9\\u4e2d\\ud83d\\ude00\", \"fl\": "
    "1.5,"
    " \"msgs\": [{\"role\": \"user\", \"content\": \"hi\"}], \"ws\": \"  pad \\n\", \"nested\": [[1, 2], [3]], "
    "\"neg\": -7,"
    " \"words\": \"a,b,,c\", \"mixed\": [3, \"b\", null, true, 1.0], \"messages\": [{\"role\": \"user\", \"content\":"
    " \"Hello\"}, {\"role\": \"assistant\", \"content\": \"<think>a</think>b\"}], \"tools\": null, \"bos_token\": "
    "\"<s>\"}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static json_t *read_variables(um_str text) {
    json_t *vars;
    if (um_json_parse_exact(&vars, text.p, text.n, "x", NULL)) return NULL;
    if (json_is_object(vars)) return vars;
    json_decref(vars);
    return NULL;
}

static void render(const um_template *t, const json_t *vars) {
    um_err err = {.code = UM_OK};
    um_buf out = {0};
    if (um_template_render_at(t, vars, 1753535109, &out, &err) == UM_OK) {
        if (out.len && um_utf8_check(out.data, out.len) < out.len) abort();
    } else if (!err.msg[0] || out.len) abort();
    um_buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    um_template *t;
    um_err err = {.code = UM_OK};
    const uint8_t *end = size ? (const uint8_t *)memchr(data, 0, size) : NULL;
    um_str source = {(const char *)data, end ? (size_t)(end - data) : size};
    um_str context = end ? (um_str){(const char *)end + 1, size - source.n - 1} : UM_STR(variables);
    if (um_template_new(&t, source, &err)) {
        if (!err.msg[0]) abort();
        return 0;
    }
    (void)um_template_reads_parts(t);
    json_t *vars = read_variables(context);
    if (vars) render(t, vars);
    json_decref(vars);
    um_template_free(t);
    return 0;
}
