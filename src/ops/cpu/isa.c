/* Detects the instruction sets of this processor and chooses the one that devices use. */
#include "ops/cpu/cpu.h"
#include "ops/cpu/kernels.h"

#include <pthread.h>
#include <stdlib.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#define ISA_MAX 6

static const um_kernels *usable[ISA_MAX];             /* the best first */
static const char *names[ISA_MAX], *missing[ISA_MAX]; /* names of the usable kernels and of the unusable ones */
static const um_kernels *forced;                      /* set by um_cpu_use_isa */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* AMD's hardware prefetcher detects the stream. Software prefetching far ahead disturbs it and costs a quarter to a
 * third of the bandwidth (family 25 model 17). On Intel software prefetching raises the bandwidth of a core from 10.7
 * to 14.8 GB/s (family 6 model 207). There, 5 KB ahead is 3 to 6 % faster than 16 KB for bf16 and up to 12 % slower for
 * q8 (family 6 model 167, AVX-512 and AVX2, 1 to 4 rows). */
size_t um_prefetch_few_rows = 4 << 10, um_prefetch_q8 = 4 << 10;

#if defined(__x86_64__)
/* Requests the use of tile registers and returns whether that succeeded. The operating system saves their 8 KB only for
 * processes that have requested them; threads that are started later may use them too. The compilers' CPU checks don't
 * cover this. */
static bool may_use_tiles(void) {
    enum { REQUEST_STATE = 0x1023, TILE_DATA = 18, HAS_BF16 = 1 << 22, HAS_TILES = 1 << 24, HAS_INT8 = 1 << 25 };
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & HAS_BF16) || !(d & HAS_TILES) || !(d & HAS_INT8))
        return false;
    return syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA) == 0;
}

/* Returns whether the processor converts fp16. clang has no name for this check. */
static bool widens_halves(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

/* Adds the kernels to the list of usable or of missing ones. */
static void add_kernels(bool is_usable, const um_kernels *k) {
    int n_usable = 0, n_missing = 0;
    while (names[n_usable]) n_usable++;
    while (missing[n_missing]) n_missing++;
    assert(n_usable + n_missing < ISA_MAX - 1);
    if (is_usable) usable[n_usable] = k;
    *(is_usable ? &names[n_usable] : &missing[n_missing]) = k->name;
}

/* The compiler's checks also test that the operating system saves the wide registers.
 *
 * Intel's cores take two cycles for a dot product of bf16 pairs: 87 GF/s per core, while widening to fp32 has a limit
 * of 176 GF/s (measured on family 6 model 207). So on Intel the instruction can be selected, but is not preferred.
 * AMD's cores take half a cycle. */
static void detect(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool intel = __builtin_cpu_is("intel");
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && widens_halves();
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    bool pairs = avx512 && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
    if (intel) um_prefetch_few_rows = 5 << 10, um_prefetch_q8 = 16 << 10;
    add_kernels(pairs && may_use_tiles(), &um_kernels_amx);
    if (!intel) add_kernels(pairs, &um_kernels_avx512_bf16);
    add_kernels(avx512, &um_kernels_avx512);
    if (intel) add_kernels(pairs, &um_kernels_avx512_bf16);
    add_kernels(avx2, &um_kernels_avx2);
#elif defined(__aarch64__)
    add_kernels(getauxval(AT_HWCAP) & HWCAP_ASIMDDP, &um_kernels_neon_dot);
    add_kernels(true, &um_kernels_neon);
#endif
    add_kernels(true, &um_kernels_c);
}

const char *const *um_cpu_isas(void) {
    pthread_once(&once, detect);
    return names;
}

const char *const *um_cpu_isas_missing(void) {
    pthread_once(&once, detect);
    return missing;
}

static const um_kernels *find(const char *name) {
    pthread_once(&once, detect);
    for (int i = 0; usable[i]; i++)
        if (um_streq(usable[i]->name, name)) return usable[i];
    return NULL;
}

void um_cpu_use_isa(const char *name) {
    forced = name ? find(name) : NULL;
    assert(!name || forced);
}

um_status um_kernels_choose(const um_kernels **out, um_err *err) {
    const char *asked = getenv("UM_CPU_ISA");
    pthread_once(&once, detect);
    *out = forced ? forced : asked && *asked ? find(asked) : usable[0];
    if (*out) return UM_OK;
    um_buf list = {0};
    for (int i = 0; names[i]; i++) um_buf_printf(&list, "%s\"%s\"", i ? ", " : "", names[i]);
    um_fail(err, UM_EUNSUPPORTED, "UM_CPU_ISA: \"%.40s\" is not available on this processor; expected one of %s", asked,
            list.data);
    um_buf_free(&list);
    return UM_EUNSUPPORTED;
}
