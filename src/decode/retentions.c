/* The table of retention rules: which keys `sparse` keeps. */
#include "decode/decode.h"

const um_retention *const um_retentions[] = {&um_retention_attention, NULL};
