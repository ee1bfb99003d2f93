/* tools/checkpoints: the released shapes, their tensors, and folders of random weights. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "checkpoint.h"
#include "cli/released_folder.h"
#include "unit/model_zoo.h"

static json_t *releases;

static um_release find(const char *name, int32_t n_layers) {
    um_release r;
    um_err err = {0};
    if (um_release_find(&r, name, n_layers, &err)) fail_msg("%s", err.msg);
    return r;
}

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

typedef struct listing {
    const um_store *files; /* tensors must be there in the same shape; NULL: nowhere */
    int64_t tensors, elements;
} listing;

static um_status count_tensor(void *arg, const um_tensor *t, um_err *err) {
    listing *l = arg;
    (void)err;
    l->tensors++;
    l->elements += (int64_t)um_tensor_elements(t);
    if (!l->files) return UM_OK;
    const um_tensor *stored = um_store_find(l->files, t->name);
    if (!stored) fail_msg("no release has the tensor %s", t->name);
    assert_int_equal(t->n_dims, stored->n_dims);
    assert_memory_equal(t->dim, stored->dim, (size_t)t->n_dims * sizeof t->dim[0]);
    return UM_OK;
}

/* The names and shapes of released_folder.h were written from the releases, not from the tables of the families. */
static void every_shape_has_the_tensors_of_its_release(void **state) {
    (void)state;
    char *root = folder_new();
    json_t *facts;
    size_t i;
    json_array_foreach(json_object_get(releases, "releases"), i, facts) {
        um_release r = find(json_string_value(json_object_get(facts, "config")), 0);
        char *dir = released_folder(root, releases, facts);
        const json_t *expect = json_object_get(facts, "expect");
        um_store *files;
        um_err err = {0};
        if (um_store_open(&files, dir, &err)) fail_msg("%s", err.msg);
        listing l = {.files = files};
        assert_int_equal(um_arch_tensors(&r.arch, count_tensor, &l, &err), UM_OK);
        assert_int_equal(l.tensors, um_store_count(files));
        assert_int_equal(l.tensors, number(expect, "weights.tensors"));
        assert_int_equal(l.elements, number(expect, "sizes.parameters") + number(facts, "elements_beside"));
        um_store_close(files);
        um_release_free(&r);
        um_free(dir);
    }
    assert_true(i > 15);
    folder_free(root);
}

/* No release stores the experts of a layer in one tensor; a family may. */
static void a_stack_of_experts_is_listed_once(void **state) {
    (void)state;
    um_release r = find("llada_moe_7b_a1b", 0);
    um_family family = *r.arch.family;
    um_tensor_names names = *family.names;
    listing l = {0};
    while (!names.experts->stacked) names.experts++;
    family.names = &names;
    r.arch.family = &family;
    assert_int_equal(um_arch_tensors(&r.arch, count_tensor, &l, NULL), UM_OK);
    assert_int_equal(l.elements, um_arch_params(&r.arch));
    um_release_free(&r);
}

static um_status end_at_the_third(void *arg, const um_tensor *t, um_err *err) {
    return ++*(int *)arg == 3 ? um_fail(err, UM_EIO, "at %s", t->name) : UM_OK;
}

static void a_listing_ends_at_the_first_failure(void **state) {
    (void)state;
    um_release r = find("llada_8b", 0);
    um_err err;
    int n = 0;
    assert_int_equal(um_arch_tensors(&r.arch, end_at_the_third, &n, &err), UM_EIO);
    assert_int_equal(n, 3);
    assert_string_equal(err.msg, "at model.transformer.ff_out.weight");
    um_release_free(&r);
}

/* ---- Shapes ------------------------------------------------------------------------------------------------------ */

/* A folder with a release's tokenizer, which releases with the same special tokens share: opening one takes a while. */
typedef struct vocabulary {
    const char *tokens;
    char *dir;
    um_tok *tok;
} vocabulary;

