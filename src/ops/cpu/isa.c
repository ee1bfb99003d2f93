/* Which instruction sets this processor has, and which one devices use. */
#include "ops/cpu/cpu.h"
#include "ops/cpu/kernels.h"

#include <pthread.h>
#include <stdlib.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define ISA_MAX 6

static const um_kernels *usable[ISA_MAX];             /* best first */
static const char *names[ISA_MAX], *missing[ISA_MAX]; /* of the usable ones; of the others */
static const um_kernels *forced;                      /* by um_cpu_use_isa */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* AMD's cores find the stream by themselves; asking far ahead hides it from them and costs a quarter to a third of the
 * bandwidth (family 25 model 17). Intel's get 14.8 instead of 10.7 GB/s a core with it (family 6 model 207). */
size_t um_prefetch_few_rows = 4 << 10;

#if defined(__x86_64__)
/* Tile registers are 8 KB that the operating system saves for a process once it has asked for them; threads started
 * later have them too. The compilers' own check does not know them. */
static bool may_use_tiles(void) {
    enum { REQUEST_STATE = 0x1023, TILE_DATA = 18, HAS_BF16 = 1 << 22, HAS_TILES = 1 << 24 };
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & HAS_BF16) || !(d & HAS_TILES)) return false;
    return syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA) == 0;
}
#endif

/* Puts the kernels behind those found so far, or to the missing ones. */
static void found(bool here, const um_kernels *k) {
    int n_usable = 0, n_missing = 0;
    while (names[n_usable]) n_usable++;
    while (missing[n_missing]) n_missing++;
    assert(n_usable + n_missing < ISA_MAX - 1);
    if (here) usable[n_usable] = k;
    *(here ? &names[n_usable] : &missing[n_missing]) = k->name;
}

/* The compiler's check covers the operating system's part too: that it saves the wide registers.
 *
 * Intel's cores take two cycles for a dot product of bf16 pairs: 87 GF/s a core where widening to fp32 has a limit of
 * 176 (measured on family 6 model 207). There the instruction is offered, but not preferred. AMD's take half a cycle.
 */
static void detect(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool intel = __builtin_cpu_is("intel"), avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    bool pairs = avx512 && __builtin_cpu_supports("avx512bf16");
    if (intel) um_prefetch_few_rows = 16 << 10;
    found(pairs && may_use_tiles(), &um_kernels_amx);
    if (!intel) found(pairs, &um_kernels_avx512_bf16);
    found(avx512, &um_kernels_avx512);
    if (intel) found(pairs, &um_kernels_avx512_bf16);
    found(avx2, &um_kernels_avx2);
#endif
    found(true, &um_kernels_c);
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
    um_fail(err, UM_EUNSUPPORTED, "UM_CPU_ISA: \"%.40s\" is no instruction set of this processor; it has %s", asked,
            list.data);
    um_buf_free(&list);
    return UM_EUNSUPPORTED;
}
