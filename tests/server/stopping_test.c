/* Requests that wait for workers to sleep or to wake while the server stops. The workers are scripted. */
#include "asking.h"

static int begin(void **state) {
    (void)state;
    open_server();
    script_rest = UM_POOL_DROWSY;
    return 0;
}

static int end(void **state) {
    (void)state;
    script_rest = UM_POOL_AWAKE;
    um_server_free(server);
    return 0;
}

static void requests_that_wait_get_503_when_the_server_stops(void **state) {
    (void)state;
    static const char *const paths[] = {"/sleep", "/wake_up"};
    answer a[UM_LEN(paths)];
    for (size_t i = 0; i < UM_LEN(paths); i++) ask_at(&a[i], um_server_port(server), "POST", paths[i], UM_STR(""));
    PUMP_UNTIL(server->service.n_open == UM_LEN(paths));
    um_server_stop(server);
    assert_null(server->service.resting); /* a request that is left gets no answer, and nothing would end the loop */
    for (size_t i = 0; i < UM_LEN(paths); i++) {
        PUMP_UNTIL(a[i].done);
        assert_int_equal(a[i].status, 503);
        assert_non_null(strstr(a[i].body.data, "{\"error\":{\"message\":\"the server is stopping\""));
        assert_non_null(strstr(a[i].body.data, "\"code\":\"stopping\""));
        free_answer(&a[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(requests_that_wait_get_503_when_the_server_stops, begin, end),
    };
    return cmocka_run_group_tests_name("server_stopping", tests, NULL, NULL);
}
