/* Fuzzes key files. The error message of a refused file begins with its name. The entries of an accepted file have
 * names and hashes, all different. */
#include <stdlib.h>

#include "server/keys/keys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool claim) {
    if (!claim) abort();
}

static void check(const um_key_entries *e) {
    require(e->n >= 1 && e->n <= UM_KEYS_MAX);
    for (size_t i = 0; i < e->n; i++) {
        const um_key *k = &e->entry[i];
        require(*k->name && k->n_hashes >= 1 && k->n_hashes <= UM_KEY_SECRETS_MAX);
        require(!k->limits.models && k->limits.requests_per_minute >= 0 && k->limits.tokens_per_minute >= 0);
        for (size_t j = 0; j < i; j++) require(!um_streq(k->name, e->entry[j].name));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    um_key_entries e;
    um_err err = {0};
    char *text = um_alloc(size + 1);
    if (size) memcpy(text, data, size);
    text[size] = '\0';
    if (um_key_file_parse(&e, text, size, "file", &err)) require(strncmp(err.msg, "file:", 5) == 0 && !e.entry);
    else check(&e);
    um_key_entries_free(&e);
    um_free(text);
    return 0;
}
