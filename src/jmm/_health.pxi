# Whether numbers are finite: of each node of a graph, which ggml's scheduler reports, and of weights.

cdef extern from * nogil:
    """
    #include <algorithm>
    #include <cfloat>
    #include <cmath>
    #include <string>
    #include <unordered_map>
    #include <utility>
    #include <vector>

    #include "ggml-backend.h"

    struct jmm_values {
        int64_t n           = 0;
        int64_t n_nan       = 0;
        int64_t n_inf       = 0; // of either sign
        int64_t n_minus_inf = 0;
        int64_t first       = -1; // index of the first that is not finite
        float   peak        = 0;  // greatest finite magnitude

        void add(const float * values, int64_t n_values) {
            for (int64_t i = 0; i < n_values; i++) {
                const float magnitude = std::fabs(values[i]);
                if (magnitude <= FLT_MAX) {
                    peak = std::max(peak, magnitude);
                    continue;
                }
                first = first < 0 ? n + i : first;
                n_nan += std::isnan(values[i]);
                n_inf += std::isinf(values[i]);
                n_minus_inf += std::isinf(values[i]) && values[i] < 0;
            }
            n += n_values;
        }

        // whole blocks
        void add(ggml_type type, const void * data, int64_t n_values) {
            const int64_t n_step = 4096; // whole blocks of every type
            float step[n_step];
            if (type == GGML_TYPE_F32) {
                add((const float *) data, n_values);
                return;
            }
            for (int64_t i = 0; i < n_values; i += n_step) {
                const int64_t n_now = std::min(n_step, n_values - i);
                ggml_get_type_traits(type)->to_float(
                    (const char *) data + ggml_row_size(type, i), step, n_now);
                add(step, n_now);
            }
        }
    };

    static bool jmm_has_floats(ggml_type type) {
        return type == GGML_TYPE_F32 || ggml_get_type_traits(type)->to_float != nullptr;
    }

    struct jmm_source {
        std::string name;
        std::string type;
        int64_t     node; // index of what gave it, -1 for weights
    };

    struct jmm_node {
        bool                    vision;
        std::string             name;
        std::string             op;
        std::string             type;
        jmm_values              values;
        std::vector<jmm_source> sources;
    };

    struct jmm_recorder {
        std::vector<jmm_node>                            nodes;
        std::unordered_map<const ggml_tensor *, int64_t> places; // of the graph that runs

        std::vector<jmm_node> take() {
            places.clear();
            return std::exchange(nodes, {});
        }
    };

    static bool jmm_only_looks(const ggml_tensor * t) {
        switch (t->op) {
            case GGML_OP_NONE:
            case GGML_OP_RESHAPE:
            case GGML_OP_VIEW:
            case GGML_OP_PERMUTE:
            case GGML_OP_TRANSPOSE:
                return true;
            default:
                return (t->flags & GGML_TENSOR_FLAG_COMPUTE) == 0;
        }
    }

    static ggml_backend_buffer_t jmm_buffer(const ggml_tensor * t) {
        return t->view_src ? t->view_src->buffer : t->buffer;
    }

    static jmm_values jmm_read(const ggml_tensor * t) {
        jmm_values values;
        const bool whole = ggml_is_contiguous(t);
        const int64_t n_row = whole ? ggml_nelements(t) : t->ne[0];
        const size_t size = ggml_row_size(t->type, n_row);
        const bool on_host = !jmm_buffer(t) || ggml_backend_buffer_is_host(jmm_buffer(t));
        if (n_row == 0 || (!whole && t->nb[0] != ggml_type_size(t->type))) {
            return values;
        }
        std::vector<char> copy(on_host ? 0 : size);
        for (int64_t row = 0; row < ggml_nelements(t) / n_row; row++) {
            size_t offset = 0;
            if (!whole) {
                offset += row % t->ne[1] * t->nb[1];
                offset += row / t->ne[1] % t->ne[2] * t->nb[2];
                offset += row / t->ne[1] / t->ne[2] * t->nb[3];
            }
            if (!on_host) {
                ggml_backend_tensor_get(t, copy.data(), offset, size);
            }
            values.add(t->type, on_host ? (const char *) t->data + offset : copy.data(), n_row);
        }
        return values;
    }

    // the values of a source that no node has given: an input, or the cache
    static int64_t jmm_read_leaf(jmm_recorder & recorder, bool vision, const ggml_tensor * t) {
        jmm_node leaf = { vision, t->name, ggml_op_name(t->op), ggml_type_name(t->type),
            jmm_read(t), {} };
        const auto place = recorder.places.find(t);
        if (place != recorder.places.end()) {
            const jmm_node & before = recorder.nodes[place->second];
            const jmm_values & old = before.values;
            const jmm_values & now = leaf.values;
            if (before.name == leaf.name && old.n == now.n && old.n_nan == now.n_nan &&
                    old.n_inf == now.n_inf && old.n_minus_inf == now.n_minus_inf &&
                    old.peak == now.peak) {
                return place->second;
            }
        }
        recorder.places[t] = recorder.nodes.size();
        recorder.nodes.push_back(leaf);
        return recorder.nodes.size() - 1;
    }

    static bool jmm_record(jmm_recorder & recorder, bool vision, ggml_tensor * t, bool ask) {
        if (ask) {
            return !jmm_only_looks(t);
        }
        if (jmm_only_looks(t)) {
            return true;
        }
        recorder.places.erase(t);
        if (!jmm_has_floats(t->type)) {
            return true;
        }
        jmm_node node = { vision, t->name, ggml_op_desc(t), ggml_type_name(t->type), jmm_read(t),
            {} };
        for (const ggml_tensor * source : t->src) {
            while (source && source->op != GGML_OP_NONE && jmm_only_looks(source)) {
                source = source->src[0];
            }
            if (!source || !jmm_has_floats(source->type)) {
                continue;
            }
            int64_t place = -1;
            if (source->op != GGML_OP_NONE) {
                const auto found = recorder.places.find(source);
                if (found == recorder.places.end()) {
                    continue;
                }
                place = found->second;
            } else if (jmm_buffer(source) && ggml_backend_buffer_get_usage(jmm_buffer(source)) !=
                    GGML_BACKEND_BUFFER_USAGE_WEIGHTS) {
                place = jmm_read_leaf(recorder, vision, source);
            }
            node.sources.push_back({ source->name, ggml_type_name(source->type), place });
        }
        recorder.places[t] = recorder.nodes.size();
        recorder.nodes.push_back(node);
        return true;
    }

    static bool jmm_record_text(ggml_tensor * t, bool ask, void * recorder) {
        return jmm_record(*(jmm_recorder *) recorder, false, t, ask);
    }

    static bool jmm_record_vision(ggml_tensor * t, bool ask, void * recorder) {
        return jmm_record(*(jmm_recorder *) recorder, true, t, ask);
    }
    """
    cdef cppclass jmm_values:
        int64_t n
        int64_t n_nan
        int64_t n_inf
        int64_t n_minus_inf
        int64_t first
        float peak
        void add(ggml.ggml_type type, const void *data, int64_t n_values)
    cdef cppclass jmm_source:
        string name
        string type
        int64_t node
    cdef cppclass jmm_node:
        bool vision
        string name
        string op
        string type
        jmm_values values
        vector[jmm_source] sources
    cdef cppclass jmm_recorder:
        vector[jmm_node] take()
    bool jmm_has_floats(ggml.ggml_type type)
    bool jmm_record_text(ggml.ggml_tensor *t, bool ask, void *recorder)
    bool jmm_record_vision(ggml.ggml_tensor *t, bool ask, void *recorder)


