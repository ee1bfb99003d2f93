/* name_list: the value of an option that takes several names, "a,b,c". */
#ifndef UM_NAME_LIST_H
#define UM_NAME_LIST_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_name_list {
    char **word; /* [n] */
    size_t n;
} um_name_list;
/* Splits the list at commas. Blanks around a name and empty names are dropped. NULL gives an empty list. */
void um_name_list_parse(um_name_list *w, const char *list);
bool um_name_list_has(const um_name_list *w, const char *word);
void um_name_list_free(um_name_list *w);

#ifdef __cplusplus
}
#endif
#endif
