/* A CPU backend whose passes fail on demand. The table of backends in this file replaces the library's. */
#ifndef UM_TESTS_FAILING_DEVICE_H
#define UM_TESTS_FAILING_DEVICE_H

#include <stdatomic.h>

#include "ops/backend.h"
#include "ops/cpu/cpu.h"
#include "ops/ref/ref.h"

#define DEVICE_ERROR "the test's device has failed"

enum { FAILS_IN_SUBMIT, FAILS_IN_WAIT };
/* passes_left: number of passes that succeed before one fails; negative: no pass fails. */
static atomic_int fails_in, passes_left;

static um_status pass_ends(int where, um_err *err) {
    if (atomic_load(&fails_in) != where || atomic_load(&passes_left) < 0) return UM_OK;
    if (atomic_fetch_sub(&passes_left, 1) > 0) return UM_OK;
    return um_fail(err, UM_EDEVICE, DEVICE_ERROR);
}

static um_status device_submit(um_dev *dev, um_err *err) {
    (void)dev;
    return pass_ends(FAILS_IN_SUBMIT, err);
}

static um_status device_wait(um_dev *dev, um_err *err) {
    (void)dev;
    return pass_ends(FAILS_IN_WAIT, err);
}

static um_ops device_ops; /* the operations of the CPU, with a submit and a wait that can fail */
static um_backend device; /* the CPU backend, under its own name, with these operations */
const um_backend *const um_backends_all[] = {&device, &um_backend_ref, NULL};
const um_ops *const um_ops_all[] = {&device_ops, &um_ops_ref, NULL};

static int open_device(void **state) {
    (void)state;
    device_ops = um_ops_cpu;
    device_ops.submit = device_submit;
    device_ops.wait = device_wait;
    device = um_backend_cpu;
    device.ops = &device_ops;
    atomic_store(&passes_left, -1);
    return 0;
}

/* Makes one pass fail after n passes that succeed. in: FAILS_IN_SUBMIT or FAILS_IN_WAIT. */
static inline void fail_after(int in, int n) {
    atomic_store(&fails_in, in);
    atomic_store(&passes_left, n);
}

#endif
