/* chat: a conversation with a model or a server: its messages (chat_history.c), its slash commands (chat_commands.c),
 * its input (chat_read.c), and its loop (chat.c). */
#ifndef UM_CLI_CHAT_H
#define UM_CLI_CHAT_H

#include "cli/client.h"
#include "cli/line_editor.h"

typedef struct um_history {
    um_message *message;
    size_t n, cap, n_system; /* n_system: leading system messages (0 or 1), which are never dropped */
} um_history;
void um_history_push(um_history *h, const char *role, const char *text);
/* Removes the last message. */
void um_history_pop(um_history *h);
/* Removes all messages except the system message. */
void um_history_reset(um_history *h);
/* Returns whether there are turns before the last user message that could be dropped. */
bool um_history_can_shrink(const um_history *h);
/* Drops the oldest user message and its answer. */
void um_history_shrink(um_history *h);
void um_history_free(um_history *h);

typedef struct um_conversation {
    const um_command *self;
    bool quiet, tty; /* tty: standard input is a terminal */
    um_client *client;
    um_client_request client_request; /* parameters of the next answer */
    um_chat_request chat;
    um_history history;
    um_line_editor *editor; /* NULL: lines are read without an editor */
    int interrupts;         /* Ctrl-C at the prompt since the last message; one on an empty line counts twice */
    bool quit;
    int status;
    double tokens, seconds; /* sums over all answers */
    int64_t passes, answers;
} um_conversation;
/* Opens standard input: sets t->tty and t->editor. keep_history: messages are kept in a file for later sessions. */
void um_conversation_open_input(um_conversation *t, bool keep_history);
/* Reads a message without the newline at its end. A line that ends with a backslash goes on with the next line, and so
 * does a message that begins with three quotes, up to three quotes. */
um_line_result um_conversation_read(um_conversation *t, um_buf *text);
/* Prints an error. If standard input is not a terminal, the exit status becomes UM_EXIT_FAILED. */
void um_conversation_print_error(um_conversation *t, const um_err *err);
/* Runs a slash command, such as "/set x y". Modifies the line. */
void um_conversation_run_command(um_conversation *t, char *line);

#endif
