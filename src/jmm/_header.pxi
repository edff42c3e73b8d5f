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


cdef object _count_strings(ggml.gguf_context *header, int64_t key):
    cdef unordered_set[string] distinct
    cdef size_t i, n = ggml.gguf_get_arr_n(header, key)
    with nogil:
        for i in range(n):
            distinct.insert(string(ggml.gguf_get_arr_str(header, key, i)))
    return n, distinct.size()


def read_gguf(path):
    """Reads the header of a GGUF file.

    Returns:
        tuple: metadata ``{key: (type name, value)}``, where the value of an array of strings is
        how many it has and how many different ones, and that of an array of more than 1,024
        numbers is None; and tensors ``{name: (type name, shape,
        end)}``, where ``end`` is the offset in the file one past the tensor's last byte.

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
                elif ggml.gguf_get_arr_n(header, i) <= 1024:
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
                start + ggml.gguf_get_tensor_offset(header, i)
                + ggml.gguf_get_tensor_size(header, i),
            )
        return metadata, tensors
    except MemoryError:
        raise OutOfMemoryError(f"{path}: no memory to read its header") from None
    finally:
        ggml.gguf_free(header)
