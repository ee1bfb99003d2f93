/* Helpers that parse a config.json in which one field is changed. */
#ifndef TESTS_MODEL_FIELDS_H
#define TESTS_MODEL_FIELDS_H

#include "model_folder.h"

/* Parses `base` with `key` set to `value` (JSON text). NULL removes the key. */
static inline um_status parse(um_arch *a, const char *base, const char *key, const char *value, um_err *err) {
    json_t *config = json_of(base);
    if (key && value) json_object_set_new(config, key, json_of(value));
    else if (key) json_object_del(config, key);
    um_status s = um_arch_parse(a, config, "config.json", NULL, err);
    json_decref(config);
    return s;
}

static inline um_arch accepts(const char *base, const char *key, const char *value) {
    um_arch a;
    um_err err = {0};
    if (parse(&a, base, key, value, &err)) fail_msg("%s", err.msg);
    return a;
}

/* Checks that `base` with `key` set to `value` (NULL: removed) is refused with a message that contains `part`, or the
 * key when `part` is NULL. */
static inline void refuses(const char *base, const char *key, const char *value, um_status want, const char *part) {
    um_arch a;
    um_err err = {0};
    um_status s = parse(&a, base, key, value, &err);
    if (s != want)
        fail_msg("%s = %s gives status %d, expected %d: %s", key, value ? value : "(absent)", s, want, err.msg);
    assert_says(&err, "config.json");
    assert_says(&err, part ? part : key);
}

#endif
