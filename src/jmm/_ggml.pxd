# What jmm calls of ggml.h, ggml-backend.h, ggml-cpu.h and gguf.h (llama.cpp b11549).

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, int8_t, int16_t, uint16_t
from libcpp cimport bool

cdef extern from "ggml.h" nogil:
    ctypedef enum ggml_log_level:
        GGML_LOG_LEVEL_DEBUG
        GGML_LOG_LEVEL_INFO
        GGML_LOG_LEVEL_WARN
        GGML_LOG_LEVEL_ERROR
        GGML_LOG_LEVEL_CONT
    ctypedef enum ggml_type:
        GGML_TYPE_F32
        GGML_TYPE_F16
    ctypedef void (*ggml_log_callback)(ggml_log_level level, const char *text, void *user_data) noexcept nogil
    ctypedef struct ggml_tensor:
        pass
    ctypedef bool (*ggml_abort_callback)(void *data) noexcept nogil
    ctypedef void (*ggml_abort_callback_t)(const char *error_message) noexcept
    ggml_abort_callback_t ggml_set_abort_callback(ggml_abort_callback_t callback)
    ctypedef struct ggml_threadpool:
        pass
    ctypedef struct ggml_threadpool_params:
        uint32_t poll
    ggml_threadpool_params ggml_threadpool_params_default(int n_threads)
    const char *ggml_type_name(ggml_type type)

cdef extern from "ggml-cpu.h" nogil:
    ggml_threadpool *ggml_threadpool_new(ggml_threadpool_params *params) except +
    void ggml_threadpool_free(ggml_threadpool *threadpool)

cdef extern from "ggml-backend.h" nogil:
    ctypedef struct ggml_backend_device:
        pass
    ctypedef ggml_backend_device *ggml_backend_dev_t
    ctypedef struct ggml_backend_reg:
        pass
    ctypedef ggml_backend_reg *ggml_backend_reg_t
    size_t ggml_backend_reg_count()
    ggml_backend_reg_t ggml_backend_reg_get(size_t index)
    const char *ggml_backend_reg_name(ggml_backend_reg_t reg)
    ctypedef enum ggml_backend_dev_type_t "enum ggml_backend_dev_type":
        GGML_BACKEND_DEVICE_TYPE_CPU
        GGML_BACKEND_DEVICE_TYPE_GPU
        GGML_BACKEND_DEVICE_TYPE_IGPU
        GGML_BACKEND_DEVICE_TYPE_ACCEL
    ctypedef bool (*ggml_backend_sched_eval_callback)(ggml_tensor *t, bool ask, void *user_data) noexcept nogil
    size_t ggml_backend_dev_count()
    ggml_backend_dev_t ggml_backend_dev_get(size_t index)
    ggml_backend_dev_t ggml_backend_dev_by_name(const char *name)
    const char *ggml_backend_dev_name(ggml_backend_dev_t device)
    const char *ggml_backend_dev_description(ggml_backend_dev_t device)
    void ggml_backend_dev_memory(ggml_backend_dev_t device, size_t *free, size_t *total)
    ggml_backend_dev_type_t ggml_backend_dev_type(ggml_backend_dev_t device)

cdef extern from "gguf.h" nogil:
    ctypedef struct gguf_context:
        pass
    ctypedef struct ggml_context:
        pass
    ctypedef enum gguf_type:
        GGUF_TYPE_UINT8
        GGUF_TYPE_INT8
        GGUF_TYPE_UINT16
        GGUF_TYPE_INT16
        GGUF_TYPE_UINT32
        GGUF_TYPE_INT32
        GGUF_TYPE_FLOAT32
        GGUF_TYPE_BOOL
        GGUF_TYPE_STRING
        GGUF_TYPE_ARRAY
        GGUF_TYPE_UINT64
        GGUF_TYPE_INT64
        GGUF_TYPE_FLOAT64
    ctypedef struct gguf_init_params:
        bool no_alloc
        ggml_context **ctx
    gguf_context *gguf_init_from_file(const char *fname, gguf_init_params params) except +
    void gguf_free(gguf_context *ctx)
    const char *gguf_type_name(gguf_type type)
    size_t gguf_get_data_offset(const gguf_context *ctx)
    int64_t gguf_get_n_kv(const gguf_context *ctx)
    const char *gguf_get_key(const gguf_context *ctx, int64_t key_id)
    gguf_type gguf_get_kv_type(const gguf_context *ctx, int64_t key_id)
    gguf_type gguf_get_arr_type(const gguf_context *ctx, int64_t key_id)
    const void *gguf_get_val_data(const gguf_context *ctx, int64_t key_id)
    const char *gguf_get_val_str(const gguf_context *ctx, int64_t key_id)
    size_t gguf_get_arr_n(const gguf_context *ctx, int64_t key_id)
    const char *gguf_get_arr_str(const gguf_context *ctx, int64_t key_id, size_t i)
    const void *gguf_get_arr_data(const gguf_context *ctx, int64_t key_id)
    int64_t gguf_get_n_tensors(const gguf_context *ctx)
    const char *gguf_get_tensor_name(const gguf_context *ctx, int64_t tensor_id)
    const int64_t *gguf_get_tensor_ne(const gguf_context *ctx, int64_t tensor_id)
    ggml_type gguf_get_tensor_type(const gguf_context *ctx, int64_t tensor_id)
    size_t gguf_get_tensor_offset(const gguf_context *ctx, int64_t tensor_id)
    size_t gguf_get_tensor_size(const gguf_context *ctx, int64_t tensor_id)
