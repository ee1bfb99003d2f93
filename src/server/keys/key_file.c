/* The key file. A line has a name, the SHA-256 hashes of one or more keys in hexadecimal, and settings:
 *
 *   alice  2bb80d53…  requests_per_minute=60 models=tiny,tiny-lora
 *   ops    9f86d081…,60303ae2…  admin
 */
#include <sodium.h>
#include <stdlib.h>

#include "server/keys/keys.h"

#define L(field) UM_FIELD(um_key_limits, field)

static const char group[] = "Key";
const um_option um_key_options[] = {
    {"admin", NULL, UM_OPT_BOOL, L(admin), 0, 0, NULL, "false", NULL, NULL, group,
     "may flush the cache, profile, call worker functions and read counters, abort all requests, set any priority, and "
     "see and delete what other keys made"},
    {"requests_per_minute", NULL, UM_OPT_INT, L(requests_per_minute), 0, 1e9, NULL, "0", NULL, "N", group,
     "largest number of POST requests in a minute; 0 means no limit"},
    {"tokens_per_minute", NULL, UM_OPT_INT64, L(tokens_per_minute), 0, 1e12, NULL, "0", NULL, "N", group,
     "largest number of tokens of prompts and answers in a minute; 0 means no limit"},
    {"max_concurrent", NULL, UM_OPT_INT, L(max_concurrent), 0, 1e6, NULL, "0", NULL, "N", group,
     "largest number of generations that wait or run; 0 means no limit"},
    {"max_answer_tokens", NULL, UM_OPT_INT64, L(max_answer_tokens), 0, 1e9, NULL, "0", NULL, "N", group,
     "largest n x max_tokens of a request, summed over its prompts; 0 means no limit"},
    {"min_priority", NULL, UM_OPT_INT, L(min_priority), INT32_MIN, INT32_MAX, NULL, "0", NULL, "N", group,
     "smallest priority number, which is the most urgent one, that a request may set"},
    {"models", NULL, UM_OPT_STR, L(models), 0, 0, NULL, NULL, NULL, "NAME,...", group,
     "names of the model and of adapters that requests may use; without it, all"},
};
_Static_assert(UM_LEN(um_key_options) == UM_KEY_OPTIONS, "keys.h counts the rows");

