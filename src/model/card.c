/* Reads the model card of a checkpoint: the YAML front matter of its README.md. */
#include "model/model.h"

/* The card of a released model has a few kilobytes; those of benchmarks that follow are not read. */
#define CARD_BYTES_MAX ((size_t)1 << 20)
#define HEAD_BYTES_MAX ((size_t)16 << 10)

static const char fence[] = "---\n";

/* Returns the front matter: the lines between two lines of "---" at the start of the file. n 0: there is none. */
static um_str front_matter(const um_buf *text) {
    const size_t open = sizeof fence - 1;
    if (text->len < open || memcmp(text->data, fence, open) != 0) return (um_str){0};
    const char *begin = text->data + open, *end = strstr(begin, "\n---");
    if (!end || (size_t)(end - begin) > HEAD_BYTES_MAX) return (um_str){0};
    return (um_str){begin, (size_t)(end - begin) + 1};
}

void um_card_add_example(um_card *c, const char *text) {
    um_buf out = {0};
    const size_t n = strlen(text);
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        const int k = um_utf8_next(text + i, n - i, &cp);
        if (cp == '\n' || cp == '\t') um_buf_putc(&out, ' ');
        else if (k > 0 && !um_utf8_is_control(cp)) um_buf_append(&out, text + i, (size_t)k);
        i += (size_t)UM_MAX(k, 1);
    }
    const bool is_good = out.len && out.len <= UM_CARD_EXAMPLE_BYTES_MAX && out.data[strspn(out.data, " ")];
    if (is_good && c->n_examples < UM_CARD_EXAMPLES_MAX)
        c->example[c->n_examples++] = um_arena_strndup(&c->strings, out.data, out.len);
    um_buf_free(&out);
}

void um_card_read(um_card *c, const char *path) {
    const char *found[UM_CARD_EXAMPLES_MAX];
    char *file = um_path_join(path, "README.md");
    um_buf text = {0};
    *c = (um_card){0};
    if (um_dir_exists(path) && um_file_exists(file) && !um_file_read(file, CARD_BYTES_MAX, &text, NULL)) {
        const um_str head = front_matter(&text);
        const size_t n = um_yaml_texts(head.p, head.n, "examples", &c->strings, found, UM_CARD_EXAMPLES_MAX);
        for (size_t i = 0; i < n; i++) um_card_add_example(c, found[i]);
    }
    um_buf_free(&text);
    um_free(file);
}

void um_card_free(um_card *c) {
    um_arena_free(&c->strings);
    *c = (um_card){0};
}
