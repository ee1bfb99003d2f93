/* Measures the speed of the tokenizers. Prints numbers; there is no pass or fail.
 *
 *   text_bench [folder]        (default: build/data/tokenizers)
 *
 * It measures um_tok_open with its files in the page cache; um_tok_encode of a text of about 1 MiB, including
 * validation and normalization; um_tok_decode of all ids; um_stream_push of each id. It uses one thread. A result is
 * the median of several windows (timing.c), with the slowest and the fastest in brackets. MB/s counts bytes of text,
 * Mid/s millions of ids.
 *
 * English and code are repeated documents and sources of this repository. Chinese is a random sequence of the Chinese
 * tokens of the vocabulary, with punctuation; frequent tokens occur more often. */
#include <dirent.h>
#include <stdlib.h>

#include "bench.h"
#include "text/tok.h"

enum { WINDOWS = 7 };
#define WINDOW_SECONDS 0.06

enum { TEXT_BYTES = 1 << 20 };

static void stop(const char *what) {
    fprintf(stderr, "text_bench: %s\n", what);
    exit(1);
}

static void report(const char *family, const char *name, void (*op)(void *arg, int round), void *arg, double amount,
                   const char *unit) {
    um_measured t;
    um_measure(&(um_measure_task){op, arg}, 1, WINDOWS, WINDOW_SECONDS, &t);
    printf("%-15s %-22s %10.2f ms %9.1f %s [%.1f..%.1f]\n", family, name, t.median * 1e3, amount / t.median, unit,
           amount / t.max, amount / t.min);
    fflush(stdout);
}

/* ---- Texts ------------------------------------------------------------------------------------------------------- */

static void fill_files(um_buf *out, const char *pattern) {
    char command[256];
    snprintf(command, sizeof command, "cat %s", pattern);
    FILE *f = popen(command, "r");
    char block[4096];
    for (size_t n; f && (n = fread(block, 1, sizeof block, f)) > 0;) um_buf_append(out, block, n);
    if (!f || pclose(f) || out->len == 0) stop("run it in the repository: README.md and src are its texts");
    um_str once = {um_strndup(out->data, out->len), out->len};
    while (out->len < TEXT_BYTES) um_buf_append(out, once.p, once.n);
    um_free((char *)(uintptr_t)once.p);
}

static void fill_repeated(um_buf *out, const char *s) {
    while (out->len < TEXT_BYTES) um_buf_puts(out, s);
}

static void fill_digits(um_buf *out) {
    for (uint64_t i = 0; out->len < TEXT_BYTES; i++)
        um_buf_printf(out, "%llu%s", (unsigned long long)(um_rng_u64(1, i) % 1000000), i % 8 ? ", " : "\n");
}

static void fill_spaces(um_buf *out) {
    static const char *const runs[] = {" ", "\n", "    ", "\t\t", "        ", "\n\n", "                "};
    for (uint64_t i = 0; out->len < TEXT_BYTES; i++) um_buf_puts(out, runs[um_rng_u64(2, i) % UM_LEN(runs)]);
}

/* Appends random Latin-1 characters: almost no piece occurs twice, and almost none is a token. */
static void fill_noise(um_buf *out) {
    for (uint64_t i = 0; out->len < TEXT_BYTES; i++) {
        char c[4];
        um_buf_append(out, c, (size_t)um_utf8_put((uint32_t)(um_rng_u64(3, i) & 0xFF), c));
    }
}

static bool is_chinese(um_str s) {
    int len;
    if (s.n == 0 || um_utf8_check(s.p, s.n) < s.n) return false;
    for (size_t i = 0; i < s.n; i += (size_t)len) {
        uint32_t cp = um_cp_at(s.p + i, s.n - i, &len);
        if (cp < 0x4E00 || cp > 0x9FFF) return false;
    }
    return true;
}

static void fill_chinese(const um_tok *t, um_buf *out) {
    um_ids ids = {0};
    for (int32_t id = 0; id < um_tok_size(t); id++)
        if (is_chinese(um_tok_bytes(t, id))) um_ids_push(&ids, id);
    if (ids.n == 0) stop("a vocabulary without Chinese");
    for (uint64_t i = 0; out->len < TEXT_BYTES; i++) {
        double u = um_rng_uniform(4, i);
        um_str s = um_tok_bytes(t, ids.data[(size_t)(u * u * u * (double)ids.n)]); /* low ids are frequent tokens */
        um_buf_append(out, s.p, s.n);
        if (um_rng_u64(5, i) % 9 == 0) um_buf_puts(out, i % 3 ? "\xEF\xBC\x8C" : "\xE3\x80\x82");
    }
    um_ids_free(&ids);
}

static void fill_mixed(const um_buf *part, size_t n, um_buf *out) {
    for (size_t at = 0; out->len < TEXT_BYTES; at += 3000)
        for (size_t i = 0; i < n; i++) {
            um_str s = {part[i].data + at % (part[i].len - 4000), 3000};
            while (((uint8_t)*s.p & 0xC0) == 0x80) s = (um_str){s.p + 1, s.n - 1};
            while (((uint8_t)s.p[s.n] & 0xC0) == 0x80) s.n--;
            um_buf_append(out, s.p, s.n);
        }
}

