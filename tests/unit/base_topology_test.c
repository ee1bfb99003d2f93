/* base: the CPUs on which threads are pinned, on made-up folders in place of /sys/devices/system. */
#include "root_folder.h"

/* ---- Helpers ----------------------------------------------------------------------------------------------------- */

/* Writes the hardware threads of the cores of a machine with `cores` cores: CPU i and CPU i + cores. */
static void put_cores(const char *root, int cores) {
    for (int i = 0; i < 2 * cores; i++) {
        char path[64], text[32];
        snprintf(path, sizeof path, "cpu/cpu%d/topology/thread_siblings_list", i);
        snprintf(text, sizeof text, "%d,%d\n", i % cores, i % cores + cores);
        put(root, path, text);
    }
}

/* Asserts the places of n threads on the usable CPUs of a list, and the number of nodes. */
static void assert_places(const char *root, const char *usable, int n, const char *expected, int n_nodes) {
    int cpu[UM_CPUS_MAX], place[UM_CPUS_MAX], wanted[UM_CPUS_MAX];
    const int n_usable = um_cpu_list(usable, cpu, UM_CPUS_MAX);
    assert_int_equal(um_cpu_list(expected, wanted, UM_CPUS_MAX), n);
    assert_int_equal(um_cpu_places(root, cpu, n_usable, n, place), n_nodes);
    for (int i = 0; i < n; i++) assert_int_equal(place[i], wanted[i]);
}

/* ---- Lists ------------------------------------------------------------------------------------------------------- */

static void reads_lists(void **state) {
    (void)state;
    int cpu[8];
    assert_int_equal(um_cpu_list("0-2,7,9-9\n", cpu, 8), 5);
    const int expected[] = {0, 1, 2, 7, 9};
    assert_memory_equal(cpu, expected, sizeof expected);
    assert_int_equal(um_cpu_list("\n", cpu, 8), 0);
    assert_int_equal(um_cpu_list("", cpu, 8), 0);
    assert_int_equal(um_cpu_list("3", cpu, 8), 1);
}

static void a_list_ends_at_its_limit_or_error(void **state) {
    (void)state;
    int cpu[4];
    assert_int_equal(um_cpu_list("0-1000000000000", cpu, 4), 4);
    assert_int_equal(um_cpu_list("0-99999999999999999999999", cpu, 4), 4);
    assert_int_equal(um_cpu_list("1023-2000", cpu, 4), 1);
    assert_int_equal(um_cpu_list("5-2", cpu, 4), 0);
    assert_int_equal(um_cpu_list("1,-3", cpu, 4), 1);
    assert_int_equal(um_cpu_list("1,x", cpu, 4), 1);
    assert_int_equal(um_cpu_list("1-", cpu, 4), 0);
}

/* ---- Places ------------------------------------------------------------------------------------------------------ */

static void without_files_all_cpus_are_cores_of_a_node(void **state) {
    assert_places(*state, "0-7", 8, "0-7", 1);
    assert_places(*state, "2,5,6", 2, "2,5", 1);
}

static void neighbouring_threads_share_a_node(void **state) {
    put(*state, "node/online", "0-1\n");
    put(*state, "node/node0/cpulist", "0,2,4,6\n");
    put(*state, "node/node1/cpulist", "1,3,5,7\n");
    assert_places(*state, "0-7", 8, "0,2,4,6,1,3,5,7", 2);
    assert_places(*state, "0-7", 4, "0,2,1,3", 2);
    assert_places(*state, "0-7", 3, "0,2,1", 2);
}

static void nodes_get_threads_in_proportion_to_their_cpus(void **state) {
    put(*state, "node/online", "0,2\n");
    put(*state, "node/node0/cpulist", "0-5\n");
    put(*state, "node/node2/cpulist", "6-7\n");
    assert_places(*state, "0-7", 4, "0-2,6", 2);
    assert_places(*state, "0-3,6-7", 3, "0,1,6", 2);
}

static void a_mask_may_exclude_a_node(void **state) {
    put(*state, "node/online", "0-1\n");
    put(*state, "node/node0/cpulist", "0-3\n");
    put(*state, "node/node1/cpulist", "4-7\n");
    assert_places(*state, "4-6", 3, "4-6", 1);
}

static void cores_come_before_second_hardware_threads(void **state) {
    put_cores(*state, 4);
    assert_places(*state, "0-7", 4, "0-3", 1);
    assert_places(*state, "0-7", 6, "0-5", 1);
    assert_places(*state, "0,4-6", 3, "0,5,6", 1); /* CPU 4 shares a core with CPU 0 */
}

static void cores_are_counted_within_a_node(void **state) {
    put_cores(*state, 4);
    put(*state, "node/online", "0-1\n");
    put(*state, "node/node0/cpulist", "0-1,4-5\n");
    put(*state, "node/node1/cpulist", "2-3,6-7\n");
    assert_places(*state, "0-7", 4, "0,1,2,3", 2);
    assert_places(*state, "0-7", 8, "0,1,4,5,2,3,6,7", 2);
}

static void every_cpu_gets_one_thread(void **state) {
    put(*state, "node/online", "0-2\n");
    put(*state, "node/node0/cpulist", "0-4\n");
    put(*state, "node/node1/cpulist", "5-6\n");
    put(*state, "node/node2/cpulist", "7-15\n");
    int usable[16], place[16];
    for (int i = 0; i < 16; i++) usable[i] = i;
    for (int n = 1; n <= 16; n++) {
        bool used[16] = {false};
        assert_int_equal(um_cpu_places(*state, usable, 16, n, place), 3);
        for (int t = 0; t < n; t++) {
            assert_false(used[place[t]]);
            used[place[t]] = true;
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_ROOT(reads_lists),
        WITH_ROOT(a_list_ends_at_its_limit_or_error),
        WITH_ROOT(without_files_all_cpus_are_cores_of_a_node),
        WITH_ROOT(neighbouring_threads_share_a_node),
        WITH_ROOT(nodes_get_threads_in_proportion_to_their_cpus),
        WITH_ROOT(a_mask_may_exclude_a_node),
        WITH_ROOT(cores_come_before_second_hardware_threads),
        WITH_ROOT(cores_are_counted_within_a_node),
        WITH_ROOT(every_cpu_gets_one_thread),
    };
    return cmocka_run_group_tests_name("base_topology", tests, NULL, NULL);
}
