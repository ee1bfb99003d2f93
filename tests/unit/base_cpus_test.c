/* base: the number of CPUs that this process may use. */
#include <limits.h>
#include <sched.h>

#include "root_folder.h"

/* ---- cgroup v2 --------------------------------------------------------------------------------------------------- */

static void a_quota_limits_the_cpus(void **state) {
    put(*state, "box/cpu.max", "200000 100000\n");
    assert_int_equal(um_cgroup_cpu_limit(*state, "0::/box\n"), 2);
    assert_int_equal(um_cgroup_cpu_limit(*state, "0::/box"), 2);
}

static void a_quota_is_rounded_up(void **state) {
    put(*state, "cpu.max", "150000 100000\n");
    assert_int_equal(um_cgroup_cpu_limit(*state, "0::/\n"), 2);
    put(*state, "cpu.max", "1000 100000\n");
    assert_int_equal(um_cgroup_cpu_limit(*state, "0::/\n"), 1);
    put(*state, "cpu.max", "300001 100000\n");
    assert_int_equal(um_cgroup_cpu_limit(*state, "0::/\n"), 4);
    put(*state, "cpu.max", "9223372036854775807 1\n");
    assert_int_equal(um_cgroup_cpu_limit(*state, "0::/\n"), INT_MAX);
}

static void max_is_no_limit(void **state) {
    put(*state, "box/cpu.max", "max 100000\n");
    assert_int_equal(um_cgroup_cpu_limit(*state, "0::/box\n"), 0);
}

static void the_smallest_quota_up_to_the_root_counts(void **state) {
    put(*state, "a/b/c/cpu.max", "400000 100000\n");
    assert_int_equal(um_cgroup_cpu_limit(*state, "0::/a/b/c\n"), 4);
    put(*state, "a/b/cpu.max", "max 100000\n");
    put(*state, "a/cpu.max", "150000 50000\n");
    assert_int_equal(um_cgroup_cpu_limit(*state, "0::/a/b/c\n"), 3);
    put(*state, "cpu.max", "200000 100000\n");
    assert_int_equal(um_cgroup_cpu_limit(*state, "0::/a/b/c\n"), 2);
    put(*state, "a/b/c/cpu.max", "100000 100000\n");
    assert_int_equal(um_cgroup_cpu_limit(*state, "0::/a/b/c\n"), 1);
}

static void groups_beside_the_path_do_not_count(void **state) {
    put(*state, "a/cpu.max", "400000 100000\n");
    put(*state, "b/cpu.max", "100000 100000\n");
    put(*state, "a/b/cpu.max", "100000 100000\n");
    assert_int_equal(um_cgroup_cpu_limit(*state, "0::/a\n"), 4);
}

/* In a container without a cgroup namespace, the path is that of the host, but the container's group is the mount. */
static void a_path_that_is_missing_below_the_mount_leaves_the_mount(void **state) {
    put(*state, "cpu.max", "200000 100000\n");
    assert_int_equal(um_cgroup_cpu_limit(*state, "0::/system.slice/docker-12ab.scope\n"), 2);
}

static void a_group_outside_of_the_mount_leaves_the_mount(void **state) {
    put(*state, "cpu.max", "300000 100000\n");
    put(*state, "inner/cpu.max", "200000 100000\n");
    put(*state, "other/cpu.max", "100000 100000\n");
    char *inner = um_path_join(*state, "inner");
    assert_int_equal(um_cgroup_cpu_limit(inner, "0::/../other\n"), 2);
    assert_int_equal(um_cgroup_cpu_limit(inner, "0::/..\n"), 2);
    um_free(inner);
}

/* ---- cgroup v1 --------------------------------------------------------------------------------------------------- */

static void version_1_has_a_file_for_each_number(void **state) {
    put(*state, "cpu/box/cpu.cfs_quota_us", "250000\n");
    put(*state, "cpu/box/cpu.cfs_period_us", "100000\n");
    put(*state, "cpu/cpu.cfs_quota_us", "-1\n");
    put(*state, "cpu/cpu.cfs_period_us", "100000\n");
    assert_int_equal(um_cgroup_cpu_limit(*state, "5:memory:/x\n4:cpu,cpuacct:/box\n3:cpuset:/y\n"), 3);
    assert_int_equal(um_cgroup_cpu_limit(*state, "4:cpuacct,cpu:/box\n"), 3);
    assert_int_equal(um_cgroup_cpu_limit(*state, "4:cpu:/\n"), 0);
    assert_int_equal(um_cgroup_cpu_limit(*state, "4:cpuacct:/box\n3:cpuset:/box\n1:name=cpu:/box\n"), 0);
}

static void the_smaller_limit_of_both_versions_counts(void **state) {
    put(*state, "cpu/cpu.cfs_quota_us", "200000");
    put(*state, "cpu/cpu.cfs_period_us", "100000");
    put(*state, "cpu.max", "300000 100000\n");
    assert_int_equal(um_cgroup_cpu_limit(*state, "1:cpu:/\n0::/\n"), 2);
    put(*state, "cpu.max", "100000 100000\n");
    assert_int_equal(um_cgroup_cpu_limit(*state, "1:cpu:/\n0::/\n"), 1);
}

/* ---- Both -------------------------------------------------------------------------------------------------------- */

static void unreadable_limits_are_none(void **state) {
    static const char *const bad[] = {"", "\n", "100000", "100000 0", "0 100000", "-5 100000", "x y", " "};
    for (size_t i = 0; i < UM_LEN(bad); i++) {
        put(*state, "cpu.max", bad[i]);
        assert_int_equal(um_cgroup_cpu_limit(*state, "0::/\n"), 0);
    }
    put(*state, "cpu.max", "100000 100000\n");
    put(*state, "cpu/cpu.cfs_quota_us", "100000\n");
    assert_int_equal(um_cgroup_cpu_limit(*state, ""), 0);
    assert_int_equal(um_cgroup_cpu_limit(*state, "\n\n"), 0);
    assert_int_equal(um_cgroup_cpu_limit(*state, "0:\n0\n:\nnonsense\n"), 0);
    assert_int_equal(um_cgroup_cpu_limit(*state, "1:cpu:/\n"), 0);
    assert_int_equal(um_cgroup_cpu_limit("/nowhere", "0::/a\n1:cpu:/a\n"), 0);
}

static void the_affinity_mask_limits_the_count(void **state) {
    (void)state;
    cpu_set_t all, one;
    int first = 0;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_in_range(um_cpu_count(), 1, CPU_COUNT(&all));
    while (!CPU_ISSET(first, &all)) first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(um_cpu_count(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_ROOT(a_quota_limits_the_cpus),
        WITH_ROOT(a_quota_is_rounded_up),
        WITH_ROOT(max_is_no_limit),
        WITH_ROOT(the_smallest_quota_up_to_the_root_counts),
        WITH_ROOT(groups_beside_the_path_do_not_count),
        WITH_ROOT(a_path_that_is_missing_below_the_mount_leaves_the_mount),
        WITH_ROOT(a_group_outside_of_the_mount_leaves_the_mount),
        WITH_ROOT(version_1_has_a_file_for_each_number),
        WITH_ROOT(the_smaller_limit_of_both_versions_counts),
        WITH_ROOT(unreadable_limits_are_none),
        cmocka_unit_test(the_affinity_mask_limits_the_count),
    };
    return cmocka_run_group_tests_name("base_cpus", tests, NULL, NULL);
}
