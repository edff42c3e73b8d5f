# What jmm calls of llama.h (llama.cpp b11549). `except +` stands where upstream can throw.

from libc.stdint cimport int32_t, int8_t, uint32_t, uint64_t
from libcpp cimport bool

from jmm._ggml cimport (
    ggml_abort_callback, ggml_backend_dev_t, ggml_backend_sched_eval_callback, ggml_log_callback,
    ggml_threadpool, ggml_type,
)

cdef extern from "llama.h" nogil:
    ctypedef int32_t llama_pos
    ctypedef int32_t llama_token
    ctypedef int32_t llama_seq_id

    ctypedef struct llama_model:
        pass
    ctypedef struct llama_context:
        pass
    ctypedef struct llama_vocab:
        pass
    ctypedef struct llama_batch_ext:
        pass
    ctypedef struct llama_memory_i:
        pass
    ctypedef struct llama_adapter_lora:
        pass
    ctypedef llama_memory_i *llama_memory_t
    ctypedef struct llama_embd:
        const float *data
        size_t n_rows
        size_t n_embd

    ctypedef bool (*llama_progress_callback)(float progress, void *user_data) noexcept nogil

    ctypedef enum llama_process_type:
        LLAMA_PROCESS_TYPE_DECODE
    ctypedef enum llama_pooling_type:
        LLAMA_POOLING_TYPE_NONE

    ctypedef enum llama_load_mode:
        LLAMA_LOAD_MODE_NONE

    ctypedef struct llama_model_params:
        ggml_backend_dev_t *devices
        int32_t n_gpu_layers
        llama_load_mode load_mode
        llama_progress_callback progress_callback
        void *progress_callback_user_data
    ctypedef struct llama_context_params:
        uint32_t n_ctx
        uint32_t n_batch
        uint32_t n_ubatch
        uint32_t n_seq_max
        int32_t n_threads
        int32_t n_threads_batch
        llama_pooling_type pooling_type
        ggml_type type_k
        ggml_type type_v
        ggml_backend_sched_eval_callback cb_eval
        void *cb_eval_user_data
        ggml_abort_callback abort_callback
        void *abort_callback_data
        bool embeddings
        bool no_perf
        bool kv_unified

    void llama_backend_init() except +
    void llama_log_set(ggml_log_callback callback, void *user_data)
    const char *llama_print_system_info()

    llama_model_params llama_model_default_params()
    llama_model *llama_model_load_from_file(const char *path, llama_model_params params) except +
    void llama_model_free(llama_model *model)
    const llama_vocab *llama_model_get_vocab(const llama_model *model)
    int32_t llama_model_n_ctx_train(const llama_model *model)
    int32_t llama_model_n_embd_inp(const llama_model *model)
    int32_t llama_model_n_embd_out(const llama_model *model)
    uint64_t llama_model_size(const llama_model *model)
    bool llama_model_has_encoder(const llama_model *model)
    bool llama_model_is_recurrent(const llama_model *model)
    bool llama_model_is_hybrid(const llama_model *model)

    int32_t llama_vocab_n_tokens(const llama_vocab *vocab)
    llama_token llama_vocab_bos(const llama_vocab *vocab)
    llama_token llama_vocab_eos(const llama_vocab *vocab)
    llama_token llama_vocab_sep(const llama_vocab *vocab)
    bool llama_vocab_get_add_bos(const llama_vocab *vocab)
    bool llama_vocab_get_add_eos(const llama_vocab *vocab)
    bool llama_vocab_get_add_sep(const llama_vocab *vocab)
    int32_t llama_tokenize(const llama_vocab *vocab, const char *text, int32_t text_len,
                           llama_token *tokens, int32_t n_tokens_max,
                           bool add_special, bool parse_special) except +

    llama_context_params llama_context_default_params()
    llama_context *llama_init_from_model(llama_model *model, llama_context_params params) except +
    size_t llama_context_n_bytes(llama_model *model, llama_context_params params) except +
    void llama_free(llama_context *ctx)
    void llama_attach_threadpool(llama_context *ctx, ggml_threadpool *pool, ggml_threadpool *pool_batch)
    llama_memory_t llama_get_memory(const llama_context *ctx)
    void llama_memory_clear(llama_memory_t memory, bool data) except +
    bool llama_get_causal_attn(const llama_context *ctx)
    void llama_set_causal_attn(llama_context *ctx, bool causal_attn)

    llama_adapter_lora *llama_adapter_lora_init(llama_model *model, const char *path) except +
    int32_t llama_set_adapters_lora(llama_context *ctx, llama_adapter_lora **adapters,
                                    size_t n_adapters, float *scales) except +

    llama_batch_ext *llama_batch_ext_init(llama_context *ctx) except +
    void llama_batch_ext_free(llama_batch_ext *batch)
    void llama_batch_ext_clear(llama_batch_ext *batch)
    int32_t llama_batch_ext_add_token(llama_batch_ext *batch, llama_seq_id seq, llama_token token) except +
    int32_t llama_batch_ext_add_embd(llama_batch_ext *batch, llama_seq_id seq, llama_embd embd) except +
    bool llama_batch_ext_add_seq(llama_batch_ext *batch, int32_t idx, llama_seq_id seq) except +
    bool llama_batch_ext_set_pos(llama_batch_ext *batch, int32_t idx, const llama_pos *pos)
    bool llama_batch_ext_set_output_embd(llama_batch_ext *batch, int32_t idx, bool value)
    int32_t llama_process(llama_context *ctx, llama_process_type type, llama_batch_ext *batch) except +
    float *llama_get_embeddings(llama_context *ctx) except +
