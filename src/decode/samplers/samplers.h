/* What samplers share: scores, orders, the rows of editing. */
#ifndef UM_DECODE_SAMPLERS_H
#define UM_DECODE_SAMPLERS_H

#include "decode/decode.h"

/* ---- Scores (score.c) -------------------------------------------------------------------------------------------- */

/* accept_threshold, for those that compare with it. */
extern const um_option um_threshold_options[1];
/* confidence, for those that rank by um_score_of. */
extern const um_option um_score_options[1];
/* UM_WANT_* bits for the sample and how->confidence. */
uint32_t um_want_score(const um_req *r);
/* The score by which candidate i ranks among others, by how->confidence. */
float um_score_of(const um_choice *c, int32_t i);
/* The candidate of the largest score, the first among equals; c->n > 0. */
int32_t um_best_score(const um_choice *c);
/* UM_WANT_* bits of the sample and of its entropy. */
uint32_t um_want_entropy(const um_req *r);

/* Candidates by falling c->score, the left one first among equals. um_rank_scores and um_rank_start begin an order: by
 * um_score_of, by what lies in c->score. A score that is NaN (of a broken model) counts as the smallest. */
void um_rank_scores(const um_choice *c);
void um_rank_start(const um_choice *c);
int32_t um_rank_next(const um_choice *c); /* -1 behind the last */

/* denoising_steps, which samplers of a fixed number of positions share. */
extern const um_option um_denoising_options[1];
/* Positions that `static` and `sequential` fix in a pass, <= c->n. */
int32_t um_denoising_count(const um_choice *c);

/* ---- Editing (edit.c) -------------------------------------------------------------------------------------------- */

/* max_post_edit_steps, which `edit` and `dmax` share. */
extern const um_option um_edit_options[1];

/* Every block ends: after block_len + max_post_edit_steps passes its masks are filled with what the model gives, */
bool um_edit_timed_out(const um_choice *c);
/* and after max_post_edit_steps passes without a mask nothing is edited any more. */
bool um_edit_exhausted(const um_choice *c);
/* Candidate i becomes `id`; nothing is noted when it is that already. compat: id may be the mask's. */
void um_edit_write(um_decision *d, const um_choice *c, int32_t i, int32_t id);
/* What candidate i is to become: `id`, or UM_MASKED for the mask's. */
static inline int32_t um_edit_id(const um_choice *c, int32_t id) { return id == c->mask_id ? UM_MASKED : id; }

#endif
