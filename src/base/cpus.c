/* The number of CPUs that this process may use.
 *
 * Two limits apply: the affinity mask, and the CPU quotas of the process's control groups. A container that may use two
 * of 64 CPUs usually has an affinity mask of all 64 and a quota of two. 64 threads would use up the quota at the start
 * of each period, and the kernel would then stop all of them until the period ends. */
#include "base/base.h"

#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#define FILE_BYTES_MAX ((size_t)64 << 10)

/* Converts a quota, microseconds of CPU time per period, to CPUs and rounds up. Both arguments are texts from the
 * kernel. Returns 0 for no limit, which the kernel writes as "max" (v2) or -1 (v1). */
static int cpus_of_quota(const char *quota, const char *period) {
    const long long q = strtoll(quota, NULL, 10), p = strtoll(period, NULL, 10);
    if (q <= 0 || p <= 0) return 0;
    return (int)UM_MIN(q / p + (q % p != 0), INT_MAX);
}

/* Returns the smaller of two limits; 0 means no limit. */
static int smaller(int a, int b) {
    if (!a || !b) return UM_MAX(a, b);
    return UM_MIN(a, b);
}

/* Reads dir/name. A missing or unreadable file counts as empty: a group without a CPU controller has no such files. */
static void read_in(const char *dir, const char *name, um_buf *out) {
    char *path = um_path_join(dir, name);
    if (um_file_read(path, FILE_BYTES_MAX, out, NULL)) um_buf_clear(out);
    um_free(path);
}

/* cgroup v2: the file cpu.max contains "QUOTA PERIOD". */
static int limit_v2(const char *dir) {
    um_buf both = {0};
    read_in(dir, "cpu.max", &both);
    const char *space = both.len ? strchr(both.data, ' ') : NULL;
    const int cpus = space ? cpus_of_quota(both.data, space) : 0;
    um_buf_free(&both);
    return cpus;
}

/* cgroup v1: each number has its own file. */
static int limit_v1(const char *dir) {
    um_buf quota = {0}, period = {0};
    read_in(dir, "cpu.cfs_quota_us", &quota);
    read_in(dir, "cpu.cfs_period_us", &period);
    const int cpus = quota.len && period.len ? cpus_of_quota(quota.data, period.data) : 0;
    um_buf_free(&quota);
    um_buf_free(&period);
    return cpus;
}

/* Returns the smallest limit of the group `path` below `mount` and of its ancestors.
 *
 * A container may see the path that its group has on the host. Those folders are missing, and the container's own group
 * is the mount itself. A path that starts with "/.." names a group outside of the mount; only the mount is visible. */
static int limit_of_path(const char *mount, um_str path, int (*limit)(const char *dir)) {
    const size_t root = strlen(mount);
    um_buf dir = {0};
    int cpus = 0;
    const bool outside = path.n >= 3 && !strncmp(path.p, "/..", 3) && (path.n == 3 || path.p[3] == '/');
    um_buf_puts(&dir, mount);
    if (!outside) um_buf_append(&dir, path.p, path.n);
    for (size_t n = dir.len;; dir.data[n] = '\0') {
        cpus = smaller(cpus, limit(dir.data));
        if (n <= root) break;
        do n--;
        while (n > root && dir.data[n] != '/');
    }
    um_buf_free(&dir);
    return cpus;
}

/* Returns whether the comma-separated `list` contains "cpu". */
static bool has_cpu(um_str list) {
    static const char word[] = "cpu";
    for (size_t at = 0, n; at < list.n; at += n + 1) {
        const char *comma = memchr(list.p + at, ',', list.n - at);
        n = comma ? (size_t)(comma - list.p) - at : list.n - at;
        if (n == sizeof word - 1 && !memcmp(list.p + at, word, n)) return true;
    }
    return false;
}

/* Returns the limit of one line of /proc/self/cgroup, ID:CONTROLLERS:PATH. cgroup v2 has one line, with ID 0 and no
 * controllers. A system may use v1 and v2 together. */
static int limit_of_line(const char *root, um_str line) {
    const char *list = memchr(line.p, ':', line.n), *end = line.p + line.n;
    const char *path = list ? memchr(list + 1, ':', (size_t)(end - list - 1)) : NULL;
    if (!path) return 0;
    const um_str controllers = {list + 1, (size_t)(path - list - 1)}, group = {path + 1, (size_t)(end - path - 1)};
    if (!controllers.n) return limit_of_path(root, group, limit_v2);
    if (!has_cpu(controllers)) return 0;
    char *mount = um_path_join(root, "cpu");
    const int cpus = limit_of_path(mount, group, limit_v1);
    um_free(mount);
    return cpus;
}

int um_cgroup_cpu_limit(const char *root, const char *membership) {
    int cpus = 0;
    for (const char *line = membership; *line;) {
        const size_t n = strcspn(line, "\n");
        cpus = smaller(cpus, limit_of_line(root, (um_str){line, n}));
        line += n + (line[n] == '\n');
    }
    return cpus;
}

int um_cpu_count(void) {
    cpu_set_t set;
    um_buf membership = {0};
    int cpus, limit = 0;
    if (sched_getaffinity(0, sizeof set, &set) == 0) cpus = CPU_COUNT(&set);
    else cpus = (int)sysconf(_SC_NPROCESSORS_ONLN); /* fails when there are more CPUs than bits in the set */
    read_in("/proc/self", "cgroup", &membership);
    if (membership.len) limit = um_cgroup_cpu_limit("/sys/fs/cgroup", membership.data);
    um_buf_free(&membership);
    return smaller(UM_MAX(cpus, 1), limit);
}
