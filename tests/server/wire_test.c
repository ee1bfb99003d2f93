/* The wire format: compares every message with the bytes in tests/server/golden and the description in docs/wire.md.
 * Truncated, corrupted and unaligned frames are read or rejected without reading beyond them. UM_UPDATE=1 rewrites the
 * golden files, and the same frames as seeds of tests/fuzz/wire_fuzz.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "server/link/wire_table.h"
#include "server/wire_samples.h"
#include "server/worker/worker.h"

static bool updates(void) { return getenv("UM_UPDATE") != NULL; }

static void write_file(const char *path, const um_buf *b) {
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_int_equal(fwrite(b->data, 1, b->len, f), b->len);
    assert_int_equal(fclose(f), 0);
}

static void read_text_file(const char *path, um_buf *out) {
    um_err err;
    if (um_file_read(path, 1 << 20, out, &err)) fail_msg("%s; UM_UPDATE=1 writes it", err.msg);
}

/* Copies a frame into a block of exactly its size, so that a sanitizer notices reads beyond it. */
static um_str in_own_block(um_str frame, size_t n, char **block) {
    *block = (char *)um_alloc(n ? n : 1);
    memcpy(*block, frame.p, n);
    return (um_str){*block, n};
}

/* ---- Equal messages ---------------------------------------------------------------------------------------------- */

static void same_numbers(const um_wire_field *f, const void *a, const void *b, uint32_t n) {
    if (n) assert_memory_equal(a, b, n * um_wire_bytes(f->kind));
}

static void same_text(um_str a, um_str b) {
    assert_int_equal(a.n, b.n);
    if (a.n) assert_memory_equal(a.p, b.p, a.n);
}

static void same_many(const um_wire_field *f, const void *a, const void *b, uint32_t n) {
    for (uint32_t i = 0; i < n && f->kind == UM_WIRE_TEXTS; i++)
        same_text(((const um_str *)a)[i], ((const um_str *)b)[i]);
    for (uint32_t i = 0; i < n && f->kind == UM_WIRE_PAIRS; i++) {
        same_text(((const um_pair *)a)[i].name, ((const um_pair *)b)[i].name);
        same_text(((const um_pair *)a)[i].value, ((const um_pair *)b)[i].value);
    }
    if (um_wire_bytes(f->kind)) same_numbers(f, a, b, n);
}

static void same(const um_msg *a, const um_msg *b) {
    const um_wire_layout *l = um_wire_layout_find(a->type);
    assert_int_equal(a->type, b->type);
    assert_int_equal(a->worker, b->worker);
    assert_int_equal(a->incarnation, b->incarnation);
    for (size_t i = 0; i < l->n_fields; i++) {
        const um_wire_field *f = &l->fields[i];
        const char *x = (const char *)&a->generate, *y = (const char *)&b->generate;
        uint32_t n = *(const uint32_t *)(x + f->count_offset);
        x += f->offset, y += f->offset;
        if (f->count) same_many(f, *(const void *const *)x, *(const void *const *)y, n);
        else if (f->kind == UM_WIRE_TEXT) same_text(*(const um_str *)x, *(const um_str *)y);
        else same_numbers(f, x, y, 1);
    }
}

