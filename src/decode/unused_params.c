/* The check for parameters that neither strategy nor sampler reads. Such a request fails, because its answer would not
 * be what the request asks for. */
#include "decode/decode.h"

static bool is_read(const um_req *r, const char *option) {
    return um_params_have(r->strategy->params, option) || (r->sampler && um_params_have(r->sampler->params, option));
}

static void put_kind(um_buf *out, int n, const char *one, const char *several, const um_buf *names) {
    if (n) um_buf_printf(out, "%s%s %s", out->len ? "; " : "", n == 1 ? one : several, names->data);
}

void um_params_put_readers(const char *option, um_buf *out) {
    um_buf strategies = {0}, samplers = {0};
    int n = 0, m = 0;
    for (const um_strategy *const *k = um_strategies; *k; k++)
        if (um_params_have((*k)->params, option)) um_buf_printf(&strategies, "%s%s", n++ ? ", " : "", (*k)->name);
    const um_sampler *s;
    for (size_t i = 0; (s = um_sampler_at(i)); i++)
        if (um_params_have(s->params, option)) um_buf_printf(&samplers, "%s%s", m++ ? ", " : "", s->name);
    put_kind(out, n, "strategy", "strategies", &strategies);
    put_kind(out, m, "sampler", "samplers", &samplers);
    um_buf_free(&strategies);
    um_buf_free(&samplers);
}

static um_status fail_unused(const um_req *r, const um_option *row, const um_decoding *given, um_err *err) {
    um_buf value = {0}, readers = {0};
    um_option_get_text(row, given, &value);
    um_params_put_readers(row->name, &readers);
    um_status st = um_fail_param(err, UM_EUNSUPPORTED, row->name,
                                 "%s would have no effect: strategy %s%s%s %s not read it; it is read by %s",
                                 value.data, r->strategy->name, r->sampler ? " and sampler " : "",
                                 r->sampler ? r->sampler->name : "", r->sampler ? "do" : "does", readers.data);
    um_buf_free(&value);
    um_buf_free(&readers);
    return st;
}

um_status um_req_check_unread_params(const um_req *r, const um_decoding *given, const um_decoding *usual, um_err *err) {
    um_option_set sets[UM_DECODE_SETS_MAX];
    um_decoding plain;
    um_sampling_params sampling;
    if (usual && memcmp(given, usual, sizeof *given) == 0) return UM_OK;
    const size_t n = um_decode_option_sets(sets, &plain, &sampling);
    um_decoding_init(&plain);
    for (size_t i = 0; i < n; i++) {
        /* Every strategy reads um_decoding_options. */
        if (sets[i].base != &plain || sets[i].rows == um_decoding_options) continue;
        for (size_t k = 0; k < sets[i].n; k++) {
            const um_option *row = &sets[i].rows[k];
            bool is_given = !um_option_equal(row, given, &plain) && !(usual && um_option_equal(row, given, usual));
            if (is_given && !is_read(r, row->name)) return fail_unused(r, row, given, err);
        }
    }
    return UM_OK;
}
