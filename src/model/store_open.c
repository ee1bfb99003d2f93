/* Opens the weights of a checkpoint folder: finds its files, and compares shards with their index. */
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#include "model/packed.h"
#include "model/quantized.h"

#define SHARDS_MAX 4096
#define CARD_MAX   ((size_t)1 << 20)
enum { MISSING_NAMED = 4 }; /* a message lists at most this many missing shards */

static um_status open_file(um_store *s, const char *dir, const char *name, um_err *err) {
    char *path = um_path_join(dir, name);
    um_map map = {0};
    um_status st = um_map_open(&map, path, err);
    if (!st) st = um_safetensors_parse(s, map.data, map.size, path, NULL, err);
    if (!st) um_store_own_map(s, map);
    else um_map_close(&map);
    um_free(path);
    return st;
}

/* Checks the name of a shard. It comes from an untrusted file, and its path must not leave the folder. */
static um_status check_shard_name(const char *shard, const char *tensor, const char *where, um_err *err) {
    if (shard && *shard && !strchr(shard, '/') && strcmp(shard, "..")) return UM_OK;
    return um_fail(err, UM_EPARSE, "%s: \"weight_map\": tensor %s must name a file of the same folder", where, tensor);
}

/* The files that an index names, each once, in the order of the index. */
typedef struct shards {
    const char **name;
    int32_t n;
} shards;

static um_status list_shards(shards *list, json_t *map, const char *where, um_err *err) {
    const char *tensor;
    json_t *v;
    list->name = UM_NEW_ARRAY(const char *, SHARDS_MAX);
    json_object_foreach(map, tensor, v) {
        const char *shard = json_string_value(v);
        int32_t at = list->n - 1; /* usually found at once, because tensors of one shard follow each other */
        um_status st = check_shard_name(shard, tensor, where, err);
        if (st) return st;
        while (at >= 0 && strcmp(list->name[at], shard)) at--;
        if (at >= 0) continue;
        if (list->n == SHARDS_MAX) return um_fail(err, UM_ELIMIT, "%s: more than %d shards", where, SHARDS_MAX);
        list->name[list->n++] = shard;
    }
    return UM_OK;
}

static um_status check_present(const shards *list, const char *dir, const char *where, um_err *err) {
    um_buf missing = {0};
    int32_t n = 0;
    for (int32_t i = 0; i < list->n; i++) {
        char *path = um_path_join(dir, list->name[i]);
        if (!um_file_exists(path) && n++ < MISSING_NAMED)
            um_buf_printf(&missing, "%s%s", n > 1 ? ", " : "", list->name[i]);
        um_free(path);
    }
    if (!n) return UM_OK;
    if (n > MISSING_NAMED) um_buf_printf(&missing, " and %d more", n - MISSING_NAMED);
    um_status st = um_fail(err, UM_ENOENT, "%s names %d shards, but %s does not hold %s: fetch what is missing", where,
                           list->n, dir, missing.data);
    um_buf_free(&missing);
    return st;
}

/* Warns of shards that the index does not name. Shards are called NAME-00002-of-00005.safetensors, so a missing number
 * is a missing shard. Its tensors are reported as missing later; this warning gives the reason. */
static void warn_missing_shards(const shards *list, const char *where) {
    const char *dash = list->n ? strstr(list->name[0], "-of-") : NULL;
    int total = dash ? atoi(dash + 4) : 0;
    if (total <= list->n || total > SHARDS_MAX || dash - list->name[0] < 5) return;
    const int stem = (int)(dash - list->name[0]) - 5;
    for (int k = 1; k <= total; k++) {
        char name[256];
        bool named = false;
        snprintf(name, sizeof name, "%.*s%05d%s", stem, list->name[0], k, dash);
        for (int32_t i = 0; i < list->n; i++) named |= !strcmp(list->name[i], name);
        if (!named) um_warn("%s names no tensor of %s: the index is incomplete", where, name);
    }
}

static um_status open_shards(um_store *s, json_t *map, const char *dir, const char *where, um_err *err) {
    shards list = {0};
    um_status st = list_shards(&list, map, where, err);
    if (!st) st = check_present(&list, dir, where, err);
    if (!st) warn_missing_shards(&list, where);
    for (int32_t i = 0; i < list.n && !st; i++) st = open_file(s, dir, list.name[i], err);
    um_free(list.name);
    return st;
}

static bool is_in_file(const um_store *s, const um_tensor *t, const char *dir, const char *name) {
    char *path = um_path_join(dir, name);
    const bool is_there = um_store_is_in(s, t, path);
    um_free(path);
    return is_there;
}

