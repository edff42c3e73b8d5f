# What jmm calls of mtmd.h (llama.cpp b11549 with our patches). `except +` stands where it can throw.

from libc.stdint cimport int32_t, uint32_t
from libcpp cimport bool

from jmm._ggml cimport (
    ggml_abort_callback, ggml_backend_dev_t, ggml_backend_sched_eval_callback, ggml_log_callback,
    ggml_threadpool,
)
from jmm._llama cimport llama_model, llama_pos, llama_progress_callback, llama_token

cdef extern from "mtmd.h" nogil:
    ctypedef struct mtmd_context:
        pass
    ctypedef struct mtmd_bitmap:
        pass
    ctypedef struct mtmd_image_tokens:
        pass
    ctypedef struct mtmd_input_chunk:
        pass
    ctypedef struct mtmd_input_chunks:
        pass
    ctypedef enum mtmd_input_chunk_type:
        MTMD_INPUT_CHUNK_TYPE_TEXT
        MTMD_INPUT_CHUNK_TYPE_IMAGE
    ctypedef struct mtmd_input_text:
        const char *text
        size_t text_len
        bool add_special
        bool parse_special
    ctypedef struct mtmd_input_part:
        const mtmd_input_text *text
        const mtmd_bitmap *bitmap
    ctypedef struct mtmd_decoder_pos:
        uint32_t t
        uint32_t x
        uint32_t y
        uint32_t z
    ctypedef struct mtmd_context_params:
        bool use_gpu
        ggml_backend_dev_t device
        bool print_timings
        int n_threads
        bool warmup
        ggml_backend_sched_eval_callback cb_eval
        void *cb_eval_user_data
        llama_progress_callback progress_callback
        void *progress_callback_user_data
        ggml_threadpool *threadpool
        ggml_abort_callback abort_callback
        void *abort_callback_data
        bool no_alloc
    ctypedef struct mtmd_patches "struct mtmd_patches":
        uint32_t nx
        uint32_t ny
        const float *data

    void mtmd_log_set(ggml_log_callback callback, void *user_data)
    mtmd_context_params mtmd_context_params_default()
    mtmd_context *mtmd_init_from_file(const char *path, const llama_model *model, mtmd_context_params params) except +
    void mtmd_free(mtmd_context *ctx)
    bool mtmd_support_vision(const mtmd_context *ctx)
    uint32_t mtmd_get_patch_n_elem(const mtmd_context *ctx)
    uint32_t mtmd_get_patch_n_merge(const mtmd_context *ctx)

    uint32_t mtmd_get_n_embd(const mtmd_context *ctx)

    mtmd_bitmap *mtmd_bitmap_init_from_patches(uint32_t n_patches_x, uint32_t n_patches_y) except +
    void mtmd_bitmap_free(mtmd_bitmap *bitmap)

    mtmd_input_chunks *mtmd_input_chunks_init() except +
    void mtmd_input_chunks_free(mtmd_input_chunks *chunks)
    size_t mtmd_input_chunks_size(const mtmd_input_chunks *chunks)
    const mtmd_input_chunk *mtmd_input_chunks_get(const mtmd_input_chunks *chunks, size_t idx)
    int32_t mtmd_tokenize_from_parts(const mtmd_context *ctx, mtmd_input_chunks *output,
                                     const mtmd_input_part *const *parts, size_t n_parts,
                                     bool add_special) except +
    mtmd_input_chunk_type mtmd_input_chunk_get_type(const mtmd_input_chunk *chunk)
    const llama_token *mtmd_input_chunk_get_tokens_text(const mtmd_input_chunk *chunk, size_t *n_tokens)
    const mtmd_image_tokens *mtmd_input_chunk_get_tokens_image(const mtmd_input_chunk *chunk)
    size_t mtmd_input_chunk_get_n_tokens(const mtmd_input_chunk *chunk)
    llama_pos mtmd_input_chunk_get_n_pos(const mtmd_input_chunk *chunk)
    mtmd_decoder_pos mtmd_image_tokens_get_decoder_pos(const mtmd_image_tokens *tokens, llama_pos pos_0, size_t i)

    uint32_t mtmd_get_n_tokens_pixels(const mtmd_context *ctx, uint32_t nx, uint32_t ny)
    int32_t mtmd_encode_pixels(mtmd_context *ctx, uint32_t nx, uint32_t ny, const float *data) except +
    bool mtmd_decode_use_non_causal(const mtmd_context *ctx, const mtmd_input_chunk *chunk)
    int32_t mtmd_encode_patches(mtmd_context *ctx, const mtmd_patches *imgs, size_t n_imgs) except +
    size_t mtmd_patches_n_bytes(mtmd_context *ctx, const mtmd_patches *imgs, size_t n_imgs) except +
    size_t mtmd_pixels_n_bytes(mtmd_context *ctx, uint32_t nx, uint32_t ny) except +
    float *mtmd_get_output_embd(mtmd_context *ctx)
