/* Worker processes: what they inherit, how their end is reported, and that they die with their parent. */
#include "support.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/workers/instance.h"

/* Runs a shell script with a configuration, waits, and returns how it ended. */
static um_err run(const char *script, const char *config) {
    const char *const argv[] = {"sh", "-c", script, NULL};
    um_worker_instance *v = NULL;
    um_err err = {0}, how;
    if (um_worker_instance_open_process(&v, "/bin/sh", argv, um_str_of(config), &err)) fail_msg("%s", err.msg);
    assert_true(um_worker_instance_pid(v) > 0);
    assert_true(um_worker_instance_wait(v, 30));
    um_worker_instance_close(v, &how);
    return how;
}

static void gives_the_configuration_as_a_file(void **state) {
    (void)state;
    um_err how = run("test \"$(cat " UM_WORKER_INSTANCE_CONFIG_PATH ")\" = 'model: x'", "model: x");
    assert_int_equal(how.code, UM_OK);
    assert_string_equal(how.msg, "ended");
}

/* The configuration is larger than the buffer of a pipe. */
static void gives_a_large_configuration_whole(void **state) {
    (void)state;
    um_buf text = {0};
    for (int i = 0; i < 100000; i++) um_buf_puts(&text, "0123456789");
    assert_int_equal(run("test $(wc -c < " UM_WORKER_INSTANCE_CONFIG_PATH ") = 1000000", text.data).code, UM_OK);
    um_buf_free(&text);
}

static void takes_our_variables_out_and_leaves_others(void **state) {
    (void)state;
    setenv("UNMASK_THREADS", "7", 1);
    setenv("UM_TEST_OTHER", "here", 1);
    assert_int_equal(run("test -z \"$UNMASK_THREADS\" && test \"$UM_TEST_OTHER\" = here", "").code, UM_OK);
    unsetenv("UNMASK_THREADS");
}

static void gives_no_other_descriptors_and_an_empty_input(void **state) {
    (void)state;
    int fd = fcntl(1, F_DUPFD, 20); /* without close-on-exec */
    assert_true(fd >= 20);
    /* 0 to 3, and the descriptor with which ls reads the folder. */
    assert_int_equal(run("test \"$(ls /proc/self/fd | wc -l)\" = 5 && test -z \"$(cat)\"", "").code, UM_OK);
    close(fd);
}

static void says_how_a_process_ended(void **state) {
    (void)state;
    um_err how = run("exit 3", "");
    assert_int_equal(how.code, UM_EIO);
    assert_string_equal(how.msg, "exited with status 3");
    how = run("kill -9 $$", "");
    assert_int_equal(how.code, UM_EIO);
    assert_non_null(strstr(how.msg, "killed by signal 9 (Killed)"));
}

static void says_that_a_program_is_missing(void **state) {
    (void)state;
    const char *const argv[] = {"missing", NULL};
    um_worker_instance *v = NULL;
    um_err err = {0}, how;
    assert_int_equal(um_worker_instance_open_process(&v, "/nowhere/missing", argv, um_str_of(""), &err), UM_OK);
    assert_true(um_worker_instance_wait(v, 30));
    um_worker_instance_close(v, &how);
    assert_string_equal(how.msg, "exited with status 127");
}

static void can_be_signalled_and_waited_for(void **state) {
    (void)state;
    const char *const argv[] = {"sleep", "600", NULL};
    um_worker_instance *v = NULL;
    um_err err = {0}, how;
    assert_int_equal(um_worker_instance_open_process(&v, "/bin/sleep", argv, um_str_of(""), &err), UM_OK);
    assert_false(um_worker_instance_wait(v, 0));
    um_worker_instance_signal(v, SIGTERM);
    assert_true(um_worker_instance_wait(v, 30));
    um_worker_instance_close(v, &how);
    assert_non_null(strstr(how.msg, "killed by signal 15"));
}

static void a_thread_ends_on_a_signal(void **state) {
    (void)state;
    um_worker_instance *v = NULL;
    um_hub *hub = NULL;
    um_config config;
    um_err err = {0}, how;
    um_config_init(&config);
    config.model = "models/tiny-block";
    config.threads = 1;
    assert_int_equal(um_hub_open_local(&hub, 1, &err), UM_OK);
    const um_worker_config c = {.engine = &config, .port = um_port_open_local(hub, 0, 1), .incarnation = 1};
    assert_int_equal(um_worker_instance_open_thread(&v, &c, &err), UM_OK);
    um_worker_instance_signal(v, 0);
    um_worker_instance_signal(v, SIGTERM);
    assert_true(um_worker_instance_wait(v, 30));
    um_worker_instance_close(v, &how);
    assert_int_equal(how.code, UM_ECANCELED);
    assert_string_equal(how.msg, "the worker was told to stop");
    um_hub_close(hub);
}

static bool is_gone(pid_t pid) {
    char path[64], state = 'Z';
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%*d %*s %c", &state) != 1) state = 'Z';
    if (f) fclose(f);
    return state == 'Z';
}

/* A child starts an instance, reports its process id, and is killed. */
static void dies_with_its_parent(void **state) {
    (void)state;
    int pipe_fd[2];
    assert_int_equal(pipe(pipe_fd), 0);
    pid_t parent = fork();
    if (parent == 0) {
        const char *const argv[] = {"sleep", "600", NULL};
        um_worker_instance *v = NULL;
        um_worker_instance_open_process(&v, "/bin/sleep", argv, um_str_of(""), NULL);
        pid_t pid = v ? (pid_t)um_worker_instance_pid(v) : 0;
        if (write(pipe_fd[1], &pid, sizeof(pid)) != sizeof(pid)) _exit(1);
        for (;;) pause();
    }
    pid_t pid = 0;
    assert_int_equal(read(pipe_fd[0], &pid, sizeof(pid)), sizeof(pid));
    assert_true(pid > 0);
    assert_false(is_gone(pid));
    kill(parent, SIGKILL);
    waitpid(parent, NULL, 0);
    for (int i = 0; i < 500 && !is_gone(pid); i++) usleep(20000);
    assert_true(is_gone(pid));
    close(pipe_fd[0]);
    close(pipe_fd[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_configuration_as_a_file),
        cmocka_unit_test(gives_a_large_configuration_whole),
        cmocka_unit_test(takes_our_variables_out_and_leaves_others),
        cmocka_unit_test(gives_no_other_descriptors_and_an_empty_input),
        cmocka_unit_test(says_how_a_process_ended),
        cmocka_unit_test(says_that_a_program_is_missing),
        cmocka_unit_test(can_be_signalled_and_waited_for),
        cmocka_unit_test(a_thread_ends_on_a_signal),
        cmocka_unit_test(dies_with_its_parent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
