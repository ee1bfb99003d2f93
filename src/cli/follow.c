/* A process that is a rank of a group other than 0: it loads its part of the model and computes with rank 0. */
#include "cli/cli.h"
#include "model/model.h"

um_status um_cli_follows(const um_config *c, bool *out, um_err *err) {
    um_place place;
    um_status s = um_config_place(&place, c, err);
    *out = !s && place.rank > 0;
    return s;
}

/* Joins the group once. *joined: rank 0 has planned passes of this group, or has waited for other ranks. */
static um_status follow_once(const um_config *c, bool *joined, um_err *err) {
    um_model *m = NULL;
    um_status s = um_model_open(&m, c, err);
    *joined = !s;
    if (s) return um_cli_explain_model_error(err);
    um_log(UM_LOG_INFO, "the group of %d ranks is complete", m->place.n);
    s = um_model_follow(m, err);
    um_model_close(m);
    return s;
}

int um_cli_follow(const um_command *self, const um_config *c) {
    um_err err = {0};
    um_place place;
    bool joined = false;
    char prefix[UM_LOG_PREFIX_MAX];
    um_status s = um_config_place(&place, c, &err);
    if (!s) s = um_cli_check_engine_model(c, &err);
    snprintf(prefix, sizeof prefix, "rank %d: ", place.rank);
    um_log_set_prefix(prefix);
    while (!s) {
        s = follow_once(c, &joined, &err);
        if (!s) return UM_EXIT_OK;
        if (s != UM_EDEVICE || !joined || !self->rejoins) break;
        um_log(UM_LOG_ERROR, "the group has failed: %s; joining again", err.msg);
        s = UM_OK;
    }
    return um_cli_error(self, &err);
}
