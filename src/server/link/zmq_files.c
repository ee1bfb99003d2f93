/* The socket files of ipc addresses: the folder for automatic addresses, and the cleanup after dead processes. */
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "server/link/zmq.h"

#define PATH_MOST   (sizeof(((struct sockaddr_un *)0)->sun_path) - 1)
#define AGE_SECONDS 60 /* a younger folder may belong to a server that is starting */

static const char *const file_names[] = {"commands", "events"};

static bool is_in_use(const char *path) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) > PATH_MOST) return false;
    memcpy(a.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool yes = fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0;
    if (fd >= 0) close(fd);
    return yes;
}

static bool is_socket(const char *path) {
    struct stat s;
    return lstat(path, &s) == 0 && S_ISSOCK(s.st_mode);
}

/* ---- Given addresses --------------------------------------------------------------------------------------------- */

static const char *path_of(const char *addr) {
    bool is_file = addr && strncmp(addr, "ipc://", 6) == 0 && addr[6] != '@';
    return is_file ? addr + 6 : NULL;
}

um_status um_zmq_check_file(const char *addr, um_err *err) {
    const char *path = path_of(addr);
    if (!path || access(path, F_OK)) return UM_OK;
    if (!is_socket(path)) return um_fail(err, UM_EIO, "can't listen on %s: the file there is not a socket", addr);
    if (is_in_use(path)) return um_fail(err, UM_EIO, "can't listen on %s: another process listens there", addr);
    return UM_OK;
}

void um_zmq_remove_file(const char *addr) {
    const char *path = path_of(addr);
    if (path) unlink(path);
}

/* ---- Automatic addresses ----------------------------------------------------------------------------------------- */

/* Removes the folder of a server that was killed, unless another process uses its sockets. */
static void remove_stale_folder(const char *folder) {
    struct stat s;
    bool is_old =
        lstat(folder, &s) == 0 && S_ISDIR(s.st_mode) && s.st_uid == geteuid() && s.st_mtime + AGE_SECONDS < time(NULL);
    for (size_t i = 0; i < UM_LEN(file_names) && is_old; i++) {
        char *path = um_path_join(folder, file_names[i]);
        if (is_socket(path) && !is_in_use(path)) unlink(path);
        um_free(path);
    }
    if (is_old) rmdir(folder); /* fails if a file is left */
}

static void remove_stale_folders(const char *parent) {
    DIR *d = opendir(parent);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        if (fnmatch("unmask-??????", e->d_name, 0)) continue;
        char *folder = um_path_join(parent, e->d_name);
        remove_stale_folder(folder);
        um_free(folder);
    }
    if (d) closedir(d);
}

static char *make_folder_in(const char *parent) {
    if (!parent || !*parent) return NULL;
    remove_stale_folders(parent);
    char *folder = um_path_join(parent, "unmask-XXXXXX");
    if (strlen(folder) + sizeof "/commands" <= PATH_MOST && mkdtemp(folder)) return folder;
    um_free(folder);
    return NULL;
}

um_status um_zmq_folder(char **out, um_err *err) {
    const char *const parents[] = {getenv("XDG_RUNTIME_DIR"), getenv("TMPDIR"), "/tmp"};
    for (size_t i = 0; i < UM_LEN(parents); i++)
        if ((*out = make_folder_in(parents[i]))) return UM_OK;
    return um_fail(err, UM_EIO,
                   "can't create a folder for the workers' sockets below XDG_RUNTIME_DIR, TMPDIR or /tmp: %s; set "
                   "--zmq-command-addr and --zmq-event-addr",
                   strerror(errno));
}
