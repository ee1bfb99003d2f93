/* GET /options: the parameters of requests with their ranges, defaults and readers, from the tables of options. The web
 * page builds its form from it. */
#include <math.h>

#include "engine/options.h"
#include "server/api/common.h"

static void put_text(um_jw *w, const char *key, um_str text) {
    um_jw_key(w, key);
    if (text.n) um_jw_str(w, text.p, text.n);
    else um_jw_null(w);
}

static void put_words(um_jw *w, const char *key, const char *choices) {
    um_jw_key(w, key);
    um_jw_begin_array(w);
    while (*choices) {
        size_t n = strcspn(choices, "|");
        um_jw_str(w, choices, n);
        choices += n + (choices[n] == '|');
    }
    um_jw_end_array(w);
}

/* Writes the limits of a range, null for a parameter without limits. */
static void put_limits(um_jw *w, const um_option *row) {
    bool bounded = row->min != 0 || row->max != 0;
    um_jw_put_double(w, "min", bounded ? row->min : NAN);
    um_jw_put_double(w, "max", bounded ? row->max : NAN);
}

/* Writes a parameter. `choices` are all words that it allows. `names` are the names of the strategies, samplers
 * or retention rules that it selects from, `aliases` further names of them. The value in the set's struct is the
 * default.
 */
static void put_row(void *arg, const um_option_set *set, const um_option *row, bool opens_group) {
    (void)opens_group;
    um_jw *w = (um_jw *)arg;
    um_buf range = {0}, value = {0}, readers = {0}, names = {0}, aliases = {0};
    um_option_range(row, &range);
    um_option_get_text(row, set->base, &value);
    um_request_append_readers(row, &readers);
    um_request_append_names(row, &names, &aliases);
    um_jw_begin_object(w);
    put_text(w, "name", um_str_of(row->name));
    put_text(w, "group", um_str_of(row->group));
    put_text(w, "type", um_str_of(um_option_type(row)));
    put_limits(w, row);
    um_jw_put_str(w, "range", (um_str){range.data, range.len});
    if (row->choices) put_words(w, "choices", row->choices);
    if (names.len) put_words(w, "names", names.data);
    if (aliases.len) put_words(w, "aliases", aliases.data);
    put_text(w, "auto", um_option_auto(row));
    put_text(w, "default", (um_str){value.data, value.len});
    put_text(w, "help", um_str_of(row->help));
    put_text(w, "read_by", (um_str){readers.data, readers.len});
    um_jw_end_object(w);
    um_buf_free(&range);
    um_buf_free(&value);
    um_buf_free(&readers);
    um_buf_free(&names);
    um_buf_free(&aliases);
}

static void get_options(um_service *s, um_exchange *x, const char *id) {
    (void)id;
    um_request defaults;
    um_request_defaults(s, &defaults);
    um_option_set sets[UM_OPTION_SETS_MAX];
    size_t n = um_request_option_sets(sets, &defaults);
    um_buf out = {0};
    um_jw w;
    um_jw_init(&w, &out);
    um_jw_begin_object(&w);
    um_jw_put_cstr(&w, "object", "list");
    um_jw_key(&w, "data");
    um_jw_begin_array(&w);
    um_options_each(sets, n, put_row, &w);
    um_jw_end_array(&w);
    um_jw_end_object(&w);
    um_reply_json(x, 200, &out);
    um_buf_free(&out);
}

static const um_endpoint rows[] = {
    {"GET", "/options", get_options, 0, "unmask", "list the request parameters with ranges and defaults"},
};
const um_endpoint_set um_options_endpoints = {rows, UM_LEN(rows)};
