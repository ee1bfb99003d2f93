/* Tests of stretched rotary embeddings: their fields in config.json, and the frequencies.
 * The expected numbers were computed in double precision from the definition, by a program of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "model_fields.h"

#define BODY                                                                                                           \
    "'architectures':['NemotronLabsDiffusionModel'],'hidden_size':64,'intermediate_size':160,'num_hidden_layers':2,"   \
    "'num_attention_heads':4,'num_key_value_heads':2,'vocab_size':256,'max_position_embeddings':512,"                  \
    "'rms_norm_eps':1e-5,'hidden_act':'silu','sliding_window':null,'mask_token_id':100,'eos_token_id':11"
#define YARN(theta, original, factor, fast, all_dim)                                                                   \
    "{'rope_type':'yarn','rope_theta':" theta ",'factor':" factor ",'original_max_position_embeddings':" original      \
    ",'beta_fast':" fast ",'beta_slow':1.0,'mscale':1.0,'mscale_all_dim':" all_dim ",'llama_4_scaling_beta':0.1}"

static const char small[] = "{" BODY ",'head_dim':16,'rope_parameters':" YARN("10000.0", "64", "4.0", "8.0", "0.5") "}";
static const char released[] =
    "{" BODY ",'head_dim':128,'rope_parameters':" YARN("1e6", "16384", "16.0", "32.0", "1.0") "}";

static void near(float have, double want) {
    if (!(fabs(have - want) <= 1e-6 * fabs(want))) fail_msg("%.9g, expected %.9g", (double)have, want);
}

static void frequencies_are_blended(void **state) {
    (void)state;
    static const double want[] = {1, 0.237170825, 0.05, 0.00790569415, 0.0025, 0.000790569415, 0.00025, 7.90569415e-05};
    um_arch a = accepts(small, NULL, NULL);
    for (int32_t i = 0; i < 8; i++) near(um_arch_frequency(&a, &a.kind[0], i), want[i]);
    near(um_arch_rotary_scale(&a), 1.0648216253695715);
    a = accepts(released, NULL, NULL);
    near(um_arch_frequency(&a, &a.kind[0], 0), 1);
    near(um_arch_frequency(&a, &a.kind[0], 20), 0.0133352143);
    near(um_arch_frequency(&a, &a.kind[0], 25), 0.00328206609);
    near(um_arch_frequency(&a, &a.kind[0], 30), 0.000690702339);
    near(um_arch_frequency(&a, &a.kind[0], 40), 1.11142463e-05);
    near(um_arch_frequency(&a, &a.kind[0], 63), 7.755861e-08);
    near(um_arch_rotary_scale(&a), 1);
}

static void plain_frequencies_stay(void **state) {
    (void)state;
    const um_arch a = {.kind = {{.rope_theta = 1e6, .rope_factor = 1, .rope_dim = 128, .rope_pairs = 64}}};
    near(um_arch_frequency(&a, &a.kind[0], 0), 1);
    near(um_arch_frequency(&a, &a.kind[0], 32), 1e-3);
    near(um_arch_rotary_scale(&a), 1);
}

/* Checks the object `rope_parameters` with one field changed or removed. */
static void refuses_stretch(const char *key, const char *value, um_status want, const char *part) {
    json_t *config = json_of(small), *rope = json_object_get(config, "rope_parameters");
    um_arch a;
    um_err err = {0};
    if (value) json_object_set_new(rope, key, json_of(value));
    else json_object_del(rope, key);
    const um_status s = um_arch_parse(&a, config, "config.json", NULL, &err);
    if (s != want) fail_msg("%s = %s: status %d, expected %d: %s", key, value ? value : "(absent)", s, want, err.msg);
    assert_says(&err, "config.json");
    assert_says(&err, part ? part : key);
    json_decref(config);
}

static void every_number_of_a_stretch_is_needed(void **state) {
    (void)state;
    static const char *const keys[] = {"factor",     "original_max_position_embeddings",
                                       "beta_fast",  "beta_slow",
                                       "mscale",     "mscale_all_dim",
                                       "rope_theta", "llama_4_scaling_beta"};
    for (size_t i = 0; i < UM_LEN(keys); i++) {
        refuses_stretch(keys[i], NULL, UM_EMODEL, NULL);
        refuses_stretch(keys[i], "'x'", UM_EPARSE, NULL);
        refuses_stretch(keys[i], "-1", UM_EPARSE, NULL);
    }
    refuses(small, "rope_parameters", NULL, UM_EMODEL, NULL);
    refuses(small, "rope_parameters", "[]", UM_EPARSE, NULL);
}

static void what_is_not_computed_is_refused(void **state) {
    (void)state;
    refuses_stretch("factor", "0.5", UM_EPARSE, NULL);
    refuses_stretch("factor", "1e300", UM_EPARSE, NULL);
    refuses_stretch("original_max_position_embeddings", "0", UM_EPARSE, NULL);
    refuses_stretch("rope_theta", "1", UM_EPARSE, NULL);
    refuses_stretch("beta_slow", "64", UM_EPARSE, "beta_fast");
    refuses_stretch("truncate", "false", UM_EUNSUPPORTED, NULL);
    refuses_stretch("attention_factor", "1.5", UM_EUNSUPPORTED, NULL);
    refuses_stretch("rope_type", "'longrope'", UM_EUNSUPPORTED, "longrope");
    refuses_stretch("rope_type", NULL, UM_EUNSUPPORTED, "yarn only");
    refuses(small, "sliding_window", "64", UM_EUNSUPPORTED, NULL);
    assert_int_equal(accepts(small, "sliding_window", "512").head_dim, 16);
    assert_true(accepts(small, "rope_theta", "500.0").rope_theta == 500);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequencies_are_blended),
        cmocka_unit_test(plain_frequencies_stay),
        cmocka_unit_test(every_number_of_a_stretch_is_needed),
        cmocka_unit_test(what_is_not_computed_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
