/* adapter_list: the adapters that were loaded while the server runs. Any thread may look for a name; the loop's thread
 * changes the list. */
#ifndef UM_ADAPTER_LIST_H
#define UM_ADAPTER_LIST_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_adapter_list um_adapter_list;
um_adapter_list *um_adapter_list_new(void);
void um_adapter_list_free(um_adapter_list *l);
/* Returns whether the list has the name; NULL has none. */
bool um_adapter_list_has(um_adapter_list *l, const char *name);

/* ---- Loop's thread only ------------------------------------------------------------------------------------------ */

void um_adapter_list_add(um_adapter_list *l, const char *name, const char *path);
/* Returns false if the list lacks the name. */
bool um_adapter_list_remove(um_adapter_list *l, const char *name);
size_t um_adapter_list_size(const um_adapter_list *l);
/* Stores the name and the path of entry i, valid until the list changes. */
void um_adapter_list_get(const um_adapter_list *l, size_t i, const char **name, const char **path);

#ifdef __cplusplus
}
#endif
#endif
