// Stock llama.cpp and libmtmd behind a few C functions, for the benchmarks.
//
// A picture takes libmtmd's own way: its helpers decode the text before it, the picture and the
// text after it one after the other. The mean is taken over all hidden states. All functions
// return nullptr or a negative number on failure; the reason is in the log on stderr.

#include "ggml.h"
#include "llama.h"
#include "mtmd-helper.h"
#include "mtmd.h"

#include <algorithm>
#include <string>
#include <vector>

namespace {

void log_errors(ggml_log_level level, const char * text, void *) {
    if (level == GGML_LOG_LEVEL_ERROR) {
        fputs(text, stderr);
    }
}

struct stock {
    llama_model   * model   = nullptr;
    llama_context * context = nullptr;
    mtmd_context  * vision  = nullptr;

    ~stock() {
        if (vision)  { mtmd_free(vision); }
        if (context) { llama_free(context); }
        if (model)   { llama_model_free(model); }
    }
};

struct mean_of {
    llama_context * context;
    float         * sum;
    int             n_embd;
    int             n_rows = 0;

    int add(int n) {
        const float * states = llama_get_embeddings(context);
        if (!states) {
            return -1;
        }
        for (int i = 0; i < n; i++) {
            for (int k = 0; k < n_embd; k++) {
                sum[k] += states[(size_t) i*n_embd + k];
            }
        }
        n_rows += n;
        return 0;
    }

    void finish() {
        for (int k = 0; k < n_embd; k++) {
            sum[k] /= n_rows;
        }
    }
};

int32_t take_rows(const mtmd_helper_embd_batch * batch, void * user_data) {
    return ((mean_of *) user_data)->add(batch->n_tokens);
}

double seconds_since(int64_t start_us) {
    return (ggml_time_us() - start_us)/1e6;
}

}

extern "C" {

// n_batch, n_ubatch: 0 for llama.cpp's defaults
void * stock_open(const char * model, const char * mmproj, int n_threads, int n_ctx, int n_batch, int n_ubatch, int n_seq_max) {
    llama_log_set(log_errors, nullptr);
    mtmd_helper_log_set(log_errors, nullptr);
    llama_backend_init();
    auto * s = new stock();
    s->model = llama_model_load_from_file(model, llama_model_default_params());
    if (!s->model) {
        delete s;
        return nullptr;
    }
    llama_context_params params = llama_context_default_params();
    params.n_ctx        = n_ctx;
    params.n_batch      = n_batch  ? n_batch  : params.n_batch;
    params.n_ubatch     = n_ubatch ? n_ubatch : params.n_ubatch;
    params.n_seq_max    = n_seq_max;
    params.kv_unified   = true;
    params.n_threads    = params.n_threads_batch = n_threads;
    params.embeddings   = true;
    params.pooling_type = LLAMA_POOLING_TYPE_NONE;
    s->context = llama_init_from_model(s->model, params);
    mtmd_context_params vision = mtmd_context_params_default();
    vision.n_threads        = n_threads;
    vision.print_timings    = false;
    vision.warmup           = false;
    vision.image_min_tokens = 1;
    vision.image_max_tokens = 1 << 16;
    s->vision = mtmd_init_from_file(mmproj, s->model, vision);
    if (!s->context || !s->vision) {
        delete s;
        return nullptr;
    }
    return s;
}

void stock_close(void * handle) {
    delete (stock *) handle;
}

int stock_n_embd(void * handle) {
    return llama_model_n_embd_out(((stock *) handle)->model);
}

const char * stock_system_info(void) {
    return llama_print_system_info();
}

// seconds: prepare (resize, normalise, tokenise), vision, language
// mean: n_embd numbers
// returns the number of tokens
int stock_picture(void * handle, const unsigned char * rgb, int width, int height, double * seconds, float * mean) {
    auto * s = (stock *) handle;
    llama_memory_clear(llama_get_memory(s->context), false);
    seconds[0] = seconds[1] = seconds[2] = 0;

    int64_t start = ggml_time_us();
    mtmd::bitmap bitmap(width, height, rgb);
    mtmd::input_chunks chunks(mtmd_input_chunks_init());
    const std::string marker = mtmd_default_marker();
    const mtmd_input_text text = { marker.c_str(), marker.size(), false, true };
    const mtmd_bitmap * bitmaps[] = { bitmap.ptr.get() };
    if (mtmd_tokenize(s->vision, chunks.ptr.get(), &text, bitmaps, 1) != 0) {
        return -1;
    }
    seconds[0] = seconds_since(start);

    const int n_embd = stock_n_embd(handle);
    std::fill(mean, mean + n_embd, 0.0f);
    mean_of rows = { s->context, mean, n_embd };
    const int n_batch = llama_n_batch(s->context);
    llama_pos n_past = 0;
    for (size_t i = 0; i < mtmd_input_chunks_size(chunks.ptr.get()); i++) {
        const mtmd_input_chunk * chunk = mtmd_input_chunks_get(chunks.ptr.get(), i);
        if (mtmd_input_chunk_get_type(chunk) == MTMD_INPUT_CHUNK_TYPE_TEXT) {
            start = ggml_time_us();
            if (mtmd_helper_eval_chunk_single(s->vision, s->context, chunk, n_past, 0, n_batch, false, &n_past) != 0 ||
                rows.add(mtmd_input_chunk_get_n_tokens(chunk)) != 0) {
                return -1;
            }
            seconds[2] += seconds_since(start);
            continue;
        }
        start = ggml_time_us();
        if (mtmd_encode_chunk(s->vision, chunk) != 0) {
            return -1;
        }
        seconds[1] += seconds_since(start);
        start = ggml_time_us();
        if (mtmd_helper_decode_image_chunk(s->vision, s->context, chunk, mtmd_get_output_embd(s->vision), n_past, 0, n_batch,
                                           &n_past, take_rows, &rows) != 0) {
            return -1;
        }
        seconds[2] += seconds_since(start);
    }
    rows.finish();
    return rows.n_rows;
}

// n_texts texts of n_tokens tokens each, all in one batch
// mean: n_texts * n_embd numbers
// returns the number of tokens
int stock_texts(void * handle, const int32_t * tokens, int n_texts, int n_tokens, float * mean) {
    auto * s = (stock *) handle;
    llama_memory_clear(llama_get_memory(s->context), false);
    llama_batch batch = llama_batch_init(n_texts*n_tokens, 0, 1);
    for (int i = 0; i < n_texts*n_tokens; i++) {
        batch.token[i]     = tokens[i];
        batch.pos[i]       = i % n_tokens;
        batch.n_seq_id[i]  = 1;
        batch.seq_id[i][0] = i / n_tokens;
        batch.logits[i]    = true;
    }
    batch.n_tokens = n_texts*n_tokens;
    const int status = llama_decode(s->context, batch);
    llama_batch_free(batch);
    const float * states = status == 0 ? llama_get_embeddings(s->context) : nullptr;
    if (!states) {
        return -1;
    }
    const int n_embd = stock_n_embd(handle);
    std::fill(mean, mean + (size_t) n_texts*n_embd, 0.0f);
    for (int i = 0; i < n_texts*n_tokens; i++) {
        for (int k = 0; k < n_embd; k++) {
            mean[(size_t) (i/n_tokens)*n_embd + k] += states[(size_t) i*n_embd + k]/n_tokens;
        }
    }
    return n_texts*n_tokens;
}

}
