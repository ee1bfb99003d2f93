/* chat: a conversation, whoever answers: its history (chat_history.c), what lines with a slash do (chat_commands.c),
 * reading and asking (chat.c). */
#ifndef UM_CLI_CHAT_H
#define UM_CLI_CHAT_H

#include "cli/answerer.h"

typedef struct um_history {
    um_message *message;
    size_t n, cap, n_system; /* the system message is never dropped */
} um_history;
void um_history_push(um_history *h, const char *role, const char *text);
/* Takes the last message back. */
void um_history_pop(um_history *h);
/* Forgets all but the system message. */
void um_history_reset(um_history *h);
/* Are there turns before the last question, which could be left out? */
bool um_history_can_shrink(const um_history *h);
/* Drops the oldest question and its answer. */
void um_history_shrink(um_history *h);
void um_history_free(um_history *h);

typedef struct um_talk {
    const um_command *self;
    bool quiet, tty; /* tty: a person types */
    um_answerer *answerer;
    um_question question; /* parameters of the next answer */
    um_chat_request conversation;
    um_history history;
    bool quit;
    int status;
    double tokens, seconds; /* of all answers */
    int64_t passes, answers;
} um_talk;
/* Says what is wrong; a person has seen it and goes on, elsewhere the program's status keeps it. */
void um_talk_complain(um_talk *t, const um_err *err);
/* Runs "/set x y"; the line is changed. */
void um_talk_command(um_talk *t, char *line);

#endif
