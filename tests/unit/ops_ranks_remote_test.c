/* Tests of the messages that rank 0 sends to ranks in other processes: the batch is found again, and a message that was
 * cut or changed is refused or gives a batch within the sizes of passes. And of copies of a batch within a process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* cmocka.h needs the headers above. */
#include <cmocka.h>

#include "ops/message.h"
#include "ops/ranks/group.h"

enum { TOKENS = 6, VOCAB = 100, PAGE = 4, ADAPTERS = 2 };

static const um_network net = {.vocab = VOCAB, .n_adapters = ADAPTERS};
static const um_forward_config config = {.max_tokens = 16,
                                         .max_rows = 8,
                                         .max_spans = 4,
                                         .n_saved = 3,
                                         .n_blends = 5,
                                         .page_size = PAGE,
                                         .n_pages = 10,
                                         .n_scratch_pages = 2};

static const int32_t ids[TOKENS] = {3, 99, 0, 7, 8, 9}, positions[TOKENS] = {4, 5, 6, 0, 1, 2},
                     slots[TOKENS] = {4, 5, 6, -1, 33, 34}, ends[TOKENS] = {7, 7, 7, 3, 3, 3}, first_pages[] = {2, 1},
                     second_pages[] = {8}, kept_pages[] = {9, 11}, soft_ids[] = {1, 2, 98};
static const float soft_weights[] = {0.5f, 0.25f, 0.125f}, prior[] = {1, 2, 3, 4, 5, 6, 7};
static const uint32_t all_bits[4] = {~0u, ~0u, ~0u, ~0u};
static const um_edit edits[] = {{5, 1, 0, false}};
static const um_kv_select keeps = {{4, 7}, 5, 3, true, kept_pages, prior, false};
static const um_span spans[] = {
    {.first = 0, .n = 3, .page = first_pages, .keys = {0, 7}, .hole = {1, 3}, .select = &keeps, .adapter = 1},
    {.first = 3, .n = 3, .page = second_pages, .keys = {0, 3}, .adapter = -1, .canvas = true, .start = 0, .blend = 2}};
static const um_soft softs[] = {{1, 3, soft_ids, soft_weights, true}};
static const um_row rows[] = {
    {.src = {2}, .w = {1}, .edit = edits, .n_edit = 1, .allow = all_bits, .how = {.top_k = 3, .top_p = 1}, .n_top = 2},
    {.src = {-3, 5}, .w = {1.5f, -0.5f}, .how = {.top_p = 0.5f}, .blend = 5}};
static const int32_t saves[][2] = {{5, 2}};
static const um_batch batch = {.n_tokens = TOKENS,
                               .n_spans = 2,
                               .n_rows = 2,
                               .n_saves = 1,
                               .id = ids,
                               .pos = positions,
                               .slot = slots,
                               .seen_end = ends,
                               .span = spans,
                               .soft = softs,
                               .n_soft = 1,
                               .row = rows,
                               .save = saves};