/* ---- One tokenizer ----------------------------------------------------------------------------------------------- */

typedef struct bench {
    const char *dir;
    const um_tok *tok;
    um_str text;
    um_ids ids;
    um_buf out;
} bench;

static void run_open(void *arg, int round) {
    (void)round;
    um_tok *t;
    um_err err;
    if (um_tok_open(&t, ((const bench *)arg)->dir, &err)) stop(err.msg);
    um_tok_close(t);
}

static void run_encode(void *arg, int round) {
    (void)round;
    bench *b = (bench *)arg;
    um_err err;
    b->ids.n = 0;
    if (um_tok_encode(b->tok, b->text, UM_PARSE_ALL, false, &b->ids, &err)) stop(err.msg);
}

static void run_decode(void *arg, int round) {
    (void)round;
    bench *b = (bench *)arg;
    um_buf_clear(&b->out);
    um_tok_decode(b->tok, b->ids.data, b->ids.n, true, &b->out);
}

static void run_stream(void *arg, int round) {
    (void)round;
    bench *b = (bench *)arg;
    um_stream s;
    um_buf_clear(&b->out);
    um_stream_init(&s, b->tok, true);
    for (size_t i = 0; i < b->ids.n; i++) um_stream_push(&s, b->ids.data[i], &b->out);
    um_stream_flush(&s, &b->out);
}

enum { ENGLISH, CHINESE, CODE, DIGITS, SPACES, NOISE, ONE_LETTER, MIXED, SHORT, N_TEXTS };
static const char *const text_names[N_TEXTS] = {"english",       "chinese",     "code",
                                                "digits",        "white space", "random Latin-1",
                                                "one 1 MiB run", "mixed",       "english, 1 KiB"};

static void fill_texts(const um_tok *t, um_buf text[N_TEXTS]) {
    fill_files(&text[ENGLISH], "README.md CONTRIBUTING.md docs/*.md");
    fill_chinese(t, &text[CHINESE]);
    fill_files(&text[CODE], "src/*/*.c");
    fill_digits(&text[DIGITS]);
    fill_spaces(&text[SPACES]);
    fill_noise(&text[NOISE]);
    fill_repeated(&text[ONE_LETTER], "a");
    fill_mixed(text, DIGITS + 1, &text[MIXED]);
    um_buf_append(&text[SHORT], text[ENGLISH].data, 1024);
    text[SHORT].len = um_utf8_check(text[SHORT].data, text[SHORT].len);
}

static void bench_folder(const char *name, const char *dir) {
    um_tok *t;
    um_err err;
    um_buf text[N_TEXTS];
    memset(text, 0, sizeof text);
    if (um_tok_open(&t, dir, &err)) stop(err.msg);
    bench b = {.dir = dir, .tok = t};
    report(name, "open", run_open, &b, 1, "/s");
    fill_texts(t, text);
    for (int i = 0; i < N_TEXTS; i++) {
        char row[64];
        b.text = (um_str){text[i].data, text[i].len};
        snprintf(row, sizeof row, "encode %s", text_names[i]);
        report(name, row, run_encode, &b, (double)b.text.n * 1e-6, "MB/s");
    }
    b.text = (um_str){text[MIXED].data, text[MIXED].len};
    run_encode(&b, 0);
    report(name, "decode mixed", run_decode, &b, (double)b.ids.n * 1e-6, "Mid/s");
    report(name, "stream mixed", run_stream, &b, (double)b.ids.n * 1e-6, "Mid/s");
    for (int i = 0; i < N_TEXTS; i++) um_buf_free(&text[i]);
    um_ids_free(&b.ids);
    um_buf_free(&b.out);
    um_tok_close(t);
}

/* ---- Folders ----------------------------------------------------------------------------------------------------- */

static bool has_file(const char *dir, const char *name) {
    char *path = um_path_join(dir, name);
    bool yes = um_file_exists(path);
    um_free(path);
    return yes;
}

/* Measures the tokenizer of a folder. Skips folders without a vocabulary. */
static void bench_vocabulary(const char *data, const char *name) {
    char *dir = um_path_join(data, name);
    if (has_file(dir, "tokenizer.json") || has_file(dir, "vocab.json")) bench_folder(name, dir);
    um_free(dir);
}

int main(int argc, char **argv) {
    const char *data = argc > 1 ? argv[1] : "build/data/tokenizers";
    struct dirent **entry;
    int n = scandir(data, &entry, NULL, alphasort);
    if (n < 0) stop("the folder can't be read");
    printf("%s; one thread\n", um_bench_machine());
    printf("%-15s %-22s %10s    %s\n", "tokenizer", "what", "median", "rate: median [worst..best]");
    for (int i = 0; i < n; i++) {
        if (entry[i]->d_name[0] != '.') bench_vocabulary(data, entry[i]->d_name);
        free(entry[i]);
    }
    free(entry);
    return 0;
}
