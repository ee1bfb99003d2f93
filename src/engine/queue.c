/* The queue of waiting answers: levels of priority, tenants, requests. */
#include "engine/engine.h"

/* ---- Circular lists ---------------------------------------------------------------------------------------------- */

static void list_init(um_link *head) { head->next = head->prev = head; }
static bool list_is_empty(const um_link *head) { return head->next == head; }
static bool is_listed(const um_link *l) { return l->next != NULL; }

static void insert_before(um_link *at, um_link *l) {
    l->next = at;
    l->prev = at->prev;
    l->prev->next = l->next->prev = l;
}

static void remove_link(um_link *l) {
    l->next->prev = l->prev;
    l->prev->next = l->next;
    l->next = l->prev = NULL;
}

/* The link is the first member. */
static um_tenant *tenant_at(um_link *l) { return (um_tenant *)(void *)l; }
static um_group *group_at(um_link *l) { return (um_group *)(void *)l; }

/* ---- Levels and tenants ------------------------------------------------------------------------------------------ */

static um_level *get_level(um_queue *q, int32_t priority) {
    um_level **at = &q->level, *level;
    while (*at && (*at)->priority < priority) at = &(*at)->next;
    if (*at && (*at)->priority == priority) return *at;
    level = UM_NEW(um_level);
    level->priority = priority;
    level->next = *at;
    list_init(&level->idle);
    list_init(&level->busy);
    *at = level;
    return level;
}

static void release_level(um_queue *q, um_level *level) {
    um_level **at = &q->level;
    if (--level->n_tenants > 0) return;
    while (*at != level) at = &(*at)->next;
    *at = level->next;
    um_free(level);
}

static um_tenant **bucket_of(um_queue *q, uint64_t number, int32_t priority) {
    return &q->bucket[um_rng_key(number, (uint32_t)priority, 0, 0) % UM_TENANT_BUCKETS];
}

static um_tenant *get_tenant(um_queue *q, uint64_t number, int32_t priority) {
    um_tenant **bucket = bucket_of(q, number, priority), *t = *bucket;
    while (t && (t->number != number || t->level->priority != priority)) t = t->next;
    if (t) return t;
    t = UM_NEW(um_tenant);
    *t = (um_tenant){.level = get_level(q, priority), .number = number, .next = *bucket};
    t->level->n_tenants++;
    list_init(&t->fresh);
    list_init(&t->begun);
    *bucket = t;
    return t;
}

static void release_tenant(um_queue *q, um_tenant *t) {
    um_tenant **at = bucket_of(q, t->number, t->level->priority);
    if (--t->n_groups > 0) return;
    while (*at != t) at = &(*at)->next;
    *at = t->next;
    release_level(q, t->level);
    um_free(t);
}

/* ---- Places ------------------------------------------------------------------------------------------------------ */

static int64_t arrival_of(um_link *group) { return group_at(group)->waiting->arrival; }

static um_link *first_group(const um_tenant *t) { return list_is_empty(&t->fresh) ? t->begun.next : t->fresh.next; }

/* Inserts the request before the first one that arrived later. Few requests are older than one that was preempted. */
static void insert_by_arrival(um_link *head, um_link *group) {
    um_link *at = head->next;
    while (at != head && arrival_of(at) < arrival_of(group)) at = at->next;
    insert_before(at, group);
}

/* Puts the tenant into the list that it belongs to: at its end, or at its head if `leads`. A tenant that changes its
 * list ends its turn. */
static void place_tenant(um_tenant *t, bool leads) {
    um_link *head = t->n_running ? &t->level->busy : &t->level->idle;
    if (is_listed(&t->link)) remove_link(&t->link);
    t->has_turn = false;
    if (t->n_listed == 0) t->credit = 0;
    else insert_before(leads ? head->next : head, &t->link);
}

/* Puts the request into the list that it belongs to, at its end. A preempted answer makes it go before newer ones. */
static void place_group(um_queue *q, um_group *g, bool was_preempted) {
    um_tenant *t = g->tenant;
    um_link *head = g->n_running && !q->by_arrival ? &t->begun : &t->fresh;
    if (is_listed(&g->link)) {
        remove_link(&g->link);
        t->n_listed--;
    }
    if (!g->waiting) return;
    t->n_listed++;
    if (was_preempted) insert_by_arrival(head, &g->link);
    else insert_before(head, &g->link);
}

/* ---- The list of all --------------------------------------------------------------------------------------------- */

static void link_all(um_queue *q, um_sequence *j, bool at_head) {
    j->before = at_head ? NULL : q->last;
    j->after = at_head ? q->first : NULL;
    *(j->before ? &j->before->after : &q->first) = j;
    *(j->after ? &j->after->before : &q->last) = j;
    q->n_waiting++;
}

static void unlink_all(um_queue *q, um_sequence *j) {
    *(j->before ? &j->before->after : &q->first) = j->after;
    *(j->after ? &j->after->before : &q->last) = j->before;
    j->before = j->after = NULL;
    q->n_waiting--;
}

/* ---- Answers of a request ---------------------------------------------------------------------------------------- */

static void put_waiting(um_group *g, um_sequence *j) {
    um_sequence **at = &g->waiting;
    if (g->waiting && g->last->arrival < j->arrival) at = &g->last->next;
    while (*at && (*at)->arrival < j->arrival) at = &(*at)->next;
    j->next = *at;
    *at = j;
    if (!j->next) g->last = j;
}

static void take_waiting(um_group *g, um_sequence *j) {
    um_sequence **at = &g->waiting, *before = NULL;
    for (; *at != j; at = &before->next) before = *at;
    *at = j->next;
    if (g->last == j) g->last = before;
    j->next = NULL;
}

