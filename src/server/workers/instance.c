/* The threads and processes that workers run in. */
#include "server/workers/instance.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

struct um_worker_instance {
    int fd;    /* process: pidfd; thread: eventfd that it sets before it ends */
    pid_t pid; /* 0: a thread */
    pthread_t thread;
    um_worker_config config;
    atomic_bool is_stopped; /* the thread got a signal */
    um_err err;             /* error of the thread's worker; valid after pthread_join */
};

/* ---- Thread ------------------------------------------------------------------------------------------------------ */

static bool is_stopped(void *arg) {
    const um_worker_instance *instance = arg;
    return atomic_load(&instance->is_stopped);
}

static void *thread_main(void *arg) {
    um_worker_instance *instance = arg;
    um_worker_run(&instance->config, &instance->err);
    um_port_close(instance->config.port);
    eventfd_write(instance->fd, 1);
    return NULL;
}

/* Starts the thread with all signals blocked. The threads that it starts inherit the mask, so that signals reach the
 * thread with the event loop. */
static int start_thread(um_worker_instance *instance) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int e = pthread_create(&instance->thread, NULL, thread_main, instance);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return e;
}

um_status um_worker_instance_open_thread(um_worker_instance **out, const um_worker_config *c, um_err *err) {
    um_worker_instance *instance = UM_NEW(um_worker_instance);
    instance->config = *c;
    instance->config.is_stopped = is_stopped;
    instance->config.is_stopped_arg = instance;
    instance->fd = eventfd(0, EFD_CLOEXEC);
    int e = instance->fd < 0 ? errno : start_thread(instance);
    if (!e) {
        *out = instance;
        return UM_OK;
    }
    if (instance->fd >= 0) close(instance->fd);
    um_free(instance);
    return um_fail(err, UM_EIO, "can't start a thread for the worker: %s", strerror(e));
}

/* ---- Process ----------------------------------------------------------------------------------------------------- */

/* The data that the child needs. Everything is prepared before the fork, because after it a child of a program with
 * several threads may only make async-signal-safe calls. */
typedef struct um_child_setup {
    const char *program;
    const char *const *argv;
    char **env;
    int config, null;
    pid_t parent;
} um_child_setup;

static void fail_child(const char *what) {
    static const char head[] = "unmask: error: can't start a worker: ";
    if (write(STDERR_FILENO, head, sizeof(head) - 1) < 0 || write(STDERR_FILENO, what, strlen(what)) < 0) _exit(126);
    _exit(127);
}

/* Duplicates a descriptor to the number `at`, and keeps it open across exec. */
static void move_fd(int fd, int at) {
    if (dup2(fd, at) < 0 || fcntl(at, F_SETFD, 0) < 0) fail_child("dup2 failed\n");
}

static void run_child(const um_child_setup *setup) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail_child("prctl failed\n");
    if (getppid() != setup->parent) _exit(0); /* the parent died before prctl */
    move_fd(setup->null, STDIN_FILENO);
    move_fd(setup->config, UM_WORKER_INSTANCE_CONFIG_FD);
    /* Closes descriptors that libraries opened, since a listening socket must not outlive the frontend. The
     * program's own are all close-on-exec, so it does not matter that kernels before 5.9 lack this call. */
    close_range(UM_WORKER_INSTANCE_CONFIG_FD + 1, ~0U, 0);
    execve(setup->program, (char *const *)setup->argv, setup->env);
    fail_child("can't execute the program\n");
}

/* Returns the descriptor of an in-memory file with this content, positioned at its start; -1 and errno on failure. The
 * number is 16 or more, so that it does not collide with the numbers that the child assigns. */
static int memory_file(um_str content) {
    int low = memfd_create("unmask-config", MFD_CLOEXEC);
    int fd = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, 16);
    if (low >= 0) close(low);
    for (size_t n = 0; fd >= 0 && n < content.n;) {
        ssize_t w = write(fd, content.p + n, content.n - n);
        if (w < 0 && errno == EINTR) continue;
        if (w < 0) {
            close(fd);
            return -1;
        }
        n += (size_t)w;
    }
    if (fd >= 0) lseek(fd, 0, SEEK_SET);
    return fd;
}

/* Returns whether a worker gets the variable: not the options of the server, which it gets in its configuration, but
 * the plugins, which are loaded before that is read. */
static bool is_for_workers(const char *variable) {
    return strncmp(variable, "UNMASK_", 7) != 0 || strncmp(variable, "UNMASK_PLUGIN=", 14) == 0;
}

