# The rows of a forward pass, and what becomes of them.

cdef struct Row:
    int sequence
    int index  # of the token in its sequence


ctypedef vector[Chunk] Plan

cdef cppclass Forward:
    vector[Plan *] plans  # borrowed, per sequence
    vector[int] starts
    vector[int] stops
    vector[int] offsets  # of the sequence's first row in `hidden`
    vector[Row] rows  # of the batch that is being filled
    vector[double] sums
    vector[int8_t] finite
    int n_tokens
    float *hidden  # borrowed, or NULL

    __init__():
        this.n_tokens = 0
        this.hidden = NULL


cdef void _take_row(Forward *run, Row row, const float *state, int n_embd) noexcept nogil:
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


cdef void _write_means(Forward *run, float[:, ::1] pooled) noexcept:
    cdef size_t s, i
    cdef size_t n_embd = pooled.shape[1]
    cdef double n
    for s in range(<size_t>pooled.shape[0]):
        n = run.stops[s] - run.starts[s]
        for i in range(n_embd):
            pooled[s, i] = <float>(run.sums[s * n_embd + i] / n)
