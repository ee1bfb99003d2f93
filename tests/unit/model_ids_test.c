/* Tests of special ids: which source is used, and the warnings when sources contradict each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model_folder.h"

static const char sdar[] =
    "{'architectures':['SDARForCausalLM'],'model_type':'sdar','hidden_size':64,'intermediate_size':160,"
    "'num_hidden_layers':2,'num_attention_heads':4,'num_key_value_heads':2,'head_dim':32,'vocab_size':256,"
    "'max_position_embeddings':256,'rope_theta':1000000,'rms_norm_eps':1e-6,'eos_token_id':243%s}";
static const char llada[] =
    "{'architectures':['LLaDAModelLM'],'model_type':'llada','d_model':64,'n_heads':4,'n_kv_heads':2,'n_layers':2,"
    "'mlp_hidden_size':160,'vocab_size':126464,'embedding_size':126464,'max_sequence_length':256,'rope':true,"
    "'rope_theta':500000.0,'rms_norm_eps':1e-5,'layer_norm_type':'rms','block_type':'llama','activation_type':'silu',"
    "'weight_tying':false,'mask_token_id':126336%s}";

static const char wedlm[] =
    "{'architectures':['WeDLMForCausalLM'],'model_type':'wedlm','hidden_size':64,'intermediate_size':160,"
    "'num_hidden_layers':2,'num_attention_heads':4,'num_key_value_heads':2,'head_dim':32,'vocab_size':151936,"
    "'max_position_embeddings':256,'rope_theta':1000000,'rms_norm_eps':1e-6,'attention_bias':false%s}";

typedef struct folder {
    const char *base, *more;       /* config.json */
    const char *generation, *side; /* generation_config.json, or NULL; tokenizer_config.json, or NULL: no tokenizer */
    int n_words;
    int32_t mask; /* mask id of the user; -1: none */
} folder;

/* Loads the folder. *said receives the warnings (um_buf_free). */
static um_status load(um_arch *a, const folder *f, um_buf *said, um_err *err) {
    char *dir = folder_new(), text[1024];
    um_tok *tok = NULL;
    snprintf(text, sizeof text, f->base, f->more ? f->more : "");
    char *config = quoted(text), *generation = quoted(f->generation ? f->generation : "{}");
    char *side = quoted(f->side ? f->side : "{}");
    folder_write_text(dir, "config.json", config);
    folder_write_text(dir, "generation_config.json", generation);
    folder_write_tokenizer(dir, f->n_words, side);
    if (f->side && um_tok_open(&tok, dir, err)) fail_msg("%s", err->msg);
    int old = catch_stderr(dir);
    um_status s = um_arch_load(a, &(um_arch_source){.dir = dir, .mask_id = f->mask, .tok = tok}, err);
    *said = release_stderr(dir, old);
    um_tok_close(tok);
    um_free(side);
    um_free(generation);
    um_free(config);
    folder_free(dir);
    return s;
}

static um_arch loads(const folder *f, const char *warning) {
    um_arch a;
    um_err err = {0};
    um_buf said;
    if (load(&a, f, &said, &err)) fail_msg("%s", err.msg);
    if (warning && !strstr(said.data, warning)) fail_msg("expected a warning \"%s\", found \"%s\"", warning, said.data);
    if (!warning && said.len) fail_msg("expected no warning, found \"%s\"", said.data);
    um_buf_free(&said);
    return a;
}

static void mask_is(const folder *f, int32_t id, const char *from, const char *warning) {
    um_arch a = loads(f, warning);
    assert_int_equal(a.mask_id, id);
    assert_string_equal(a.mask_from, from);
}

static void mask_of_the_user_comes_first(void **state) {
    (void)state;
    const char *config = ",'mask_token_id':250", *side = "{'mask_token':'w250'}";
    mask_is(&(folder){sdar, config, NULL, side, 256, 0}, 0, "the user", NULL);
    mask_is(&(folder){sdar, config, NULL, side, 256, 255}, 255, "the user", NULL);
    mask_is(&(folder){sdar, config, NULL, side, 256, -1}, 250, "config.json", NULL);
    um_arch a;
    um_err err = {0};
    um_buf said;
    assert_int_equal(load(&a, &(folder){sdar, config, NULL, side, 256, 256}, &said, &err), UM_ERANGE);
    assert_says(&err, "mask_token_id is 256, but the model has ids up to 255");
    um_buf_free(&said);
}

static void mask_goes_down_the_sources(void **state) {
    (void)state;
    mask_is(&(folder){sdar, ",'mask_token_id':250", NULL, "{'mask_token':'w7'}", 256, -1}, 250, "config.json",
            "mask_token_id is 250 but the tokenizer's mask token is 7; 250 is used");
    mask_is(&(folder){sdar, ",'text_config':{'mask_token_id':249}", NULL, "{'mask_token':'w249'}", 256, -1}, 249,
            "config.json", NULL);
    mask_is(&(folder){sdar, ",'mask_token_id':null", NULL, "{'mask_token':'w7'}", 256, -1}, 7, "the tokenizer", NULL);
    mask_is(&(folder){llada, ",'mask_token_id':null,'eos_token_id':0", NULL, "{}", 100, -1}, 126336, "the family",
            NULL);
}