/* ---- Functions of the header ------------------------------------------------------------------------------------- */

void um_queue_init(um_queue *q, int64_t quantum, bool by_arrival) {
    *q = (um_queue){.quantum = quantum, .by_arrival = by_arrival};
}

int64_t um_queue_cost(const um_sequence *j) { return (int64_t)j->req.limit * UM_MAX(1, j->bound.tables); }

void um_queue_add(um_queue *q, um_sequence *j, um_group *g) {
    if (!g) {
        g = UM_NEW(um_group);
        *g = (um_group){.tenant = get_tenant(q, q->by_arrival ? 0 : j->tenant, j->priority), .first = j};
        g->tenant->n_groups++;
    }
    um_tenant *t = g->tenant;
    j->group = g;
    g->n_unfinished++;
    put_waiting(g, j);
    link_all(q, j, false);
    if (!is_listed(&g->link)) place_group(q, g, false);
    if (!is_listed(&t->link)) place_tenant(t, false);
}

/* Returns the first request of the tenant that was not passed over. */
static um_group *next_group(const um_tenant *t) {
    for (um_link *l = t->fresh.next; l != &t->fresh; l = l->next)
        if (!group_at(l)->is_passed) return group_at(l);
    for (um_link *l = t->begun.next; l != &t->begun; l = l->next)
        if (!group_at(l)->is_passed) return group_at(l);
    return NULL;
}

/* Returns the tenant of the list whose requests were passed over least often, the first among equals; NULL: all
 * requests were passed over. */
static um_tenant *next_tenant(const um_link *head) {
    um_tenant *best = NULL;
    for (um_link *l = head->next; l != head && (!best || best->n_passed > 0); l = l->next) {
        um_tenant *t = tenant_at(l);
        if (t->n_passed < t->n_listed && (!best || t->n_passed < best->n_passed)) best = t;
    }
    return best;
}

um_sequence *um_queue_next(const um_queue *q) {
    for (const um_level *level = q->level; level; level = level->next) {
        um_tenant *idle = next_tenant(&level->idle), *busy = next_tenant(&level->busy);
        um_tenant *t = idle && busy ? idle->n_passed <= busy->n_passed ? idle : busy : idle ? idle : busy;
        if (t) return next_group(t)->waiting;
    }
    return NULL;
}

void um_queue_pass(um_queue *q, um_sequence *j) {
    assert(q->n_passed < UM_PASSED_OVER_MAX && !j->group->is_passed);
    q->passed[q->n_passed++] = j->group;
    j->group->is_passed = true;
    j->group->tenant->n_passed++;
}

void um_queue_restore(um_queue *q) {
    for (int32_t i = 0; i < q->n_passed; i++) {
        q->passed[i]->is_passed = false;
        q->passed[i]->tenant->n_passed = 0;
    }
    q->n_passed = 0;
}

/* Takes the cost of an answer from its tenant. The turn of a busy tenant goes on while its credit is enough. An answer
 * that was preempted has been paid for. */
static void charge(um_queue *q, um_tenant *t, const um_sequence *j, bool was_busy) {
    if (was_busy && !t->has_turn) t->credit += q->quantum;
    if (was_busy) t->has_turn = true;
    if (j->preemptions == 0) t->credit -= um_queue_cost(j);
    t->credit = UM_MAX(t->credit, 0); /* so that one turn suffices */
}

static bool keeps_turn(const um_tenant *t) {
    return t->has_turn && t->n_listed && t->credit >= um_queue_cost(group_at(first_group(t))->waiting);
}

void um_queue_start(um_queue *q, um_sequence *j) {
    um_group *g = j->group;
    um_tenant *t = g->tenant;
    bool was_busy = t->n_running > 0;
    take_waiting(g, j);
    unlink_all(q, j);
    j->leads = g->n_running == 0;
    t->n_leading += j->leads;
    g->n_running++;
    t->n_running++;
    if (!q->by_arrival || !g->waiting) place_group(q, g, false);
    charge(q, t, j, was_busy);
    if (!keeps_turn(t)) place_tenant(t, false);
}

/* Counts a running answer that runs no more. */
static void stop(um_sequence *j) {
    j->group->tenant->n_leading -= j->leads;
    j->leads = false;
    j->group->n_running--;
    j->group->tenant->n_running--;
}

void um_queue_return(um_queue *q, um_sequence *j) {
    um_group *g = j->group;
    um_tenant *t = g->tenant;
    bool had = is_listed(&t->link);
    stop(j);
    put_waiting(g, j);
    link_all(q, j, true);
    place_group(q, g, true);
    if (!had || t->n_running == 0) place_tenant(t, t->n_running == 0);
}

void um_queue_end(um_queue *q, um_sequence *j, bool was_running) {
    um_group *g = j->group;
    um_tenant *t = g->tenant;
    if (was_running) stop(j);
    else {
        take_waiting(g, j);
        unlink_all(q, j);
    }
    /* A request or tenant whose last running answer has ended takes turns with those without running answers. */
    bool now_fresh = was_running && g->n_running == 0 && !q->by_arrival;
    if (is_listed(&g->link) && (now_fresh || !g->waiting)) place_group(q, g, false);
    if (is_listed(&t->link) && ((was_running && t->n_running == 0) || t->n_listed == 0)) place_tenant(t, false);
    if (g->first == j) g->first = NULL;
    j->group = NULL;
    if (--g->n_unfinished > 0) return;
    um_free(g);
    release_tenant(q, t);
}
