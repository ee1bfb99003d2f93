/* options: the option rows of a configuration and of a request, for programs that parse, check, print or document
 * them. */
#ifndef UM_ENGINE_OPTIONS_H
#define UM_ENGINE_OPTIONS_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The largest number of sets that the two functions below fill in. */
#define UM_OPTION_SETS_MAX 48

#define UM_ENGINE_DEVICE_MAX 192

/* Fills in the sets of rows of a configuration: model, engine, decoding, sampling. Returns the number of sets. */
size_t um_config_option_sets(um_option_set *sets, um_config *c);
/* Fills in the sets of rows of a request: decoding, sampling. Returns the number of sets. */
size_t um_request_option_sets(um_option_set *sets, um_request *r);
/* Fills in the set of rows of a score. */
um_option_set um_score_option_set(um_score_request *s);
/* Initialises a score with the defaults of a configuration, as um_score_init does with those of an engine. */
void um_score_init_config(const um_config *c, um_score_request *s);
/* Appends the strategies and samplers that read a parameter of a request, "strategies full, sparse; sampler factor".
 * Appends nothing when all of them do. */
void um_request_append_readers(const um_option *row, um_buf *out);
/* Appends the possible values of a parameter that names a strategy, sampler or retention rule, "full|sparse", and their
 * aliases. Appends nothing for other parameters. */
void um_request_append_names(const um_option *row, um_buf *names, um_buf *aliases);
/* Returns whether the strategy of this name denoises a whole canvas. Each pass of it feeds all of the canvas, and a
 * suffix may follow the answer. */
bool um_strategy_is_whole(const char *name);
/* Initialises a request with the defaults of a configuration, as um_request_init does with those of an engine. */
void um_request_init_config(const um_config *c, um_request *r);
/* Stores the option `device` of a configuration with only the given engine of `c`, such as "cuda:1". *n_sharing is the
 * number of engines of `c` on this device; 1 where all engines share a host. Opens the backend, but no device. Errors:
 * UM_EINVAL, UM_EUNSUPPORTED, UM_EDEVICE: there are not as many devices as engines. */
um_status um_config_engine_device(const um_config *c, int32_t engine, char out[UM_ENGINE_DEVICE_MAX],
                                  int32_t *n_sharing, um_err *err);
/* Checks the constraint of a request alone: its text, and the parameters that can't be kept beside it. Errors have the
 * parameter's name, "constraint" for the constraint itself. Of the lists of the request it reads the lengths and
 * `bias`. Any thread. */
um_status um_request_check_constraint(const um_request *r, um_err *err);
/* Returns the error that um_engine_add would return for `r` with a prompt of n_prompt tokens, without an engine. `c` is
 * the engine's configuration with its automatic sizes resolved: max_model_len, max_num_reqs, max_num_batched_tokens,
 * page_size and num_pages are above 0. `m` may be a model without weights. The tokens of the prompt are not read. The
 * parameters of `r` must have been set by um_request_set, which checks each value alone. Any thread. */
um_status um_request_check_for(um_model *m, const um_config *c, const um_request *r, size_t n_prompt, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
