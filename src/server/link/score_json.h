/* score_json: scores as JSON. The command `score` reads them from lines of a file, and the utility `score` of a worker
 * from its arguments:
 *
 *     {"prompt": text or ids | "messages": [...], "answer": text or ids, or a list of them, "adapter": name,
 *      parameters by the names of their options}
 *
 * The result is {"scores": [...]} with one entry for each answer. */
#ifndef UM_SCORE_JSON_H
#define UM_SCORE_JSON_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

struct json_t;

#define UM_SCORE_ANSWERS_MAX 1024

typedef struct um_score_answer {
    um_str text;        /* p NULL: the answer is given as ids */
    const int32_t *ids; /* [n_ids] */
    size_t n_ids;
} um_score_answer;

/* The answers behind one prompt that are to be scored. Must not be copied once it has been read. */
typedef struct um_score_job {
    um_score_request request; /* all but the answer */
    um_score_answer *answer;  /* [n_answers] */
    size_t n_answers;
    bool one_answer; /* the answer was not given as a list */
    um_message message;
    um_chat_request chat;
    um_arena arena; /* of the arrays */
} um_score_job;

/* Reads an object. Parameters that it does not have are taken from `defaults`. `in_chat`: a "prompt" that is a text
 * becomes the message of a user. `ignored`: names of members that are not read, separated by '|', or NULL. Texts are
 * borrowed from `root`. `job` must be zeroed; um_score_job_free releases it, also after an error. Errors: UM_EINVAL,
 * UM_ERANGE, UM_ELIMIT; err->param names the member. */
um_status um_score_job_read(um_score_job *job, const struct json_t *root, const um_score_request *defaults,
                            bool in_chat, const char *ignored, um_err *err);
void um_score_job_free(um_score_job *job);
/* Returns the request for answer i. */
um_score_request um_score_job_get(const um_score_job *job, size_t i);
/* Writes a result as an object. */
void um_score_put(um_jw *w, const um_score_result *r);

#ifdef __cplusplus
}
#endif
#endif
