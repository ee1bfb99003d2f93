/* Recognises the family of a config.json.
 *
 * The first value of "architectures" decides. "model_type" is used only when that value is missing or unknown, because
 * several families share a model_type ("llada" stands for the dense model and for the mixture of experts), and one
 * family uses that of an autoregressive model ("llama"). A model that unmask can't run is refused with a message that
 * names it. */
#include <jansson.h>
#include <strings.h>

#include "model/checkpoint.h"
#include "model/config.h"

/* Autoregressive models. Their tensors have the names of some families' tensors, so without this list they would be
 * loaded and would write nonsense. A word stands for all names that start with it ("Qwen3" for Qwen3MoeForCausalLM). */
static const char autoregressive[] = "Llama|Qwen2|Qwen3|Mistral|Mixtral|Gemma|GPT|Phi|Falcon|Olmo|Deepseek|"
                                     "Bloom|OPT|Cohere|InternLM|Baichuan|ChatGLM|Glm|Granite|Starcoder|StableLm|"
                                     "Mamba|Ministral|SmolLM|Yi|Bamba|Nemotron|Exaone|Kimi|MiniCPM|Ernie|Hunyuan";

/* Models whose config.json leaves out something that unmask must know. A word stands for all names that start with it.
 */
static const char conversions[] = "A2D";
static const char conversions_why[] = "config.json does not say whether its attention is full or block-causal; for a "
                                      "conversion of Qwen3 that was trained "
                                      "with blocks use --model-name sdar and --block-size";

/* ---- Words in lists ---------------------------------------------------------------------------------------------- */

/* Returns whether the list "a|b|c" contains `word` or, with `prefix`, a word that `word` starts with. Ignores case. */
static bool in_list(const char *list, const char *word, bool prefix) {
    if (!list || !word || !*word) return false;
    size_t n = strlen(word);
    for (const char *p = list; *p;) {
        size_t len = strcspn(p, "|");
        if ((prefix ? n >= len : n == len) && !strncasecmp(p, word, len)) return true;
        p += len + (p[len] == '|');
    }
    return false;
}

/* Appends the names of the families, "llada, sdar", for messages. */
static void list_families(um_buf *out) {
    for (size_t i = 0; um_families[i]; i++) um_buf_printf(out, "%s%s", i ? ", " : "", um_families[i]->name);
}

const um_family *um_family_find(const char *name) {
    for (size_t i = 0; um_families[i]; i++)
        if (!strcasecmp(um_families[i]->name, name) || in_list(um_families[i]->aliases, name, false))
            return um_families[i];
    return NULL;
}

bool um_family_is_named(const char *name) { return name && *name && strcmp(name, "auto"); }

/* ---- Recognition ------------------------------------------------------------------------------------------------- */

bool um_is_autoregressive(const char *architecture) { return in_list(autoregressive, architecture, true); }

static um_status refuse(um_err *err, const char *where, const char *what, const char *name, const char *why) {
    um_buf known = {0};
    list_families(&known);
    um_status s = um_fail(err, UM_EUNSUPPORTED, "%s: %s %s: %s; unmask runs diffusion language models: %s", where, what,
                          name, why, known.data);
    um_buf_free(&known);
    return s;
}

static const um_family *by_architecture(const char *architecture) {
    for (size_t i = 0; um_families[i]; i++)
        if (in_list(um_families[i]->architectures, architecture, false)) return um_families[i];
    return NULL;
}

/* Returns the family with this model_type, or NULL. Several families can have it ("llada" is a dense model and a
 * mixture of experts); the one that agrees with `experts` is preferred. */
static const um_family *by_model_type(const char *model_type, bool experts) {
    const um_family *f = NULL;
    for (size_t i = 0; um_families[i]; i++)
        if (in_list(um_families[i]->model_types, model_type, false) && (!f || um_families[i]->experts == experts))
            f = um_families[i];
    return f;
}

/* Returns f, or its twin of the same architecture if config.json states norms of queries and keys like the twin's.
 * Files without the field qk_norm have either norms or biases. */
static const um_family *by_norms(const um_family *f, const json_t *config) {
    if (!f || !f->twin || !um_streq(f->architectures, f->twin->architectures)) return f;
    const json_t *norms = json_object_get(config, "qk_norm"), *biases = json_object_get(config, "attention_bias");
    const bool has_norms = json_is_boolean(norms) ? json_is_true(norms) : !json_is_true(biases);
    return has_norms == f->stores_qk_norm ? f : f->twin;
}

static bool has_experts(const json_t *config) {
    static const char *const keys[] = {"num_experts", "n_routed_experts", "num_local_experts", "moe_layer_freq"};
    for (size_t i = 0; i < UM_LEN(keys); i++) {
        json_t *v = json_object_get(config, keys[i]);
        if (v && !json_is_null(v) && !(json_is_integer(v) && json_integer_value(v) <= 1)) return true;
    }
    return false;
}

static um_status by_override(const um_family **out, const char **rule, const char *where, const char *name,
                             um_err *err) {
    *out = um_family_find(name);
    *rule = "named by the user";
    return *out ? UM_OK : refuse(err, where, "model name", name, "no such family");
}

static um_status refuse_unknown(const char *where, const char *architecture, const char *model_type, um_err *err) {
    const char *what = *architecture ? "architecture" : "model_type", *name = *architecture ? architecture : model_type;
    if (um_is_autoregressive(name)) return refuse(err, where, what, name, "an autoregressive model");
    if (in_list(conversions, name, true)) return refuse(err, where, what, name, conversions_why);
    return refuse(err, where, what, *name ? name : "(none given)", "not known");
}

um_status um_family_detect(const um_family **out, const char **rule, const json_t *config, const char *where,
                           const char *override, um_err *err) {
    const char *architecture = json_string_value(json_array_get(json_object_get(config, "architectures"), 0));
    const char *model_type = json_string_value(json_object_get(config, "model_type"));
    if (!architecture) architecture = "";
    if (!model_type) model_type = "";
    *out = NULL;
    if (um_family_is_named(override)) return by_override(out, rule, where, override, err);

    const um_family *f = by_architecture(architecture);
    *rule = "architectures[0]";
    if (!f && !um_is_autoregressive(architecture)) {
        f = by_model_type(model_type, has_experts(config));
        *rule = "model_type";
    }
    f = by_norms(f, config);
    if (!f) return refuse_unknown(where, architecture, model_type, err);
    if (has_experts(config) && !f->experts)
        return refuse(err, where, "a mixture of experts with architecture", *architecture ? architecture : model_type,
                      "that name is a dense model's");
    *out = f;
    return UM_OK;
}

bool um_family_supports(const um_family *f, const char *strategy) { return in_list(f->strategies, strategy, false); }

const um_family *um_family_of_checkpoint(const char *path) {
    const um_family *family = NULL;
    const char *rule;
    json_t *config;
    char *where;
    if (um_checkpoint_config(&config, &where, path, NULL) ||
        um_family_detect(&family, &rule, config, where, NULL, NULL))
        family = NULL;
    json_decref(config);
    um_free(where);
    return family;
}