static const vocabulary *vocabulary_of(vocabulary *v, const um_release *r) {
    const char *tokens = json_string_value(json_object_get(r->facts, "tokens"));
    um_err err = {0};
    while (v->tokens && !um_streq(v->tokens, tokens)) v++;
    if (v->tokens) return v;
    *v = (vocabulary){.tokens = tokens, .dir = folder_new()};
    if (um_folder_put_tokenizer(r, v->dir, NULL, &err) || um_tok_open(&v->tok, v->dir, &err))
        fail_msg("%s: %s", r->name, err.msg);
    return v;
}

/* The configuration beside the tokenizer, read back as `inspect` reads it. */
static um_arch read_back(const um_release *r, const vocabulary *v) {
    char *generation = um_path_join(v->dir, "generation_config.json");
    um_arch a = {0};
    um_err err = {0};
    remove(generation); /* of another release */
    if (um_folder_put_config(r, v->dir, UM_BF16, &err) ||
        um_arch_load(&a, &(um_arch_source){.dir = v->dir, .mask_id = -1, .tok = v->tok}, &err))
        fail_msg("%s: %s", r->name, err.msg);
    um_free(generation);
    return a;
}

static void assert_stops(const um_arch *a, const json_t *expected) {
    assert_int_equal(a->n_stop, json_array_size(expected));
    for (size_t i = 0; i < json_array_size(expected); i++) {
        bool found = false;
        for (int32_t k = 0; k < a->n_stop; k++) found |= a->stop[k] == json_integer_value(json_array_get(expected, i));
        assert_true(found);
    }
}

static void every_shape_is_recognised_with_its_tokenizer(void **state) {
    (void)state;
    vocabulary all[16] = {{0}};
    json_t *facts;
    size_t i;
    json_array_foreach(json_object_get(releases, "releases"), i, facts) {
        um_release r = find(json_string_value(json_array_get(json_object_get(facts, "names"), 0)), 0);
        const json_t *expect = json_object_get(facts, "expect");
        const um_arch a = read_back(&r, vocabulary_of(all, &r));
        assert_string_equal(a.family->name, json_string_value(json_object_get(expect, "family")));
        assert_string_equal(a.rule, "architectures[0]");
        assert_string_equal(a.declared_dtype, "bfloat16");
        assert_int_equal(a.block, number(expect, "sizes.block_size"));
        if (!a.family->has_no_mask) assert_int_equal(a.mask_id, number(expect, "decoding.mask_id"));
        assert_stops(&a, json_object_get(expect, "decoding.stop_ids"));
        um_release_free(&r);
    }
    for (vocabulary *v = all; v->tokens; v++) {
        um_tok_close(v->tok);
        folder_free(v->dir);
    }
}

static void every_shape_can_have_fewer_layers(void **state) {
    (void)state;
    const char *name;
    for (size_t i = 0; (name = um_release_name(i)); i++) {
        um_release all = find(name, 0), two = find(name, 2);
        listing l = {0};
        assert_int_equal(two.arch.n_layers, 2);
        assert_int_equal(two.arch.vocab, all.arch.vocab);
        assert_int_equal(two.arch.route.n_experts, all.arch.route.n_experts);
        assert_int_equal(um_arch_tensors(&two.arch, count_tensor, &l, NULL), UM_OK);
        const int64_t beside = number(two.facts, "elements_beside") / all.arch.n_layers; /* of each layer */
        assert_int_equal(l.elements, um_arch_params(&two.arch) + 2 * beside);
        um_release_free(&all);
        um_release_free(&two);
    }
}

static void shapes_are_found_by_their_names_and_those_of_releases(void **state) {
    (void)state;
    static const char *const names[][2] = {{"llada_8b", "llada_8b"},
                                           {"LLaDA-8B", "llada_8b"},
                                           {"GSAI-ML/LLaDA-1.5", "llada_8b"},
                                           {"LLaDA-1.5", "llada_8b"},
                                           {"sdar-1.7b", "sdar_1_7b"},
                                           {"SDAR-1.7B-Chat", "sdar_1_7b"},
                                           {"sdar_1_7b_tied", "sdar_1_7b_tied"},
                                           {"TraDo-8B-Thinking", "sdar_8b"}};
    for (size_t i = 0; i < UM_LEN(names); i++) {
        um_release r = find(names[i][0], 0);
        assert_string_equal(r.name, names[i][1]);
        um_release_free(&r);
    }
    um_release four = find("SDAR-8B-Chat", 0), many = find("SDAR-8B-Chat-b32", 0);
    assert_int_equal(four.arch.block, 4);
    assert_int_equal(many.arch.block, 32);
    um_release_free(&four);
    um_release_free(&many);
}

