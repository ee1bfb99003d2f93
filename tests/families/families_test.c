/* Replays the recorded runs below UM_FAMILY_DATA or build/data/families: the logits of single passes, and requests
 * alone and in one batch, on ref and cpu. Whatever has the format is replayed. Families that nothing here knows are
 * named. */
#include <glob.h>
#include <unistd.h>

#include "families.h"
#include "support.h"

static const family_replay *const replays[] = {&diffusion_gemma_replay, &llada22_replay, &nemotron_replay,
                                               &wedlm_replay};

typedef void (*case_fn)(const family_replay *f, const family_case *c);

static const char *data_folder(void) {
    const char *given = getenv("UM_FAMILY_DATA");
    return given && *given ? given : "build/data/families";
}

/* Opens a case. Its model is in the folder `models` beside `cases`. */
static void open_case(family_case *c, const char *path) {
    um_err err;
    *c = (family_case){.path = path};
    if (um_json_load(&c->json, path, &err)) fail_msg("%s", err.msg);
    const char *file = strrchr(path, '/') + 1, *model = json_string_value(json_object_get(c->json, "model"));
    snprintf(c->name, sizeof c->name, "%.*s", (int)strcspn(file, "."), file);
    snprintf(c->model, sizeof c->model, "%.*s/../models/%s", (int)(file - 1 - path), path, model ? model : "(none)");
}

static const family_replay *replay_of(const family_case *c) {
    const char *family = json_string_value(json_object_get(c->json, "family"));
    for (size_t i = 0; i < UM_LEN(replays); i++)
        if (family && um_streq(replays[i]->family, family)) return replays[i];
    return NULL;
}

/* Finds DATA/cases/NAME.json or DATA/FOLDER/cases/NAME.json. */
static void find_cases(glob_t *found) {
    char pattern[1024];
    snprintf(pattern, sizeof pattern, "%s/cases/*.json", data_folder());
    int rc = glob(pattern, 0, NULL, found);
    snprintf(pattern, sizeof pattern, "%s/*/cases/*.json", data_folder());
    glob(pattern, rc ? 0 : GLOB_APPEND, NULL, found);
    if (!found->gl_pathc) fail_msg("%s has no recordings: expected FOLDER/cases/NAME.json", data_folder());
}

/* Calls fn for every case of a family that is known, and returns their number. */
static size_t each_case(case_fn fn) {
    glob_t found = {0};
    size_t n = 0;
    find_cases(&found);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        family_case c;
        open_case(&c, found.gl_pathv[i]);
        const family_replay *f = replay_of(&c);
        if (f) {
            fn(f, &c);
            n++;
        }
        json_decref(c.json);
    }
    globfree(&found);
    return n;
}

static void names_unknown_families(void **state) {
    (void)state;
    glob_t found = {0};
    char last[64] = "";
    find_cases(&found);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        family_case c;
        open_case(&c, found.gl_pathv[i]);
        const char *family = json_string_value(json_object_get(c.json, "family"));
        if (!family) print_message("# %s names no family and is not replayed\n", c.path);
        else if (!replay_of(&c) && strcmp(last, family)) {
            print_message("# the family %s is not known yet, so its recordings are not replayed\n", family);
            snprintf(last, sizeof last, "%s", family);
        }
        json_decref(c.json);
    }
    globfree(&found);
}

static void passes_on_ref(const family_replay *f, const family_case *c) { f->passes(c, "ref"); }
static void passes_on_cpu(const family_replay *f, const family_case *c) { f->passes(c, "cpu"); }
static void alone_on_ref(const family_replay *f, const family_case *c) { f->requests(c, "ref", FAMILY_ALONE); }
static void replay_on_device(const family_replay *f, const family_case *c, family_mode mode) {
    f->requests(c, test_device("cpu"), mode);
}
static void alone(const family_replay *f, const family_case *c) { replay_on_device(f, c, FAMILY_ALONE); }
static void batched(const family_replay *f, const family_case *c) { replay_on_device(f, c, FAMILY_BATCHED); }

static void logits_equal_recordings(void **state) {
    (void)state;
    assert_true(each_case(passes_on_ref) > 0);
    assert_true(each_case(passes_on_cpu) > 0);
}
static void requests_equal_recordings_on_ref(void **state) {
    (void)state;
    assert_true(each_case(alone_on_ref) > 0);
}
static void requests_equal_recordings_alone(void **state) {
    (void)state;
    assert_true(each_case(alone) > 0);
}
static void requests_equal_recordings_batched(void **state) {
    (void)state;
    assert_true(each_case(batched) > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_unknown_families),
        cmocka_unit_test(logits_equal_recordings),
        cmocka_unit_test(requests_equal_recordings_on_ref),
        cmocka_unit_test(requests_equal_recordings_alone),
        cmocka_unit_test(requests_equal_recordings_batched),
    };
    return cmocka_run_group_tests_name("recorded families", tests, NULL, NULL);
}
