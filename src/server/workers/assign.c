/* Chooses a worker for each request. */
#include "engine/replica.h"
#include "server/workers/internal.h"

/* ---- Cost of a request ------------------------------------------------------------------------------------------- */

/* The number of tokens that is assumed when max_tokens is not set. An estimate is enough to compare queues. */
#define ANSWER_TOKENS_AUTO 512

/* Returns the value of an integer parameter of the request; 0: not set, or not positive. */
static int64_t positive_param(const um_msg_generate *g, const char *name) {
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

int64_t um_worker_pool_token_cost(const um_worker_pool *pool, const um_msg_generate *g) {
    int64_t answer = positive_param(g, "max_tokens");
    if (!answer) answer = pool->config->engine->sampling.max_tokens;
    if (!answer) answer = ANSWER_TOKENS_AUTO;
    return (int64_t)g->n_ids + g->n_suffix + g->n * answer;
}

/* ---- Choosing ---------------------------------------------------------------------------------------------------- */

/* The workers that are up, with the facts that routing needs. */
typedef struct candidates {
    um_worker_slot *slot[UM_REPLICAS_MAX];
    um_replica replica[UM_REPLICAS_MAX];
    int32_t n;
    uint64_t *hash; /* [n_pages] of the prompt's prefixes; NULL: routing does not use them */
    size_t n_pages;
} candidates;

/* Assumes that all workers have the page size of the first one. With another page size, only the hints are wrong. */
static void hash_prefixes(candidates *c, const um_worker_pool *pool, const um_msg_generate *g) {
    const um_config *e = pool->config->engine;
    if (pool->n_slots < 2 || c->n == 0 || e->route_policy != UM_ROUTE_PREFIX || e->disable_prefix_caching) return;
    int32_t page = c->slot[0]->ready.msg.ready.page_size;
    if (page < 1) return;
    c->n_pages = g->n_ids / (size_t)page;
    c->hash = UM_NEW_ARRAY(uint64_t, c->n_pages + 1);
    um_prefix_hints_hash(pool->hash_key, g, page, c->hash);
    for (int32_t i = 0; i < c->n; i++)
        c->replica[i].cached = (int32_t)um_prefix_hints_match(c->slot[i]->hints, c->hash, c->n_pages) * page;
}

static void find_candidates(candidates *c, um_worker_pool *pool, const um_msg_generate *g) {
    *c = (candidates){0};
    for (int32_t i = 0; i < pool->n_slots; i++) {
        um_worker_slot *slot = &pool->slot[i];
        if (slot->state != UM_WORKER_UP) continue;
        c->slot[c->n] = slot;
        c->replica[c->n++].queued = slot->queued_tokens;
    }
    hash_prefixes(c, pool, g);
}

static void remove_candidate(candidates *c, int32_t at) {
    c->n--;
    for (int32_t i = at; i < c->n; i++) {
        c->slot[i] = c->slot[i + 1];
        c->replica[i] = c->replica[i + 1];
    }
}

/* Skips a worker that can't be reached. The heartbeat will find out that it failed. */
um_worker_slot *um_worker_pool_assign(um_worker_pool *pool, const um_msg_generate *g) {
    candidates c;
    um_worker_slot *chosen = NULL;
    find_candidates(&c, pool, g);
    int64_t number = pool->n_routed++;
    while (!chosen && c.n > 0) {
        int32_t at = um_replica_choose(pool->config->engine->route_policy, c.replica, c.n, number);
        if (um_worker_pool_send(c.slot[at], &(um_msg){.type = UM_MSG_GENERATE, .generate = *g})) chosen = c.slot[at];
        else remove_candidate(&c, at);
    }
    if (chosen && c.hash) um_prefix_hints_add(chosen->hints, c.hash, c.n_pages);
    um_free(c.hash);
    return chosen;
}
