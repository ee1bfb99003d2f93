/* The engine and the ids of recorded requests. */
#include "requests.h"

void family_engine_open(test_engine *t, const family_case *c, const char *device, family_mode mode, int32_t tokens,
                        int32_t compat) {
    um_config config;
    um_config_init(&config);
    config.model = c->model;
    config.compat = compat;
    config.max_num_batched_tokens = mode == FAMILY_BATCHED ? tokens : 2048;
    config.threads = 2;
    snprintf(config.device, sizeof config.device, "%s", device);
    if (um_streq(device, test_device("cpu"))) config.tensor_parallel_size = test_ranks();
    snprintf(config.dtype, sizeof config.dtype, "float32");
    snprintf(config.kv_cache_layout, sizeof config.kv_cache_layout, mode == FAMILY_BATCHED ? "distinct" : "unified");
    test_open(t, &config);
}

int32_t family_longest_prompt(const json_t *requests) {
    const json_t *request;
    size_t i, n = 0;
    json_array_foreach(requests, i, request) n = UM_MAX(n, json_array_size(json_object_get(request, "prompt")));
    return (int32_t)n;
}

int32_t *family_ids(const json_t *list, size_t *n) {
    int32_t *ids = UM_NEW_ARRAY(int32_t, json_array_size(list) + 1);
    *n = json_array_size(list);
    for (size_t i = 0; i < *n; i++) ids[i] = id_at(list, i);
    return ids;
}
