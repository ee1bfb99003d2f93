/* Special ids: the id of the mask, and the ids that end an answer. The files of a folder may contradict each other
 * here, so the source of every id is kept. */
#include <jansson.h>
#include <math.h>

#include "model/config.h"

static const char by_config[] = "config.json", by_generation[] = "generation_config.json",
                  by_tokenizer[] = "the tokenizer", by_family[] = "the family", by_user[] = "the user";

static void set_id(int32_t *id, const char **from, int32_t value, const char *source) {
    if (*id >= 0 || value < 0) return;
    *id = value;
    *from = source;
}

/* Reads the id under `key` of a file, unless an earlier source has named it. */
static um_status read_id(int32_t *id, const char **from, const json_t *config, const char *key, const char *where,
                         int32_t vocab, const char *source, um_err *err) {
    int32_t value = -1;
    um_status s = um_json_get_int32(config, key, where, -1, vocab - 1, &value, err);
    if (!s) set_id(id, from, value, source);
    return s;
}

/* ---- Ids that end an answer -------------------------------------------------------------------------------------- */

static bool id_exists(const um_arch *a, const um_tok *tok, int64_t id) {
    return id >= 0 && id < a->vocab && (!tok || um_tok_exists(tok, (int32_t)id));
}

static um_status add_stop(um_arch *a, const um_tok *tok, int64_t id, const char *source, um_err *err) {
    if (!id_exists(a, tok, id)) return UM_OK;
    for (int32_t i = 0; i < a->n_stop; i++)
        if (a->stop[i] == id) return UM_OK;
    if (a->n_stop == UM_STOP_MAX) return um_fail(err, UM_ELIMIT, "more than %d ids end an answer", UM_STOP_MAX);
    a->stop_from[a->n_stop] = source;
    a->stop[a->n_stop++] = (int32_t)id;
    return UM_OK;
}

/* Adds the ids of eos_token_id, which is a number or a list of numbers. */
static um_status add_eos(um_arch *a, const um_tok *tok, const json_t *config, const char *where, const char *source,
                         um_err *err) {
    json_t *v = json_object_get(config, "eos_token_id");
    if (!v || json_is_null(v)) return UM_OK;
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    for (size_t i = 0; i < n; i++) {
        json_t *id = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_integer(id))
            return um_fail(err, UM_EPARSE, "%s: \"eos_token_id\" must be a whole number or a list of them", where);
        um_status s = add_stop(a, tok, json_integer_value(id), source, err);
        if (s) return um_fail_in(err, "%s", where);
    }
    return UM_OK;
}

/* Adds the stop ids of the tokenizer and of the family, if these tokens exist. */
static um_status add_named_stops(um_arch *a, const um_tok *tok, um_err *err) {
    if (!tok) return UM_OK;
    um_status s = add_stop(a, tok, um_tok_special_id(tok, "eos_token"), by_tokenizer, err);
    if (!s && a->family->turn_end)
        s = add_stop(a, tok, um_tok_find(tok, um_str_of(a->family->turn_end)), by_family, err);
    return s;
}

/* ---- generation_config.json -------------------------------------------------------------------------------------- */

static um_status read_temperature(um_arch *a, const json_t *config, const char *where, um_err *err) {
    double t = NAN;
    um_status s = um_json_get_double(config, "temperature", where, &t, err);
    if (s) return s;
    if (t < 0 || isinf(t)) return um_fail(err, UM_EPARSE, "%s: \"temperature\" is %g, expected 0 or more", where, t);
    a->temperature = json_is_false(json_object_get(config, "do_sample")) ? 0 : (float)t;
    return UM_OK;
}

/* Reads a number of the denoising of a canvas. null switches off what it limits, where `off` is set. */
static um_status read_canvas_number(const json_t *g, const char *key, const char *where, double min, bool off,
                                    float *out, um_err *err) {
    double v = (double)*out;
    const json_t *given = json_object_get(g, key);
    if (given && json_is_null(given) && off) {
        *out = NAN;
        return UM_OK;
    }
    um_status s = um_json_get_double(g, key, where, &v, err);
    if (!s && !isnan(v) && !(v >= min && v < 1e6))
        s = um_fail(err, UM_EPARSE, "%s: \"%s\" is %g, expected %g or more", where, key, v, min);
    *out = (float)v;
    return s;
}

