/* Threads and processes that workers live in. */
#include "server/backend/vessel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

struct um_vessel {
    int fd;    /* of a process: pidfd; of a thread: eventfd that its last act fills */
    pid_t pid; /* 0: a thread */
    pthread_t thread;
    um_worker_config config;
    um_err err; /* of the thread's worker; read after the join */
};

/* ---- Thread ------------------------------------------------------------------------------------------------------ */

static void *thread_main(void *arg) {
    um_vessel *v = arg;
    um_worker_run(&v->config, &v->err);
    um_port_close(v->config.port);
    eventfd_write(v->fd, 1);
    return NULL;
}

/* Signals are the business of the thread with the loop: the new one, and those that it starts, inherit a full mask. */
static int start_thread(um_vessel *v) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int e = pthread_create(&v->thread, NULL, thread_main, v);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return e;
}

um_status um_vessel_open_thread(um_vessel **out, const um_worker_config *c, um_err *err) {
    um_vessel *v = UM_NEW(um_vessel);
    v->config = *c;
    v->fd = eventfd(0, EFD_CLOEXEC);
    int e = v->fd < 0 ? errno : start_thread(v);
    if (!e) {
        *out = v;
        return UM_OK;
    }
    if (v->fd >= 0) close(v->fd);
    um_free(v);
    return um_fail(err, UM_EIO, "could not start a thread for the worker: %s", strerror(e));
}

/* ---- Process ----------------------------------------------------------------------------------------------------- */

/* What the child needs, all made before the fork: behind it only calls that are safe in a copy of a program with
 * several threads. */
typedef struct um_birth {
    const char *program;
    const char *const *argv;
    char **env;
    int config, null;
    pid_t parent;
} um_birth;

static void die(const char *what) {
    static const char head[] = "unmask: error: could not start a worker: ";
    if (write(STDERR_FILENO, head, sizeof(head) - 1) < 0 || write(STDERR_FILENO, what, strlen(what)) < 0) _exit(126);
    _exit(127);
}

/* A copy of a descriptor under another number, which stays open in the new program. */
static void place(int fd, int at) {
    if (dup2(fd, at) < 0 || fcntl(at, F_SETFD, 0) < 0) die("dup2 failed\n");
}

static void be_born(const um_birth *b) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) die("prctl failed\n");
    if (getppid() != b->parent) _exit(0); /* it died before we could ask to be told */
    place(b->null, STDIN_FILENO);
    place(b->config, UM_VESSEL_CONFIG_FD);
    /* Sockets, above all the one that listens, must not outlive the frontend here. Kernels before 5.9 lack the call;
     * ours are all opened to be closed on exec, it is for those of libraries. */
    close_range(UM_VESSEL_CONFIG_FD + 1, ~0U, 0);
    execve(b->program, (char *const *)b->argv, b->env);
    die("the program could not be executed\n");
}

/* A file in memory with this content, read from its beginning; -1 and errno on failure. Its number is beyond those that
 * the child gives away. */
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

/* The environment without our own variables; um_free. */
static char **environment(void) {
    size_t n = 0, k = 0;
    while (environ[n]) n++;
    char **env = UM_NEW_ARRAY(char *, n + 1);
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], "UNMASK_", 7) != 0) env[k++] = environ[i];
    return env;
}

static int open_pidfd(pid_t pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

static void reap(pid_t pid, int *status) {
    while (waitpid(pid, status, 0) < 0 && errno == EINTR) {}
}

/* Forks; returns 0 or errno. */
static int start_process(um_vessel *v, const um_birth *b) {
    v->pid = fork();
    if (v->pid < 0) return errno;
    if (v->pid == 0) be_born(b);
    v->fd = open_pidfd(v->pid);
    if (v->fd >= 0) return 0;
    int e = errno;
    kill(v->pid, SIGKILL);
    reap(v->pid, NULL);
    return e;
}

um_status um_vessel_open_process(um_vessel **out, const char *program, const char *const *argv, um_str config,
                                 um_err *err) {
    um_vessel *v = UM_NEW(um_vessel);
    um_birth b = {.program = program, .argv = argv, .parent = getpid()};
    b.config = memory_file(config);
    b.null = b.config < 0 ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC);
    b.env = environment();
    int e = b.null < 0 ? errno : start_process(v, &b);
    if (b.null >= 0) close(b.null);
    if (b.config >= 0) close(b.config);
    um_free(b.env);
    if (!e) {
        *out = v;
        return UM_OK;
    }
    um_free(v);
    return um_fail(err, UM_EIO, "could not start a process for the worker: %s%s", strerror(e),
                   e == ENOSYS ? " (Linux 5.3 or later is needed; --in-process does without)" : "");
}

/* ---- Both -------------------------------------------------------------------------------------------------------- */

int um_vessel_fd(const um_vessel *v) { return v->fd; }

int64_t um_vessel_pid(const um_vessel *v) { return v->pid; }

/* The letter behind the name, which is in brackets and may have brackets in it. */
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

const char *um_vessel_doing(const um_vessel *v) {
    switch (v->pid ? process_state(v->pid) : '?') {
    case 'T':
    case 't': return "is stopped";
    case 'D': return "waits for a disk";
    case 'S': return "waits";
    case 'R': return "is busy";
    default: return "is in an unknown state";
    }
}

void um_vessel_signal(const um_vessel *v, int sig) {
    if (v->pid) kill(v->pid, sig);
}

bool um_vessel_wait(const um_vessel *v, double seconds) {
    double end = um_now() + seconds, left = seconds;
    struct pollfd p = {.fd = v->fd, .events = POLLIN};
    while (poll(&p, 1, (int)(left * 1000)) <= 0) /* over, or a signal came */
        if ((left = end - um_now()) <= 0) return false;
    return true;
}

static void put_exit(um_err *how, int status) {
    if (WIFSIGNALED(status))
        um_fail(how, UM_EIO, "killed by signal %d (%s)%s", WTERMSIG(status), strsignal(WTERMSIG(status)),
                WCOREDUMP(status) ? ", core dumped" : "");
    else if (WEXITSTATUS(status)) um_fail(how, UM_EIO, "ended with exit status %d", WEXITSTATUS(status));
}

void um_vessel_close(um_vessel *v, um_err *how) {
    if (!v) return;
    int status = 0;
    *how = (um_err){.msg = "ended"};
    if (v->pid) {
        reap(v->pid, &status);
        put_exit(how, status);
    } else {
        pthread_join(v->thread, NULL);
        if (v->err.code) *how = v->err;
    }
    close(v->fd);
    um_free(v);
}
