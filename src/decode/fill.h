/* Constrained filling: which tokens the open positions of an answer may have, so that the answer ends as a text of a
 * language (grammar/language.h), in whatever order its positions are filled.
 *
 * The window is the positions from the first token that is not final to the end of the blocks in flight. For each
 * boundary between two positions of the window there is a set of live states: those that the text before the boundary
 * can lead to, and from which the text behind it can be completed within the positions that are left. A mask may become
 * a token that leads from a live state before it to a live state behind it. A written token makes the sets smaller on
 * both sides; a token that becomes a mask again makes them larger.
 *
 * Sets are bitmaps over the states. Bit 0 stands for an answer that has ended: behind an end only ends and padding
 * follow. A request owns its um_fill; the language belongs to the engine. */
#ifndef UM_FILL_H
#define UM_FILL_H

#include "decode/decode.h"
#include "grammar/language.h"

/* Creates the sets of a request whose strategy has been initialised.
 *
 * window  largest number of positions of a window
 * vocab   number of ids in a bitmap of allowed ids
 * end     first position that the answer never has */
um_fill *um_fill_new(const um_req *r, um_language *l, int32_t window, int32_t vocab, int32_t end);
void um_fill_free(um_fill *f);

/* Moves the start of the window to r->filled, whose tokens are final. */
void um_fill_advance(um_fill *f, const um_req *r);
/* Sets the end of the window, before rows are added. */
void um_fill_open(um_fill *f, const um_req *r, int32_t end);
/* Returns the bitmap of the ids that a position of the window may have, and its number (um_row.allow_id), which stays
 * as long as the bits do. It is valid until a token is written. */
const uint32_t *um_fill_allowed(um_fill *f, const um_req *r, int32_t pos, uint64_t *allow_id);
/* Returns whether the position may have the token, and if so, takes it as written: um_req_write must follow. */
bool um_fill_accept(um_fill *f, const um_req *r, int32_t pos, int32_t id);
/* Returns the only id that a masked position can have; -1 if it can have several. */
int32_t um_fill_only(um_fill *f, const um_req *r, int32_t pos);
/* Lists the live states before a position of the window. Returns their number, and writes the first n. */
int32_t um_fill_states(um_fill *f, const um_req *r, int32_t pos, int32_t *state, int32_t n);
/* Returns the live state behind a position that a live state before it and a token lead to; -1: none. */
int32_t um_fill_step(const um_fill *f, int32_t state, int32_t pos, int32_t id);
/* The caller of um_fill_states and um_fill_step holds the lock of the language. */
void um_fill_lock(um_fill *f);
void um_fill_unlock(um_fill *f);
/* A position of the window has become a mask. */
void um_fill_erased(um_fill *f);
/* Returns whether the final tokens are a text that can't go on. */
bool um_fill_is_complete(const um_fill *f);
/* Returns whether no text can be completed any more, because the language ran out of memory. */
bool um_fill_is_stuck(const um_fill *f);

#endif
