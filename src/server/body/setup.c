/* The served names of the model and its adapters. */
#include "server/body/setup.h"

const char *um_setup_model_name(const um_setup *s) { return s->names.word[0]; }

bool um_setup_has_model(const um_setup *s, const char *name, const char **adapter) {
    um_model_info info;
    *adapter = NULL;
    if (um_name_list_has(&s->names, name)) return true;
    um_model_get_info(s->model, &info);
    for (int32_t i = 0; i < info.n_adapters; i++) {
        if (!um_streq(info.adapter[i].name, name)) continue;
        if (!info.adapter[i].merged) *adapter = name;
        return true;
    }
    if (!um_adapter_list_has(s->late, name)) return false;
    *adapter = name;
    return true;
}
