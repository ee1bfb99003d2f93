/* The table "fields" of `unmask list`: request fields that the server accepts without effect, and why. */
#include "cli/printer.h"
#include "server/endpoints.h"

/* Returns the set of the API that contains the row, or NULL. */
static const um_field_set *set_of(const um_api *api, const um_field *f) {
    for (const um_field_set *const *set = api->sets; *set; set++)
        if (f >= (*set)->rows && f < (*set)->rows + (*set)->n) return *set;
    return NULL;
}

/* Returns whether the API uses this row for the field. If several sets have a row of this name, the first set wins. A
 * member of an object is used if the same set has the row of the object. */
static bool has_field(const um_api *api, const um_field *f) {
    if (!f->is_member) return um_field_find(api->sets, f->name) == f;
    char *name = um_strndup(f->name, strcspn(f->name, ".["));
    const um_field *owner = um_field_find(api->sets, name);
    um_free(name);
    const um_field_set *set = set_of(api, f);
    return set && owner && set_of(api, owner) == set;
}

/* The name of an API has the field of its prompt, because two APIs share the path /generate. */
static void put_apis_of(um_printer *s, const um_field *f) {
    um_buf words = {0};
    for (const um_api *const *a = um_apis; *a; a++)
        if (has_field(*a, f)) um_buf_printf(&words, "%s%s (%s)", words.len ? "|" : "", (*a)->path, (*a)->prompt);
    um_printer_words(s, "apis", words.data, '|');
    um_buf_free(&words);
}

static void put_field(um_printer *s, const um_field *f) {
    um_printer_item(s, f->name, f->why);
    um_printer_words(s, "only", f->neutral, '|');
    put_apis_of(s, f);
    um_printer_item_end(s);
}

/* Returns whether an earlier API also uses the row, so that the table has it already. */
static bool is_listed_before(const um_api *const *api, const um_field *f) {
    for (const um_api *const *a = um_apis; a < api; a++)
        if (has_field(*a, f)) return true;
    return false;
}

/* Prints fields without effect: those that accept only neutral values (has_neutral), or those that accept any value. */
static void put_fields_without_effect(um_printer *s, bool has_neutral) {
    for (const um_api *const *a = um_apis; *a; a++)
        for (const um_field_set *const *set = (*a)->sets; *set; set++)
            for (const um_field *f = (*set)->rows; f < (*set)->rows + (*set)->n; f++)
                if (!f->take && !f->option && !f->neutral == !has_neutral && has_field(*a, f) &&
                    !is_listed_before(a, f))
                    put_field(s, f);
}

void um_printer_put_fields(um_printer *s) {
    put_fields_without_effect(s, false);
    put_fields_without_effect(s, true);
}
