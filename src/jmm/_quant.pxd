# What jmm calls of llama-ext.h, llama.h and ggml.h to change weights' types (llama.cpp b11549).

from libc.stdint cimport int64_t, uint32_t
from libcpp cimport bool

from jmm._ggml cimport ggml_type
from jmm._llama cimport llama_model

cdef extern from "ggml.h" nogil:
    int GGML_MAX_NAME
    int GGML_QNT_VERSION
    int GGML_TYPE_COUNT
    ctypedef struct ggml_tensor:
        ggml_type type
        int64_t ne[4]
    ctypedef void (*ggml_to_float_t)(const void *x, float *y, int64_t k) noexcept nogil
    ctypedef struct ggml_type_traits:
        ggml_to_float_t to_float
    const ggml_type_traits *ggml_get_type_traits(ggml_type type)
    const char *ggml_type_name(ggml_type type)
    int64_t ggml_blck_size(ggml_type type)
    size_t ggml_type_size(ggml_type type)
    size_t ggml_row_size(ggml_type type, int64_t ne)
    ggml_tensor *ggml_set_name(ggml_tensor *tensor, const char *name)
    size_t ggml_quantize_chunk(ggml_type type, const float *src, void *dst, int64_t start,
                               int64_t nrows, int64_t n_per_row, const float *imatrix) except +

cdef extern from "llama.h" nogil:
    ctypedef enum llama_ftype:
        LLAMA_FTYPE_ALL_F32
        LLAMA_FTYPE_MOSTLY_F16
        LLAMA_FTYPE_MOSTLY_BF16
        LLAMA_FTYPE_MOSTLY_Q8_0
        LLAMA_FTYPE_MOSTLY_Q6_K
        LLAMA_FTYPE_MOSTLY_Q5_K_M
        LLAMA_FTYPE_MOSTLY_Q5_K_S
        LLAMA_FTYPE_MOSTLY_Q5_1
        LLAMA_FTYPE_MOSTLY_Q5_0
        LLAMA_FTYPE_MOSTLY_Q4_K_M
        LLAMA_FTYPE_MOSTLY_Q4_K_S
        LLAMA_FTYPE_MOSTLY_Q4_1
        LLAMA_FTYPE_MOSTLY_Q4_0
        LLAMA_FTYPE_MOSTLY_IQ4_NL
        LLAMA_FTYPE_MOSTLY_IQ4_XS
        LLAMA_FTYPE_MOSTLY_Q3_K_L
        LLAMA_FTYPE_MOSTLY_Q3_K_M
        LLAMA_FTYPE_MOSTLY_Q3_K_S
        LLAMA_FTYPE_MOSTLY_Q2_K
    ctypedef struct llama_model_quantize_params:
        pass
    llama_model_quantize_params llama_model_quantize_default_params()

cdef extern from "../src/llama-ext.h" nogil:
    ctypedef struct quantize_state_impl:
        pass
    ctypedef struct llama_quant_model_desc:
        const char *architecture
        uint32_t n_embd
        uint32_t n_ff
        uint32_t n_layer
        uint32_t n_head
        uint32_t n_head_kv
        uint32_t n_expert
        uint32_t n_embd_head_k
        uint32_t n_embd_head_v
    ggml_type llama_ftype_get_default_type(llama_ftype ftype)
    llama_model *llama_quant_model_from_metadata(const llama_quant_model_desc *desc) except +
    quantize_state_impl *llama_quant_init(
        const llama_model *model, const llama_model_quantize_params *params) except +
    void llama_quant_free(quantize_state_impl *qs)
    bool llama_quant_tensor_allows_quantization(
        const quantize_state_impl *qs, const ggml_tensor *tensor) except +
    void llama_quant_compute_types(
        quantize_state_impl *qs, llama_ftype ftype, ggml_tensor **tensors,
        ggml_type *result_types, size_t n_tensors) except +
