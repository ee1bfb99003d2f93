/* check: the program that compares every operation of the CUDA backend with the reference backend, and times it. Each
 * file tests/cuda/check_*.cu has a list of cases; check.cu has the table of the lists.
 *
 * A case draws fresh random inputs, runs the operation on outputs filled with NaN, and compares. It prints nothing
 * itself. All memory of a case is freed when it ends. */
#ifndef UM_TESTS_CUDA_CHECK_CUH
#define UM_TESTS_CUDA_CHECK_CUH

#include <math.h>
#include <stdlib.h>

#include "cuda/cuda.cuh"
#include "cuda/kernels.cuh"
#include "ops/ref/ref.h"

typedef struct check check;
typedef struct check_case {
    const char *name; /* "attention bf16 32/8 heads, page 32" */
    void (*run)(check *c, const struct check_case *k);
    int32_t n[8];  /* parameters, as the file uses them */
    um_dtype type; /* type of the operands */
} check_case;
typedef struct check_list {
    const char *file;
    const check_case *cases;
    int n_cases;
} check_list;
extern const check_list embed_checks, norm_checks, product_checks, low_rank_checks, kv_checks, attention_checks,
    select_checks, router_checks, moe_checks, stream_checks, head_checks, fp8_checks, rank_checks;

/* ---- Random numbers: the seed is printed; UM_TEST_SEED sets it ---- */
float check_signed(check *c);             /* (-1, 1) */
int32_t check_below(check *c, int32_t n); /* 0..n-1 */
float *check_floats(check *c, size_t n);  /* host memory, random in (-1, 1) */

/* ---- Memory: freed when the case ends; a failed allocation ends the program ---- */
void *check_host(check *c, size_t bytes);                         /* zeroed host memory */
void *check_device(check *c, size_t bytes);                       /* device memory filled with NaN bytes (0xff) */
void *check_guarded(check *c, size_t bytes);                      /* the same, with --unset too */
void *check_upload(check *c, const void *p, size_t bytes);        /* a device copy */
void *check_download(check *c, const void *device, size_t bytes); /* waits for the device; a host copy */
/* Host floats as a device array of the type. Also rounds the host floats when the type is UM_BF16. */
void *check_operand(check *c, float *x, size_t n, um_dtype type);
/* A device array of the type as host floats. */
float *check_floats_of(check *c, const void *device, size_t n, um_dtype type);
/* A random matrix: as a tensor for the reference, and on the device. For UM_F8 the tensor is fp32, with numbers that
 * e4m3 has with the scales of the rows. */
um_tensor check_tensor(check *c, int32_t rows, int32_t in, um_dtype type);
um_cu_matrix check_matrix(check *c, const um_tensor *t, um_dtype type);
/* Does the same for n matrices in UM_F8, one below the other in t, but gives random factors to the blocks of each in
 * place of those of rows. Those of a matrix follow those of the matrix before. */
um_cu_matrix check_matrix_in_blocks(check *c, um_tensor *t, int32_t n);
/* Host floats as the input of a product with weights of the type. Also rounds the host floats unless it is UM_F32. */
um_cu_rows check_rows(check *c, float *x, int32_t n, int32_t in, um_dtype type);
/* Rounds a row to e4m3 as um_cu_quantize and, without `power`, um_cu_quantize_weights do. Returns the scale. code,
 * unless NULL, receives the codes. */
float check_round_fp8(float *x, int32_t n, bool power, uint8_t *code);
/* A device of the reference backend with room for all cases; the dtype is that of the operands, fp32 for UM_F8. */
um_dev *check_ref(check *c, um_dtype type);
/* The batch as a message on the device. *host receives the packed bytes if it is not NULL. */
um_cu_batch check_batch(check *c, const um_batch *b, const um_message_capacity *capacity, char **host);
cudaStream_t check_stream(check *c);

/* ---- Results ---- */
void check_status(check *c, um_status s, const um_err *err); /* fails the case unless UM_OK */
/* Fails the case unless all CUDA calls and kernels so far have succeeded. Waits for the device. */
void check_cuda(check *c, cudaError_t e, const char *what);
/* Fails the case when |got - want| / |want| (Euclidean) exceeds `most` or a value is NaN. Keeps the worst for the
 * table. what: "output". */
void check_close(check *c, const char *what, const float *got, const float *want, size_t n, double most);
/* Fails the case when the bytes differ. */
void check_same(check *c, const char *what, const void *got, const void *want, size_t bytes);
void check_true(check *c, bool ok, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Skips the case when the device has no such kernels, which `what` names. Returns whether the case must end. */
bool check_skips(check *c, bool there, const char *what);

/* ---- Times ---- */
/* Times the call: median of 25 runs, each after 256 MiB were written to clear the caches. bytes: the fewest that it
 * must read and write; flops: operations. The program prints microseconds, GB/s, TFLOP/s and the share of the limit
 * that it measured. Skipped without --time. */
void check_time(check *c, double bytes, double flops, void (*call)(void *arg), void *arg);

#endif