/* Reads how a canvas is denoised. */
static um_status read_canvas(um_arch *a, const json_t *g, const char *where, um_err *err) {
    um_canvas_defaults *c = &a->canvas;
    const json_t *sampler = json_object_get(g, "sampler_config"),
                 *stability = json_object_get(g, "stability_threshold");
    um_status s = um_json_get_int32(g, "max_denoising_steps", where, 1, 65536, &c->steps, err);
    if (!s && json_is_object(sampler))
        s = read_canvas_number(sampler, "entropy_bound", where, 1e-6, false, &c->entropy_bound, err);
    if (!s) s = read_canvas_number(g, "t_min", where, 0, true, &c->t_min, err);
    if (!s) s = read_canvas_number(g, "t_max", where, 1e-6, true, &c->t_max, err);
    if (!s) s = read_canvas_number(g, "confidence_threshold", where, 1e-9, true, &c->confidence, err);
    if (!s) s = um_json_get_int32(g, "stability_threshold", where, 0, UM_STABILITY_MAX, &c->stability, err);
    if (stability && json_is_null(stability)) c->stability = -1;
    if (!s && c->t_max <= c->t_min)
        s = um_fail(err, UM_EPARSE, "%s: \"t_max\" is %g, expected more than \"t_min\" %g", where, (double)c->t_max,
                    (double)c->t_min);
    return s;
}

/* Reads stop ids, a temperature and a default length. Many folders lack this file. */
static um_status read_generation(um_arch *a, const um_arch_source *from, um_err *err) {
    char *path = um_path_join(from->dir, "generation_config.json");
    json_t *g = NULL;
    um_status s = UM_OK;
    if (um_file_exists(path)) {
        s = um_json_load(&g, path, err);
        if (!s) s = add_eos(a, from->tok, g, path, by_generation, err);
        if (!s) s = read_id(&a->pad_id, &a->pad_from, g, "pad_token_id", path, a->vocab, by_generation, err);
        if (!s) s = read_id(&a->bos_id, &a->bos_from, g, "bos_token_id", path, a->vocab, by_generation, err);
        if (!s) s = read_temperature(a, g, path, err);
        if (!s) s = read_canvas(a, g, path, err);
        if (!s) s = um_json_get_int32(g, "max_new_tokens", path, 1, INT32_MAX, &a->max_new_tokens, err);
    }
    json_decref(g);
    um_free(path);
    return s;
}

/* ---- The mask ---------------------------------------------------------------------------------------------------- */

static int32_t tokenizer_mask(const um_arch *a, const um_tok *tok) {
    int32_t id = um_tok_special_id(tok, "mask_token");
    if (id < 0 && a->family->mask_token) id = um_tok_find(tok, um_str_of(a->family->mask_token));
    return id < a->vocab ? id : -1;
}

/* Returns whether the id is that of the ordinary token which the releases use as their mask. */
static bool is_mask_text(const um_arch *a, const um_tok *tok, int32_t id) {
    const char *text = a->family->mask_text;
    return text && id >= 0 && um_tok_find(tok, um_str_of(text)) == id;
}

/* Returns whether the mask id of the family's releases can be used for this folder. It can't when the tokenizer has
 * another ordinary token under this id. */
static bool family_mask_fits(const um_arch *a, const um_tok *tok) {
    int32_t id = a->family->mask_id;
    if (id < 0 || id >= a->vocab) return false;
    return !tok || !um_tok_exists(tok, id) || um_tok_is_special(tok, id) || is_mask_text(a, tok, id);
}

static void warn_of_mask_text(const um_arch *a, const char *where, const um_tok *tok) {
    if (tok && is_mask_text(a, tok, a->mask_id) && !um_tok_is_special(tok, a->mask_id))
        um_warn(
            "%s: the mask %d is also the text %s: no answer can have it, and in a prompt the model takes it for a mask",
            where, a->mask_id, a->family->mask_text);
}

static um_status user_mask(um_arch *a, const char *where, int32_t id, um_err *err) {
    if (id < 0) return UM_OK;
    if (id >= a->vocab)
        return um_fail(err, UM_ERANGE, "%s: mask_token_id is %d, but the model has ids up to %d only", where, id,
                       a->vocab - 1);
    a->mask_id = id;
    a->mask_from = by_user;
    return UM_OK;
}

/* Determines the mask id. The first of these sources that names one is used: the user, config.json, the tokenizer's
 * mask token, the family. */
