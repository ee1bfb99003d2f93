/* setup: the model that a server serves, and the configuration. Of these only the list of adapters changes while the
 * server runs, under a lock, so any thread may read it. */
#ifndef UM_SETUP_H
#define UM_SETUP_H

#include "server/body/adapter_list.h"
#include "server/config/name_list.h"
#include "server/config/options.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_setup {
    const um_server_config *config;
    um_model *model;                 /* tokenizer and chat template, no weights */
    um_name_list names;              /* the model's served names; the first is the name that responses carry */
    um_adapter_list *late;           /* adapters that were loaded later; NULL: none */
    struct um_result_store *results; /* responses that are fetched later (api/result_store.h) */
} um_setup;

/* Returns the name that responses carry. */
const char *um_setup_model_name(const um_setup *s);
/* Returns whether `name` is a served name or the name of an adapter. Sets *adapter to `name` if the worker must apply
 * an adapter, else to NULL. A merged adapter is part of the model and need not be applied. */
bool um_setup_has_model(const um_setup *s, const char *name, const char **adapter);

#ifdef __cplusplus
}
#endif
#endif
