/* choice: one answer of a generation: its tokens and its text, while it streams and when it has finished. */
#ifndef UM_CHOICE_H
#define UM_CHOICE_H

#include "server/link/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A view of consecutive tokens of an answer. The choice owns the arrays; they are valid until its next event. */
typedef struct um_tokens {
    const int32_t *id;       /* [n] */
    const int32_t *text_end; /* [n] end of each token in the answer's text, in bytes; stop strings may cut the last */
    const float *logprob;    /* [n]; NULL if not requested */
    const int32_t *likeliest_id; /* [n, n_likeliest]; -1: unused entry */
    const float *likeliest;      /* [n, n_likeliest] their log-probabilities */
    uint32_t n;
    int32_t n_likeliest;
    int32_t text_start; /* start of the first token in the answer's text, in bytes */
} um_tokens;

/* The settled part of an answer that streams: its text, and the columns of um_tokens. */
typedef struct um_settled {
    um_buf text, id, text_end, logprob, likeliest_id, likeliest;
    int32_t n_likeliest;
} um_settled;

/* The history of an answer: an element of a JSON array for each pass, {"nfe", "length", "positions", "token_ids"}, with
 * the positions that this pass changed. `length` includes masked positions. */
typedef struct um_trajectory {
    um_buf json;
    int32_t *ids; /* [n] token ids after the last pass */
    uint32_t n, cap;
} um_trajectory;

/* An answer of a generation. `number` is prompt * n + index. */
typedef struct um_choice {
    int32_t number, prompt, index;
    bool finished;
    double finished_at;       /* um_now() when the result arrived */
    um_msg_finish result;     /* valid when `finished` is set; the generation owns its arrays */
    um_settled settled;       /* the settled part of an unfinished answer that streams */
    int32_t n_tokens;         /* number of settled tokens so far */
    int32_t n_sent;           /* number of these tokens that are in the chunks so far; the writer sets it */
    int32_t nfe;              /* forward passes so far */
    int32_t next_shown;       /* first pass whose snapshot is streamed again */
    um_trajectory trajectory; /* empty unless requested */
    void *own;                /* data of the response writer; um_alloc'd, freed with the choice */
} um_choice;

void um_choice_free(um_choice *c); /* frees everything except `own` */
/* Appends a TEXT message to the settled part. */
void um_choice_append(um_choice *c, const um_msg_text *m);
/* Appends a pass. mask_id: the token id that stands for a masked position. */
void um_trajectory_add(um_trajectory *t, const um_msg_snapshot *m, int32_t mask_id);
/* Return the text or the tokens of the whole answer if it has finished, else of its settled part. */
um_str um_choice_text(const um_choice *c);
um_tokens um_choice_tokens(const um_choice *c);
/* Returns OpenAI's finish reason: "stop", "length", … */
const char *um_finish_reason(const um_msg_finish *m);
/* Returns the tokens [from, to), cut at the end of `t`. */
um_tokens um_tokens_part(const um_tokens *t, uint32_t from, uint32_t to);

#ifdef __cplusplus
}
#endif
#endif