static void read_same(const um_msg *m, um_str frame) {
    um_arena arena;
    um_msg got;
    um_err err;
    um_arena_init(&arena, 0);
    if (um_wire_read(&got, &arena, frame, &err)) fail_msg("%s", err.msg);
    same(m, &got);
    um_arena_free(&arena);
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

static void every_type_has_a_sample_and_every_array_its_count(void **state) {
    (void)state;
    assert_int_equal(um_n_wire_layouts, UM_LEN(wire_samples));
    for (size_t i = 0; i < um_n_wire_layouts; i++) {
        const um_wire_layout *l = &um_wire_layouts[i];
        assert_int_equal(wire_samples[i].type, l->type);
        assert_ptr_equal(um_wire_layout_find(l->type), l);
        for (size_t k = 0; k < l->n_fields; k++) {
            bool is_counted = !l->fields[k].count;
            for (size_t c = 0; c < k; c++)
                is_counted |= l->fields[c].kind == UM_WIRE_U32 && um_streq(l->fields[c].name, l->fields[k].count) &&
                              l->fields[c].offset == l->fields[k].count_offset;
            if (!is_counted) fail_msg("%s: the count of %s is not in front of it", l->name, l->fields[k].name);
        }
    }
}

/* ---- Bytes ------------------------------------------------------------------------------------------------------- */

static void put_hex(um_buf *out, um_str frame) {
    for (size_t i = 0; i < frame.n; i++)
        um_buf_printf(out, "%02x%s", (unsigned char)frame.p[i], i % 16 == 15 || i + 1 == frame.n ? "\n" : " ");
}

static void every_message_has_its_bytes(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(wire_samples); i++) {
        char path[128];
        um_buf frame = {0}, hex = {0}, golden = {0};
        snprintf(path, sizeof path, "tests/server/golden/%s.hex", um_msg_name(wire_samples[i].type));
        um_wire_write(&frame, &wire_samples[i]);
        put_hex(&hex, (um_str){frame.data, frame.len});
        if (updates()) write_file(path, &hex);
        read_text_file(path, &golden);
        if (!um_streq(hex.data, golden.data)) fail_msg("%s: expected\n%sfound\n%s", path, golden.data, hex.data);
        read_same(&wire_samples[i], (um_str){frame.data, frame.len});
        um_buf_free(&frame);
        um_buf_free(&hex);
        um_buf_free(&golden);
    }
}

/* The fuzzer begins with these frames. Those of another version would be rejected at once. */
static void every_message_is_a_seed_of_the_fuzzer(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(wire_samples); i++) {
        char path[128];
        um_buf frame = {0}, seed = {0};
        snprintf(path, sizeof path, "tests/fuzz/corpus/wire/%s", um_msg_name(wire_samples[i].type));
        um_wire_write(&frame, &wire_samples[i]);
        if (updates()) write_file(path, &frame);
        read_text_file(path, &seed);
        if (seed.len != frame.len || memcmp(seed.data, frame.data, frame.len))
            fail_msg("%s differs from the frame; UM_UPDATE=1 rewrites it", path);
        um_buf_free(&frame);
        um_buf_free(&seed);
    }
}

/* The frame is not aligned for its numbers, as may happen in a socket's buffer. */
static void a_frame_may_lie_anywhere(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(wire_samples); i++) {
        um_buf frame = {0};
        um_wire_write(&frame, &wire_samples[i]);
        char *moved = (char *)um_alloc(frame.len + 8);
        for (size_t by = 0; by < 8; by++) {
            memcpy(moved + by, frame.data, frame.len);
            read_same(&wire_samples[i], (um_str){moved + by, frame.len});
        }
        um_free(moved);
        um_buf_free(&frame);
    }
}

static void a_message_without_anything_is_read(void **state) {
    (void)state;
    for (size_t i = 0; i < um_n_wire_layouts; i++) {
        um_buf frame = {0};
        const um_msg m = {.type = um_wire_layouts[i].type};
        um_wire_write(&frame, &m);
        read_same(&m, (um_str){frame.data, frame.len});
        um_buf_free(&frame);
    }
}

/* ---- Bad frames -------------------------------------------------------------------------------------------------- */

static um_status read_frame(um_str frame, um_err *err) {
    um_arena arena;
    um_msg m;
    um_arena_init(&arena, 0);
    memset(err, 0, sizeof *err);
    um_status st = um_wire_read(&m, &arena, frame, err);
    um_arena_free(&arena);
    return st;
}

static void set_length(char *frame, size_t n) {
    for (int i = 0; i < 4; i++) frame[8 + i] = (char)(n >> (8 * i));
}

/* Tests truncated frames with the original length in the header, and with the truncated one. */
static void a_frame_that_is_cut_is_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(wire_samples); i++) {
        um_buf frame = {0};
        um_err err;
        um_wire_write(&frame, &wire_samples[i]);
        for (size_t n = 0; n < frame.len; n++) {
            char *block;
            um_str cut = in_own_block((um_str){frame.data, frame.len}, n, &block);
            assert_int_equal(read_frame(cut, &err), UM_EPARSE);
            if (n >= UM_WIRE_HEAD) {
                set_length(block, n);
                assert_int_equal(read_frame(cut, &err), UM_EPARSE);
                assert_non_null(strstr(err.msg, um_msg_name(wire_samples[i].type)));
            }
            um_free(block);
        }
        um_buf_append(&frame, "", 1);
        set_length(frame.data, frame.len);
        assert_int_equal(read_frame((um_str){frame.data, frame.len}, &err), UM_EPARSE);
        um_buf_free(&frame);
    }
}

