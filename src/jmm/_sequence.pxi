# One tokenised item.

cdef struct Chunk:
    const llama.llama_token *tokens  # borrowed from the sequence, NULL for a picture
    const mtmd.mtmd_input_chunk *picture  # borrowed from the sequence
    size_t n_tokens
    llama.llama_pos n_pos


cdef class Sequence:
    """One item, tokenised; made by `Engine.tokenize`."""

    cdef mtmd.mtmd_input_chunks *chunks  # owned, NULL for an item of text alone
    cdef vector[llama.llama_token] tokens  # an item of text alone
    cdef vector[Chunk] plan
    cdef Engine engine
    cdef readonly int n_tokens
    cdef readonly object picture_span

    def __dealloc__(self):
        if self.chunks != NULL:
            mtmd.mtmd_input_chunks_free(self.chunks)

    def token_ids(self):
        """Token ids in order; -1 stands for each row that a picture fills."""
        ids = []
        cdef size_t i
        for chunk in self.plan:
            for i in range(chunk.n_tokens):
                ids.append(-1 if chunk.tokens == NULL else chunk.tokens[i])
        return ids

    cdef _lay_out(self):
        cdef Chunk chunk
        cdef size_t i, n = mtmd.mtmd_input_chunks_size(self.chunks) if self.chunks != NULL else 0
        cdef const mtmd.mtmd_input_chunk *source
        if self.chunks == NULL:
            chunk.tokens = self.tokens.data()
            chunk.picture = NULL
            chunk.n_tokens = self.tokens.size()
            chunk.n_pos = <llama.llama_pos>chunk.n_tokens
            self.plan.push_back(chunk)
        for i in range(n):
            source = mtmd.mtmd_input_chunks_get(self.chunks, i)
            chunk.tokens = NULL
            chunk.picture = source
            chunk.n_tokens = mtmd.mtmd_input_chunk_get_n_tokens(source)
            chunk.n_pos = mtmd.mtmd_input_chunk_get_n_pos(source)
            if mtmd.mtmd_input_chunk_get_type(source) == mtmd.MTMD_INPUT_CHUNK_TYPE_TEXT:
                chunk.tokens = mtmd.mtmd_input_chunk_get_tokens_text(source, &chunk.n_tokens)
            self.plan.push_back(chunk)
        first, last, total = None, None, 0
        for chunk in self.plan:
            if chunk.tokens == NULL:
                first = total if first is None else first
                last = total + chunk.n_tokens
            total += chunk.n_tokens
        self.n_tokens = total
        self.picture_span = None if first is None else (first, last)
