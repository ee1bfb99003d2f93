/* Option rows of decoding that every strategy shares, and of sampling. A strategy brings its own rows. */
#include "decode/decode.h"

#define D(field) UM_FIELD(um_decoding, field)
#define S(field) UM_FIELD(um_sampling_params, field)

const um_option um_decoding_options[] = {
    {"decoding_strategy", "strategy", UM_OPT_NAME, D(strategy), 0, 0, NULL, "auto", "auto", "NAME", "Decoding",
     "how masks become tokens; auto is the model's own, see `unmask list strategies`"},
    {"block_size", "block_length,diffusion_block_size,dllm_block_length,default_block_len", UM_OPT_INT, D(block_size),
     1, 65536, NULL, "auto", "0", "N", "Decoding",
     "tokens of a block; auto is what the model was trained with, else 32; all of the canvas for samplers of Dream and "
     "RND1, and 8 for fast_dllm_v2, where it is a sub-block"},
    {"sampler", "remasking,alg,sampling_mode,dllm_unmasking_strategy", UM_OPT_NAME, D(sampler), 0, 0, NULL, "auto",
     "auto", "NAME", "Decoding",
     "which predictions of a pass are kept; auto is the model's own, see `unmask list samplers`"},
    {"remask_threshold", NULL, UM_OPT_FLOAT, D(remask_threshold), 0, 1, NULL, "off", "off=nan", "P", "Decoding",
     "a token that the model gives less than this in a later pass becomes a mask again; not for samplers that edit"},
};
const size_t um_n_decoding_options = UM_LEN(um_decoding_options);

const um_option um_sampling_options[] = {
    {"temperature", NULL, UM_OPT_FLOAT, S(temperature), 0, 100, NULL, "auto", "nan", "T", "Sampling",
     "0 takes the most probable token; auto is the checkpoint's, else 0"},
    {"top_p", NULL, UM_OPT_FLOAT, S(top_p), 0, 1, NULL, "1", NULL, "P", "Sampling",
     "draw from the smallest set of tokens whose probability passes this"},
    {"top_k", NULL, UM_OPT_INT, S(top_k), -1, 1e9, NULL, "0", NULL, "N", "Sampling",
     "draw from this many most probable tokens, 0 or -1 is all"},
    {"min_p", NULL, UM_OPT_FLOAT, S(min_p), 0, 1, NULL, "0", NULL, "P", "Sampling",
     "drop tokens less probable than this share of the best one"},
    {"seed", NULL, UM_OPT_INT64, S(seed), 0, 9007199254740991.0, NULL, "auto", "-1", "N", "Sampling",
     "random seed of the answer; auto draws one and reports it"},
    {"repetition_penalty", NULL, UM_OPT_FLOAT, S(repetition_penalty), 0.01, 100, NULL, "1", NULL, "X", "Sampling",
     "logits of tokens of prompt and answer are divided by this, negative ones multiplied; 1 is off"},
    {"presence_penalty", NULL, UM_OPT_FLOAT, S(presence_penalty), -2, 2, NULL, "0", NULL, "X", "Sampling",
     "taken from the logits of tokens that the answer holds"},
    {"frequency_penalty", NULL, UM_OPT_FLOAT, S(frequency_penalty), -2, 2, NULL, "0", NULL, "X", "Sampling",
     "taken from the logit of a token as often as the answer holds it"},
    {"max_tokens", "max_new_tokens,max_completion_tokens", UM_OPT_INT, S(max_tokens), 1, 1e9, NULL, "auto", "0", "N",
     "Limits", "longest answer in tokens; auto is the checkpoint's, else 512"},
    {"min_tokens", "min_new_tokens", UM_OPT_INT, S(min_tokens), 0, 1e9, NULL, "0", NULL, "N", "Limits",
     "no token that ends the answer before it has this many"},
    {"max_nfe", NULL, UM_OPT_INT, S(max_nfe), 0, 1e9, NULL, "0", NULL, "N", "Limits",
     "most forward passes of an answer, 0 is no limit"},
    {"max_repetition_run", NULL, UM_OPT_INT, S(max_repetition_run), 0, 1e9, NULL, "0", NULL, "N", "Limits",
     "stop when this many equal tokens follow each other, 0 is never"},
    {"ignore_eos", NULL, UM_OPT_BOOL, S(ignore_eos), 0, 0, NULL, "false", NULL, NULL, "Limits",
     "go on behind the end-of-sequence token"},
    {"logprobs", "top_logprobs", UM_OPT_INT, S(logprobs), 0, UM_TOP_MAX, NULL, "off", "off=-1", "N", "Results",
     "report the log-probability of each token of the answer, and this many likeliest ones beside it"},
};
const size_t um_n_sampling_options = UM_LEN(um_sampling_options);

/* Adds the sets that are not there yet. */
static size_t add_params(um_option_set *sets, size_t n, const um_params *params, um_decoding *d) {
    for (int i = 0; i < UM_PARAMS_MAX && params[i].rows; i++) {
        bool there = false;
        for (size_t k = 0; k < n; k++) there |= sets[k].rows == params[i].rows;
        assert(n + 1 < UM_DECODE_SETS_MAX);
        if (!there) sets[n++] = (um_option_set){params[i].rows, params[i].n, d};
    }
    return n;
}

size_t um_decode_option_sets(um_option_set *sets, um_decoding *d, um_sampling_params *s) {
    size_t n = 0;
    sets[n++] = (um_option_set){um_decoding_options, um_n_decoding_options, d};
    for (const um_strategy *const *p = um_strategies; *p; p++) n = add_params(sets, n, (*p)->params, d);
    for (const um_sampler *const *p = um_samplers; *p; p++) n = add_params(sets, n, (*p)->params, d);
    sets[n++] = (um_option_set){um_sampling_options, um_n_sampling_options, s};
    return n;
}

void um_decoding_init(um_decoding *d) {
    um_option_set sets[UM_DECODE_SETS_MAX];
    um_sampling_params s;
    size_t n = um_decode_option_sets(sets, d, &s);
    memset(d, 0, sizeof *d);
    for (size_t i = 0; i < n; i++) um_options_init(sets[i].rows, sets[i].n, sets[i].base);
}
