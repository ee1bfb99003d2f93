/* Loads and unloads adapters of a model that is in use, between two steps of its engines. */
#include "model/lora.h"

/* ---- Slots ------------------------------------------------------------------------------------------------------- */

static bool is_empty(const um_adapter_slot *s) { return !s->number; }

/* Returns an empty slot, or -1. */
static int32_t find_empty(const struct um_model *m) {
    for (int32_t i = 0; i < m->net.n_adapters; i++)
        if (is_empty(&m->slot[i])) return i;
    return -1;
}

static void empty_slot(struct um_model *m, int32_t i) {
    um_model_unload_slot(m, i);
    m->slot[i] = (um_adapter_slot){0};
}

void um_model_hold_adapter(um_model *m, int32_t index) {
    if (m->slot && index >= 0) m->slot[index].n_users++;
}

void um_model_release_adapter(um_model *m, int32_t index) {
    if (!m->slot || index < 0) return;
    assert(m->slot[index].n_users > 0);
    if (--m->slot[index].n_users == 0 && m->slot[index].is_retired) empty_slot(m, index);
}

/* ---- Loading ----------------------------------------------------------------------------------------------------- */

static um_status check_can_load(const struct um_model *m, const char *name, um_err *err) {
    if (!m->device) return um_fail(err, UM_EINVAL, "the model was opened without its weights");
    if (m->merged)
        return um_fail(err, UM_EUNSUPPORTED, "no adapter can be loaded beside the one that --lora-merge added");
    if (!m->slot)
        return um_fail(err, UM_EUNSUPPORTED,
                       um_backend_is_host(m->backend)
                           ? "there is no place for adapters that are loaded later; --max-loras makes places"
                           : "device cuda can't load adapters later; name them with --lora at the start");
    for (int32_t i = 0; i < m->n_adapters; i++)
        if (um_streq(m->adapter[i].name, name))
            return um_fail(err, UM_EINVAL, "adapter %.100s is loaded already, from %.200s", name, m->adapter[i].path);
    if (find_empty(m) < 0)
        return um_fail(
            err, UM_ELIMIT,
            "all %d places for adapters are taken; unload one, wait for requests of an unloaded one, or raise "
            "--max-loras",
            m->net.n_adapters);
    return UM_OK;
}

/* Checks an opened adapter, the only one of the model `alone`, before anything is loaded. */
static um_status check(struct um_model *alone, um_err *err) {
    const um_lora *a = alone->lora;
    if (a->n_full)
        return um_fail(err, UM_EUNSUPPORTED,
                       "adapter %s replaces whole tensors of the model, the first is %s; only a merged adapter can do "
                       "this",
                       a->name, a->full[0].tensor->name);
    alone->rank_max = 0;
    um_status s = um_model_walk_adapters(alone, true, err);
    if (!s && alone->rank_max > alone->net.rank_max)
        s = um_fail(err, UM_ELIMIT,
                    "adapter %s: the ranks of a layer are %d together, and there is room for %d; raise "
                    "--max-lora-rank",
                    a->name, alone->rank_max, alone->net.rank_max);
    return s ? s : um_lora_check_values(a, UM_CHECK_ERROR, err);
}

/* Adds an adapter that has been loaded to the lists of the model. */
static void add(struct um_model *m, const um_lora *a) {
    m->slot[a->slot] = (um_adapter_slot){.number = ++m->last_number};
    m->lora[m->n_adapters++] = *a;
    um_adapters_describe(m);
}

um_status um_model_load_adapter(um_model *m, const char *name, const char *dir, um_err *err) {
    um_lora a;
    um_status s = check_can_load(m, name, err);
    if (!s) s = um_lora_open(&a, name, dir, err);
    if (s) return s;
    a.slot = find_empty(m);
    struct um_model alone = *m; /* shares the layers */
    alone.lora = &a;
    alone.n_adapters = 1;
    s = check(&alone, err);
    if (!s) s = um_model_walk_adapters(&alone, false, err);
    um_lora_close_file(&a);
    if (!s) {
        m->weight_bytes = alone.weight_bytes;
        add(m, &a);
        return UM_OK;
    }
    um_model_unload_slot(&alone, a.slot);
    um_lora_close(&a);
    return s;
}

um_status um_model_unload_adapter(um_model *m, const char *name, um_err *err) {
    for (int32_t i = 0; m->slot && i < m->n_adapters; i++) {
        if (!um_streq(m->adapter[i].name, name)) continue;
        const int32_t slot = m->lora[i].slot;
        um_adapters_forget(m, i);
        m->slot[slot].is_retired = true;
        if (!m->slot[slot].n_users) empty_slot(m, slot);
        return UM_OK;
    }
    return um_fail(err, UM_ENOENT, "no adapter \"%.100s\" can be unloaded", name);
}
