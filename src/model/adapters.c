/* The adapters of a model and their names. */
#include "model/lora.h"

/* ---- The list ---------------------------------------------------------------------------------------------------- */

/* Splits "name=folder". For a folder without "name=", the name is the last part of its path. */
static um_status split(const char *entry, char **name, char **dir, um_err *err) {
    const char *equals = strchr(entry, '='), *slash = strchr(entry, '/');
    if (equals && slash && slash < equals) equals = NULL; /* the '=' is part of the path */
    *dir = um_strdup(equals ? equals + 1 : entry);
    for (size_t n = strlen(*dir); n > 1 && (*dir)[n - 1] == '/'; n--) (*dir)[n - 1] = '\0';
    slash = strrchr(*dir, '/');
    *name = equals ? um_strndup(entry, (size_t)(equals - entry)) : um_strdup(slash ? slash + 1 : *dir);
    if (**name && **dir) return UM_OK;
    return um_fail(err, UM_EINVAL, "lora: expected name=folder or a folder, found \"%.100s\"", entry);
}

static um_status open_one(struct um_model *m, const char *entry, um_err *err) {
    char *name = NULL, *dir = NULL;
    um_status s = split(entry, &name, &dir, err);
    for (int32_t i = 0; i < m->n_adapters && !s; i++)
        if (um_streq(m->lora[i].name, name))
            s = um_fail(err, UM_EINVAL, "lora: two adapters are called %.100s; give names with name=folder", name);
    if (!s) s = um_lora_open(&m->lora[m->n_adapters], name, dir, err);
    if (!s) m->lora[m->n_adapters].slot = m->n_adapters;
    if (!s) m->n_adapters++;
    um_free(name);
    um_free(dir);
    return s;
}

static um_status open_list(struct um_model *m, const char *list, um_err *err) {
    um_status s = UM_OK;
    size_t n = 1;
    for (const char *p = list; *p; p++) n += *p == ',';
    m->lora = UM_NEW_ARRAY(um_lora, n);
    for (const char *p = list; p && !s;) {
        const char *comma = strchr(p, ',');
        char *entry = um_strndup(p, comma ? (size_t)(comma - p) : strlen(p));
        s = open_one(m, entry, err);
        um_free(entry);
        p = comma ? comma + 1 : NULL;
    }
    return s;
}

/* ---- After opening ----------------------------------------------------------------------------------------------- */

/* Warns when the adapter seems to be made for another model. The path of the right model, also in the hub's cache,
 * usually contains the last part of the base model's name "org/name". */
static void warn_of_other_base(const struct um_model *m, const um_lora *a) {
    const char *base = um_lora_config_base(a->config), *slash = base ? strrchr(base, '/') : NULL;
    const char *word = slash && slash[1] ? slash + 1 : base;
    if (word && *word && !strstr(m->path, word))
        um_warn("adapter %s was made for %s, the model is %s", a->name, base, m->path);
}

static void describe(struct um_model *m, int32_t i) {
    const um_lora *a = &m->lora[i];
    m->adapter[i] = (um_adapter_info){.name = a->name,
                                      .path = a->dir,
                                      .base = um_lora_config_base(a->config),
                                      .rank = um_lora_config_rank(a->config),
                                      .n_params = a->n_params,
                                      .merged = m->merged};
    warn_of_other_base(m, a);
}

void um_adapters_describe(struct um_model *m) { describe(m, m->n_adapters - 1); }

static um_status check_use(const struct um_model *m, bool merge, um_err *err) {
    if (merge && m->n_adapters != 1)
        return um_fail(err, UM_EINVAL, "lora_merge needs exactly one adapter in lora, found %d", m->n_adapters);
    for (int32_t i = 0; i < m->n_adapters && !merge; i++)
        if (m->lora[i].n_full)
            return um_fail(
                err, UM_EUNSUPPORTED,
                "adapter %s replaces whole tensors of the model, the first is %s; only a merged adapter can do "
                "this: load it alone with --lora-merge",
                m->lora[i].name, m->lora[i].full[0].tensor->name);
    return UM_OK;
}

um_status um_adapters_open(struct um_model *m, const char *list, bool merge, um_err *err) {
    um_status s = list && *list ? open_list(m, list, err) : UM_OK;
    if (!s) s = check_use(m, merge, err);
    if (s || !m->n_adapters) return s;
    m->merged = merge;
    m->adapter = UM_NEW_ARRAY(um_adapter_info, (size_t)m->n_adapters);
    for (int32_t i = 0; i < m->n_adapters; i++) describe(m, i);
    return UM_OK;
}

/* ---- Later adapters ---------------------------------------------------------------------------------------------- */

/* The matrices of up to three parts of a layer (queries, keys and values) form one of their ranks' sum. */
#define PARTS_MAX 3

void um_adapters_reserve(struct um_model *m, int32_t n_slots, int32_t rank) {
    const size_t n = (size_t)(m->n_adapters + n_slots);
    if (!n_slots || m->merged) return;
    m->lora = um_realloc(m->lora, um_mul(n, sizeof *m->lora));
    m->adapter = um_realloc(m->adapter, um_mul(n, sizeof *m->adapter));
    m->slot = UM_NEW_ARRAY(um_adapter_slot, n);
    for (int32_t i = 0; i < m->n_adapters; i++) m->slot[i].number = ++m->last_number;
    m->net.n_adapters = (int32_t)n;
    m->rank_max = UM_MAX(m->rank_max, PARTS_MAX * rank);
}

void um_adapters_forget(struct um_model *m, int32_t i) {
    const size_t after = (size_t)(--m->n_adapters - i);
    um_lora_close(&m->lora[i]);
    memmove(&m->lora[i], &m->lora[i + 1], after * sizeof *m->lora);
    memmove(&m->adapter[i], &m->adapter[i + 1], after * sizeof *m->adapter);
}

uint64_t um_model_adapter_number(const um_model *m, int32_t index) {
    return index >= 0 && m->slot ? m->slot[index].number : (uint64_t)(index + 1);
}

void um_adapters_close(struct um_model *m) {
    for (int32_t i = 0; i < m->n_adapters; i++) um_lora_close(&m->lora[i]);
    um_free(m->lora);
    um_free(m->adapter);
    um_free(m->slot);
    m->slot = NULL;
    m->lora = NULL;
    m->adapter = NULL;
    m->n_adapters = 0;
}

/* ---- By name ----------------------------------------------------------------------------------------------------- */

um_status um_model_adapter(const um_model *m, const char *name, int32_t *index, um_err *err) {
    *index = -1;
    if (!name) return UM_OK;
    for (int32_t i = 0; i < m->n_adapters; i++) {
        if (!um_streq(m->adapter[i].name, name)) continue;
        if (!m->merged) *index = m->lora[i].slot;
        return UM_OK;
    }
    um_buf loaded = {0};
    for (int32_t i = 0; i < m->n_adapters; i++)
        um_buf_printf(&loaded, "%s%s", i ? ", " : "there are ", m->adapter[i].name);
    um_status s = um_fail(err, UM_EINVAL, "adapter \"%.100s\" is not loaded: %.300s", name,
                          loaded.len ? loaded.data : "the model was opened without any (--lora name=folder)");
    um_buf_free(&loaded);
    return um_fail_about(err, s, "adapter");
}