/* A changed byte gives another message or an error. A message that is read is written as the same bytes again. */
static void a_frame_that_is_changed_is_another_or_refused(void **state) {
    (void)state;
    static const unsigned char masks[] = {0x01, 0x80, 0xFF};
    for (size_t i = 0; i < UM_LEN(wire_samples); i++) {
        um_buf frame = {0}, again = {0};
        um_wire_write(&frame, &wire_samples[i]);
        for (size_t at = 0; at < frame.len * UM_LEN(masks); at++) {
            um_arena arena;
            um_msg m;
            char *block;
            um_str changed = in_own_block((um_str){frame.data, frame.len}, frame.len, &block);
            um_arena_init(&arena, 0);
            block[at / UM_LEN(masks)] ^= (char)masks[at % UM_LEN(masks)];
            if (um_wire_read(&m, &arena, changed, NULL) == UM_OK) {
                um_buf_clear(&again);
                um_wire_write(&again, &m);
                assert_int_equal(again.len, changed.n);
                assert_memory_equal(again.data, changed.p, changed.n);
            }
            um_arena_free(&arena);
            um_free(block);
        }
        um_buf_free(&frame);
        um_buf_free(&again);
    }
}

static void an_error_says_what_was_found(void **state) {
    (void)state;
    static const struct {
        um_msg_type type;
        size_t at;
        unsigned char byte;
        const char *says;
    } cases[] = {
        {UM_MSG_PING, 0, 'X', "begins with 58"},
        {UM_MSG_PING, 4, 9, "version 9, expected 8"},
        {UM_MSG_PING, 6, 99, "unknown type 99"},
        {UM_MSG_PING, 8, 25, "says 25 bytes, but the frame has 24"},
        {UM_MSG_GENERATE, 56, 2, "keep_special at byte 56 is 2, expected 0 or 1"},
        {UM_MSG_GENERATE, 57, 1, "byte 57 before field n_ids is 1, expected 0"},
        {UM_MSG_GENERATE, 63, 0x7F, "field ids"},
        {UM_MSG_HELLO, 28, 0xFF, "version is not UTF-8 at byte 28"},
        {UM_MSG_FINISH, 28, 77, "finish is 77"},
        {UM_MSG_LOADING, 23, 0x80, "expected 0..bytes_all, 4100000000"},
        {UM_MSG_LOADING, 21, 1, "bytes is 1100711627776, expected 0..bytes_all, 4100000000"},
    };
    for (size_t i = 0; i < UM_LEN(cases); i++) {
        um_err err;
        um_buf frame = {0};
        for (size_t k = 0; k < UM_LEN(wire_samples); k++)
            if (wire_samples[k].type == cases[i].type) um_wire_write(&frame, &wire_samples[k]);
        frame.data[cases[i].at] = (char)cases[i].byte;
        assert_int_equal(read_frame((um_str){frame.data, frame.len}, &err), UM_EPARSE);
        if (!strstr(err.msg, cases[i].says)) fail_msg("expected \"%s\" in: %s", cases[i].says, err.msg);
        um_buf_free(&frame);
    }
}

