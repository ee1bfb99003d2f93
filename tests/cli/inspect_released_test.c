/* `unmask inspect` on every released checkpoint (tests/data/released): folders with the real configuration, the special
 * tokens, and shards of the real size. The shards have real headers, and holes instead of weights. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "model/model.h"
#include "released_folder.h"

#define MEMORY_BYTES                                                                                                   \
    (512LL << 20) /* memory limit of the program: enough for 25,000 tensor headers, not for weights                    \
                   */

static json_t *releases;
static char root[256]; /* scratch folder of this run */
static um_buf table;   /* rows of the documentation */

/* ---- The program ------------------------------------------------------------------------------------------------- */

/* Returns the program's JSON about a folder, and the seconds it took. */
static json_t *inspect(const char *dir, double *seconds) {
    const char *program = getenv("UNMASK") ? getenv("UNMASK") : "build/unmask";
    char *out = um_path_join(root, "out.json");
    int status = 0;
    json_error_t error;
    double start = um_now();
    pid_t child = fork();
    if (child == 0) {
        int fd = open(out, O_CREAT | O_TRUNC | O_WRONLY, 0666);
        if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0) _exit(126);
        execl(program, program, "inspect", "--json", dir, (char *)NULL);
        _exit(127);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    *seconds = um_now() - start;
    if (status) fail_msg("%s inspect --json %s ended with status %d", program, dir, status);
    json_t *json = json_load_file(out, 0, &error);
    if (!json) fail_msg("%s: %s", out, error.text);
    um_free(out);
    return json;
}

/* The value at "memory.bfloat16.weights". */
static const json_t *at(const json_t *json, const char *path) {
    char key[64];
    for (const char *p = path; json && *p;) {
        size_t n = strcspn(p, ".");
        snprintf(key, sizeof key, "%.*s", (int)n, p);
        json = json_object_get(json, key);
        p += n + (p[n] == '.');
    }
    if (!json) fail_msg("inspect says nothing of %s", path);
    return json;
}

/* Lists are compared as sets. */
static bool same(const json_t *found, const json_t *want) {
    if (!json_is_array(want)) return json_equal(found, want);
    bool all = json_array_size(found) == json_array_size(want);
    for (size_t i = 0; i < json_array_size(want); i++) {
        bool one = false;
        for (size_t k = 0; k < json_array_size(found); k++)
            one = one || json_equal(json_array_get(found, k), json_array_get(want, i));
        all = all && one;
    }
    return all;
}

static void check(const json_t *found, const json_t *release) {
    const char *path;
    json_t *want;
    json_object_foreach(json_object_get(release, "expect"), path, want) {
        const json_t *value = at(found, path);
        if (same(value, want)) continue;
        char *is = json_dumps(value, JSON_ENCODE_ANY), *not = json_dumps(want, JSON_ENCODE_ANY);
        const char *name = json_string_value(json_array_get(json_object_get(release, "names"), 0));
        fail_msg("%s: %s is %s, expected %s", name, path, is, not );
    }
    assert_string_equal(json_string_value(at(found, "recognised_by")), "architectures[0]");
    json_int_t parameters = json_integer_value(at(found, "sizes.parameters"));
    /* Published counts of DiffusionGemma have one of the two factors of each layer. */
    const json_int_t beside = json_integer_value(json_object_get(release, "elements_beside"));
    assert_int_equal(json_integer_value(at(found, "weights.elements")), parameters + beside);
    assert_int_equal(json_integer_value(at(found, "memory.bfloat16.weights")), 2 * parameters);
}

/* ---- Claims ------------------------------------------------------------------------------------------------------ */

/* Formats 102889705216 as "102,889,705,216". */
static void grouped(char out[32], int64_t n) {
    char digits[32];
    int len = snprintf(digits, sizeof digits, "%lld", (long long)n), k = 0;
    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0) out[k++] = ',';
        out[k++] = digits[i];
    }
    out[k] = 0;
}

static void put_list(um_buf *out, const json_t *list, const char *quote) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        const char *separator = i ? ", " : "";
        if (json_is_string(v)) um_buf_printf(out, "%s%s%s%s", separator, quote, json_string_value(v), quote);
        else um_buf_printf(out, "%s%lld", separator, (long long)json_integer_value(v));
    }
}

