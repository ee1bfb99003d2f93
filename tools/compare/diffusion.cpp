// Times the denoising loop of llama.cpp's diffusion example (examples/diffusion/diffusion.cpp, diffusion_generate).
//
//   diffusion MODEL.gguf THREADS ANSWER STEPS ID...      fills ANSWER masks behind the tokens ID...
//
// llama-diffusion-cli does the same, but needs all of llama.cpp's common library, whose compilation takes longer than
// that of llama.cpp itself. It also takes a text only, so its number of masks depends on a template. The loop prints its
// own times. This program prints "MILLISECONDS TOKENS": the time of the whole loop and the tokens that it has written.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "diffusion.h"
#include "llama.h"

static int fail(const char * what) {
    fprintf(stderr, "diffusion: %s\n", what);
    return 1;
}

static int run(llama_context * ctx, const llama_model * model, std::vector<llama_token> ids, int answer, int steps) {
    const llama_token mask = llama_vocab_mask(llama_model_get_vocab(model));
    diffusion_params p;
    std::vector<llama_token> out(ids.size() + (size_t)answer);
    char shift[8] = "true"; // as in llama-diffusion-cli
    llama_model_meta_val_str(model, "diffusion.shift_logits", shift, sizeof shift);
    if (mask == LLAMA_TOKEN_NULL) return fail("the model has no mask token");
    p.steps = steps;
    p.mask_token_id = mask;
    p.shift_logits = shift[0] == 't';
    p.eps = 0.001f;
    p.top_k = 40;
    p.top_p = 0.95f;
    p.max_length = (int32_t)out.size();
    int32_t n = 0;
    const int64_t begin = llama_time_us();
    diffusion_generate(ctx, ids.data(), out.data(), (int32_t)ids.size(), p, n);
    const double ms = (double)(llama_time_us() - begin) / 1000;
    int written = 0;
    for (size_t i = ids.size(); i < out.size(); i++) written += out[i] != mask;
    printf("%.3f %d\n", ms, written);
    return n > 0 ? 0 : fail("the loop failed");
}

int main(int argc, char ** argv) {
    std::vector<llama_token> ids;
    if (argc < 6) return fail("expected MODEL.gguf THREADS ANSWER STEPS ID...");
    const int threads = atoi(argv[2]), answer = atoi(argv[3]), steps = atoi(argv[4]);
    for (int i = 5; i < argc; i++) ids.push_back(atoi(argv[i]));
    llama_backend_init();
    llama_model_params mp = llama_model_default_params();
    mp.load_mode = LLAMA_LOAD_MODE_NONE; // reads the file, so that no pass waits for pages of it
    llama_model * model = llama_model_load_from_file(argv[1], mp);
    if (!model) return fail("the model can't be loaded");
    llama_context_params cp = llama_context_default_params();
    cp.n_ctx = cp.n_batch = cp.n_ubatch = (uint32_t)(ids.size() + (size_t)answer);
    cp.n_threads = cp.n_threads_batch = threads;
    llama_context * ctx = llama_init_from_model(model, cp);
    if (!ctx) return fail("no context");
    // The first pass allocates memory, so one pass is run before the measurement.
    fprintf(stderr, "warm-up\n");
    if (run(ctx, model, ids, answer, 1)) return 1;
    llama_memory_clear(llama_get_memory(ctx), false);
    fprintf(stderr, "measured\n");
    const int code = run(ctx, model, ids, answer, steps);
    llama_free(ctx);
    llama_model_free(model);
    return code;
}
