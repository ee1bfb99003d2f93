/* The tokenizer of a model without a checkpoint: its words are numbers. */
#include "text/tok.h"

um_status um_tok_numbered(um_tok **out, int32_t size, um_err *err) {
    const um_str none = {0};
    um_buf text = {0};
    um_buf_puts(&text, "{\"version\":\"1.0\",\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},\"model\":{\"type\":"
                       "\"WordLevel\",\"unk_token\":\"t0\",\"vocab\":{");
    for (int32_t i = 0; i < size; i++) um_buf_printf(&text, "%s\"t%d\":%d", i ? "," : "", i, i);
    um_buf_puts(&text, "}}}");
    um_status s = um_tok_parse(out, (um_str){text.data, text.len}, none, none, "numbered tokens", err);
    um_buf_free(&text);
    return s;
}