/* Returns the environment of a worker; um_free. */
static char **environment(void) {
    size_t n = 0, k = 0;
    while (environ[n]) n++;
    char **env = UM_NEW_ARRAY(char *, n + 1);
    for (size_t i = 0; i < n; i++)
        if (is_for_workers(environ[i])) env[k++] = environ[i];
    return env;
}

static int open_pidfd(pid_t pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

static void reap(pid_t pid, int *status) {
    while (waitpid(pid, status, 0) < 0 && errno == EINTR) {}
}

/* Forks; returns 0 or errno. */
static int start_process(um_worker_instance *instance, const um_child_setup *setup) {
    instance->pid = fork();
    if (instance->pid < 0) return errno;
    if (instance->pid == 0) run_child(setup);
    instance->fd = open_pidfd(instance->pid);
    if (instance->fd >= 0) return 0;
    int e = errno;
    kill(instance->pid, SIGKILL);
    reap(instance->pid, NULL);
    return e;
}

um_status um_worker_instance_open_process(um_worker_instance **out, const char *program, const char *const *argv,
                                          um_str config, um_err *err) {
    um_worker_instance *instance = UM_NEW(um_worker_instance);
    um_child_setup setup = {.program = program, .argv = argv, .parent = getpid()};
    setup.config = memory_file(config);
    setup.null = setup.config < 0 ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC);
    setup.env = environment();
    int e = setup.null < 0 ? errno : start_process(instance, &setup);
    if (setup.null >= 0) close(setup.null);
    if (setup.config >= 0) close(setup.config);
    um_free(setup.env);
    if (!e) {
        *out = instance;
        return UM_OK;
    }
    um_free(instance);
    return um_fail(err, UM_EIO, "can't start a process for the worker: %s%s", strerror(e),
                   e == ENOSYS ? " (needs Linux 5.3 or later; --in-process does not)" : "");
}

/* ---- Both -------------------------------------------------------------------------------------------------------- */

int um_worker_instance_fd(const um_worker_instance *instance) { return instance->fd; }

int64_t um_worker_instance_pid(const um_worker_instance *instance) { return instance->pid; }

/* Reads the state letter in /proc/PID/stat. It follows the program's name, which is in parentheses and may contain
 * parentheses itself. */
static char process_state(pid_t pid) {
    char path[40];
    um_buf stat = {0};
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    um_status st = um_file_read(path, 4096, &stat, NULL);
    const char *end = st ? NULL : strrchr(stat.data, ')');
    char state = end && end[1] == ' ' ? end[2] : '?';
    um_buf_free(&stat);
    return state;
}

const char *um_worker_instance_process_state(const um_worker_instance *instance) {
    switch (instance->pid ? process_state(instance->pid) : '?') {
    case 'T':
    case 't': return "is stopped";
    case 'D': return "is waiting for a disk";
    case 'S': return "is waiting";
    case 'R': return "is busy";
    default: return "is in an unknown state";
    }
}

void um_worker_instance_signal(um_worker_instance *instance, int sig) {
    if (instance->pid) kill(instance->pid, sig);
    else if (sig) atomic_store(&instance->is_stopped, true);
}

bool um_worker_instance_wait(const um_worker_instance *instance, double seconds) {
    double end = um_now() + seconds, left = seconds;
    struct pollfd p = {.fd = instance->fd, .events = POLLIN};
    while (poll(&p, 1, (int)(left * 1000)) <= 0) /* timeout, or a signal */
        if ((left = end - um_now()) <= 0) return false;
    return true;
}

static void put_exit(um_err *how, int status) {
    if (WIFSIGNALED(status))
        um_fail(how, UM_EIO, "killed by signal %d (%s)%s", WTERMSIG(status), strsignal(WTERMSIG(status)),
                WCOREDUMP(status) ? ", core dumped" : "");
    else if (WEXITSTATUS(status)) um_fail(how, UM_EIO, "exited with status %d", WEXITSTATUS(status));
}

void um_worker_instance_close(um_worker_instance *instance, um_err *how) {
    if (!instance) return;
    int status = 0;
    *how = (um_err){.msg = "ended"};
    if (instance->pid) {
        reap(instance->pid, &status);
        put_exit(how, status);
    } else {
        pthread_join(instance->thread, NULL);
        if (instance->err.code) *how = instance->err;
    }
    close(instance->fd);
    um_free(instance);
}
