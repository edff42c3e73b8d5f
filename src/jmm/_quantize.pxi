# Weights of another type: which type a tensor gets, and its rows converted.

from libc.math cimport INFINITY

# Those that need no importance matrix, best first.
_FILE_TYPES = {
    "f32": quant.LLAMA_FTYPE_ALL_F32,
    "bf16": quant.LLAMA_FTYPE_MOSTLY_BF16,
    "f16": quant.LLAMA_FTYPE_MOSTLY_F16,
    "q8_0": quant.LLAMA_FTYPE_MOSTLY_Q8_0,
    "q6_k": quant.LLAMA_FTYPE_MOSTLY_Q6_K,
    "q5_k_m": quant.LLAMA_FTYPE_MOSTLY_Q5_K_M,
    "q5_k_s": quant.LLAMA_FTYPE_MOSTLY_Q5_K_S,
    "q5_1": quant.LLAMA_FTYPE_MOSTLY_Q5_1,
    "q5_0": quant.LLAMA_FTYPE_MOSTLY_Q5_0,
    "q4_k_m": quant.LLAMA_FTYPE_MOSTLY_Q4_K_M,
    "q4_k_s": quant.LLAMA_FTYPE_MOSTLY_Q4_K_S,
    "q4_1": quant.LLAMA_FTYPE_MOSTLY_Q4_1,
    "iq4_nl": quant.LLAMA_FTYPE_MOSTLY_IQ4_NL,
    "q4_0": quant.LLAMA_FTYPE_MOSTLY_Q4_0,
    "iq4_xs": quant.LLAMA_FTYPE_MOSTLY_IQ4_XS,
    "q3_k_l": quant.LLAMA_FTYPE_MOSTLY_Q3_K_L,
    "q3_k_m": quant.LLAMA_FTYPE_MOSTLY_Q3_K_M,
    "q3_k_s": quant.LLAMA_FTYPE_MOSTLY_Q3_K_S,
    "q2_k": quant.LLAMA_FTYPE_MOSTLY_Q2_K,
}
QUANTIZATION_VERSION = quant.GGML_QNT_VERSION


def file_types():
    """``{name: (number in general.file_type, name of the type that most tensors get)}``."""
    return {
        name: (<int>value, quant.ggml_type_name(
            quant.llama_ftype_get_default_type(<quant.llama_ftype><int>value)).decode())
        for name, value in _FILE_TYPES.items()
    }


def tensor_types():
    """``{name: (number in a file, elements per block, bytes per block)}``."""
    return {
        quant.ggml_type_name(<ggml.ggml_type>i).decode(): (
            i,
            quant.ggml_blck_size(<ggml.ggml_type>i),
            quant.ggml_type_size(<ggml.ggml_type>i),
        )
        for i in range(quant.GGML_TYPE_COUNT)
        if quant.ggml_type_size(<ggml.ggml_type>i) > 0
    }


cdef class _Chooser:
    """llama.cpp's choice of types for one model."""

    cdef llama.llama_model *model  # owned, has dimensions and no weights
    cdef quant.quantize_state_impl *state  # owned, refers to model and params
    cdef quant.llama_model_quantize_params params

    def __dealloc__(self):
        if self.state != NULL:
            quant.llama_quant_free(self.state)
        if self.model != NULL:
            llama.llama_model_free(self.model)

    cdef _open(self, quant.llama_quant_model_desc *shape):
        self.params = quant.llama_model_quantize_default_params()
        self.model = quant.llama_quant_model_from_metadata(shape)
        self.state = quant.llama_quant_init(self.model, &self.params)

    cdef _choose(self, int file_type, tensors):
        cdef vector[quant.ggml_tensor] asked
        cdef vector[quant.ggml_tensor *] taken
        cdef vector[ggml.ggml_type] types
        cdef size_t i
        cdef bytes c_name
        asked.resize(len(tensors))
        for i, (name, kind, shape) in enumerate(tensors):
            c_name = name.encode("utf-8", "surrogateescape")
            quant.ggml_set_name(&asked[i], c_name)
            asked[i].type = <ggml.ggml_type><int>kind
            asked[i].ne[0], asked[i].ne[1], asked[i].ne[2], asked[i].ne[3] = shape
            if quant.llama_quant_tensor_allows_quantization(self.state, &asked[i]):
                taken.push_back(&asked[i])
        types.resize(taken.size())
        quant.llama_quant_compute_types(
            self.state, <quant.llama_ftype>file_type, taken.data(), types.data(), taken.size())
        return {
            tensors[taken[i] - asked.data()][0]: quant.ggml_type_name(types[i]).decode()
            for i in range(taken.size())
        }


