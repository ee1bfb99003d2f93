/* Models whose ranks are processes: the place of this process among them, and what all of them must have in common. */
#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "model/model.h"
#include "model/store.h"
#include "ops/message.h"

/* ---- The place --------------------------------------------------------------------------------------------------- */

/* The environment variables of programs that start one process for each rank. */
typedef struct launcher {
    const char *n, *rank, *local, *addr, *port; /* local: the number among the processes of the host */
} launcher;

static const launcher launchers[] = {
    {"WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}, /* torchrun */
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", NULL, NULL},
    {"PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", NULL, NULL},
    {"SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", NULL, NULL},
    {"LWS_GROUP_SIZE", "LWS_WORKER_INDEX", NULL, "LWS_LEADER_ADDRESS", NULL},
};
#define PORT_DEFAULT 2333

/* Returns the value of a variable, NULL when it is unset or empty. */
static const char *variable(const char *name) {
    const char *v = name ? getenv(name) : NULL;
    return v && *v ? v : NULL;
}

/* Reads a variable with a number in [min, max]. */
static um_status read_number(const char *name, const char *option, int64_t min, int64_t max, int32_t *out,
                             um_err *err) {
    int64_t v;
    if (!um_parse_int(variable(name), &v) || v < min || v > max)
        return um_fail_param(err, UM_ERANGE, option, "the environment variable %s is \"%.40s\", expected %lld..%lld",
                             name, variable(name), (long long)min, (long long)max);
    *out = (int32_t)v;
    return UM_OK;
}

/* Returns the launcher that has started this process, or NULL. */
static const launcher *find_launcher(void) {
    for (size_t i = 0; i < UM_LEN(launchers); i++)
        if (variable(launchers[i].rank) && variable(launchers[i].n)) return &launchers[i];
    return NULL;
}

static um_status read_address(um_place *p, const um_config *c, um_err *err) {
    const char *addr = um_streq(c->master_addr, "auto") ? NULL : c->master_addr;
    p->port = c->master_port ? c->master_port : PORT_DEFAULT;
    for (size_t i = 0; i < UM_LEN(launchers) && !addr; i++) addr = variable(launchers[i].addr);
    snprintf(p->addr, sizeof p->addr, "%s", addr ? addr : "127.0.0.1");
    if (c->master_port || !variable("MASTER_PORT")) return UM_OK;
    return read_number("MASTER_PORT", "master_port", 1, 65535, &p->port, err);
}

/* Checks what a group of processes can't do. */
static um_status check_place(const um_place *p, const um_config *c, um_err *err) {
    if (p->rank >= p->n)
        return um_fail_param(err, UM_ERANGE, "rank", "rank %d is outside 0..%d, the ranks of %d processes (--nnodes)",
                             p->rank, p->n - 1, p->n);
    if (p->n > 1 && c->tensor_parallel_size > 1 && c->tensor_parallel_size != p->n)
        return um_fail_param(err, UM_EINVAL, "nnodes",
                             "%d processes can't compute %d ranks (--tensor-parallel-size): each process is one rank, "
                             "or one process computes all",
                             p->n, c->tensor_parallel_size);
    if (p->n > 1 && c->data_parallel_size > 1)
        return um_fail_param(
            err, UM_EUNSUPPORTED, "data_parallel_size",
            "ranks in %d processes (--nnodes) have one engine, found %d; start a group for each engine, "
            "with a port of its own",
            p->n, c->data_parallel_size);
    if (p->n > 1 && c->max_loras > 0)
        return um_fail_param(err, UM_EUNSUPPORTED, "max_loras",
                             "ranks in %d processes (--nnodes) load no adapters while they run; name them with --lora",
                             p->n);
    return UM_OK;
}

um_status um_config_place(um_place *out, const um_config *c, um_err *err) {
    const launcher *l = find_launcher();
    um_status s = UM_OK;
    *out = (um_place){.rank = UM_MAX(c->rank, 0), .n = UM_MAX(c->nnodes, 1), .local = -1};
    if (c->nnodes == 0 && l) s = read_number(l->n, "nnodes", 1, UM_RANKS_MAX, &out->n, err);
    if (!s && c->rank < 0 && out->n > 1 && l) s = read_number(l->rank, "rank", 0, UM_RANKS_MAX - 1, &out->rank, err);
    if (!s && out->n > 1 && l && variable(l->local))
        s = read_number(l->local, "device", 0, UM_DEVICES_MAX - 1, &out->local, err);
    if (!s && out->n > 1) s = read_address(out, c, err);
    return s ? s : check_place(out, c, err);
}

/* ---- What ranks have in common ----------------------------------------------------------------------------------- */

/* Of this many tensors, the first bytes count, too: models that differ only in their training have the same shapes. */
enum { SAMPLES = 64, SAMPLE_BYTES = 256 };

static void hash_file(XXH3_state_t *h, const char *dir, const char *name) {
    um_buf path = {0}, text = {0};
    um_buf_printf(&path, "%s/%s", dir, name);
    if (um_dir_exists(dir) && !um_file_read(path.data, (size_t)1 << 24, &text, NULL))
        XXH3_64bits_update(h, text.data, text.len);
    um_buf_free(&text);
    um_buf_free(&path);
}

static void hash_tensor(XXH3_state_t *h, const um_tensor *t, bool is_sample) {
    const char *type = um_store_type(t);
    XXH3_64bits_update(h, t->name, strlen(t->name) + 1);
    XXH3_64bits_update(h, type, strlen(type) + 1);
    XXH3_64bits_update(h, t->dim, (size_t)t->n_dims * sizeof t->dim[0]);
    if (is_sample && um_tensor_format(t)) XXH3_64bits_update(h, t->data, UM_MIN(um_tensor_bytes(t), SAMPLE_BYTES));
}

/* Returns a checksum of the configuration, of the names, types and shapes of the tensors, and of samples of weights. */
static uint64_t checksum(const um_model *m, const um_store *s) {
    XXH3_state_t *h = XXH3_createState();
    const size_t n = s ? um_store_count(s) : 0;
    XXH3_64bits_reset(h);
    hash_file(h, m->path, "config.json");
    for (size_t i = 0; i < n; i++) hash_tensor(h, um_store_at(s, i), i % UM_CEIL_DIV(n, SAMPLES) == 0);
    const uint64_t sum = XXH3_64bits_digest(h);
    XXH3_freeState(h);
    return sum;
}

/* Writes the facts. The version comes first, because the others depend on it. */
static char *write_facts(const um_model *m, const um_store *s) {
    um_buf out = {0};
    um_buf_printf(&out, "version: %s (messages of %zu, %zu, %zu bytes)\n", um_version(), sizeof(um_message_header),
                  sizeof(um_message_span) + sizeof(um_message_row), sizeof(um_forward_config));
    um_buf_printf(&out, "model's family: %s\n", m->arch.family->name);
    um_buf_printf(&out, "model's checksum: %016llx\n", (unsigned long long)checksum(m, s));
    um_buf_printf(&out, "type of weights and products: %s%s\n", um_model_type_name(m),
                  m->has_own_types ? ", as stored" : "");
    um_buf_printf(&out, "division of experts: %s\n", m->net.expert_parallel ? "by number" : "by width");
    um_buf_puts(&out, "list of adapters: ");
    for (int32_t i = 0; i < m->n_adapters; i++)
        um_buf_printf(&out, "%s%s (rank %d)",
                      i           ? ", "
                      : m->merged ? "merged "
                                  : "",
                      m->adapter[i].name, m->adapter[i].rank);
    um_buf_printf(&out, "%s\n", m->n_adapters ? "" : "empty");
    return um_buf_take(&out);
}

um_status um_model_launch(um_model *m, const um_config *c, const um_store *s, um_err *err) {
    um_status st = um_config_place(&m->place, c, err);
    if (st || m->place.n == 1) return st;
    m->launch =
        (um_launch){.rank = m->place.rank, .addr = m->place.addr, .port = m->place.port, .facts = write_facts(m, s)};
    um_ranks_backend_launch(m->group, &m->launch);
    return UM_OK;
}

um_status um_model_follow(um_model *m, um_err *err) {
    assert(m->place.rank > 0);
    return um_ranks_follow(m->group, m->device, &m->net, err);
}