/* A release as a row of the documentation's table. */
static void describe(um_buf *out, const json_t *release, const json_t *found) {
    char parameters[32], kv[32], block[32] = "–";
    json_int_t n = json_integer_value(at(found, "sizes.parameters"));
    grouped(parameters, n);
    grouped(kv, json_integer_value(at(found, "memory.bfloat16.kv_per_token")));
    if (json_integer_value(at(found, "sizes.block_size")))
        snprintf(block, sizeof block, "%lld", (long long)json_integer_value(at(found, "sizes.block_size")));
    um_buf_puts(out, "| ");
    put_list(out, json_object_get(release, "names"), "`");
    const char *variant = json_string_value(json_object_get(release, "variant"));
    if (variant) um_buf_printf(out, ", %s", variant);
    um_buf_printf(out, " | `%s` | %s | %s | %.2f GB | %s | %lld | ", json_string_value(at(found, "family")), block,
                  parameters, 2e-9 * (double)n, kv, (long long)json_integer_value(at(found, "decoding.mask_id")));
    put_list(out, at(found, "decoding.stop_ids"), "");
    um_buf_puts(out, " |");
}

static void inspect_describes_every_release(void **state) {
    (void)state;
    json_t *release;
    size_t i;
    json_array_foreach(json_object_get(releases, "releases"), i, release) {
        double seconds;
        um_buf row = {0};
        char *dir = released_folder(root, releases, release);
        json_t *found = inspect(dir, &seconds);
        describe(&row, release, found);
        print_message("%s %.0f ms\n", row.data, 1e3 * seconds);
        check(found, release);
        um_buf_printf(&table, "%s\n", row.data);
        json_decref(found);
        um_buf_free(&row);
        um_free(dir);
    }
}

static void documentation_lists_what_inspect_finds(void **state) {
    (void)state;
    um_buf page = {0};
    um_err err;
    assert_non_null(table.data);
    if (um_file_read("docs/models.md", 1 << 20, &page, &err)) fail_msg("%s", err.msg);
    for (char *row = strtok(table.data, "\n"); row; row = strtok(NULL, "\n"))
        if (!strstr(page.data, row)) fail_msg("docs/models.md lacks the row %s", row);
    um_buf_free(&page);
}

/* A row of the quickstart's table: the weights in each type, and keys and values for 1,000 tokens. */
static void put_memory(um_buf *out, const char *name, const json_t *found) {
    static const um_dtype types[] = {UM_F32, UM_BF16, UM_Q8, UM_Q4};
    um_buf_printf(out, "| `%s` |", name);
    for (size_t i = 0; i < UM_LEN(types); i++)
        um_buf_printf(out, " %.2f |",
                      1e-9 * (double)um_weights_bytes(json_integer_value(at(found, "sizes.parameters")), types[i]));
    um_buf_printf(out, " %.3f |", 1e-6 * (double)json_integer_value(at(found, "memory.bfloat16.kv_per_token")));
}

static void quickstart_lists_the_memory_of_its_models(void **state) {
    (void)state;
    static const struct {
        const char *config, *name;
    } model[] = {{"sdar_1_7b", "JetLM/SDAR-1.7B-Chat"},
                 {"dream_7b", "Dream-org/Dream-v0-Instruct-7B"},
                 {"llada_8b", "GSAI-ML/LLaDA-8B-Instruct"},
                 {"llada2_mini", "inclusionAI/LLaDA2.0-mini"}};
    um_buf page = {0};
    um_err err;
    if (um_file_read("docs/quickstart.md", 1 << 20, &page, &err)) fail_msg("%s", err.msg);
    for (size_t i = 0; i < UM_LEN(model); i++) {
        double seconds;
        um_buf row = {0};
        char *dir = um_path_join(root, model[i].config);
        json_t *found = inspect(dir, &seconds);
        put_memory(&row, model[i].name, found);
        if (!strstr(page.data, row.data)) fail_msg("docs/quickstart.md lacks the row %s", row.data);
        json_decref(found);
        um_buf_free(&row);
        um_free(dir);
    }
    um_buf_free(&page);
}

/* The largest folder has 206 GB of holes, which would not fit into memory if the program read the weights. */
static void inspect_reads_headers_only(void **state) {
    (void)state;
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_CHILDREN, &usage), 0);
    print_message("%ld MB of memory at most\n", usage.ru_maxrss / 1024);
    assert_in_range(usage.ru_maxrss, 1, MEMORY_BYTES / 1024);
}

/* ---- Scratch ----------------------------------------------------------------------------------------------------- */

static int begin(void **state) {
    (void)state;
    snprintf(root, sizeof root, "%s/released-XXXXXX", getenv("BUILD") ? getenv("BUILD") : "build");
    if (!mkdtemp(root)) return -1;
    releases = released_json("releases");
    return 0;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *walk) {
    (void)st, (void)type, (void)walk;
    return remove(path);
}

static int end(void **state) {
    (void)state;
    json_decref(releases);
    um_buf_free(&table);
    return nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inspect_describes_every_release),
        cmocka_unit_test(inspect_reads_headers_only),
        cmocka_unit_test(documentation_lists_what_inspect_finds),
        cmocka_unit_test(quickstart_lists_the_memory_of_its_models),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
