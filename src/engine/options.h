/* options: the option rows of an engine and of a request, for programs that parse, print or document them. */
#ifndef UM_ENGINE_OPTIONS_H
#define UM_ENGINE_OPTIONS_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Most sets that one of the two calls below fills in. */
#define UM_OPTION_SETS_MAX 48

/* Every set of rows of a configuration: model, engine, decoding, sampling. Returns the number of sets. */
size_t um_config_option_sets(um_option_set *sets, um_config *c);
/* Those of a request: decoding, sampling. */
size_t um_request_option_sets(um_option_set *sets, um_request *r);
/* Appends who reads a parameter of a request: "strategies full, sparse; sampler factor"; nothing where all do. */
void um_request_put_readers(const um_option *row, um_buf *out);
/* Does the strategy of this name work on a whole canvas, whose length every pass pays for, and which text may follow?
 */
bool um_strategy_is_whole(const char *name);
/* A request with the defaults of a configuration, as um_request_init does from an engine. */
void um_request_init_config(const um_config *c, um_request *r);

#ifdef __cplusplus
}
#endif
#endif
