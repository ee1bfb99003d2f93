/* Fuzzes request lines with messages. The first byte chooses a template, one of the built-in ones or a small one, and
 * the level for special tokens in contents. Rendering must give the same result twice, and either valid UTF-8 or an
 * error message. The texts of users must not change the number of control tokens. */
#include <jansson.h>
#include <stdlib.h>

#include "cli/requests.h"
#include "text/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static um_tok *tok;
static um_chat *chats[8];
static size_t n_chats;

static void require(bool claim) {
    if (!claim) abort();
}

static void open_once(void) {
    if (tok) return;
    um_log_set_level(UM_LOG_ERROR);
    require(um_tok_open(&tok, "models/tiny-block", NULL) == UM_OK);
    for (; n_chats < um_n_chat_builtins; n_chats++)
        require(um_chat_open(&chats[n_chats], "/nonexistent", tok, um_chat_builtins[n_chats].name, NULL, NULL) ==
                UM_OK);
    require(um_chat_open(&chats[n_chats++], "/nonexistent", tok,
                         "{% for m in messages %}{% for p in m.content %}{{ p.text | trim }}{% endfor %}{% endfor %}",
                         NULL, NULL) == UM_OK);
}

static size_t n_special(const um_ids *ids) {
    size_t n = 0;
    for (size_t i = 0; i < ids->n; i++) n += um_tok_is_special(tok, ids->data[i]);
    return n;
}

/* Replaces the content of every message with "z". The number of control tokens must not change. Checks only requests
 * whose messages all have the role "user" and a content that is a string. */
static void check_control(const um_chat *c, const um_chat_request *q, size_t found) {
    json_t *messages = NULL, *m;
    size_t i;
    um_ids ids = {0};
    um_chat_request harmless = *q;
    bool simple = !q->chat_template && !q->kwargs_json && q->special_in_content == UM_SPECIAL_TEXT;
    require(um_json_parse_exact(&messages, q->messages_json, strlen(q->messages_json), "x", NULL) == UM_OK);
    json_array_foreach(messages, i, m) {
        simple = simple && um_streq(json_string_value(json_object_get(m, "role")), "user") &&
                 json_object_size(m) == 2 && json_string_length(json_object_get(m, "content")) > 0;
        json_object_set_new(m, "content", json_string("z"));
    }
    char *text = json_dumps(messages, 0);
    harmless.messages_json = text;
    if (simple && um_chat_render(c, &harmless, NULL, &ids, NULL) == UM_OK) require(n_special(&ids) == found);
    um_ids_free(&ids);
    free(text);
    json_decref(messages);
}

static void render_twice(const um_chat *c, const um_chat_request *q) {
    um_buf out[2] = {{0}, {0}};
    um_ids ids = {0};
    um_err err = {0};
    um_status st = um_chat_render(c, q, &out[0], &ids, &err);
    require(st ? err.msg[0] && ids.n == 0 && out[0].len == 0 : true);
    require(um_chat_render(c, q, &out[1], NULL, NULL) == st);
    require(out[0].len == out[1].len && (!out[0].len || !memcmp(out[0].data, out[1].data, out[0].len)));
    if (!st) {
        require(!out[0].len || um_utf8_check(out[0].data, out[0].len) == out[0].len);
        check_control(c, q, n_special(&ids));
    }
    um_ids_free(&ids);
    um_buf_free(&out[0]);
    um_buf_free(&out[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    um_request_line q = {0};
    um_request defaults = {.size = sizeof defaults};
    open_once();
    if (size < 2) return 0;
    if (um_request_line_parse(&q, (um_str){(const char *)data + 1, size - 1}, &defaults, NULL) == UM_OK &&
        q.request.chat) {
        q.body.chat.special_in_content = data[0] / 8 % (UM_SPECIAL_REJECT + 1);
        if (q.body.chat.special_in_content == UM_SPECIAL_AUTO) q.body.chat.special_in_content = UM_SPECIAL_TEXT;
        render_twice(chats[data[0] % 8 % n_chats], &q.body.chat);
    }
    um_request_line_free(&q);
    return 0;
}