static void the_other_ranks_find_the_batch_again(void **state) {
    um_remote *sender = um_remote_new(NULL, &net, &config, true, false),
              *receiver = um_remote_new(NULL, &net, &config, false, false);
    const um_batch *b;
    um_str message;
    um_err err = {0};
    (void)state;
    assert_int_equal(um_remote_pack(sender, &batch, &message, &err), UM_OK);
    if (um_remote_batch(receiver, message, &b, &err)) fail_msg("%s", err.msg);
    assert_int_equal(b->n_tokens, TOKENS);
    assert_memory_equal(b->id, ids, sizeof ids);
    assert_memory_equal(b->pos, positions, sizeof positions);
    assert_memory_equal(b->slot, slots, sizeof slots);
    assert_memory_equal(b->near_slot, slots, sizeof slots);
    assert_memory_equal(b->seen_end, ends, sizeof ends);
    assert_int_equal(b->n_spans, 2);
    for (int i = 0; i < 2; i++) {
        const um_span *s = &b->span[i], *want = &spans[i];
        assert_int_equal(s->first, want->first);
        assert_int_equal(s->n, want->n);
        assert_int_equal(s->keys.end, want->keys.end);
        assert_int_equal(s->hole.start, want->hole.start);
        assert_int_equal(s->hole.end, want->hole.end);
        assert_int_equal(s->adapter, want->adapter);
        assert_int_equal(s->canvas, want->canvas);
        assert_int_equal(s->blend, want->blend);
        assert_memory_equal(s->page, want->page, (size_t)UM_CEIL_DIV(want->keys.end, PAGE) * sizeof *s->page);
    }
    const um_kv_select *k = b->span[0].select;
    assert_non_null(k);
    assert_null(b->span[1].select);
    assert_int_equal(k->block.start, 4);
    assert_int_equal(k->n_keep, 5);
    assert_int_equal(k->pool, 3);
    assert_true(k->per_head);
    assert_memory_equal(k->page, kept_pages, sizeof kept_pages);
    assert_memory_equal(k->prior, prior, sizeof prior);
    assert_int_equal(b->n_soft, 1);
    assert_int_equal(b->soft[0].at, 1);
    assert_true(b->soft[0].renormalize);
    assert_memory_equal(b->soft[0].id, soft_ids, sizeof soft_ids);
    assert_memory_equal(b->soft[0].w, soft_weights, sizeof soft_weights);
    assert_int_equal(b->n_rows, 2);
    assert_int_equal(b->row[1].src[0], -3);
    assert_int_equal(b->row[1].src[1], 5);
    assert_memory_equal(b->row[1].w, rows[1].w, sizeof rows[1].w);
    assert_int_equal(b->row[1].blend, 5);
    assert_int_equal(b->n_saves, 1);
    assert_memory_equal(b->save, saves, sizeof saves);
    um_remote_free(sender);
    um_remote_free(receiver);
}

/* GPUs reduce the logits of their own ids, so they need all that a row asks for. */
static void rows_arrive_as_they_are_where_ranks_reduce_them(void **state) {
    static const um_edit own[] = {{9, -1, 2, false}, {3, 0, 0, true}};
    static const uint32_t bits[4] = {0x12345678u, 1, 2, 3};
    const um_row all[] = {{.src = {1},
                           .w = {1},
                           .edit = edits,
                           .n_edit = 1,
                           .own = own,
                           .n_own = 2,
                           .allow = bits,
                           .how = {.temperature = 0.5f, .top_p = 0.9f, .top_k = 4, .filters_first = true, .key = 77},
                           .want = UM_WANT_BEST | UM_WANT_PROB_OF,
                           .id = 42,
                           .n_top = 3},
                          {.src = {2}, .w = {1}, .edit = edits, .n_edit = 1, .allow = bits, .how = {.top_p = 1}},
                          {.src = {0}, .w = {1}, .how = {.temperature = 1, .top_p = 1, .min_p = 0.25f}, .blend = 1}};
    um_remote *sender = um_remote_new(NULL, &net, &config, true, true),
              *receiver = um_remote_new(NULL, &net, &config, false, true);
    um_batch b = batch;
    const um_batch *got;
    um_str message;
    um_err err = {0};
    (void)state;
    b.row = all;
    b.n_rows = UM_LEN(all);
    assert_int_equal(um_remote_pack(sender, &b, &message, &err), UM_OK);
    if (um_remote_batch(receiver, message, &got, &err)) fail_msg("%s", err.msg);
    assert_int_equal(got->n_rows, UM_LEN(all));
    for (size_t i = 0; i < UM_LEN(all); i++) {
        const um_row *r = &got->row[i], *want = &all[i];
        assert_int_equal(r->n_edit, want->n_edit);
        assert_int_equal(r->n_own, want->n_own);
        if (want->n_edit) assert_memory_equal(r->edit, edits, sizeof edits);
        if (want->n_own) assert_memory_equal(r->own, own, sizeof own);
        if (want->allow) assert_memory_equal(r->allow, bits, sizeof bits);
        else assert_null(r->allow);
        assert_memory_equal(&r->how, &want->how, sizeof r->how);
        assert_int_equal(r->want, want->want);
        assert_int_equal(r->id, want->id);
        assert_int_equal(r->n_top, want->n_top);
        assert_int_equal(r->blend, want->blend);
    }
    assert_ptr_equal(got->row[0].allow, got->row[1].allow); /* sent once */
    assert_ptr_equal(got->row[0].edit, got->row[1].edit);
    um_remote_free(sender);
    um_remote_free(receiver);
}

