/* Whom a request goes to. */
#include "engine/route.h"
#include "server/backend/parts.h"

/* ---- Weights ----------------------------------------------------------------------------------------------------- */

#define ANSWER_TOKENS_AUTO 512 /* when nobody says how long answers may be; for comparing queues that is enough */

/* What a parameter was set to, as a positive number; 0: it was not. */
static int64_t number_set(const um_msg_generate *g, const char *name) {
    char text[24];
    int64_t v = 0;
    for (uint32_t i = 0; i < g->n_set; i++) {
        um_str s = g->set[i].value;
        if (!um_str_eq(g->set[i].name, um_str_of(name)) || s.n >= sizeof(text)) continue;
        memcpy(text, s.p, s.n);
        text[s.n] = '\0';
        if (um_parse_int(text, &v) && v > 0) return v;
    }
    return 0;
}

int64_t um_backend_tokens(const um_backend *b, const um_msg_generate *g) {
    int64_t answer = number_set(g, "max_tokens");
    if (!answer) answer = b->config->engine->sampling.max_tokens;
    if (!answer) answer = ANSWER_TOKENS_AUTO;
    return (int64_t)g->n_ids + g->n_suffix + g->n * answer;
}

/* ---- Choosing ---------------------------------------------------------------------------------------------------- */

/* The workers that are up, and what is known of each. */
typedef struct candidates {
    um_member *member[UM_REPLICAS_MAX];
    um_replica replica[UM_REPLICAS_MAX];
    int32_t n;
    uint64_t *hash; /* [n_pages] of the prompt's beginnings, or NULL: nobody asks for them */
    size_t n_pages;
} candidates;

/* Equal workers have equal pages; where one has not, guesses about it are off, and nothing else. */
static void hash_beginnings(candidates *c, const um_backend *b, const um_msg_generate *g) {
    const um_config *e = b->config->engine;
    if (b->n_members < 2 || c->n == 0 || e->route_policy != UM_ROUTE_PREFIX || e->disable_prefix_caching) return;
    int32_t page = c->member[0]->ready.msg.ready.page_size;
    if (page < 1) return;
    c->n_pages = g->n_ids / (size_t)page;
    c->hash = UM_NEW_ARRAY(uint64_t, c->n_pages + 1);
    um_recent_hash(b->hash_key, g, page, c->hash);
    for (int32_t i = 0; i < c->n; i++)
        c->replica[i].cached = (int32_t)um_recent_match(c->member[i]->recent, c->hash, c->n_pages) * page;
}

static void find_candidates(candidates *c, um_backend *b, const um_msg_generate *g) {
    *c = (candidates){0};
    for (int32_t i = 0; i < b->n_members; i++) {
        um_member *m = &b->member[i];
        if (m->state != UM_WORKER_UP) continue;
        c->member[c->n] = m;
        c->replica[c->n++].queued = m->queued_tokens;
    }
    hash_beginnings(c, b, g);
}

static void remove_candidate(candidates *c, int32_t at) {
    c->n--;
    for (int32_t i = at; i < c->n; i++) {
        c->member[i] = c->member[i + 1];
        c->replica[i] = c->replica[i + 1];
    }
}

/* One that can't be reached is passed over; what has become of it is found out by its heartbeat. */
um_member *um_backend_post(um_backend *b, const um_msg_generate *g) {
    candidates c;
    um_member *taken = NULL;
    find_candidates(&c, b, g);
    int64_t number = b->n_routed++;
    while (!taken && c.n > 0) {
        int32_t at = um_route_request(b->config->engine->route_policy, c.replica, c.n, number);
        if (um_backend_send(c.member[at], &(um_msg){.type = UM_MSG_GENERATE, .generate = *g})) taken = c.member[at];
        else remove_candidate(&c, at);
    }
    if (taken && c.hash) um_recent_add(taken->recent, c.hash, c.n_pages);
    um_free(c.hash);
    return taken;
}
