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

/* Gives each engine a device of its own. */
static um_status spread(um_device_list *list, int32_t n, int32_t there, um_err *err) {
    const char *name = list->backend->name;
    if (n > there)
        return um_fail_param(err, UM_EDEVICE, "data_parallel_size",
                             "%d engines (--data-parallel-size) need %d devices, but this process sees %d; to let "
                             "engines share a device, name one for each: --device %s:0,%s:0",
                             n, n, there, name, name);
    list->n = n;
    for (int32_t i = 0; i < n; i++) list->number[i] = i;
    return UM_OK;
}

static um_status check_numbers(const um_device_list *list, int32_t n, int32_t there, um_err *err) {
    const char *name = list->backend->name;
    if (list->n != n)
        return um_fail_param(err, UM_EINVAL, "device",
                             "%d device%s named for %d engine%s (--data-parallel-size); name one device for each "
                             "engine, the same more than once if they share it",
                             list->n, list->n == 1 ? " is" : "s are", n, n == 1 ? "" : "s");
    for (int32_t i = 0; i < n; i++)
        if (list->number[i] >= there)
            return um_fail(err, UM_EDEVICE, "%s:%d is not there; this process sees %d, %s:0 to %s:%d", name,
                           list->number[i], there, name, name, there - 1);
    return UM_OK;
}

um_status um_model_devices(um_device_list *list, const um_config *c, um_err *err) {
    int32_t there = 0;
    bool is_numbered = false;
    const int32_t n = count_engines(c);
    *list = (um_device_list){0};
    um_status s = read_names(list, c->device, &is_numbered, err);
    if (!s) s = read_ids(list, c, &is_numbered, err);
    if (s) return s;
    if (um_backend_is_host(list->backend)) return share_host(list, n, err);
    s = list->backend->count(list->backend, &there, err);
    if (s) return um_fail_in(err, "device \"%.80s\" can't be used (--device cpu works)", c->device);
    return is_numbered || list->n > 1 ? check_numbers(list, n, there, err) : spread(list, n, there, err);
}

void um_device_name(const um_device_list *list, int32_t engine, char out[UM_DEVICE_NAME_MAX]) {
    if (um_backend_is_host(list->backend)) snprintf(out, UM_DEVICE_NAME_MAX, "%.20s", list->backend->name);
    else snprintf(out, UM_DEVICE_NAME_MAX, "%.20s:%d", list->backend->name, list->number[engine]);
}
