/* server: downloads of files. Client and server share a loop, so a server that blocks shows in the time that a response
 * takes. */
#include "asking.h"

#include <unistd.h>

#define HUGE_BYTES  ((int64_t)1 << 38) /* a sparse file: it needs no disk, but reading it takes a minute */
#define MANY_BYTES  ((size_t)5 << 20)
#define SECONDS_MAX 10.0

static char dir[32];

static FILE *create(const char *name) {
    um_buf path = {0};
    um_buf_printf(&path, "%s/%s", dir, name);
    FILE *f = fopen(path.data, "w");
    um_buf_free(&path);
    assert_non_null(f);
    return f;
}

/* Writes a file and its record as the server does. bytes NULL: a sparse file. */
static void store(const char *id, const char *bytes, int64_t n) {
    char name[64];
    snprintf(name, sizeof name, "files/%s", id);
    FILE *f = create(name);
    if (bytes) assert_int_equal(fwrite(bytes, 1, (size_t)n, f), n);
    else assert_int_equal(ftruncate(fileno(f), n), 0);
    fclose(f);
    snprintf(name, sizeof name, "files/%s.json", id);
    f = create(name);
    fprintf(f, "{\"id\":\"%s\",\"bytes\":%lld,\"created_at\":1,\"filename\":\"x\",\"purpose\":\"batch_output\"}", id,
            (long long)n);
    fclose(f);
}

static char *many_bytes(void) {
    char *bytes = um_alloc(MANY_BYTES);
    for (size_t i = 0; i < MANY_BYTES; i++) bytes[i] = (char)(i * 2654435761u >> 13);
    return bytes;
}

static int begin(void **state) {
    um_buf command = {0};
    char *bytes = many_bytes();
    snprintf(dir, sizeof dir, "/tmp/unmask_files_XXXXXX");
    if (!mkdtemp(dir)) return -1;
    um_buf_printf(&command, "mkdir %s/files %s/batches", dir, dir);
    if (system(command.data)) return -1;
    store("file-huge", NULL, HUGE_BYTES);
    store("file-many", bytes, MANY_BYTES);
    server_state_dir = dir;
    open_server();
    um_buf_free(&command);
    um_free(bytes);
    (void)state;
    return 0;
}

static int end(void **state) {
    um_buf command = {0};
    (void)state;
    um_server_free(server);
    um_buf_printf(&command, "rm -r %s", dir);
    int failed = system(command.data);
    um_buf_free(&command);
    return failed;
}

static void request(answer *a, const char *method, const char *path) {
    ask_at(a, um_server_port(server), method, path, (um_str){NULL, 0});
    PUMP_UNTIL(a->done);
    assert_int_equal(a->status, 200);
}

static void a_download_has_all_bytes(void **state) {
    (void)state;
    answer a;
    char *bytes = many_bytes();
    request(&a, "GET", "/v1/files/file-many/content");
    assert_int_equal(a.body.len, MANY_BYTES);
    assert_memory_equal(a.body.data, bytes, MANY_BYTES);
    um_free(bytes);
    free_answer(&a);
}

static void head_of_a_huge_file_reads_nothing(void **state) {
    (void)state;
    answer a;
    double began = um_now();
    request(&a, "HEAD", "/v1/files/file-huge/content");
    assert_true(um_now() - began < SECONDS_MAX);
    assert_int_equal(a.body.len, 0);
    free_answer(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_download_has_all_bytes),
        cmocka_unit_test(head_of_a_huge_file_reads_nothing),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
