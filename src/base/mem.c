/* Memory: the counting allocator, checked sizes, and the memory that is still available. */
#include "base/base.h"

#include <stdlib.h>
#include <sys/mman.h>

static _Thread_local int64_t n_allocs;

static void abort_out_of_memory(size_t n) {
    fprintf(stderr, "unmask: out of memory: %zu bytes could not be allocated\n", n);
    abort();
}

static void *checked(void *p, size_t n) {
    if (!p) abort_out_of_memory(n);
    n_allocs++;
    return p;
}

/* malloc(0) may return NULL. Allocates at least one byte, so that NULL always means failure. */
void *um_alloc(size_t n) { return checked(malloc(UM_MAX(n, 1u)), n); }

void *um_zalloc(size_t n) { return checked(calloc(1, UM_MAX(n, 1u)), n); }

void *um_realloc(void *p, size_t n) { return checked(realloc(p, UM_MAX(n, 1u)), n); }

char *um_strdup(const char *s) { return um_strndup(s, strlen(s)); }

char *um_strndup(const char *s, size_t n) {
    char *p = (char *)um_alloc(n + 1);
    if (n) memcpy(p, s, n);
    p[n] = '\0';
    return p;
}

void um_free(void *p) { free(p); }

int64_t um_alloc_count(void) { return n_allocs; }

/* Requests huge pages for sizes of at least one huge page: a core that streams weights from
 * memory then reads a quarter more per second, because it walks the page table 512 times less often. A partial huge
 * page at the end stays in small pages. */
static void *aligned(size_t n, size_t align) {
    const size_t huge = (size_t)2 << 20;
    void *p = NULL;
    if (posix_memalign(&p, n < huge ? align : UM_MAX(align, huge), n)) return NULL;
#ifdef MADV_HUGEPAGE
    if (n >= huge) (void)madvise(p, n / huge * huge, MADV_HUGEPAGE); /* only a hint; failure does not matter */
#endif
    return p;
}

/* Linux grants more memory than it has and kills the process when the pages are touched. A large request is therefore
 * compared with the available memory before it is touched. */
um_status um_try_alloc_unset(void **out, size_t n, size_t align, const char *what, um_err *err) {
    enum { CHECK_FROM = 64 << 20 };
    char needed[UM_BYTES_TEXT], there[UM_BYTES_TEXT];
    assert(align && (align & (align - 1)) == 0);
    *out = NULL;
    size_t available = n >= CHECK_FROM ? um_memory_available() : 0;
    if (available && n > available)
        return um_fail(err, UM_ENOMEM, "%s: %s needed, %s of memory are free", what, um_bytes_text(needed, (double)n),
                       um_bytes_text(there, (double)available));
    void *p = aligned(UM_MAX(n, 1u), UM_MAX(align, sizeof p));
    if (!p) return um_fail(err, UM_ENOMEM, "%s: %s could not be allocated", what, um_bytes_text(needed, (double)n));
    n_allocs++;
    *out = p;
    return UM_OK;
}

um_status um_try_alloc(void **out, size_t n, size_t align, const char *what, um_err *err) {
    um_status s = um_try_alloc_unset(out, n, align, what, err);
    if (!s) memset(*out, 0, n);
    return s;
}

/* Returns the number after `key` in a file of "key number" lines, or -1. With an empty key, returns the first number.
 */
static int64_t read_number(const char *path, const char *key) {
    FILE *f = fopen(path, "re");
    if (!f) return -1;
    char line[256];
    size_t n = strlen(key);
    long long value = -1;
    while (value < 0 && fgets(line, sizeof line, f))
        if (strncmp(line, key, n) == 0 && sscanf(line + n, "%lld", &value) != 1) value = -1;
    fclose(f);
    return value;
}

/* Returns the memory that the control group (container) leaves; it may be less than the machine has. Inactive file
 * pages count as free. Active ones count as used, and may already be those of the mapped bytes. */
static int64_t group_available(int64_t mapped) {
    int64_t max = read_number("/sys/fs/cgroup/memory.max", "");
    int64_t used = read_number("/sys/fs/cgroup/memory.current", "");
    int64_t inactive = read_number("/sys/fs/cgroup/memory.stat", "inactive_file ");
    int64_t active = read_number("/sys/fs/cgroup/memory.stat", "active_file ");
    if (max < 0 || used < 0) return INT64_MAX;
    return max - used + UM_MAX(inactive, 0) - UM_MAX(mapped - UM_MAX(active, 0), 0);
}

size_t um_memory_available_beside(size_t mapped) {
    int64_t kib = read_number("/proc/meminfo", "MemAvailable:"), files = (int64_t)UM_MIN(mapped, (size_t)INT64_MAX);
    if (kib < 0) return 0;
    return (size_t)UM_MAX(UM_MIN(kib * 1024 - files, group_available(files)), 1);
}

size_t um_memory_available(void) { return um_memory_available_beside(0); }

bool um_mul_ok(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }

bool um_add_ok(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }

size_t um_mul(size_t a, size_t b) {
    size_t n = 0;
    if (!um_mul_ok(a, b, &n)) {
        fprintf(stderr, "unmask: size overflow: %zu * %zu\n", a, b);
        abort();
    }
    return n;
}