static um_status resolve_mask(um_arch *a, const char *where, const um_arch_source *from, um_err *err) {
    const um_tok *tok = from->tok;
    um_status s = user_mask(a, where, from->mask_id, err);
    if (s) return s;
    int32_t known = tok ? tokenizer_mask(a, tok) : -1;
    if (a->mask_from == by_config && known >= 0 && known != a->mask_id)
        um_warn("%s: mask_token_id is %d but the tokenizer's mask token is %d; %d is used", where, a->mask_id, known,
                a->mask_id);
    set_id(&a->mask_id, &a->mask_from, known, by_tokenizer);
    if (family_mask_fits(a, tok)) set_id(&a->mask_id, &a->mask_from, a->family->mask_id, by_family);
    warn_of_mask_text(a, where, tok);
    if (a->family->has_no_mask) set_id(&a->mask_id, &a->mask_from, UM_MAX(a->pad_id, 0), by_family);
    if (a->mask_id >= 0 || !tok) return UM_OK;
    return um_fail(err, UM_EMODEL,
                   "%s: no mask token: \"mask_token_id\" is missing and the tokenizer has no \"mask_token\"; name it "
                   "with --mask-token-id, or in one of the files",
                   where);
}

/* ---- The tokenizer ----------------------------------------------------------------------------------------------- */

/* Warns when the tokenizer is as large as that of the releases but has other ids for their tokens. It then belongs to
 * another model or was changed by hand. */
static void compare_tokens(const um_arch *a, const char *where, const um_tok *tok) {
    if (!a->family->tokens || um_tok_size(tok) < a->family->tokenizer_size) return;
    for (const um_known_token *t = a->family->tokens; t->text; t++) {
        int32_t id = um_tok_find(tok, um_str_of(t->text));
        if (id == t->id || t->id >= um_tok_size(tok)) continue;
        if (id < 0)
            um_warn("%s: the tokenizer has no token %s, which is %d in the releases of %s", where, t->text, t->id,
                    a->family->name);
        else
            um_warn("%s: token %s is %d in the tokenizer, but %d in the releases of %s", where, t->text, id, t->id,
                    a->family->name);
    }
}

/* ---- Functions of config.h --------------------------------------------------------------------------------------- */

um_status um_arch_config_ids(um_arch *a, const json_t *config, const char *where, um_err *err) {
    json_t *text = json_object_get(config, "text_config"); /* present in multimodal models */
    um_status s = read_id(&a->mask_id, &a->mask_from, config, "mask_token_id", where, a->vocab, by_config, err);
    if (!s && json_is_object(text))
        s = read_id(&a->mask_id, &a->mask_from, text, "mask_token_id", where, a->vocab, by_config, err);
    if (!s) s = read_id(&a->pad_id, &a->pad_from, config, "pad_token_id", where, a->vocab, by_config, err);
    if (!s) s = read_id(&a->bos_id, &a->bos_from, config, "bos_token_id", where, a->vocab, by_config, err);
    if (s || !json_is_object(text)) return s;
    s = read_id(&a->pad_id, &a->pad_from, text, "pad_token_id", where, a->vocab, by_config, err);
    return s ? s : read_id(&a->bos_id, &a->bos_from, text, "bos_token_id", where, a->vocab, by_config, err);
}

um_status um_arch_read_ids(um_arch *a, const json_t *config, const char *where, const um_arch_source *from,
                           um_err *err) {
    const um_tok *tok = from->tok;
    if (tok && um_tok_size(tok) > a->vocab)
        return um_fail(err, UM_EMODEL,
                       "%s: the tokenizer has ids up to %d, but the model only %d rows; the tokenizer "
                       "belongs to another checkpoint",
                       where, um_tok_size(tok) - 1, a->vocab);
    um_status s = add_eos(a, tok, config, where, by_config, err);
    if (!s) s = add_eos(a, tok, json_object_get(config, "text_config"), where, by_config, err);
    if (!s) s = read_generation(a, from, err);
    if (!s) s = add_named_stops(a, tok, err);
    if (!s) s = resolve_mask(a, where, from, err);
    if (s || !tok) return s;
    set_id(&a->pad_id, &a->pad_from, um_tok_special_id(tok, "pad_token"), by_tokenizer);
    set_id(&a->bos_id, &a->bos_from, um_tok_special_id(tok, "bos_token"), by_tokenizer);
    if (!a->n_stop) um_warn("%s: no token ends an answer; answers end at their length", where);
    compare_tokens(a, where, tok);
    return UM_OK;
}