/* Opens a tokenizer whose token 151665 is `text`, as ordinary text, and resolves the ids of a WeDLM with it. */
static um_status load_with_text(um_arch *a, const char *more, const char *text, um_buf *said, um_err *err) {
    char *dir = folder_new(), config[1024], tokenizer[512];
    um_tok *tok = NULL;
    snprintf(config, sizeof config, wedlm, more);
    snprintf(tokenizer, sizeof tokenizer,
             "{'version':'1.0','added_tokens':[{'id':151665,'content':'%s','special':false}],'pre_tokenizer':{'type':"
             "'WhitespaceSplit'},'model':{'type':'WordLevel','vocab':{'w':0},'unk_token':'w'}}",
             text);
    char *written[] = {quoted(config), quoted(tokenizer)};
    folder_write_text(dir, "config.json", written[0]);
    folder_write_text(dir, "tokenizer.json", written[1]);
    if (um_tok_open(&tok, dir, err)) fail_msg("%s", err->msg);
    int old = catch_stderr(dir);
    um_status s = um_arch_load(a, &(um_arch_source){.dir = dir, .mask_id = -1, .tok = tok}, err);
    *said = release_stderr(dir, old);
    um_tok_close(tok);
    um_free(written[0]);
    um_free(written[1]);
    folder_free(dir);
    return s;
}

/* The 8B's mask is a word of Qwen3's vocabulary. Another word under that id is no mask. */
static void mask_may_be_ordinary_text(void **state) {
    (void)state;
    um_arch a;
    um_err err = {0};
    um_buf said;
    assert_int_equal(load_with_text(&a, "", "<tool_response>", &said, &err), UM_OK);
    assert_int_equal(a.mask_id, 151665);
    assert_string_equal(a.mask_from, "the family");
    assert_non_null(strstr(said.data, "the mask 151665 is also the text <tool_response>"));
    um_buf_free(&said);
    assert_int_equal(load_with_text(&a, ",'mask_token_id':151666", "<tool_response>", &said, &err), UM_OK);
    assert_int_equal(a.mask_id, 151666);
    assert_true(!said.len || !strstr(said.data, "also the text"));
    um_buf_free(&said);
    assert_int_equal(load_with_text(&a, "", "hello", &said, &err), UM_EMODEL);
    assert_says(&err, "no mask token");
    um_buf_free(&said);
}

static void every_id_keeps_its_source(void **state) {
    (void)state;
    um_arch a = loads(&(folder){sdar, ",'mask_token_id':250,'bos_token_id':240",
                                "{'eos_token_id':[243,241],"
                                "'pad_token_id':239,'bos_token_id':1}",
                                "{'eos_token':'w242','bos_token':'w2'}", 256, -1},
                      NULL);
    assert_int_equal(a.n_stop, 3);
    assert_string_equal(a.stop_from[0], "config.json");
    assert_int_equal(a.stop[1], 241);
    assert_string_equal(a.stop_from[1], "generation_config.json");
    assert_int_equal(a.stop[2], 242);
    assert_string_equal(a.stop_from[2], "the tokenizer");
    assert_int_equal(a.bos_id, 240);
    assert_string_equal(a.bos_from, "config.json");
    assert_int_equal(a.pad_id, 239);
    assert_string_equal(a.pad_from, "generation_config.json");
    a = loads(&(folder){sdar, ",'mask_token_id':250", NULL, "{'pad_token':'w5','bos_token':'w6'}", 256, -1}, NULL);
    assert_int_equal(a.pad_id, 5);
    assert_string_equal(a.pad_from, "the tokenizer");
    assert_int_equal(a.bos_id, 6);
    a = loads(&(folder){sdar, ",'mask_token_id':250", NULL, "{}", 256, -1}, NULL);
    assert_int_equal(a.pad_id, -1);
    assert_null(a.pad_from);
}

/* A tokenizer with 126349 ids is as large as that of a release, but this one has other tokens. */
static void tokenizer_of_another_model_is_noticed(void **state) {
    (void)state;
    loads(&(folder){llada, ",'eos_token_id':0", NULL, "{}", 126349, -1},
          "the tokenizer has no token <|startoftext|>, which is 126080 in the releases of llada");
    loads(&(folder){llada, ",'eos_token_id':0", NULL, "{}", 126349, -1}, "<|eot_id|>, which is 126348");
    loads(&(folder){llada, ",'eos_token_id':0", NULL, "{}", 126079, -1}, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mask_of_the_user_comes_first),
        cmocka_unit_test(mask_goes_down_the_sources),
        cmocka_unit_test(mask_may_be_ordinary_text),
        cmocka_unit_test(every_id_keeps_its_source),
        cmocka_unit_test(tokenizer_of_another_model_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
