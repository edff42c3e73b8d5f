# One tokenised item.

# Of a tile's side, in pixels.
cdef int MAX_TILE = 8192


cdef struct Chunk:
    const llama.llama_token *tokens  # borrowed from the sequence, NULL for a picture
    const mtmd.mtmd_input_chunk *picture  # borrowed from the sequence
    Picture source  # of a picture
    size_t n_tokens
    bool in_order  # a picture's rows have positions as tokens have
    llama.llama_pos n_pos


cdef int _in_attention_tiles(int n_tokens) noexcept:
    """Cells of so many tokens in a row, which start at a tile of the attention: patch 0033."""
    return (n_tokens + 63) // 64 * 64


cdef class Sequence:
    """One item, tokenised; made by `Engine.tokenize`.

    Attributes:
        n_tokens: Tokens and rows of pictures.
        n_prefix: Tokens at its start that the prompt gives, and that a batch computes once.
        picture_span: The rows from the first picture's first to the last one's last, stop
            exclusive; None without a picture.
        n_cells: Cells of the cache that it takes beside those of its prefix.
        n_whole: Most tokens of it that must pass in one forward, 0 if each may pass alone.
        pictures: What it was made of: ``(array, grid_h, grid_w)`` each.
    """

    cdef mtmd.mtmd_input_chunks *chunks  # owned, NULL for an item of text alone
    cdef vector[llama.llama_token] tokens  # an item of text alone
    cdef vector[Chunk] plan
    cdef Engine engine
    cdef readonly int n_tokens
    cdef readonly int n_prefix
    cdef readonly int n_cells
    cdef readonly int n_whole
    cdef readonly object picture_span
    cdef readonly list pictures  # keeps what `sources` borrows
    cdef bool in_order
    cdef vector[Picture] sources
    cdef vector[size_t] places  # of tiles among `tokens`

    def __cinit__(self):
        self.pictures = []

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
        cdef size_t n_pictures = 0
        cdef size_t i, n = mtmd.mtmd_input_chunks_size(self.chunks) if self.chunks != NULL else 0
        cdef const mtmd.mtmd_input_chunk *source
        memset(&chunk, 0, sizeof(chunk))
        if self.chunks == NULL:
            self._lay_out_tokens()
        for i in range(n):
            source = mtmd.mtmd_input_chunks_get(self.chunks, i)
            memset(&chunk, 0, sizeof(chunk))
            chunk.picture = source
            chunk.n_tokens = mtmd.mtmd_input_chunk_get_n_tokens(source)
            chunk.n_pos = mtmd.mtmd_input_chunk_get_n_pos(source)
            if mtmd.mtmd_input_chunk_get_type(source) == mtmd.MTMD_INPUT_CHUNK_TYPE_TEXT:
                chunk.tokens = mtmd.mtmd_input_chunk_get_tokens_text(source, &chunk.n_tokens)
            else:
                chunk.source = self.sources.at(n_pictures)
                chunk.in_order = self.in_order
                if self.in_order:
                    chunk.n_pos = <llama.llama_pos>chunk.n_tokens
                n_pictures += 1
            self.plan.push_back(chunk)
        first, last, total = None, None, 0
        for chunk in self.plan:
            if chunk.tokens == NULL:
                first = total if first is None else first
                last = total + chunk.n_tokens
                if self.engine.non_causal_images:
                    self.n_whole = max(self.n_whole, <int>chunk.n_tokens)
            total += chunk.n_tokens
        if self.engine.undivided:
            self.n_whole = total
        self.n_tokens = total
        self.n_cells = _in_attention_tiles(total - self.n_prefix)
        self.picture_span = None if first is None else (first, last)

    cdef _lay_out_tokens(self):
        """Plans an item of texts and tiles, which stand in line."""
        cdef Chunk chunk
        cdef size_t i, stop, start = 0
        memset(&chunk, 0, sizeof(chunk))
        for i in range(self.places.size() + 1):
            stop = self.places[i] if i < self.places.size() else self.tokens.size()
            if stop > start or self.places.empty():
                chunk.tokens = self.tokens.data() + start
                chunk.n_tokens = stop - start
                chunk.n_pos = <llama.llama_pos>chunk.n_tokens
                self.plan.push_back(chunk)
            if i < self.places.size():
                chunk.tokens = NULL
                chunk.source = self.sources[i]
                chunk.n_tokens = mtmd.mtmd_get_n_tokens_pixels(
                    self.engine.vision, chunk.source.grid_w, chunk.source.grid_h)
                chunk.n_pos = <llama.llama_pos>chunk.n_tokens
                self.plan.push_back(chunk)
                memset(&chunk.source, 0, sizeof(chunk.source))
            start = stop

    cdef _note_prefix(self, prefix):
        cdef size_t i, n = len(prefix)
        if self.tokens.size() <= n or not self.places.empty():
            return
        for i in range(n):
            if self.tokens[i] != <llama.llama_token>prefix[i]:
                return
        self.n_prefix = <int>n

    cdef _add_texts(self, parts, bool add_special):
        """Fills an item of texts and tiles."""
        cdef const llama.llama_vocab *vocab = self.engine.vocab
        if add_special and llama.llama_vocab_get_add_bos(vocab):
            self.tokens.push_back(llama.llama_vocab_bos(vocab))
        for part in parts:
            if len(part) == 1:
                self._add_tile(part[0])
            else:
                self._add_text(part[0].encode("utf-8"), part[1])
        if add_special and llama.llama_vocab_get_add_eos(vocab):
            self.tokens.push_back(llama.llama_vocab_eos(vocab))
        if add_special and llama.llama_vocab_get_add_sep(vocab):
            self.tokens.push_back(llama.llama_vocab_sep(vocab))

    cdef _add_text(self, bytes text, bool parse_special):
        cdef const llama.llama_vocab *vocab = self.engine.vocab
        cdef const char *c_text = text
        cdef size_t n_text = len(text)
        cdef size_t n_before = self.tokens.size()
        # a token is at least one byte, but for the rare vocabulary that adds some
        cdef size_t room = n_text + 8
        cdef int32_t n
        if n_text == 0:
            return
        if room >= 2**31:
            raise InputError(f"the text has {n_text:,} bytes; at most 2,147,483,639 are allowed")
        with nogil:
            self.tokens.resize(n_before + room)
            n = llama.llama_tokenize(vocab, c_text, <int32_t>n_text, self.tokens.data() + n_before,
                                     <int32_t>room, False, parse_special)
            self.tokens.resize(n_before + max(n, 0))
        if n < 0:
            raise InputError(f"the text of {n_text:,} bytes cannot be tokenised")

    cdef _add_tile(self, values):
        """Borrows a tile's pixels."""
        cdef const float[:, :, ::1] pixels = values
        cdef Picture source
        self._require_vision()
        if not self.engine.has_tower:
            raise InputError("the vision tower was not loaded; load it to embed pictures")
        if pixels.shape[2] != 3 or not (0 < pixels.shape[0] <= MAX_TILE and
                                        0 < pixels.shape[1] <= MAX_TILE):
            raise InputError(f"a tile is {list(np.shape(values))}; [height, width, 3] is needed")
        source.grid_h, source.grid_w = pixels.shape[0], pixels.shape[1]
        source.patches = source.rows = NULL
        source.pixels = &pixels[0, 0, 0]
        self.sources.push_back(source)
        self.places.push_back(self.tokens.size())
        self.pictures.append((pixels, source.grid_h, source.grid_w))

    cdef _require_vision(self):
        if self.engine.vision == NULL:
            raise InputError(
                "the model reads no pictures: it was loaded without an mmproj; "
                "pass mmproj= to embed pictures"
            )

    cdef _add_parts(self, parts, bool add_special):
        """Fills an item with pictures, through libmtmd, which adds its markers around each."""
        cdef vector[mtmd.mtmd_input_text] texts
        cdef vector[mtmd.mtmd_input_part] items
        cdef vector[const mtmd.mtmd_input_part *] pointers
        cdef vector[mtmd.mtmd_bitmap *] bitmaps
        cdef mtmd.mtmd_input_text text
        cdef mtmd.mtmd_input_part item
        cdef bytes encoded
        cdef size_t i
        cdef int32_t status
        self._require_vision()
        _check_takes_patches(self.engine)
        keep = []
        texts.reserve(len(parts))  # items point into it
        try:
            for part in parts:
                item.text = NULL
                item.bitmap = NULL
                if len(part) == 2:
                    encoded = part[0].encode("utf-8")
                    if not encoded:
                        continue
                    keep.append(encoded)
                    text.text, text.text_len = encoded, len(encoded)
                    text.add_special, text.parse_special = False, part[1]
                    texts.push_back(text)
                    item.text = &texts.back()
                else:
                    self._add_picture(part[0], part[1], part[2], len(part) > 3 and part[3])
                    bitmaps.push_back(mtmd.mtmd_bitmap_init_from_patches(
                        self.sources.back().grid_w, self.sources.back().grid_h))
                    item.bitmap = bitmaps.back()
                items.push_back(item)
            for i in range(items.size()):
                pointers.push_back(&items[i])
            self.chunks = mtmd.mtmd_input_chunks_init()
            with nogil:
                status = mtmd.mtmd_tokenize_from_parts(
                    self.engine.vision, self.chunks, pointers.data(), pointers.size(),
                    add_special)
        finally:
            for i in range(bitmaps.size()):
                mtmd.mtmd_bitmap_free(bitmaps[i])
        if status != 0:
            raise _failure(InputError, "the item cannot be tokenised")

    cdef _add_picture(self, values, grid_h, grid_w, bool is_encoded):
        """Borrows a picture's patches, or the rows that a tower has made of them."""
        cdef const float[:, ::1] array = values
        cdef Picture source
        cdef int n_merge = self.engine.patch_n_merge
        if is_encoded:
            _check_grid(self.engine, grid_h, grid_w)
            n_rows = grid_h * grid_w // n_merge ** 2
            if array.shape[0] != n_rows or array.shape[1] != self.engine.n_embd_vision:
                raise InputError(
                    f"the encoded picture is [{array.shape[0]}, {array.shape[1]}]; "
                    f"[{n_rows}, {self.engine.n_embd_vision}] is needed"
                )
        else:
            _check_patches(self.engine, array.shape[0], array.shape[1], grid_h, grid_w)
            if not self.engine.has_tower:
                raise InputError("the vision tower was not loaded; pass encoded pictures")
        source.grid_h, source.grid_w = grid_h, grid_w
        source.patches = source.rows = NULL
        source.pixels = NULL
        if is_encoded:
            source.rows = <float *>&array[0, 0]
        else:
            source.patches = &array[0, 0]
        self.sources.push_back(source)
        self.pictures.append((array, grid_h, grid_w))
