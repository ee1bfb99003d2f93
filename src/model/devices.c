/* Chooses the devices of the engines of a configuration. */
#include "model/model.h"

static int32_t count_engines(const um_config *c) { return UM_MAX(c->data_parallel_size, 1); }

/* Reads the names of a list "cuda:0,cuda:1". *is_numbered: at least one has a number. */
static um_status read_names(um_device_list *list, const char *names, bool *is_numbered, um_err *err) {
    um_status s = UM_OK;
    const um_backend *first = NULL;
    for (const char *p = names; !s && list->n < UM_DEVICES_MAX; list->n++) {
        const size_t n = strcspn(p, ",");
        char *name = um_strndup(p, n);
        s = um_backend_find(&list->backend, &list->number[list->n], name, err);
        *is_numbered |= strchr(name, ':') != NULL;
        um_free(name);
        if (!s && first && first != list->backend)
            s = um_fail_param(err, UM_EINVAL, "device", "expected devices of one kind, found \"%.80s\"", names);
        first = list->backend;
        if (!p[n]) {
            list->n++;
            break;
        }
        p += n + 1;
    }
    return s;
}

/* Reads the numbers of --device-ids, which replace the single name of --device. */
static um_status read_ids(um_device_list *list, const um_config *c, bool *is_numbered, um_err *err) {
    if (um_streq(c->device_ids, "auto")) return UM_OK;
    if (*is_numbered || list->n > 1)
        return um_fail_param(err, UM_EINVAL, "device_ids",
                             "--device-ids %.80s contradicts --device %.80s; leave one out", c->device_ids, c->device);
    int used = 0;
    list->n = 0;
    for (const char *p = c->device_ids; list->n < UM_DEVICES_MAX; p += used + 1) {
        if (sscanf(p, "%4d%n", &list->number[list->n], &used) != 1 || (p[used] && p[used] != ','))
            return um_fail_param(err, UM_EINVAL, "device_ids", "expected numbers of GPUs, found \"%.80s\"",
                                 c->device_ids);
        list->n++;
        if (!p[used]) break;
    }
    *is_numbered = true;
    return UM_OK;
}

/* All engines compute on the one device of a host, which um_backend.open checks. */
static um_status share_host(um_device_list *list, int32_t n, um_err *err) {
    for (int32_t i = 0; i < list->n; i++)
        if (list->number[i])
            return um_fail_param(err, UM_EUNSUPPORTED, "device", "device \"%s\" has no numbers, found %d",
                                 list->backend->name, list->number[i]);
    list->n = n;
    memset(list->number, 0, sizeof list->number);
    return UM_OK;
}

/* Chooses the device of a process that is one rank: the named one, or else that with the number of this process on its
 * host. A process may see one device only, because its launcher hides the others. */
static um_status choose_own(um_device_list *list, const um_place *place, bool is_named, int32_t there, um_err *err) {
    const char *name = list->backend->name;
    if (list->n > 1)
        return um_fail_param(err, UM_EUNSUPPORTED, "device",
                             "%d devices are named, but each of %d processes (--nnodes) is one rank and has one",
                             list->n, place->n);
    if (!is_named) list->number[0] = there > 1 && place->local > 0 ? place->local : 0;
    if (list->number[0] < there) return UM_OK;
    return um_fail_param(err, UM_EDEVICE, "device", "rank %d is to use %s:%d, but this process sees %d, %s:0 to %s:%d",
                         place->rank, name, list->number[0], there, name, name, there - 1);
}

