/* The list of adapters that were loaded while the server runs. It has a few entries, so a search is a loop. */
#include "server/body/adapter_list.h"

#include <pthread.h>

typedef struct entry {
    char *name, *path;
} entry;

struct um_adapter_list {
    pthread_mutex_t lock; /* guards changes, and readers other than the loop's thread */
    entry *entry;         /* [n] */
    size_t n;
};

um_adapter_list *um_adapter_list_new(void) {
    um_adapter_list *l = UM_NEW(um_adapter_list);
    pthread_mutex_init(&l->lock, NULL);
    return l;
}

void um_adapter_list_free(um_adapter_list *l) {
    if (!l) return;
    while (l->n) um_adapter_list_remove(l, l->entry[0].name);
    pthread_mutex_destroy(&l->lock);
    um_free(l->entry);
    um_free(l);
}

/* Returns the index of a name, or the size of the list. */
static size_t find(const um_adapter_list *l, const char *name) {
    size_t i = 0;
    while (i < l->n && !um_streq(l->entry[i].name, name)) i++;
    return i;
}

bool um_adapter_list_has(um_adapter_list *l, const char *name) {
    if (!l) return false;
    pthread_mutex_lock(&l->lock);
    bool has = find(l, name) < l->n;
    pthread_mutex_unlock(&l->lock);
    return has;
}

void um_adapter_list_add(um_adapter_list *l, const char *name, const char *path) {
    pthread_mutex_lock(&l->lock);
    l->entry = um_realloc(l->entry, um_mul(l->n + 1, sizeof *l->entry));
    l->entry[l->n++] = (entry){um_strdup(name), um_strdup(path)};
    pthread_mutex_unlock(&l->lock);
}

bool um_adapter_list_remove(um_adapter_list *l, const char *name) {
    const size_t i = find(l, name);
    if (i == l->n) return false;
    entry e = l->entry[i];
    pthread_mutex_lock(&l->lock);
    l->n--;
    memmove(&l->entry[i], &l->entry[i + 1], (l->n - i) * sizeof *l->entry);
    pthread_mutex_unlock(&l->lock);
    um_free(e.name);
    um_free(e.path);
    return true;
}

size_t um_adapter_list_size(const um_adapter_list *l) { return l ? l->n : 0; }

void um_adapter_list_get(const um_adapter_list *l, size_t i, const char **name, const char **path) {
    *name = l->entry[i].name;
    *path = l->entry[i].path;
}
