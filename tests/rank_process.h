/* Ranks of a model that are processes: a test program starts itself again for each rank but 0. A process that has used
 * a GPU can't fork one that does, so the new process executes the program from its beginning. */
#ifndef UM_TESTS_RANK_PROCESS_H
#define UM_TESTS_RANK_PROCESS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "model/model.h"

#define RANK_PROCESS "--rank-process"

/* Writes the name of the device of a rank on this host. `device` may be `out`. */
static inline void rank_device(char *out, size_t size, const char *device, int32_t rank) {
    const size_t n = strcspn(device, ":");
    memmove(out, device, n);
    if (strncmp(device, "cuda", 4)) out[n] = '\0';
    else snprintf(out + n, size - n, ":%d", rank);
}

/* Starts the process of a rank. Everything that ranks must have in common is in c, which is the configuration of rank
 * 0. Its device has no number. */
static inline pid_t rank_process_start(const um_config *c, const char *device, int32_t rank) {
    char text[7][16], own[32];
    const int32_t number[] = {rank,
                              c->nnodes,
                              c->master_port,
                              c->threads,
                              c->max_num_batched_tokens,
                              c->load_format,
                              c->enable_expert_parallel};
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) snprintf(text[i], sizeof text[i], "%d", number[i]);
    rank_device(own, sizeof own, device, rank);
    const char *const argv[] = {
        "rank",  RANK_PROCESS, own,     c->model, c->dtype, c->quantization, c->lora ? c->lora : "",
        text[0], text[1],      text[2], text[3],  text[4],  text[5],         text[6],
        NULL};
    const pid_t pid = fork();
    if (pid) return pid;
    execv("/proc/self/exe", (char *const *)(uintptr_t)argv);
    _exit(127);
}

/* A process that rank_process_start has started computes with rank 0 and ends here. support.c calls it before main. */
static inline void rank_process_run(int argc, char **argv) {
    um_config c;
    um_err err = {0};
    um_model *m = NULL;
    if (argc != 14 || strcmp(argv[1], RANK_PROCESS)) return;
    um_config_init(&c);
    snprintf(c.device, sizeof c.device, "%s", argv[2]);
    c.model = argv[3];
    snprintf(c.dtype, sizeof c.dtype, "%s", argv[4]);
    snprintf(c.quantization, sizeof c.quantization, "%s", argv[5]);
    c.lora = *argv[6] ? argv[6] : NULL;
    c.rank = atoi(argv[7]);
    c.nnodes = atoi(argv[8]);
    c.master_port = atoi(argv[9]);
    c.threads = atoi(argv[10]);
    c.max_num_batched_tokens = atoi(argv[11]);
    c.load_format = atoi(argv[12]);
    c.enable_expert_parallel = atoi(argv[13]) != 0;
    c.distributed_timeout_seconds = 60;
    um_status s = um_model_open(&m, &c, &err);
    if (!s) s = um_model_follow(m, &err);
    if (s) fprintf(stderr, "rank %d: %s\n", c.rank, err.msg);
    um_model_close(m);
    exit(s != UM_OK);
}

/* Waits for the process of a rank. Returns whether it has ended without an error. */
static inline bool rank_process_end(pid_t pid) {
    int status = -1;
    return waitpid(pid, &status, 0) == pid && status == 0;
}

#endif