static void unknown_shapes_and_layers_are_refused(void **state) {
    (void)state;
    um_release r;
    um_err err;
    assert_int_equal(um_release_find(&r, "sdar_9b", 0, &err), UM_EINVAL);
    assert_says(&err, "unknown shape \"sdar_9b\" (did you mean sdar_");
    assert_int_equal(um_release_find(&r, "GSAI-ML/", 0, &err), UM_EINVAL);
    assert_int_equal(um_release_find(&r, "sdar_8b", 37, &err), UM_EINVAL);
    assert_says(&err, "sdar_8b has 36 layers, --layers asks for 37");
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

enum { VALUES = 1 << 20 };

static void values_are_normally_distributed(void **state) {
    (void)state;
    um_values *v = UM_NEW(um_values);
    float *x = UM_NEW_ARRAY(float, VALUES);
    double sum = 0, squares = 0;
    int within = 0;
    um_values_init(v, UM_F32);
    um_values_fill(v, 7, 0, VALUES, x);
    for (int i = 0; i < VALUES; i++) {
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
        within += fabs((double)x[i]) < UM_VALUES_STD;
    }
    assert_true(fabs(sum / VALUES) < 1e-4);
    assert_true(fabs(sqrt(squares / VALUES) - UM_VALUES_STD) < 1e-4);
    assert_true(fabs((double)within / VALUES - 0.6827) < 2e-3);
    um_free(x);
    um_free(v);
}

static void parts_of_a_tensor_equal_the_whole(void **state) {
    (void)state;
    um_values *v = UM_NEW(um_values);
    uint16_t whole[64], part[64], other[64];
    um_values_init(v, UM_BF16);
    um_values_fill(v, 7, 0, 64, whole);
    um_values_fill(v, 7, 0, 20, part);
    um_values_fill(v, 7, 20, 44, part + 20);
    um_values_fill(v, 8, 0, 64, other);
    assert_memory_equal(part, whole, sizeof whole);
    assert_memory_not_equal(other, whole, sizeof whole);
    um_free(v);
}

/* ---- Weights ----------------------------------------------------------------------------------------------------- */

static const um_weights_options one_file = {.type = UM_F32, .shard_bytes = 1 << 30};

static void write_weights_of(const zoo *z, const um_weights_options *o) {
    um_err err = {0};
    if (um_weights_write(z->dir, &z->arch, o, &err)) fail_msg("%s", err.msg);
}

static um_store *open_weights(const zoo *z) {
    um_store *files;
    um_err err = {0};
    if (um_store_open(&files, z->dir, &err)) fail_msg("%s", err.msg);
    return files;
}

static void written_weights_are_loaded(void **state) {
    (void)state;
    static const char *const configs[] = {ZOO_ILLADA(",'layer_norm_eps':1e-5,'attention_bias':true,'mlp_bias':true"),
                                          ZOO_DREAM, ZOO_LLADA_MOE_B, ZOO_LLADA2(""), ZOO_SDAR_MOE};
    for (size_t i = 0; i < UM_LEN(configs); i++) {
        zoo z = zoo_new(configs[i]);
        write_weights_of(&z, &one_file);
        um_model *m = zoo_model(&z, "ref");
        assert_int_equal(m->n_params, um_arch_params(&z.arch));
        zoo_done(&z, m);
    }
}

static void norms_are_one_and_biases_are_not(void **state) {
    (void)state;
    zoo z = zoo_new(ZOO_DREAM);
    write_weights_of(&z, &one_file);
    um_store *files = open_weights(&z);
    const um_tensor *norm = um_store_find(files, "model.layers.1.input_layernorm.weight");
    const um_tensor *bias = um_store_find(files, "model.layers.1.self_attn.q_proj.bias");
    float one[64], value[64];
    memcpy(one, norm->data, sizeof one);
    memcpy(value, bias->data, sizeof value);
    for (int i = 0; i < 64; i++) {
        assert_true(one[i] == 1);
        assert_true(fabsf(value[i]) < 0.1f);
    }
    um_store_close(files);
    folder_free(z.dir);
}

/* Every tensor of a is in b with the same bytes. */
static void assert_same_tensors(const um_store *a, const um_store *b) {
    for (size_t i = 0; i < um_store_count(a); i++) {
        const um_tensor *t = um_store_at(a, i), *same = um_store_find(b, t->name);
        assert_non_null(same);
        assert_memory_equal(t->data, same->data, um_tensor_elements(t) * um_dtype_size(t->type));
    }
}

static void files_of_another_size_hold_the_same_weights(void **state) {
    (void)state;
    zoo whole = zoo_new(ZOO_LLADA2("")), cut = zoo_new(ZOO_LLADA2(""));
    const um_weights_options shards = {.type = UM_F32, .shard_bytes = 100000};
    write_weights_of(&whole, &one_file);
    write_weights_of(&cut, &shards);
    um_store *a = open_weights(&whole), *b = open_weights(&cut);
    assert_string_equal(um_store_file(a, um_store_at(a, 0)), "model.safetensors");
    assert_non_null(strstr(um_store_file(b, um_store_at(b, 0)), "-of-000"));
    assert_int_equal(um_store_count(a), um_store_count(b));
    assert_same_tensors(a, b);
    um_store_close(a);
    um_store_close(b);
    folder_free(whole.dir);
    folder_free(cut.dir);
}

static void fewer_layers_have_the_weights_that_they_have_among_all(void **state) {
    (void)state;
    zoo all = zoo_new(ZOO_DREAM), first = zoo_new(ZOO_DREAM);
    first.arch.n_layers = 1;
    write_weights_of(&all, &one_file);
    write_weights_of(&first, &one_file);
    um_store *a = open_weights(&first), *b = open_weights(&all);
    assert_true(um_store_count(a) < um_store_count(b));
    assert_same_tensors(a, b);
    um_store_close(a);
    um_store_close(b);
    folder_free(all.dir);
    folder_free(first.dir);
}

static void another_seed_gives_other_weights(void **state) {
    (void)state;
    zoo one = zoo_new(ZOO_DREAM), two = zoo_new(ZOO_DREAM);
    um_weights_options other = one_file;
    other.seed = 1;
    write_weights_of(&one, &one_file);
    write_weights_of(&two, &other);
    um_store *a = open_weights(&one), *b = open_weights(&two);
    const um_tensor *x = um_store_find(a, "lm_head.weight"), *y = um_store_find(b, "lm_head.weight");
    assert_memory_not_equal(x->data, y->data, um_tensor_elements(x) * sizeof(float));
    um_store_close(a);
    um_store_close(b);
    folder_free(one.dir);
    folder_free(two.dir);
}

static int begin(void **state) {
    (void)state;
    releases = released_json("releases");
    return 0;
}

static int end(void **state) {
    (void)state;
    json_decref(releases);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_has_the_tensors_of_its_release),
        cmocka_unit_test(a_stack_of_experts_is_listed_once),
        cmocka_unit_test(a_listing_ends_at_the_first_failure),
        cmocka_unit_test(every_shape_is_recognised_with_its_tokenizer),
        cmocka_unit_test(every_shape_can_have_fewer_layers),
        cmocka_unit_test(shapes_are_found_by_their_names_and_those_of_releases),
        cmocka_unit_test(unknown_shapes_and_layers_are_refused),
        cmocka_unit_test(values_are_normally_distributed),
        cmocka_unit_test(parts_of_a_tensor_equal_the_whole),
        cmocka_unit_test(written_weights_are_loaded),
        cmocka_unit_test(norms_are_one_and_biases_are_not),
        cmocka_unit_test(files_of_another_size_hold_the_same_weights),
        cmocka_unit_test(fewer_layers_have_the_weights_that_they_have_among_all),
        cmocka_unit_test(another_seed_gives_other_weights),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