void um_key_hash_of(const char *secret, size_t n, uint8_t out[UM_KEY_HASH_BYTES]) {
    _Static_assert(UM_KEY_HASH_BYTES == crypto_hash_sha256_BYTES, "the hash is SHA-256");
    crypto_hash_sha256(out, (const unsigned char *)secret, n);
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

/* Cuts the next word off the line, in place. Returns NULL at the end of the line. */
static char *next_word(char **line) {
    static const char blanks[] = " \t\r";
    char *word = *line + strspn(*line, blanks);
    if (!*word || *word == '#') return NULL;
    char *end = word + strcspn(word, blanks);
    *line = *end ? end + 1 : end;
    *end = '\0';
    return word;
}

static um_status take_name(um_key *k, const char *name, um_err *err) {
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.@";
    size_t n = strlen(name);
    if (n >= sizeof k->name || strspn(name, allowed) != n)
        return um_fail(err, UM_EPARSE,
                       "expected a name of up to %zu letters, digits, \"-\", \"_\", \".\" and \"@\", "
                       "found \"%.80s\"",
                       sizeof k->name - 1, name);
    if (strncmp(name, "api-key-", 8) == 0)
        return um_fail(err, UM_EPARSE, "the name %s belongs to a key of --api-key; choose another one", name);
    snprintf(k->name, sizeof k->name, "%s", name);
    return UM_OK;
}

/* The message does not repeat the text: it may be a key that somebody forgot to hash. */
static um_status take_hash(um_key *k, const char *hex, um_err *err) {
    size_t n = strlen(hex), got = 0;
    if (k->n_hashes == UM_KEY_SECRETS_MAX)
        return um_fail(err, UM_EPARSE, "%s has more than %d hashes", k->name, UM_KEY_SECRETS_MAX);
    uint8_t *out = k->hash[k->n_hashes];
    int failed = sodium_hex2bin(out, UM_KEY_HASH_BYTES, hex, n, NULL, &got, NULL);
    if (failed || got != UM_KEY_HASH_BYTES || n != 2 * UM_KEY_HASH_BYTES)
        return um_fail(err, UM_EPARSE,
                       "%s: expected the SHA-256 hash of its key, %d hexadecimal digits (printf %%s "
                       "KEY | sha256sum), found a word of %zu bytes",
                       k->name, 2 * UM_KEY_HASH_BYTES, n);
    k->n_hashes++;
    return UM_OK;
}

static um_status take_hashes(um_key *k, const char *text, um_err *err) {
    um_name_list list;
    um_name_list_parse(&list, text);
    um_status st = UM_OK;
    if (!list.n) st = um_fail(err, UM_EPARSE, "%s: the hash of its key is missing", k->name);
    for (size_t i = 0; i < list.n && !st; i++) st = take_hash(k, list.word[i], err);
    um_name_list_free(&list);
    return st;
}

/* Takes "setting=value". "admin" alone means "admin=true". */
static um_status take_setting(um_key *k, char *word, um_err *err) {
    const um_option_set set = {um_key_options, UM_KEY_OPTIONS, &k->limits};
    char *value = strchr(word, '=');
    if (value) *value++ = '\0';
    if (!value && !um_streq(word, "admin"))
        return um_fail(err, UM_EPARSE, "%s: expected %.40s=VALUE, found no value", k->name, word);
    um_status st = um_options_set(&set, 1, word, value ? value : "true", err);
    return st ? um_fail_in(err, "%s", k->name) : UM_OK;
}

static um_status read_line(um_key *k, char *line, um_err *err) {
    char *word;
    um_options_init(um_key_options, UM_KEY_OPTIONS, &k->limits);
    k->is_from_file = true;
    um_status st = take_name(k, next_word(&line), err);
    if (!st) st = take_hashes(k, next_word(&line), err);
    while (!st && (word = next_word(&line))) st = take_setting(k, word, err);
    if (!st && k->limits.models) um_name_list_parse(&k->models, k->limits.models);
    if (!st && k->limits.models && !k->models.n)
        st = um_fail(err, UM_EPARSE, "%s: models: expected names, found none; leave it out to allow all", k->name);
    k->limits.models = NULL; /* it points into the line */
    return st;
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

static bool have_same_hash(const um_key *a, const um_key *b) {
    for (int32_t i = 0; i < a->n_hashes; i++)
        for (int32_t j = 0; j < b->n_hashes; j++)
            if (memcmp(a->hash[i], b->hash[j], UM_KEY_HASH_BYTES) == 0) return true;
    return false;
}

/* Compares the newest entry with the ones before it. */
static um_status check_unique(const um_key_entries *e, um_err *err) {
    const um_key *k = &e->entry[e->n - 1];
    for (const um_key *other = e->entry; other < k; other++) {
        if (um_streq(other->name, k->name))
            return um_fail(err, UM_EPARSE, "duplicate name %s; one line can have several hashes, \"HASH,HASH\"",
                           k->name);
        if (have_same_hash(other, k))
            return um_fail(err, UM_EPARSE, "%s and %s have the same key", other->name, k->name);
    }
    return UM_OK;
}

static um_status add_line(um_key_entries *e, char *line, um_err *err) {
    const char *start = line + strspn(line, " \t\r");
    if (!*start || *start == '#') return UM_OK;
    if (e->n == UM_KEYS_MAX) return um_fail(err, UM_ELIMIT, "a file has at most %d keys", UM_KEYS_MAX);
    um_status st = read_line(&e->entry[e->n++], line, err);
    return st ? st : check_unique(e, err);
}

static um_status read_lines(um_key_entries *e, char *text, size_t n, const char *path, um_err *err) {
    int number = 0;
    if (memchr(text, '\0', n)) return um_fail(err, UM_EPARSE, "%s: expected a text file, found a NUL byte", path);
    for (char *line = text; line;) {
        char *end = strchr(line, '\n');
        if (end) *end++ = '\0';
        number++;
        if (add_line(e, line, err)) return um_fail_in(err, "%s:%d", path, number);
        line = end;
    }
    if (e->n) return UM_OK;
    return um_fail(err, UM_EPARSE, "%s: expected a line \"NAME SHA256 SETTING=VALUE…\", found no key", path);
}

um_status um_key_file_parse(um_key_entries *out, char *text, size_t n, const char *path, um_err *err) {
    *out = (um_key_entries){.entry = UM_NEW_ARRAY(um_key, UM_KEYS_MAX)};
    um_status st = read_lines(out, text, n, path, err);
    if (st) um_key_entries_free(out);
    return st;
}

um_status um_key_file_read(um_key_entries *out, const char *path, um_err *err) {
    um_buf text = {0};
    *out = (um_key_entries){0};
    um_status st = um_file_read_text(path, UM_KEY_FILE_BYTES_MAX, &text, err);
    if (!st) st = um_key_file_parse(out, text.data, text.len, path, err);
    um_buf_free(&text);
    return st;
}

void um_key_entries_free(um_key_entries *e) {
    for (size_t i = 0; i < e->n; i++) um_name_list_free(&e->entry[i].models);
    um_free(e->entry);
    *e = (um_key_entries){0};
}
