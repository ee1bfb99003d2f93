/* Compares recorded logits of single passes with those of the forward pass. */
#include "logits.h"

bool family_logits_open(family_logits *l, const family_case *c, const char *device) {
    const bool has_requests = json_object_get(c->json, "requests") != NULL;
    char path[600];
    um_err err;
    *l = (family_logits){.c = c, .recorded = um_store_new()};
    snprintf(path, sizeof path, "%.*s%s.safetensors", (int)(strlen(c->path) - 5), c->path,
             has_requests ? ".logits" : "");
    um_status s = um_map_open(&l->map, path, &err);
    if (!s) s = um_safetensors_parse(l->recorded, l->map.data, l->map.size, path, NULL, &err);
    if (s == UM_ENOENT) return false;
    if (s) fail_msg("%s", err.msg);
    open_fixture(&l->f, c->model, device);
    return true;
}

void family_logits_close(family_logits *l, const char *device) {
    if (l->f.model) {
        print_message("# %-16s %-4s %d passes, logits differ by %.2g at most\n", l->c->name, device, l->n,
                      (double)l->worst);
        close_fixture(&l->f);
    }
    um_store_close(l->recorded);
    um_map_close(&l->map);
}

bool family_logits_has(const family_logits *l, size_t request) {
    char of[32];
    snprintf(of, sizeof of, "r%zu.", request);
    for (size_t i = 0; i < um_store_count(l->recorded); i++)
        if (!strncmp(um_store_at(l->recorded, i)->name, of, strlen(of))) return true;
    return false;
}

const um_tensor *family_logits_find(const family_logits *l, const char *prefix, const char *name) {
    char key[96];
    snprintf(key, sizeof key, "%s%s", prefix, name);
    return um_store_find(l->recorded, key);
}

static void compare(family_logits *l, const um_tensor *want, int32_t n) {
    const int32_t V = l->f.model->arch.vocab, rows = (int32_t)want->dim[0], first = n - rows;
    assert_true(want->type == UM_F32 && first >= 0 && want->dim[1] == V);
    compute_logits(&l->f, n);
    for (size_t i = 0; i < (size_t)rows * (size_t)V; i++) {
        float w;
        memcpy(&w, (const char *)want->data + i * sizeof w, sizeof w);
        const float got = l->f.logits[(size_t)first * (size_t)V + i];
        l->worst = fmaxf(l->worst, isnan(got) ? INFINITY : fabsf(w - got));
    }
    l->n++;
    if (!(l->worst <= FAMILY_TOLERANCE)) fail_msg("%s: %s differs by %g", l->c->name, want->name, (double)l->worst);
}

void family_logits_run(family_logits *l, const int32_t *id, const int32_t *pos, const int32_t *seen_end, int32_t n,
                       const um_tensor *want) {
    int32_t slot[TOKENS], page[PAGES];
    const int32_t all = l->stored + n;
    assert_true(n > 0 && n <= TOKENS && all <= PAGE * PAGES);
    for (int32_t i = 0; i < PAGES; i++) page[i] = i;
    for (int32_t i = 0; i < n; i++) slot[i] = l->stored + i;
    const um_span span = {.n = n, .page = page, .keys = {0, all}, .adapter = -1};
    const um_batch b = {
        .n_tokens = n, .n_spans = 1, .id = id, .pos = pos, .slot = slot, .seen_end = seen_end, .span = &span};
    run_whole(&l->f, &b);
    if (want) compare(l, want, n);
}
