/* The table of retention rules, with which the strategy `sparse` chooses keys. */
#include "decode/decode.h"

const um_retention *const um_retentions[] = {&um_retention_attention, NULL};