def choose_types(architecture, dimensions, int file_type, tensors):
    """Asks llama.cpp which tensors are to be converted, and to which types.

    Args:
        architecture: ``general.architecture``.
        dimensions: ``(n_layer, n_head, n_head_kv, n_expert)``.
        file_type: Number of a file type.
        tensors: ``[(name, number of its type, four sizes)]``, by layer.

    Returns:
        dict: ``{name: type name}`` of those to be converted.

    Raises:
        InputError: llama.cpp does not know the architecture or the dimensions.
        OutOfMemoryError: There is no memory for it.
    """
    cdef quant.llama_quant_model_desc shape = [b"", 0, 0, 0, 0, 0, 0, 0, 0]
    cdef _Chooser chooser = _Chooser()
    cdef bytes c_name = architecture.encode()
    shape.architecture = c_name
    shape.n_layer, shape.n_head, shape.n_head_kv, shape.n_expert = dimensions
    jmm_guard(1)
    jmm_take_assertion()
    try:
        chooser._open(&shape)
        return chooser._choose(file_type, tensors)
    except MemoryError:
        raise OutOfMemoryError("no memory to choose types of weights") from None
    except RuntimeError as error:
        what = "llama.cpp chooses no types for this model"
        raise _assertion_error(InputError, what) or InputError(f"{what}: {error}") from None
    finally:
        jmm_guard(-1)
        _raise_from_log()


cdef float _peak(const float *values, size_t n) noexcept nogil:
    """The greatest magnitude; infinite if one is NaN."""
    cdef size_t i
    cdef float peak = 0, probe = 0, value
    for i in range(n):
        value = values[i] if values[i] >= 0 else -values[i]
        peak = value if value > peak else peak
        probe += values[i] * 0  # stays 0 but for NaN and infinity
    return peak if probe == 0 else INFINITY


def convert_rows(const uint8_t[::1] source not None, int source_type, int64_t n_columns,
                 uint8_t[::1] target not None, int target_type, int64_t n_target_columns,
                 float limit):
    """Converts whole rows of weights, and appends zeros to each.

    Thread-safe. The GIL is released.

    Args:
        source: The rows' bytes.
        source_type: Number of their type.
        n_columns: Their elements, whole blocks.
        target: Filled with as many rows.
        target_type: Number of the type wanted.
        n_target_columns: Elements that a row shall have, whole blocks and no fewer.
        limit: Greatest magnitude that may be converted.

    Returns:
        float: The greatest magnitude found, infinite if there is NaN. Above ``limit`` nothing has
        been converted.
    """
    cdef ggml.ggml_type old = <ggml.ggml_type>source_type
    cdef ggml.ggml_type new = <ggml.ggml_type>target_type
    cdef quant.ggml_to_float_t to_float = quant.ggml_get_type_traits(old).to_float
    cdef size_t old_size = quant.ggml_row_size(old, n_columns)
    cdef size_t new_size = quant.ggml_row_size(new, n_target_columns)
    cdef int64_t n_rows = source.shape[0] // old_size
    cdef int64_t row
    cdef vector[float] scratch
    cdef const uint8_t *old_row
    cdef const float *values
    cdef float peak
    if (n_target_columns < n_columns or <size_t>source.shape[0] != n_rows * old_size
            or <size_t>target.shape[0] != n_rows * new_size):
        raise InputError("source and target do not hold the same rows")
    if n_rows == 0:
        return 0.0
    old_row = &source[0]
    values = <const float *>old_row
    jmm_guard(1)
    jmm_take_assertion()
    try:
        with nogil:
            if old != ggml.GGML_TYPE_F32 or n_columns != n_target_columns:
                scratch.resize(n_rows * n_target_columns)
                values = scratch.data()
                for row in range(n_rows):
                    if old == ggml.GGML_TYPE_F32:
                        memcpy(&scratch[row * n_target_columns], old_row, old_size)
                    else:
                        to_float(old_row, &scratch[row * n_target_columns], n_columns)
                    old_row += old_size
            peak = _peak(values, n_rows * n_target_columns)
            if peak <= limit:
                quant.ggml_quantize_chunk(new, values, &target[0], 0, n_rows, n_target_columns,
                                          NULL)
        return peak
    except MemoryError:
        raise OutOfMemoryError("no memory to convert rows of weights") from None
    except RuntimeError as error:
        what = "rows of weights cannot be converted"
        raise _assertion_error(DecodeError, what) or DecodeError(f"{what}: {error}") from None
    finally:
        jmm_guard(-1)
