/* Blends of embeddings, calculated by hand, for every backend including the reference. */
#include "ops_given.h"

enum { ROWS = 6, IN = 4, MASK = 4 };
static const float matrix[ROWS][IN] = {{0}, {1, 2, -3, 4}, {0, 0, 2, 0}, {0, 0, 0, 3}, {4, 0, 0, 0}, {-1, -2, 3, -4}};

/* Blends the middle one of three tokens and checks the result. The other two must not change. */
static void expect_blend(const world *w, const um_soft *soft, float scale, const double want[IN]) {
    um_tensor t = {.name = "given", .type = UM_F32, .n_dims = 2, .dim = {ROWS, IN}, .data = matrix};
    um_weight *m = make_weight(w, &t, 1);
    float x[3][IN];
    for (int i = 0; i < 3 * IN; i++) (&x[0][0])[i] = 9;
    w->ops->embed_soft(w->dev, m, soft, 1, scale, &x[0][0]);
    for (int k = 0; k < IN; k++) {
        assert_near(x[1][k], want[k]);
        assert_true(x[0][k] == 9 && x[2][k] == 9);
    }
    w->ops->weight_free(w->dev, m);
}

static void check_blend(const world *w) {
    const int32_t id[] = {2, 3, MASK};
    const float p[] = {0.25f, 0.5f, 0.25f};
    um_soft soft = {.at = 1, .n = 3, .id = id, .w = p};
    expect_blend(w, &soft, 1, (double[]){1, 0, 0.5, 1.5});
    expect_blend(w, &soft, 2, (double[]){2, 0, 1, 3});
    soft.renormalize = true; /* from the length 1.870829 to 0.25 * 2 + 0.5 * 3 + 0.25 * 4 */
    expect_blend(w, &soft, 1, (double[]){1.603567, 0, 0.801784, 2.405351});
    expect_blend(w, &soft, 2, (double[]){3.207135, 0, 1.603567, 4.810702});
}

static void blend_is_brought_to_the_mean_length_when_asked(void **state) {
    (void)state;
    for_each_backend(check_blend);
}

static void check_one(const world *w) {
    const int32_t id[] = {1, 1};
    const float p[] = {0.75f, 0.25f};
    for (int n = 1; n <= 2; n++) {
        um_soft soft = {.at = 1, .n = n, .id = id, .w = n == 2 ? p : (const float[]){1}};
        for (int renormalize = 0; renormalize < 2; renormalize++) {
            soft.renormalize = renormalize;
            expect_blend(w, &soft, 1, (double[]){1, 2, -3, 4});
        }
    }
}

static void blend_of_one_id_is_its_embedding(void **state) {
    (void)state;
    for_each_backend(check_one);
}

static void check_nothing(const world *w) {
    const int32_t opposite[] = {1, 5}, zero[] = {0, 0};
    const float half[] = {0.5f, 0.5f};
    const double none[IN] = {0};
    expect_blend(w, &(um_soft){.at = 1, .n = 2, .id = opposite, .w = half, .renormalize = true}, 1, none);
    expect_blend(w, &(um_soft){.at = 1, .n = 2, .id = zero, .w = half, .renormalize = true}, 1, none);
    expect_blend(w, &(um_soft){.at = 1, .n = 0, .id = zero, .w = half, .renormalize = true}, 1, none);
}

static void blend_without_length_stays_zero(void **state) {
    (void)state;
    for_each_backend(check_nothing);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blend_is_brought_to_the_mean_length_when_asked),
        cmocka_unit_test(blend_of_one_id_is_its_embedding),
        cmocka_unit_test(blend_without_length_stays_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
