/* Splits a list of names at commas. */
#include "server/config/name_list.h"

void um_name_list_parse(um_name_list *w, const char *list) {
    *w = (um_name_list){0};
    if (!list) return;
    w->word = UM_NEW_ARRAY(char *, strlen(list) / 2 + 1);
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ","), blanks = strspn(p, " \t");
        size_t first = UM_MIN(blanks, n), last = n;
        while (last > first && (p[last - 1] == ' ' || p[last - 1] == '\t')) last--;
        if (last > first) w->word[w->n++] = um_strndup(p + first, last - first);
        p += n + (p[n] == ',');
    }
}

bool um_name_list_has(const um_name_list *w, const char *word) {
    for (size_t i = 0; i < w->n; i++)
        if (um_streq(w->word[i], word)) return true;
    return false;
}

void um_name_list_free(um_name_list *w) {
    for (size_t i = 0; i < w->n; i++) um_free(w->word[i]);
    um_free(w->word);
    *w = (um_name_list){0};
}