static void arrays_that_belong_together_are_checked(void **state) {
    (void)state;
    um_msg likeliest = {
        .type = UM_MSG_FINISH,
        .finish = {.n_likeliest_all = 4, .likeliest = sample_floats, .likeliest_id = sample_ids, .n_likeliest = 3}};
    um_msg logprobs = {.type = UM_MSG_FINISH, .finish = {.n_logprob = 2, .logprob = sample_floats}};
    um_msg text_likeliest = {
        .type = UM_MSG_TEXT,
        .text = {.n_likeliest_all = 4, .likeliest = sample_floats, .likeliest_id = sample_ids, .n_likeliest = 3}};
    um_msg text_logprobs = {.type = UM_MSG_TEXT, .text = {.n_logprob = 2, .logprob = sample_floats}};
    um_msg text_ends = {.type = UM_MSG_TEXT, .text = {.ids = sample_ids, .text_end = sample_passes, .n_ids = 4}};
    um_msg negative_end = {.type = UM_MSG_TEXT, .text = {.ids = sample_ids, .text_end = sample_passes + 3, .n_ids = 1}};
    um_msg ends = {.type = UM_MSG_FINISH,
                   .finish = {.ids = sample_ids, .pass = sample_passes, .text_end = sample_passes, .n_ids = 4}};
    um_msg buckets = {.type = UM_MSG_STATS, .stats = {.n_decode_step = 2, .decode_step = sample_counts}};
    const uint8_t wrong = UM_TOKEN_SETTLED + 1;
    um_msg states = {
        .type = UM_MSG_SNAPSHOT,
        .snapshot = {.n = 1, .ids = sample_ids, .state = &wrong, .pass = sample_passes, .confidence = sample_floats}};
    const um_msg *const cases[] = {&likeliest, &logprobs,       &buckets,       &states,      &ends,
                                   &text_ends, &text_likeliest, &text_logprobs, &negative_end};
    for (size_t i = 0; i < UM_LEN(cases); i++) {
        um_err err;
        um_buf frame = {0};
        um_wire_write(&frame, cases[i]);
        assert_int_equal(read_frame((um_str){frame.data, frame.len}, &err), UM_EPARSE);
        um_buf_free(&frame);
    }
}

/* ---- docs/wire.md ------------------------------------------------------------------------------------------------ */

static const char *type_name(um_wire_kind kind) {
    switch (kind) {
#define UM_X(kind, type, bytes)                                                                                        \
    case kind: return type;
        UM_WIRE_KIND_MAP(UM_X)
#undef UM_X
    }
    return "";
}

static void put_fields(const um_wire_layout *l, um_buf *out) {
    um_buf_printf(out, "\n## %d: %s\n\n%c%s.\n", l->type, l->name, l->summary[0] - 'a' + 'A', l->summary + 1);
    if (l->n_fields) um_buf_puts(out, "\n| field | type |\n| --- | --- |\n");
    for (size_t i = 0; i < l->n_fields; i++) {
        const um_wire_field *f = &l->fields[i];
        um_buf_printf(out, "| %s | %s", f->name, type_name(f->kind));
        if (f->count) um_buf_printf(out, " [%s]", f->count);
        um_buf_puts(out, " |\n");
    }
}

static void put_utilities(um_buf *out) {
    um_buf_puts(out,
                "\n## Utilities\n\nThe functions that `call` can run:\n\n| name | args | |\n| --- | --- | --- |\n");
    for (const um_utility *const *u = um_utilities; *u; u++) {
        um_buf_printf(out, "| %s | ", (*u)->name);
        for (const char *p = (*u)->args; *p; p++) um_buf_printf(out, *p == '|' ? "\\%c" : "%c", *p);
        um_buf_printf(out, " | %s |\n", (*u)->summary);
    }
}

/* The page from the heading of the first message on is generated from the tables. */
static void the_description_is_the_table(void **state) {
    (void)state;
    um_buf file = {0}, fields = {0};
    for (size_t i = 0; i < um_n_wire_layouts; i++) put_fields(&um_wire_layouts[i], &fields);
    put_utilities(&fields);
    read_text_file("docs/wire.md", &file);
    char *begin = strstr(file.data, "\n## 1: ");
    if (begin) *begin = '\0', file.len = (size_t)(begin - file.data);
    um_buf whole = {0};
    um_buf_puts(&whole, file.data);
    um_buf_puts(&whole, fields.data);
    if (updates()) write_file("docs/wire.md", &whole);
    um_buf_clear(&file);
    read_text_file("docs/wire.md", &file);
    assert_string_equal(file.data, whole.data);
    um_buf_free(&file);
    um_buf_free(&fields);
    um_buf_free(&whole);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_has_a_sample_and_every_array_its_count),
        cmocka_unit_test(every_message_has_its_bytes),
        cmocka_unit_test(every_message_is_a_seed_of_the_fuzzer),
        cmocka_unit_test(a_frame_may_lie_anywhere),
        cmocka_unit_test(a_message_without_anything_is_read),
        cmocka_unit_test(a_frame_that_is_cut_is_refused),
        cmocka_unit_test(a_frame_that_is_changed_is_another_or_refused),
        cmocka_unit_test(an_error_says_what_was_found),
        cmocka_unit_test(arrays_that_belong_together_are_checked),
        cmocka_unit_test(the_description_is_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