/* A bitmap is sent once. A later one takes the place that was used least recently. */
static void bitmaps_are_kept(void **state) {
    enum { BITMAPS = 40 }; /* there are 8 places */
    static uint32_t bits[BITMAPS][4];
    uint64_t number[BITMAPS] = {0};
    um_remote *sender = um_remote_new(NULL, &net, &config, true, true),
              *receiver = um_remote_new(NULL, &net, &config, false, true);
    um_row two[2] = {{.src = {1}, .w = {1}, .how = {.top_p = 1}}, {.src = {2}, .w = {1}, .how = {.top_p = 1}}};
    um_batch b = batch;
    size_t longest = 0, shortest = SIZE_MAX;
    (void)state;
    b.row = two;
    for (int i = 0; i < BITMAPS; i++) bits[i][0] = 1u + (uint32_t)i;
    for (uint64_t pass = 0; pass < 400; pass++) {
        const um_batch *got;
        um_str message;
        um_err err = {0};
        for (uint64_t k = 0; k < 2; k++) { /* mostly one of three */
            const uint64_t any = um_rng_u64(21, 2 * pass + k), n = any % 4 ? any % 3 : any / 4 % BITMAPS;
            two[k].allow = bits[n];
            two[k].allow_id = pass % 7 == 6 ? 0 : 100 + n; /* sometimes it has no number */
        }
        assert_int_equal(um_remote_pack(sender, &b, &message, &err), UM_OK);
        if (um_remote_batch(receiver, message, &got, &err)) fail_msg("pass %d: %s", (int)pass, err.msg);
        longest = UM_MAX(longest, message.n);
        shortest = UM_MIN(shortest, message.n);
        for (int k = 0; k < 2; k++) {
            const um_row *r = &got->row[k];
            assert_memory_equal(r->allow, two[k].allow, sizeof bits[0]);
            assert_int_equal(r->allow_id == 0, two[k].allow_id == 0);
            if (r->allow_id == 0) continue;
            for (int i = 0; i < BITMAPS; i++) /* a number has the same bits for ever */
                if (number[i] == r->allow_id) assert_memory_equal(bits[i], r->allow, sizeof bits[0]);
            number[two[k].allow_id - 100] = r->allow_id;
        }
        if (two[0].allow_id && two[0].allow_id == two[1].allow_id)
            assert_int_equal(got->row[0].allow_id, got->row[1].allow_id);
    }
    assert_true(longest - shortest == 2 * sizeof bits[0]); /* messages with two bitmaps and with none */
    um_remote_free(sender);
    um_remote_free(receiver);
}

/* Packs a batch with its edits and bitmaps. Returns the bytes. */
static size_t pack_all(const um_batch *b, char out[8192]) {
    const um_message_capacity k = {.n_tokens = TOKENS,
                                   .n_spans = 2,
                                   .n_tiles = um_message_tiles(b, 16),
                                   .n_rows = 2,
                                   .tile_tokens = 16,
                                   .vocab = VOCAB,
                                   .page_size = PAGE};
    memset(out, 0, 8192);
    assert_true(um_message_bound(b, &k) <= 8192);
    return um_message_pack(b, &k, NULL, out, 8192);
}

static void a_kept_batch_is_a_copy_with_answers_of_its_own(void **state) {
    static char want[8192], got[8192];
    um_kept_batch *k = um_kept_batch_new(&net, &config);
    um_answer answers[2] = {{.best = 1}, {.best = 2}};
    um_top top[2] = {{.id = 3}, {.id = 4}};
    um_row own[2] = {rows[0], rows[1]};
    um_batch b = batch;
    (void)state;
    own[0].top = top;
    b.row = own;
    b.answer = answers;
    const size_t n = pack_all(&b, want);
    for (int i = 0; i < 2; i++) { /* the second one uses the memory of the first */
        const um_batch *kept = um_kept_batch_take(k, &b);
        assert_int_equal(pack_all(kept, got), n);
        assert_memory_equal(got, want, n);
        assert_ptr_not_equal(kept->id, b.id);
        assert_ptr_not_equal(kept->span[0].page, b.span[0].page);
        assert_ptr_not_equal(kept->span[0].select->prior, prior);
        assert_ptr_not_equal(kept->soft[0].w, soft_weights);
        assert_ptr_not_equal(kept->row[0].allow, all_bits);
        assert_ptr_not_equal(kept->row[0].edit, edits);
        assert_ptr_not_equal(kept->save, saves);
        kept->answer[1].best = 10 + i;
        kept->row[0].top[1].id = 20 + i;
        assert_int_equal(answers[1].best, i ? 10 : 2);
        um_kept_batch_answer(k, &b);
        assert_int_equal(answers[0].best, 1);
        assert_int_equal(answers[1].best, 10 + i);
        assert_int_equal(top[1].id, 20 + i);
    }
    um_kept_batch_free(k);
}

