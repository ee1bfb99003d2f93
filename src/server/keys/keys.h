/* keys: the API keys of the server: their names, limits and use. A key comes from --api-key or from a line of
 * --api-key-file. The server keeps the SHA-256 hash of a key only. Everything belongs to the loop's thread. */
#ifndef UM_KEYS_H
#define UM_KEYS_H

#include "server/config/name_list.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UM_KEYS_MAX           1000 /* names since the server's start, so that counters by name are bounded */
#define UM_KEY_NAME_BYTES     65
#define UM_KEY_SECRETS_MAX    4                 /* hashes of a name: the old and the new key while clients move */
#define UM_KEY_HASH_BYTES     32                /* SHA-256 */
#define UM_KEY_FILE_BYTES_MAX ((size_t)1 << 20) /* of --api-key-file */

/* ---- Rates (rate.c) ---------------------------------------------------------------------------------------------- */

/* An allowance that grows steadily to `per_minute` and is used up by requests. Times are those of um_now. */
typedef struct um_rate {
    int64_t per_minute; /* 0: no limit */
    double left;        /* at `time`; negative: requests have used more than they had reserved */
    double time;
} um_rate;

/* Sets the limit. A rate that had no limit starts with all of it; another one keeps what is left of its own. */
void um_rate_set(um_rate *r, int64_t per_minute, double now);
/* Returns the allowance now, at least 0; 0 without a limit. */
int64_t um_rate_left(um_rate *r, double now);
/* Returns the seconds until `n` can be taken; 0: now. More than the limit can be taken when the allowance is full. */
double um_rate_wait(um_rate *r, int64_t n, double now);
/* Takes n, or gives them back if n is negative. */
void um_rate_take(um_rate *r, int64_t n, double now);
/* Returns the seconds until the allowance is full. */
double um_rate_reset(um_rate *r, double now);

/* ---- Keys (keys.c, key_file.c) ----------------------------------------------------------------------------------- */

typedef struct um_key_limits {
    bool admin;
    int32_t requests_per_minute, max_concurrent;  /* 0: no limit */
    int64_t tokens_per_minute, max_answer_tokens; /* 0: no limit */
    int32_t min_priority;
    const char *models; /* "a,b", or NULL: all */
} um_key_limits;
#define UM_KEY_OPTIONS 7
/* The settings of a line of the key file. */
extern const um_option um_key_options[UM_KEY_OPTIONS];

typedef struct um_key {
    int32_t id; /* 1, 2, …; a name keeps its id until the server ends, also when the file is read again */
    char name[UM_KEY_NAME_BYTES];
    bool is_from_file;
    uint8_t hash[UM_KEY_SECRETS_MAX][UM_KEY_HASH_BYTES];
    int32_t n_hashes;     /* 0: the name is no longer in the file */
    um_key_limits limits; /* `models` is NULL, see below */
    um_name_list models;  /* empty: all */
    um_rate requests, tokens;
    int64_t n_running; /* generations that wait or run */
    /* Counts since the server's start: requests that have ended, their tokens, and requests beyond a rate or beyond
     * max_concurrent. */
    int64_t n_requests, prompt_tokens, generation_tokens, n_limited;
} um_key;
typedef struct um_keys um_keys;

/* Makes the keys of --api-key (`list`, "a,b") and of --api-key-file (`path`). Both may be NULL. UM_EINVAL, UM_EPARSE,
 * UM_ENOENT, UM_EIO, UM_ELIMIT. */
um_status um_keys_new(um_keys **out, const char *list, const char *path, um_err *err);
void um_keys_free(um_keys *k);
/* Reads the file again. On failure the keys stay as they are. */
um_status um_keys_reload(um_keys *k, um_err *err);
/* Returns whether there is no key, so that requests need none; NULL: true. */
bool um_keys_is_empty(const um_keys *k);
/* Returns the number of names; their ids are 1 to this number. NULL: 0. */
int32_t um_keys_count(const um_keys *k);
/* Returns the key with this id; NULL for 0. The pointer is valid until um_keys_free. */
um_key *um_keys_get(const um_keys *k, int32_t id);
/* Returns the key with this name, or NULL. */
um_key *um_keys_find(const um_keys *k, const char *name);
/* Returns the key with this secret, or NULL. The duration does not depend on the keys. */
um_key *um_keys_match(const um_keys *k, const char *secret, size_t n);

/* Returns whether the key may do what admins may. key NULL: the server has no keys, so everybody may. */
bool um_key_is_admin(const um_key *key);
/* Returns the name under which things that a request with this key makes are stored; "" for admins of --api-key and
 * without a key. */
const char *um_key_owner(const um_key *key);
/* Returns whether the key may see things of this owner: its own, and an admin all. */
bool um_key_may_see(const um_key *key, const char *owner);
/* Returns whether requests with the key may use the model or adapter. */
bool um_key_may_use(const um_key *key, const char *model);

/* ---- Internal ---------------------------------------------------------------------------------------------------- */

/* The entries of a key file. Their `limits.models` are NULL. */
typedef struct um_key_entries {
    um_key *entry; /* [n] */
    size_t n;
} um_key_entries;
/* Reads the text of a key file, which it changes; text[n] is NUL. Messages name the file and the line. */
um_status um_key_file_parse(um_key_entries *out, char *text, size_t n, const char *path, um_err *err);
/* Reads a key file. */
um_status um_key_file_read(um_key_entries *out, const char *path, um_err *err);
void um_key_entries_free(um_key_entries *e);
void um_key_hash_of(const char *secret, size_t n, uint8_t out[UM_KEY_HASH_BYTES]);

#ifdef __cplusplus
}
#endif
#endif
