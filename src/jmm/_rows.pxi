# The rows of a forward pass, and what becomes of them.

cdef struct Row:
    int sequence  # -1 for all that share the prefix
    int index  # of the token in its sequence


cdef struct Projection:
    const float *weight  # borrowed, [n_embd, dim]
    const float *bias  # borrowed, [dim]
    size_t dim
    bool normalize


ctypedef vector[Chunk] Plan

cdef cppclass Forward:
    vector[Plan *] plans  # borrowed, per sequence
    vector[int] starts
    vector[int] stops
    vector[int] offsets  # of the sequence's first row in `hidden`
    vector[Picture] pictures  # to encode before the language model runs
    vector[float] encoded  # their rows
    vector[int] prefixes  # rows at the start of each sequence that a shared row stands for
    vector[int] sharing  # sequences of which that is so
    vector[Row] rows  # of the batch that is being filled
    vector[double] sums
    vector[int8_t] finite
    vector[float *] tokens  # borrowed: where each sequence's projected rows go, or empty
    vector[double] projected  # one row
    Projection projection
    int n_tokens
    int n_cells  # at most, of the cache
    float *hidden  # borrowed, or NULL

    __init__():
        this.n_tokens = 0
        this.n_cells = 0
        this.hidden = NULL


cdef void _take_row(Forward *run, Row row, const float *state, int n_embd) noexcept nogil:
    cdef int s
    if row.sequence >= 0:
        _take_row_of(run, row, state, n_embd)
        return
    for s in run.sharing:
        _take_row_of(run, Row(s, row.index), state, n_embd)


cdef void _take_row_of(Forward *run, Row row, const float *state, int n_embd) noexcept nogil:
    cdef int i
    cdef double *total = run.sums.data() + <size_t>row.sequence * n_embd
    cdef bool inside = run.starts[row.sequence] <= row.index < run.stops[row.sequence]
    cdef float probe = 0
    if run.hidden != NULL:
        memcpy(run.hidden + <size_t>(run.offsets[row.sequence] + row.index) * n_embd, state,
               n_embd * sizeof(float))
    for i in range(n_embd):
        probe += state[i] * 0  # stays 0 but for NaN and infinity
    if probe != 0:
        run.finite[row.sequence] = 0
    if inside:
        for i in range(n_embd):
            total[i] += state[i]
    if not run.tokens.empty():
        probe = _project(run, state, n_embd,
                         run.tokens[row.sequence] + row.index * run.projection.dim)
        if probe != 0:
            run.finite[row.sequence] = 0


cdef float _project(Forward *run, const float *state, int n_embd, float *out) noexcept nogil:
    """Writes one row of token vectors; returns 0 if it is finite."""
    cdef size_t i, k, dim = run.projection.dim
    cdef const float *weight = run.projection.weight
    cdef double *sums = run.projected.data()
    cdef double value, norm = 0
    cdef float probe = 0
    for k in range(dim):
        sums[k] = run.projection.bias[k]
    for i in range(<size_t>n_embd):
        value = state[i]
        for k in range(dim):
            sums[k] += value * weight[i * dim + k]
    if run.projection.normalize:
        for k in range(dim):
            norm += sums[k] * sums[k]
        norm = sqrt(norm)
    norm = 1 if norm == 0 else 1 / norm
    for k in range(dim):
        out[k] = <float>(sums[k] * norm)
        probe += out[k] * 0
    return probe


cdef void _write_means(Forward *run, float[:, ::1] pooled) noexcept:
    cdef size_t s, i
    cdef size_t n_embd = pooled.shape[1]
    cdef double n
    for s in range(<size_t>pooled.shape[0]):
        n = run.stops[s] - run.starts[s]
        for i in range(n_embd):
            pooled[s, i] = <float>(run.sums[s * n_embd + i] / n)
