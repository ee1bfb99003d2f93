/* The peak of the instructions that products use: how many additions and multiplications they do per second when all
 * numbers are in registers. The loops are written in assembly, because a compiler moves work out of a loop whose
 * numbers do not change. */
#include "ops/cpu/dev.h"
#include "ops/quantize.h"

enum { ROUNDS = 20000, TASKS_PER_THREAD = 48, RUNS = 5, ACCUMULATORS = 12, TILES = 4 };

/* Repeats an instruction ROUNDS times for each of its accumulators. */
typedef void (*loop_fn)(void);

typedef struct instruction {
    const char *name;
    double operations; /* of a call of `loop` */
    loop_fn loop;
} instruction;

#if defined(__x86_64__)
/* Twelve accumulators hide the latency of an instruction: at most two start per cycle, and the slowest takes six. */
#define EACH(I, R)    I(R, 0) I(R, 1) I(R, 2) I(R, 3) I(R, 4) I(R, 5) I(R, 6) I(R, 7) I(R, 8) I(R, 9) I(R, 10) I(R, 11)
#define CLEAR(R, N)   "vpxor %%xmm" #N ", %%xmm" #N ", %%xmm" #N "\n"
#define FMA(R, N)     "vfmadd231ps %%" R "14, %%" R "15, %%" R #N "\n"
#define MADDUBS(R, N) "vpmaddubsw %%" R "14, %%" R "15, %%" R #N "\n"
#define MADD(R, N)    "vpmaddwd %%" R "14, %%" R "15, %%" R #N "\n"
#define DPBF16(R, N)  "vdpbf16ps %%" R "14, %%" R "15, %%" R #N "\n"
#define DPBUSD(R, N)  "vpdpbusd %%" R "14, %%" R "15, %%" R #N "\n"
#define USED                                                                                                           \
    "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm14",   \
        "xmm15"
#define LOOP(NAME, TARGET, R, I)                                                                                       \
    __attribute__((target(TARGET))) static void NAME(void) {                                                           \
        int64_t n = ROUNDS;                                                                                            \
        __asm__ volatile(EACH(CLEAR, R) CLEAR(R, 14) CLEAR(R, 15) "1:\n" EACH(I, R) "dec %0\n jnz 1b\n vzeroupper\n"   \
                         : "+r"(n)                                                                                     \
                         :                                                                                             \
                         : USED);                                                                                      \
    }
LOOP(fma_256, "avx2,fma", "ymm", FMA)
LOOP(maddubs_256, "avx2", "ymm", MADDUBS)
LOOP(fma_512, "avx512f", "zmm", FMA)
LOOP(madd_512, "avx512f,avx512bw", "zmm", MADD)
LOOP(dpbf16_512, "avx512f,avx512bf16", "zmm", DPBF16)
LOOP(dpbusd_512, "avx512f,avx512vnni", "zmm", DPBUSD)

/* Four tiles of sums suffice: an instruction starts every 16 cycles and takes 52. A thread must have called
 * matrix_begin of the kernels. */
#define TILE_LOOP(NAME, TARGET, I)                                                                                     \
    __attribute__((target(TARGET))) static void NAME(void) {                                                           \
        int64_t n = ROUNDS / 8;                                                                                        \
        __asm__ volatile("tilezero %%tmm0\n tilezero %%tmm1\n tilezero %%tmm2\n tilezero %%tmm3\n"                     \
                         "tilezero %%tmm4\n tilezero %%tmm6\n"                                                         \
                         "1:\n" I " %%tmm6, %%tmm4, %%tmm0\n" I " %%tmm6, %%tmm4, %%tmm1\n" I                          \
                         " %%tmm6, %%tmm4, %%tmm2\n" I " %%tmm6, %%tmm4, %%tmm3\n dec %0\n jnz 1b\n"                   \
                         : "+r"(n)                                                                                     \
                         :                                                                                             \
                         : "cc");                                                                                      \
    }
TILE_LOOP(tile_dpbf16, "amx-tile,amx-bf16", "tdpbf16ps")
TILE_LOOP(tile_dpbssd, "amx-tile,amx-int8", "tdpbssd")

/* Additions and multiplications of a call with instructions that multiply this many pairs of numbers. */
#define VECTORS(PAIRS) (2.0 * (PAIRS)*ACCUMULATORS * ROUNDS)
/* The same with tiles of 32 inputs. A tile holds 64 bytes of inputs, but a group of integers has 32. */
#define TILE_PRODUCTS (2.0 * 16 * 16 * 32 * TILES * (ROUNDS / 8))

static const instruction fma_ymm = {"vfmadd231ps ymm", VECTORS(8), fma_256},
                         maddubs_ymm = {"vpmaddubsw ymm", VECTORS(32), maddubs_256},
                         fma_zmm = {"vfmadd231ps zmm", VECTORS(16), fma_512},
                         madd_zmm = {"vpmaddwd zmm", VECTORS(32), madd_512},
                         dpbf16_zmm = {"vdpbf16ps zmm", VECTORS(32), dpbf16_512},
                         dpbusd_zmm = {"vpdpbusd zmm", VECTORS(64), dpbusd_512},
                         dpbf16_tile = {"tdpbf16ps", TILE_PRODUCTS, tile_dpbf16},
                         dpbssd_tile = {"tdpbssd, 32 inputs", TILE_PRODUCTS, tile_dpbssd};
#endif

/* The instructions of a set of kernels for panels of fp32, bf16, and integers. */
static const struct {
    const um_kernels *k;
    const instruction *f32, *bf16, *integers;
} known[] = {
#if defined(__x86_64__)
    {&um_kernels_avx2, &fma_ymm, &fma_ymm, &maddubs_ymm},
    {&um_kernels_avx512, &fma_zmm, &fma_zmm, &madd_zmm},
    {&um_kernels_avx512_bf16, &fma_zmm, &dpbf16_zmm, &dpbusd_zmm},
    {&um_kernels_amx, &fma_zmm, &dpbf16_tile, &dpbssd_tile},
#endif
    {NULL, NULL, NULL, NULL},
};

/* Returns the instruction, or NULL when it is not known. */
static const instruction *find_instruction(const um_dev *dev, um_dtype type) {
    for (size_t i = 0; known[i].k; i++) {
        if (known[i].k != dev->k) continue;
        if (um_is_quantized(type)) return known[i].integers;
        return type == UM_BF16 && dev->config.dtype == UM_BF16 ? known[i].bf16 : known[i].f32;
    }
    return NULL;
}

typedef struct peak_job {
    const um_kernels *k;
    const instruction *of;
} peak_job;

static void peak_task(void *arg, int task, int thread) {
    const peak_job *j = (const peak_job *)arg;
    (void)task, (void)thread;
    if (j->k->matrix_begin) j->k->matrix_begin();
    j->of->loop();
    if (j->k->matrix_end) j->k->matrix_end();
}

double um_cpu_peak(um_dev *dev, um_dtype type, const char **instruction_name) {
    const instruction *of = find_instruction(dev, type);
    const int tasks = TASKS_PER_THREAD * dev->n_threads;
    double best = 0;
    *instruction_name = of ? of->name : NULL;
    for (int i = 0; i < RUNS && of; i++) {
        peak_job j = {dev->k, of};
        const double begin = um_now();
        um_pool_run(dev->pool, peak_task, &j, tasks);
        best = UM_MAX(best, tasks * of->operations / (um_now() - begin));
    }
    return best;
}
