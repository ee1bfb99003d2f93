/* Which instruction sets this processor has, and which one devices use. */
#include "ops/cpu/cpu.h"
#include "ops/cpu/kernels.h"

#include <pthread.h>

#define ISA_MAX 5

static const um_kernels *usable[ISA_MAX]; /* best first */
static const char *names[ISA_MAX];
static const um_kernels *forced; /* by um_cpu_use_isa */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* AMD's cores find the stream by themselves; asking far ahead hides it from them and costs a quarter to a third of the
 * bandwidth (family 25 model 17). Intel's get 14.8 instead of 10.7 GB/s a core with it (family 6 model 207). */
size_t um_prefetch_few_rows = 4 << 10;

/* The compiler's check covers the operating system's part too: that it saves the wide registers.
 *
 * Intel's cores take two cycles for a dot product of bf16 pairs: 87 GF/s a core where widening to fp32 has a limit of
 * 176 (measured on family 6 model 207). There the instruction is offered, but not preferred. AMD's take half a cycle.
 */
static void detect(void) {
    int n = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_is("intel")) um_prefetch_few_rows = 16 << 10;
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    bool pairs = avx512 && __builtin_cpu_supports("avx512bf16"), pairs_first = pairs && !__builtin_cpu_is("intel");
    if (pairs_first) usable[n++] = &um_kernels_avx512_bf16;
    if (avx512) usable[n++] = &um_kernels_avx512;
    if (pairs && !pairs_first) usable[n++] = &um_kernels_avx512_bf16;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) usable[n++] = &um_kernels_avx2;
#endif
    usable[n++] = &um_kernels_c;
    assert(n < ISA_MAX);
    for (int i = 0; i < n; i++) names[i] = usable[i]->name;
}

const char *const *um_cpu_isas(void) {
    pthread_once(&once, detect);
    return names;
}

const um_kernels *um_kernels_pick(const char *name) {
    pthread_once(&once, detect);
    if (!name) return forced ? forced : usable[0];
    for (int i = 0; usable[i]; i++)
        if (um_streq(usable[i]->name, name)) return usable[i];
    return NULL;
}

void um_cpu_use_isa(const char *name) {
    forced = name ? um_kernels_pick(name) : NULL;
    assert(!name || forced);
}