/* Checks that a batch stays within the sizes of passes. */
static void check_batch(const um_batch *b) {
    uint64_t sum = 0;
    int32_t n = 0;
    assert_in_range(b->n_tokens, 0, config.max_tokens);
    for (int32_t t = 0; t < b->n_tokens; t++) {
        assert_in_range(b->id[t], 0, VOCAB - 1);
        assert_true(b->slot[t] >= -1 && b->slot[t] < 12 * PAGE);
    }
    for (int32_t i = 0; i < b->n_spans; n += b->span[i++].n) {
        const int32_t blend = b->span[i].blend;
        assert_int_equal(b->span[i].first, n);
        assert_true(b->span[i].adapter >= -1 && b->span[i].adapter < ADAPTERS);
        assert_true(blend == 0 || (blend > 0 && blend - 1 + b->span[i].n <= config.n_blends));
        for (int32_t p = 0; p < UM_CEIL_DIV(b->span[i].keys.end, PAGE); p++)
            assert_true(b->span[i].page[p] >= -1 && b->span[i].page[p] < 12);
    }
    assert_int_equal(n, b->n_tokens);
    for (int32_t i = 0; i < b->n_rows; i++) {
        const um_row *r = &b->row[i];
        assert_true(r->src[0] >= -3 && r->src[0] < b->n_tokens);
        assert_in_range(r->n_top, 0, UM_TOP_MAX);
        for (int32_t k = 0; k < r->n_edit; k++) assert_in_range(r->edit[k].id, 0, VOCAB - 1);
        for (int32_t k = 0; k < r->n_own; k++) assert_in_range(r->own[k].id, 0, VOCAB - 1);
        if (r->allow) sum += r->allow[3];
    }
    assert_true(sum < UINT64_MAX); /* all bitmaps can be read */
}

static void check_damaged_messages(bool whole) {
    um_remote *sender = um_remote_new(NULL, &net, &config, true, whole),
              *receiver = um_remote_new(NULL, &net, &config, false, whole);
    const um_batch *b;
    um_str message;
    um_err err = {0};
    int n_refused = 0;
    assert_int_equal(um_remote_pack(sender, &batch, &message, &err), UM_OK);
    for (size_t n = 0; n < message.n; n += 4) { /* in memory of just this size */
        char *cut = um_alloc(n + 1);
        memcpy(cut, message.p, n);
        assert_int_equal(um_remote_batch(receiver, (um_str){cut, n}, &b, &err), UM_EPARSE);
        um_free(cut);
    }
    for (uint64_t i = 0; i < 20000; i++) {
        char *copy = um_alloc(message.n);
        memcpy(copy, message.p, message.n);
        for (uint64_t k = 0; k <= i % 3; k++) copy[um_rng_u64(i, 2 * k) % message.n] = (char)um_rng_u64(i, 2 * k + 1);
        if (um_remote_batch(receiver, (um_str){copy, message.n}, &b, &err)) n_refused++;
        else check_batch(b);
        um_free(copy);
    }
    assert_true(n_refused > 1000);
    um_remote_free(sender);
    um_remote_free(receiver);
}

static void damaged_messages_are_refused_or_harmless(void **state) {
    (void)state;
    check_damaged_messages(false);
    check_damaged_messages(true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_other_ranks_find_the_batch_again),
        cmocka_unit_test(rows_arrive_as_they_are_where_ranks_reduce_them),
        cmocka_unit_test(bitmaps_are_kept),
        cmocka_unit_test(a_kept_batch_is_a_copy_with_answers_of_its_own),
        cmocka_unit_test(damaged_messages_are_refused_or_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
