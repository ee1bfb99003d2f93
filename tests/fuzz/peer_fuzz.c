/* Fuzzes the responses of a server. The first byte chooses the status, the rest is a body or the data of an event. An
 * error must have a message. Counts must not be negative, texts must be valid UTF-8, and the tokens of a frame must
 * have known states. */
#include <stdlib.h>

#include "cli/peer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool claim) {
    if (!claim) abort();
}

static void check_frame(const um_peer_message *s) {
    um_peer_frame f = {0};
    const um_frame *frame = um_peer_frame_read(&f, s);
    require(um_utf8_check(frame->settled.p, frame->settled.n) == frame->settled.n);
    for (size_t i = 0; i < frame->n; i++) {
        const um_piece *p = &frame->piece[i];
        require(p->state == UM_TOKEN_MASK || p->state == UM_TOKEN_FRESH || p->state == UM_TOKEN_SET);
        require(!p->is_special || p->text.n == 0);
        require(um_utf8_check(p->text.p, p->text.n) == p->text.n);
    }
    um_peer_frame_free(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const int statuses[] = {200, 200, 200, 400, 401, 404, 429, 502};
    um_peer_message s;
    if (size == 0) return 0;
    um_peer_read(&s, statuses[data[0] % UM_LEN(statuses)], (um_str){(const char *)data + 1, size - 1});
    require((s.kind == UM_PEER_ERROR) == (s.err.code != UM_OK));
    require(s.kind != UM_PEER_ERROR || s.err.msg[0]);
    require(!s.finish || s.finish_as != UM_FINISH_NONE || um_streq(s.finish, um_finish_name(UM_FINISH_NONE)));
    require(s.usage.nfe >= 0 && s.usage.completion_tokens >= 0);
    require(um_utf8_check(s.text.n ? s.text.p : "", s.text.n) == s.text.n);
    check_frame(&s);
    um_peer_message_free(&s);
    return 0;
}
