/* Decides whether the threads of a device are pinned, and on which CPUs.
 *
 * Pinned threads of two devices or of two processes on the same CPUs would wait for each other while other CPUs are
 * idle. Devices of this process therefore never share a CPU: each claims the CPUs of its threads. Other processes can't
 * be seen, so "auto" only pins where it can't collide with a well-configured one: when the device has a thread for
 * every CPU that the process may use. It leaves small machines alone, where pinning gains nothing and other programs
 * are more likely to need one of the CPUs. */
#include <pthread.h>

#include "ops/cpu/dev.h"

enum { AUTO_FROM = 8 }; /* smallest number of threads that "auto" pins */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool claimed[UM_CPUS_MAX]; /* guarded by lock */

/* Returns the CPUs of the affinity mask that no other device has claimed. */
static int free_cpus(int *cpu) {
    int all[UM_CPUS_MAX], n = 0;
    const int n_all = um_cpu_usable(all);
    for (int i = 0; i < n_all; i++)
        if (!claimed[all[i]]) cpu[n++] = all[i];
    return n;
}

static bool should_pin(int32_t pin, int n_threads, int n_free) {
    if (pin == UM_PIN_OFF || n_threads < 2 || n_threads > n_free) return false;
    if (pin == UM_PIN_ON) return true;
    return n_threads >= AUTO_FROM && n_threads == n_free && n_threads == um_cpu_count();
}

bool um_cpu_claim(int32_t pin, int n_threads, int *cpu) {
    int usable[UM_CPUS_MAX];
    pthread_mutex_lock(&lock);
    const int n_free = free_cpus(usable);
    const bool pins = should_pin(pin, n_threads, n_free);
    if (pins) um_cpu_places("/sys/devices/system", usable, n_free, n_threads, cpu);
    for (int i = 0; i < n_threads && pins; i++) claimed[cpu[i]] = true;
    pthread_mutex_unlock(&lock);
    if (pin == UM_PIN_ON && n_threads > n_free)
        um_warn("threads are not pinned: %d threads need as many CPUs, %d are left for them", n_threads, n_free);
    return pins;
}

void um_cpu_unclaim(const int *cpu, int n) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n; i++) claimed[cpu[i]] = false;
    pthread_mutex_unlock(&lock);
}