/* Gives each rank of each engine a device of its own. */
static um_status spread(um_device_list *list, int32_t n, int32_t there, um_err *err) {
    const char *name = list->backend->name;
    const int32_t ranks = list->n_own, all = n * ranks;
    if (all > there && ranks > 1)
        return um_fail_param(err, UM_EDEVICE, "tensor_parallel_size",
                             "%d engine%s (--data-parallel-size) of %d ranks (--tensor-parallel-size) need %d devices, "
                             "but this process sees %d",
                             n, n == 1 ? "" : "s", ranks, all, there);
    if (all > there)
        return um_fail_param(err, UM_EDEVICE, "data_parallel_size",
                             "%d engines (--data-parallel-size) need %d devices, but this process sees %d; to let "
                             "engines share a device, name one for each: --device %s:0,%s:0",
                             n, n, there, name, name);
    list->n = n;
    for (int32_t i = 0; i < all; i++) list->number[i] = i;
    return UM_OK;
}

/* A rank needs a device of its own. */
static um_status check_distinct(const um_device_list *list, int32_t all, um_err *err) {
    for (int32_t i = 0; i < all && list->n_own > 1; i++)
        for (int32_t k = 0; k < i; k++)
            if (list->number[i] == list->number[k])
                return um_fail_param(err, UM_EINVAL, "device",
                                     "%s:%d is named twice, but each rank "
                                     "(--tensor-parallel-size) needs a device of its own",
                                     list->backend->name, list->number[i]);
    return UM_OK;
}

static um_status check_numbers(um_device_list *list, int32_t n, int32_t there, um_err *err) {
    const char *name = list->backend->name;
    const int32_t ranks = list->n_own, all = n * ranks, named = list->n;
    if (named != all && ranks > 1)
        return um_fail_param(err, UM_EINVAL, "device",
                             "%d device%s named for %d engine%s (--data-parallel-size) of %d ranks "
                             "(--tensor-parallel-size); name %d, those of an engine one after the other",
                             named, named == 1 ? " is" : "s are", n, n == 1 ? "" : "s", ranks, all);
    if (named != all)
        return um_fail_param(err, UM_EINVAL, "device",
                             "%d device%s named for %d engine%s (--data-parallel-size); name one device for each "
                             "engine, the same more than once if they share it",
                             named, named == 1 ? " is" : "s are", n, n == 1 ? "" : "s");
    for (int32_t i = 0; i < all; i++)
        if (list->number[i] >= there)
            return um_fail(err, UM_EDEVICE, "%s:%d is not there; this process sees %d, %s:0 to %s:%d", name,
                           list->number[i], there, name, name, there - 1);
    list->n = n;
    return check_distinct(list, all, err);
}

um_status um_model_devices(um_device_list *list, const um_config *c, um_err *err) {
    int32_t there = 0;
    bool is_numbered = false;
    const int32_t n = count_engines(c);
    um_place place;
    um_status s = um_config_place(&place, c, err);
    if (s) return s;
    *list = (um_device_list){.n_ranks = UM_MAX(UM_MAX(c->tensor_parallel_size, place.n), 1)};
    list->n_own = place.n > 1 ? 1 : list->n_ranks;
    s = read_names(list, c->device, &is_numbered, err);
    if (!s) s = read_ids(list, c, &is_numbered, err);
    if (s) return s;
    if (um_backend_is_host(list->backend)) return share_host(list, n, err);
    s = list->backend->count(list->backend, &there, err);
    if (s) return um_fail_in(err, "device \"%.80s\" can't be used (--device cpu works)", c->device);
    if (place.n > 1) return choose_own(list, &place, is_numbered, there, err);
    return is_numbered || list->n > 1 ? check_numbers(list, n, there, err) : spread(list, n, there, err);
}

void um_device_name(const um_device_list *list, int32_t engine, char out[UM_DEVICE_NAME_MAX]) {
    if (um_backend_is_host(list->backend)) {
        snprintf(out, UM_DEVICE_NAME_MAX, "%.20s", list->backend->name);
        return;
    }
    size_t used = 0;
    for (int32_t r = 0; r < list->n_own && used < UM_DEVICE_NAME_MAX; r++)
        used += (size_t)snprintf(out + used, UM_DEVICE_NAME_MAX - used, "%s%.5s:%d", r ? "," : "", list->backend->name,
                                 list->number[engine * list->n_own + r]);
}