cdef _take_nodes(jmm_recorder *recorder):
    """What was recorded, as `Engine.take_nodes` returns it."""
    cdef jmm_node node
    cdef jmm_source source
    cdef vector[jmm_node] nodes = recorder.take()
    found = []
    for node in nodes:
        sources = []
        for source in node.sources:
            sources.append((_word(source.name), _word(source.type), source.node))
        found.append((
            node.vision, _word(node.name), _word(node.op), _word(node.type), node.values.n,
            node.values.n_nan, node.values.n_inf, node.values.n_minus_inf, node.values.peak,
            sources,
        ))
    return found


cdef str _word(string text):
    return text.decode("utf-8", "replace")


def measure(const uint8_t[::1] source not None, int source_type):
    """Looks at weights as the numbers that they stand for.

    Thread-safe. The GIL is released.

    Args:
        source: Bytes of whole blocks.
        source_type: Number of their type.

    Returns:
        tuple: how many values are NaN, and how many infinite; the index of the first of either,
        -1 without one; the greatest finite magnitude. None for a type of whole numbers.
    """
    cdef ggml.ggml_type kind = <ggml.ggml_type>source_type
    cdef jmm_values values
    cdef int64_t n
    if not jmm_has_floats(kind):
        return None
    n = source.shape[0] // quant.ggml_type_size(kind) * quant.ggml_blck_size(kind)
    if <size_t>source.shape[0] != quant.ggml_row_size(kind, n):
        raise InputError("source does not hold whole blocks")
    if n > 0:
        with nogil:
            values.add(kind, &source[0], n)
    return values.n_nan, values.n_inf, values.first, values.peak
