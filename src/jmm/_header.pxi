# What the header of a GGUF file says, as Python values.

cdef object _number(ggml.gguf_type kind, const void *data, size_t i):
    if kind == ggml.GGUF_TYPE_UINT8:
        return (<const uint8_t *>data)[i]
    if kind == ggml.GGUF_TYPE_INT8:
        return (<const int8_t *>data)[i]
    if kind == ggml.GGUF_TYPE_UINT16:
        return (<const uint16_t *>data)[i]
    if kind == ggml.GGUF_TYPE_INT16:
        return (<const int16_t *>data)[i]
    if kind == ggml.GGUF_TYPE_UINT32:
        return (<const uint32_t *>data)[i]
    if kind == ggml.GGUF_TYPE_INT32:
        return (<const int32_t *>data)[i]
    if kind == ggml.GGUF_TYPE_UINT64:
        return (<const uint64_t *>data)[i]
    if kind == ggml.GGUF_TYPE_INT64:
        return (<const int64_t *>data)[i]
    if kind == ggml.GGUF_TYPE_FLOAT32:
        return (<const float *>data)[i]
    if kind == ggml.GGUF_TYPE_FLOAT64:
        return (<const double *>data)[i]
    return (<const int8_t *>data)[i] != 0


# FNV-1a of 64 bits: offset basis and prime.
cdef uint64_t HASH_BASIS = 14695981039346656037
cdef uint64_t HASH_PRIME = 1099511628211


cdef uint64_t _hashed(const char *data, size_t n_bytes, uint64_t sum) noexcept nogil:
    cdef size_t i
    for i in range(n_bytes):
        sum = (sum ^ <uint8_t>data[i]) * HASH_PRIME
    return sum


cdef object _count_strings(ggml.gguf_context *header, int64_t key):
    cdef unordered_set[string] distinct
    cdef string text
    cdef uint64_t sum = HASH_BASIS
    cdef size_t i, n = ggml.gguf_get_arr_n(header, key)
    with nogil:
        for i in range(n):
            text = string(ggml.gguf_get_arr_str(header, key, i))
            sum = _hashed(text.c_str(), text.size() + 1, sum)  # with the zero at its end
            distinct.insert(text)
    return n, distinct.size(), sum


cdef size_t _number_size(ggml.gguf_type kind):
    if kind in (ggml.GGUF_TYPE_UINT64, ggml.GGUF_TYPE_INT64, ggml.GGUF_TYPE_FLOAT64):
        return 8
    if kind in (ggml.GGUF_TYPE_UINT32, ggml.GGUF_TYPE_INT32, ggml.GGUF_TYPE_FLOAT32):
        return 4
    return 2 if kind in (ggml.GGUF_TYPE_UINT16, ggml.GGUF_TYPE_INT16) else 1


cdef object _count_numbers(ggml.gguf_context *header, int64_t key, ggml.gguf_type kind):
    cdef size_t n = ggml.gguf_get_arr_n(header, key)
    cdef size_t size = _number_size(kind)
    return n, _hashed(<const char *>ggml.gguf_get_arr_data(header, key), n * size, HASH_BASIS)


def read_gguf(path):
    """Reads the header of a GGUF file.

    Returns:
        tuple: metadata ``{key: (type name, value)}``, where the value of an array of strings is
        a tuple: how many it has, how many different ones, and a hash of them, and that of an array
        of more than 1,024 numbers how many and a hash; and tensors ``{name: (type name, shape,
        start, end)}``, where ``start`` is the offset in the file of the tensor's first byte and
        ``end`` one past that of its last.

    Raises:
        ModelLoadError: The file is no GGUF file or its header is damaged.
    """
    cdef ggml.gguf_init_params params
    cdef ggml.gguf_context *header
    cdef ggml.gguf_type kind, item
    cdef const int64_t *ne
    cdef size_t start
    cdef int64_t i
    cdef bytes name = os.fsencode(path)
    cdef const char *c_name = name
    params.no_alloc = True
    params.ctx = NULL
    _forget_errors()
    try:
        with nogil:
            header = ggml.gguf_init_from_file(c_name, params)
    except MemoryError:
        raise OutOfMemoryError(f"{path}: no memory to read its header") from None
    except Exception as error:
        raise ModelLoadError(f"{path}: not a readable GGUF file: {error}") from None
    if header == NULL:
        raise _failure(ModelLoadError, f"{path}: not a readable GGUF file")
    try:
        metadata = {}
        for i in range(ggml.gguf_get_n_kv(header)):
            kind = ggml.gguf_get_kv_type(header, i)
            type_name = ggml.gguf_type_name(kind).decode()
            if kind == ggml.GGUF_TYPE_STRING:
                value = ggml.gguf_get_val_str(header, i).decode("utf-8", "replace")
            elif kind == ggml.GGUF_TYPE_ARRAY:
                item = ggml.gguf_get_arr_type(header, i)
                type_name = f"{type_name}[{ggml.gguf_type_name(item).decode()}]"
                value = None
                if item == ggml.GGUF_TYPE_STRING:
                    value = _count_strings(header, i)
                elif ggml.gguf_get_arr_n(header, i) > 1024:
                    value = _count_numbers(header, i, item)
                else:
                    value = [
                        _number(item, ggml.gguf_get_arr_data(header, i), j)
                        for j in range(ggml.gguf_get_arr_n(header, i))
                    ]
            else:
                value = _number(kind, ggml.gguf_get_val_data(header, i), 0)
            key = ggml.gguf_get_key(header, i).decode("utf-8", "replace")
            metadata[key] = (type_name, value)
        tensors = {}
        start = ggml.gguf_get_data_offset(header)
        for i in range(ggml.gguf_get_n_tensors(header)):
            ne = ggml.gguf_get_tensor_ne(header, i)
            tensors[ggml.gguf_get_tensor_name(header, i).decode("utf-8", "replace")] = (
                ggml.ggml_type_name(ggml.gguf_get_tensor_type(header, i)).decode(),
                (ne[0], ne[1], ne[2], ne[3]),
                start + ggml.gguf_get_tensor_offset(header, i),
                start + ggml.gguf_get_tensor_offset(header, i)
                + ggml.gguf_get_tensor_size(header, i),
            )
        return metadata, tensors
    except MemoryError:
        raise OutOfMemoryError(f"{path}: no memory to read its header") from None
    finally:
        ggml.gguf_free(header)
