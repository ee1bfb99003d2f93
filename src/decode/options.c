/* Option rows of decoding that every strategy shares, and of sampling. The rows of a single strategy are in its file.
 */
#include "decode/decode.h"

#define D(field) UM_FIELD(um_decoding, field)
#define S(field) UM_FIELD(um_sampling_params, field)

const um_option um_decoding_options[] = {
    {"decoding_strategy", "strategy", UM_OPT_NAME, D(strategy), 0, 0, NULL, "auto", "auto", "NAME", "Decoding",
     "what each pass feeds and which keys are stored (`unmask list strategies`); auto means the model's default"},
    {"block_size", "block_length,diffusion_block_size,dllm_block_length,default_block_len", UM_OPT_INT, D(block_size),
     1, 65536, NULL, "auto", "0", "N", "Decoding",
     "tokens per block; auto means the size that the model was trained with, else 32; for samplers of Dream and RND1 "
     "with strategy full it means the whole canvas. For fast_dllm_v2: tokens per sub-block; auto means 8"},
    {"sampler", "remasking,alg,sampling_mode,dllm_unmasking_strategy", UM_OPT_NAME, D(sampler), 0, 0, NULL, "auto",
     "auto", "NAME", "Decoding",
     "which predictions of a pass become tokens (`unmask list samplers`); auto means the model's default"},
    {"remask_threshold", NULL, UM_OPT_FLOAT, D(remask_threshold), 0, 1, NULL, "off", "off=nan", "P", "Decoding",
     "mask a token again if a later pass gives it a probability below this; not available with samplers that edit, "
     "ignored by --compat diffulex"},
};
const size_t um_n_decoding_options = UM_LEN(um_decoding_options);

const um_option um_sampling_options[] = {
    {"temperature", NULL, UM_OPT_FLOAT, S(temperature), 0, 2, NULL, "auto", "nan", "T", "Sampling",
     "sampling temperature; 0 takes the most likely token; auto means the checkpoint's, else 0"},
    {"top_p", NULL, UM_OPT_FLOAT, S(top_p), 0, 1, NULL, "1", NULL, "P", "Sampling",
     "sample from the smallest set of most likely tokens whose probabilities add up to this"},
    {"top_k", NULL, UM_OPT_INT, S(top_k), -1, 1e9, NULL, "0", NULL, "N", "Sampling",
     "sample from this many most likely tokens; 0 or -1 means all"},
    {"min_p", NULL, UM_OPT_FLOAT, S(min_p), 0, 1, NULL, "0", NULL, "P", "Sampling",
     "drop tokens whose probability is below this share of the highest one"},
    {"seed", "random_seed", UM_OPT_INT64, S(seed), 0, 9007199254740991.0, NULL, "auto", "-1", "N", "Sampling",
     "random seed of the answer; auto draws one and reports it"},
    {"repetition_penalty", NULL, UM_OPT_FLOAT, S(repetition_penalty), 0.01, 100, NULL, "1", NULL, "X", "Sampling",
     "divide positive logits of tokens that occur in prompt or answer by this, and multiply negative ones; 1 means "
     "off"},
    {"presence_penalty", NULL, UM_OPT_FLOAT, S(presence_penalty), -2, 2, NULL, "0", NULL, "X", "Sampling",
     "subtract this from the logits of tokens that occur in the answer"},
    {"frequency_penalty", NULL, UM_OPT_FLOAT, S(frequency_penalty), -2, 2, NULL, "0", NULL, "X", "Sampling",
     "subtract this from a token's logit for each time that it occurs in the answer"},
    {"max_tokens", "max_new_tokens,max_completion_tokens", UM_OPT_INT, S(max_tokens), 1, 1e9, NULL, "auto", "0", "N",
     "Limits",
     "largest number of tokens in the answer; auto means the checkpoint's limit, else 512; prompt and answer together "
     "have at most max_model_len tokens"},
    {"min_tokens", "min_new_tokens", UM_OPT_INT, S(min_tokens), 0, 1e9, NULL, "0", NULL, "N", "Limits",
     "don't let a token end the answer before it has this many tokens"},
    {"max_nfe", NULL, UM_OPT_INT, S(max_nfe), 0, 1e9, NULL, "0", NULL, "N", "Limits",
     "largest number of forward passes for an answer; 0 means no limit"},
    {"max_repetition_run", NULL, UM_OPT_INT, S(max_repetition_run), 0, 1e9, NULL, "0", NULL, "N", "Limits",
     "stop the answer after this many equal tokens in a row; 0 means never"},
    {"ignore_eos", NULL, UM_OPT_BOOL, S(ignore_eos), 0, 0, NULL, "false", NULL, NULL, "Limits",
     "continue the answer after the end-of-sequence token"},
    {"json_space", NULL, UM_OPT_INT, S(json_space), 0, 16, NULL, "1", NULL, "N", "Constraints",
     "let JSON of a constraint have up to this many spaces or line breaks between its tokens; 0 means none. Models "
     "write a space behind : and , and make mistakes without it"},
    {"grammar_depth", NULL, UM_OPT_INT, S(grammar_depth), 1, 64, NULL, "8", NULL, "N", "Constraints",
     "how deep objects and arrays may be nested where a schema leaves it open"},
    {"filling", NULL, UM_OPT_CHOICE, S(filling), 0, 0, "each|best", "each", NULL, "HOW", "Constraints",
     "what a pass decides about under a constraint: each position's most likely token that fits alone, or the best "
     "combination of tokens for a block; best needs temperature 0"},
    {"logprobs", "top_logprobs", UM_OPT_INT, S(logprobs), 0, UM_TOP_MAX, NULL, "off", "off=-1", "N", "Results",
     "report the log-probability of each token of the answer, and of this many most likely tokens at its "
     "position"},
};
const size_t um_n_sampling_options = UM_LEN(um_sampling_options);

/* Adds the sets that the list does not contain yet. */
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
    const um_params registered = um_registered_params();
    if (registered.n) sets[n++] = (um_option_set){registered.rows, registered.n, d};
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
