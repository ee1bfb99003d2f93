/* The table of keys, and the search for the key of a request. */
#include "server/keys/keys.h"

#include <sodium.h>

struct um_keys {
    const char *path;         /* of the key file, or NULL */
    um_key *key[UM_KEYS_MAX]; /* [n]; the key with id i is at i - 1 */
    int32_t n;
};

static um_key *add(um_keys *k, const char *name) {
    um_key *key = UM_NEW(um_key);
    snprintf(key->name, sizeof key->name, "%s", name);
    k->key[k->n++] = key;
    key->id = k->n;
    return key;
}

/* ---- --api-key --------------------------------------------------------------------------------------------------- */

static um_status add_list(um_keys *k, const char *list, um_err *err) {
    um_name_list words;
    char name[UM_KEY_NAME_BYTES];
    um_name_list_parse(&words, list);
    um_status st = UM_OK;
    if (list && !words.n)
        st = um_fail(err, UM_EINVAL, "--api-key: expected a key, found none; leave it out for a server without keys");
    if (words.n > UM_KEYS_MAX) st = um_fail(err, UM_ELIMIT, "--api-key: expected at most %d keys", UM_KEYS_MAX);
    for (size_t i = 0; i < words.n && !st; i++) {
        snprintf(name, sizeof name, "api-key-%zu", i + 1);
        um_key *key = add(k, name);
        key->limits.admin = true;
        um_key_hash_of(words.word[i], strlen(words.word[i]), key->hash[key->n_hashes++]);
    }
    um_name_list_free(&words);
    return st;
}

/* ---- --api-key-file ---------------------------------------------------------------------------------------------- */

/* Copies the settings of an entry, and takes its models. Counts and rates go on. */
static void update(um_key *key, um_key *entry, double now) {
    key->is_from_file = true;
    memcpy(key->hash, entry->hash, sizeof key->hash);
    key->n_hashes = entry->n_hashes;
    key->limits = entry->limits;
    um_name_list_free(&key->models);
    key->models = entry->models;
    entry->models = (um_name_list){0};
    um_rate_set(&key->requests, key->limits.requests_per_minute, now);
    um_rate_set(&key->tokens, key->limits.tokens_per_minute, now);
}

static um_status check_room(const um_keys *k, const um_key_entries *e, um_err *err) {
    size_t n = (size_t)k->n;
    for (size_t i = 0; i < e->n; i++) n += !um_keys_find(k, e->entry[i].name);
    if (n <= UM_KEYS_MAX) return UM_OK;
    return um_fail(err, UM_ELIMIT,
                   "%s: %zu names of keys since the server's start, but at most %d are possible; restart the server",
                   k->path, n, UM_KEYS_MAX);
}

static void apply(um_keys *k, um_key_entries *e) {
    double now = um_now();
    for (int32_t i = 0; i < k->n; i++)
        if (k->key[i]->is_from_file) k->key[i]->n_hashes = 0;
    for (size_t i = 0; i < e->n; i++) {
        um_key *key = um_keys_find(k, e->entry[i].name);
        update(key ? key : add(k, e->entry[i].name), &e->entry[i], now);
    }
}

um_status um_keys_reload(um_keys *k, um_err *err) {
    um_key_entries e;
    um_status st = um_key_file_read(&e, k->path, err);
    if (!st) st = check_room(k, &e, err);
    if (!st) apply(k, &e);
    um_key_entries_free(&e);
    return st;
}

/* ---- Life -------------------------------------------------------------------------------------------------------- */

um_status um_keys_new(um_keys **out, const char *list, const char *path, um_err *err) {
    um_keys *k = UM_NEW(um_keys);
    k->path = path;
    um_status st = sodium_init() < 0 ? um_fail(err, UM_EIO, "libsodium can't start") : add_list(k, list, err);
    if (!st && path) st = um_keys_reload(k, err);
    if (st) {
        um_keys_free(k);
        k = NULL;
    }
    *out = k;
    return st;
}

void um_keys_free(um_keys *k) {
    if (!k) return;
    for (int32_t i = 0; i < k->n; i++) {
        um_name_list_free(&k->key[i]->models);
        um_free(k->key[i]);
    }
    um_free(k);
}

/* ---- Search ------------------------------------------------------------------------------------------------------ */

bool um_keys_is_empty(const um_keys *k) { return um_keys_count(k) == 0; }

int32_t um_keys_count(const um_keys *k) { return k ? k->n : 0; }

um_key *um_keys_get(const um_keys *k, int32_t id) { return id ? k->key[id - 1] : NULL; }

um_key *um_keys_find(const um_keys *k, const char *name) {
    for (int32_t i = 0; i < um_keys_count(k); i++)
        if (um_streq(k->key[i]->name, name)) return k->key[i];
    return NULL;
}

/* Compares with all hashes, and all bytes of each, so that the time reveals nothing about the keys. */
um_key *um_keys_match(const um_keys *k, const char *secret, size_t n) {
    uint8_t hash[UM_KEY_HASH_BYTES];
    um_key *found = NULL;
    um_key_hash_of(secret, n, hash);
    for (int32_t i = 0; i < k->n; i++)
        for (int32_t j = 0; j < k->key[i]->n_hashes; j++)
            if (sodium_memcmp(k->key[i]->hash[j], hash, sizeof hash) == 0) found = k->key[i];
    return found;
}

/* ---- Rights ------------------------------------------------------------------------------------------------------ */

bool um_key_is_admin(const um_key *key) { return !key || key->limits.admin; }

const char *um_key_owner(const um_key *key) { return key && key->is_from_file ? key->name : ""; }

bool um_key_may_see(const um_key *key, const char *owner) {
    return um_key_is_admin(key) || um_streq(um_key_owner(key), owner);
}

bool um_key_may_use(const um_key *key, const char *model) {
    return !key || !key->models.n || um_name_list_has(&key->models, model);
}
