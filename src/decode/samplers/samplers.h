/* Common parts of samplers: scores, ranking, limits of editing, and option rows. */
#ifndef UM_DECODE_SAMPLERS_H
#define UM_DECODE_SAMPLERS_H

#include "decode/decode.h"

/* ---- Scores (score.c) -------------------------------------------------------------------------------------------- */

/* accept_threshold. */
extern const um_option um_threshold_options[1];
/* entropy_threshold; NAN: the sampler's own default. */
extern const um_option um_entropy_options[1];
/* confidence, for samplers that rank by um_score_of. */
extern const um_option um_score_options[1];
/* Returns the UM_WANT_* bits of the sample and the score that how->confidence selects. */
uint32_t um_want_score(const um_req *r);
/* Returns the score of candidate i that how->confidence selects; a larger score means more confidence. */
float um_score_of(const um_sampler_input *c, int32_t i);
/* Returns the candidate with the largest score, the first among equals. c->n must be above 0. */
int32_t um_best_score(const um_sampler_input *c);
/* Returns the UM_WANT_* bits of the sample and the entropy. */
uint32_t um_want_entropy(const um_req *r);

/* Ranking in descending order of score, the leftmost first among equals. um_rank_scores starts it with the scores of
 * um_score_of, um_rank_start with those in c->score. A score of NaN (from a broken model) counts as the smallest. */
void um_rank_scores(const um_sampler_input *c);
void um_rank_start(const um_sampler_input *c);
/* Returns the next candidate, or -1 after the last. Overwrites c->score. */
int32_t um_rank_next(const um_sampler_input *c);

/* denoising_steps, for samplers that commit a given number of positions. */
extern const um_option um_denoising_options[1];
/* Returns the number of positions that `static` and `sequential` accept in a pass, <= c->n. */
int32_t um_denoising_count(const um_sampler_input *c);

/* ---- Editing (edit.c) -------------------------------------------------------------------------------------------- */

/* max_post_edit_steps. */
extern const um_option um_edit_options[1];
/* edit_threshold. */
extern const um_option um_edit_threshold_options[1];

/* Two limits make sure that every block ends. A block is timed out after block_len + max_post_edit_steps passes: all
 * its masks are then filled. */
bool um_edit_timed_out(const um_sampler_input *c);
/* A block is exhausted after max_post_edit_steps passes without a mask: its tokens are then no longer edited. */
bool um_edit_exhausted(const um_sampler_input *c);
/* Decides that candidate i becomes `id`, unless it is `id` already. compat: id may be the mask id. */
void um_edit_write(um_decision *d, const um_sampler_input *c, int32_t i, int32_t id);
/* Returns `id`, or UM_MASKED for the mask id. */
static inline int32_t um_edit_id(const um_sampler_input *c, int32_t id) { return id == c->mask_id ? UM_MASKED : id; }

#endif