static um_status check_index(const um_store *s, json_t *map, const char *dir, const char *where, um_err *err) {
    const char *tensor;
    json_t *v;
    json_object_foreach(map, tensor, v) {
        const um_tensor *t = um_store_find(s, tensor);
        if (!t) return um_fail(err, UM_EMODEL, "%s: tensor %s is not in %s", where, tensor, json_string_value(v));
        if (!is_in_file(s, t, dir, json_string_value(v)))
            return um_fail(err, UM_EMODEL, "%s: tensor %s should be in %s, but it is in %s", where, tensor,
                           json_string_value(v), um_store_file(s, t));
    }
    return UM_OK;
}

static um_status open_index(um_store *s, const char *dir, const char *index, um_err *err) {
    json_t *root = NULL;
    um_status st = um_json_load(&root, index, err);
    if (st) return st;
    json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(map)) {
        st = um_fail(err, UM_EPARSE, "%s: \"weight_map\" must be an object of tensor name to file name", index);
    } else {
        st = open_shards(s, map, dir, index, err);
        if (!st) st = check_index(s, map, dir, index, err);
    }
    json_decref(root);
    return st;
}

/* Returns whether `path` is a link to a missing file. An interrupted download leaves such links in the hub's cache. */
static bool is_broken_link(const char *path) {
    char target[8];
    return !um_file_exists(path) && readlink(path, target, sizeof target) >= 0;
}

/* Returns whether the model card in the folder says that unmask quantize has written it. */
static bool has_packed_card(const char *dir) {
    char *path = um_path_join(dir, "README.md");
    um_buf card = {0};
    const bool is_packed = um_file_exists(path) && !um_file_read(path, CARD_MAX, &card, NULL) && card.len &&
                           strstr(card.data, UM_PACKED_CARD_LINE);
    um_buf_free(&card);
    um_free(path);
    return is_packed;
}

/* Reports a folder without safetensors. The message depends on what the folder contains instead, and says what to do.
 */
static um_status fail_no_weights(const char *dir, um_err *err) {
    static const char *const other[] = {"pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth"};
    for (size_t i = 0; i < UM_LEN(other); i++) {
        char *path = um_path_join(dir, other[i]);
        bool found = um_file_exists(path);
        um_free(path);
        if (found)
            return um_fail(err, UM_EUNSUPPORTED,
                           "%s holds %s; unmask reads safetensors only: convert the checkpoint "
                           "or fetch its model.safetensors",
                           dir, other[i]);
    }
    if (has_packed_card(dir))
        return um_fail(err, UM_ENOENT,
                       "%s: " UM_PACKED_FILE " is missing; its README.md says that unmask quantize wrote the folder: "
                       "copy the file too, or write the folder again",
                       dir);
    char *single = um_path_join(dir, "model.safetensors");
    bool broken = is_broken_link(single);
    um_free(single);
    if (broken)
        return um_fail(err, UM_ENOENT,
                       "%s: model.safetensors is a link to a missing file: the download is "
                       "incomplete, finish it",
                       dir);
    return um_fail(err, UM_ENOENT, "%s: the folder has neither model.safetensors nor model.safetensors.index.json",
                   dir);
}

/* Opens the safetensors of a folder. */
static um_status open_safetensors(um_store *s, const char *dir, um_err *err) {
    char *single = um_path_join(dir, "model.safetensors"), *index = um_path_join(dir, "model.safetensors.index.json");
    um_status st;
    if (um_file_exists(single)) st = open_file(s, dir, "model.safetensors", err);
    else if (um_file_exists(index)) st = open_index(s, dir, index, err);
    else st = fail_no_weights(dir, err);
    um_free(single);
    um_free(index);
    return st ? st : um_store_join_quantized(s, dir, err);
}

um_status um_store_open(um_store **out, const char *dir, um_err *err) {
    um_store *s = um_store_new();
    um_status st = um_packed_exists(dir) ? um_packed_open(s, dir, err) : open_safetensors(s, dir, err);
    if (st) {
        um_store_close(s);
        s = NULL;
    }
    *out = s;
    return st;
}

um_status um_store_open_file(um_store **out, const char *dir, const char *name, um_err *err) {
    um_store *s = um_store_new();
    um_status st = open_file(s, dir, name, err);
    if (st) {
        um_store_close(s);
        s = NULL;
    }
    *out = s;
    return st;
}
