# The engine: one model, the contexts that run it, and the forward pass.

# LLAMA_MAX_SEQ. One is kept for a prefix that no other sequence shares.
cdef int N_SEQ_MAX = 256
MAX_SEQUENCES = N_SEQ_MAX - 1

# Each sequence of a recurrent model has a state of its own, up to hundreds of megabytes.
cdef int N_STATES_MAX = 16

# A page of 768 tokens and its prompt pass at once.
cdef int N_UBATCH = 1024

# llama.cpp pads the cache to a multiple of this.
cdef int CELL_BLOCK = 256


cdef class Engine(Handles):
    """One model in memory, and the contexts that run it.

    Thread-safe: calls from several threads run one after another. An engine belongs to the
    process that made it.

    Args:
        model_path: GGUF of the language model.
        mmproj_path: GGUF of the vision tower, None for text alone.
        adapter_paths: GGUFs of LoRA adapters, one of which may change a forward pass.
        n_threads: Threads of the one pool that vision and language share.
        device: Name of the GPU that runs the model, None for the CPU.
        n_gpu_layers: Layers on it, -1 for all.
        n_batch: Most tokens per native batch, 0 for as many as the work has.
        n_ubatch: Most tokens per forward, 0 for a default.
        f16_kv: Keeps keys and values in half precision.
        use_mmap: Maps the language model's file instead of reading it.
        with_tower: Loads the tower's weights; without them pictures come encoded.
        available: Tells how many bytes this process may still take, None if that is not known.
            Asked before buffers grow, so that what cannot fit is an error and not a kill.

    Raises:
        ModelLoadError: A file cannot be loaded, or they do not fit each other.
        OutOfMemoryError: They do not fit in memory.
    """

    cdef llama.llama_model *model  # owned, and owns the adapters
    cdef vector[llama.llama_adapter_lora *] adapters  # borrowed from model
    cdef llama.llama_context *ctx  # owned, made again when a batch needs more room
    cdef llama.llama_batch_ext *batch  # owned, belongs to ctx
    cdef const llama.llama_vocab *vocab  # borrowed from model
    cdef dict sizes  # bytes of contexts by their room
    cdef object mmproj_path
    cdef int capacity  # cells of the cache of ctx
    cdef int n_states  # sequences that ctx has room for
    cdef int n_batch
    cdef int n_ubatch
    cdef bool f16_kv
    cdef readonly bool undivided  # all of a batch must share one ubatch: no cache, or not causal
    cdef bool non_causal_images  # the rows of a tile see each other, also the later ones
    cdef bool recurrent  # a sequence has one state, which no other can share
    cdef readonly bool has_tower
    cdef readonly int n_embd
    cdef readonly int n_ctx_train
    cdef readonly int n_vocab
    cdef readonly object n_bytes
    cdef readonly uint64_t n_rows  # that the language model has computed so far

    def __init__(self, model_path, mmproj_path=None, adapter_paths=(), *, int n_threads,
                 device=None, int n_gpu_layers=-1, int n_batch=0, int n_ubatch=0,
                 bool f16_kv=False, bool use_mmap=True, bool with_tower=True, available=None):
        self._register()
        self.available = available
        self.sizes = {}
        self.n_batch = n_batch
        self.n_ubatch = n_ubatch
        self.f16_kv = f16_kv
        self.has_tower = mmproj_path is not None and with_tower
        self.mmproj_path = mmproj_path
        self._enter()
        try:
            self._start(n_threads, device)
            self._load(model_path, n_gpu_layers, use_mmap)
            for path in adapter_paths:
                self._load_adapter(path)
            if n_batch or n_ubatch:
                self._reserve(1, 1)  # tells whether the two limit an item
            if mmproj_path is not None:
                self._load_vision(mmproj_path, self.model, with_tower)
                self.non_causal_images = mtmd.mtmd_decode_use_non_causal(self.vision, NULL)
            self.loaded.store(True)
        except BaseException as error:
            raise self._load_error(error, model_path) from None
        finally:
            self._leave()

    def __dealloc__(self):
        if self.pid == getpid():
            Engine._free(self)

    cdef void _free(self) noexcept:
        self._free_context()
        if self.vision != NULL:
            mtmd.mtmd_free(self.vision)
            self.vision = NULL
        self.adapters.clear()
        if self.model != NULL:
            llama.llama_model_free(self.model)
            self.model = NULL
        Handles._free(self)

    cdef void _free_context(self) noexcept:
        if self.batch != NULL:
            llama.llama_batch_ext_free(self.batch)
            self.batch = NULL
        if self.ctx != NULL:
            llama.llama_free(self.ctx)
            self.ctx = NULL
        self.capacity = 0

    cdef void _abandon(self) noexcept:
        self.batch = NULL
        self.ctx = NULL
        self.model = NULL
        self.adapters.clear()
        self.capacity = 0
        Handles._abandon(self)

    cdef _load(self, path, int n_gpu_layers, bool use_mmap):
        cdef bytes name = os.fsencode(path)
        cdef const char *c_name = name
        cdef llama.llama_model_params params = llama.llama_model_default_params()
        cdef ggml.ggml_backend_dev_t[2] devices  # up to the first NULL; a NULL list means all
        devices[0] = self.device
        devices[1] = NULL
        params.devices = devices
        params.n_gpu_layers = n_gpu_layers
        if not use_mmap:
            params.load_mode = llama.LLAMA_LOAD_MODE_NONE
        params.progress_callback = _keep_loading
        params.progress_callback_user_data = &self.watch
        with nogil:
            self.model = llama.llama_model_load_from_file(c_name, params)
        self._raise_interrupt()
        if self.model == NULL:
            raise _failure(ModelLoadError, f"{path}: the language model cannot be loaded")
        if llama.llama_model_has_encoder(self.model):
            raise ModelLoadError(f"{path}: encoder-decoder models are not supported")
        self.vocab = llama.llama_model_get_vocab(self.model)
        self.n_vocab = llama.llama_vocab_n_tokens(self.vocab)
        self.n_embd = llama.llama_model_n_embd_out(self.model)
        self.n_ctx_train = llama.llama_model_n_ctx_train(self.model)
        self.n_bytes = llama.llama_model_size(self.model)
        self.recurrent = (llama.llama_model_is_recurrent(self.model)
                          or llama.llama_model_is_hybrid(self.model))

    cdef _load_adapter(self, path):
        cdef bytes name = os.fsencode(path)
        cdef const char *c_name = name
        cdef llama.llama_adapter_lora *adapter
        with nogil:
            adapter = llama.llama_adapter_lora_init(self.model, c_name)
        if adapter == NULL:
            raise _failure(ModelLoadError, f"{path}: the adapter cannot be loaded")
        self.adapters.push_back(adapter)

    @property
    def max_sequences(self):
        """Most sequences of a batch."""
        return N_STATES_MAX if self.recurrent else MAX_SEQUENCES

    @property
    def max_whole(self):
        """Most tokens that can pass in one forward; None if that is sized by the work."""
        limits = [n for n in (self.n_batch, self.n_ubatch) if n]
        return min(limits) if limits else None

    # --- tokens ---

    def tokenize(self, parts, *, bool add_special=False, prefix=(), bool in_order=False):
        """Makes one sequence.

        Args:
            parts: In order, ``(text, parse_special)``, ``(pixels,)`` with a tile, float32
                ``[height, width, 3]``, C-contiguous, or ``(patches, grid_h, grid_w)``, where
                ``patches`` is float32 ``[grid_h * grid_w, patch_n_elem]``, C-contiguous, or
                ``(rows, grid_h, grid_w, True)`` with what `encode_vision` made of them. With
                ``parse_special`` false, text that looks like a special token stays text.
            add_special: Adds the tokens that the vocabulary wants at the ends.
            prefix: Ids of the tokens that the prompt begins with. A batch computes those of the
                texts that begin with all of them once.
            in_order: Gives a picture's rows positions as tokens have, one after the other,
                instead of those of its grid.

        Returns:
            Sequence: It borrows the arrays, which must not change before it has run.

        Raises:
            InputError: The parts have no tokens, are too long, or the model reads no pictures.
        """
        cdef Sequence sequence = Sequence()
        self._enter_open()
        try:
            sequence.engine = self
            sequence.in_order = in_order
            if any(len(part) > 2 for part in parts):
                sequence._add_parts(parts, add_special)
            else:
                sequence._add_texts(parts, add_special)
                sequence._note_prefix(prefix)
            sequence._lay_out()
        except MemoryError:
            raise OutOfMemoryError("no memory for the tokens of an item") from None
        except (IndexError, RuntimeError) as error:
            failed = _assertion_error(DecodeError, "an item cannot be tokenised")
            raise failed or InputError(f"the item cannot be tokenised: {error}") from None
        finally:
            self._leave()
        if sequence.n_tokens == 0:
            raise InputError("the text is empty: it has no tokens")
        return sequence

    # --- the forward pass ---

    def forward(self, list sequences, list spans, float[:, ::1] pooled,
                float[:, ::1] hidden=None, *, list tokens=None, projection=None,
                bool normalize=True, int adapter=-1):
        """Runs sequences through the model in one batch.

        Args:
            sequences: At most `max_sequences`, made by this engine's `tokenize`.
            spans: Per sequence ``(start, stop)``: the rows whose mean is wanted.
            pooled: float32 ``[len(sequences), n_embd]``; receives the means, not normalised.
            hidden: float32 ``[sum of n_tokens, n_embd]``; receives the hidden state of every
                token after the final norm. None if not wanted.
            tokens: Per sequence float32 ``[n_tokens, dim]``, C-contiguous; receives the projected
                row of every token. None if not wanted.
            projection: ``(weight, bias)`` for ``tokens``: float32 ``[n_embd, dim]`` and
                ``[dim]``, C-contiguous.
            normalize: Brings each row of ``tokens`` to unit length.
            adapter: Index into ``adapter_paths``, -1 for none.

        Returns:
            list[bool]: Per sequence, whether all its numbers are finite.

        Raises:
            DecodeError, OutOfMemoryError: The native library failed. The engine stays usable,
                unless an assertion of ggml failed: then `is_open` is false.
        """
        cdef Forward run
        cdef bool begun = False
        self._enter_open()
        try:
            self._plan(&run, sequences, spans, pooled, hidden)
            if tokens is not None:
                _plan_tokens(&run, sequences, tokens, projection, self.n_embd)
                run.projection.normalize = normalize
            n_tokens = run.n_tokens if self.undivided else run.n_cells
            self._check_memory(&run, n_tokens)
            begun = True
            self._reserve(n_tokens, <int>run.plans.size())
            self._adapt(adapter)
            with nogil:
                _encode_pictures(self.vision, run.pictures)
                self._run(&run)
            self._raise_interrupt()
            self.held = self.wanted
            _write_means(&run, pooled)
            finite = [flag != 0 for flag in run.finite]
            self._empty(not all(finite))
        except BaseException as error:
            translated = self._translate(error, f"a batch of {run.n_tokens} tokens")
            if begun:
                self._free_context()
            raise translated from None
        finally:
            self._leave()
        return finite

    cdef _plan(self, Forward *run, list sequences, list spans, float[:, ::1] pooled,
               float[:, ::1] hidden):
        cdef Sequence sequence
        if not 0 < len(sequences) <= self.max_sequences:
            raise InputError(f"{len(sequences)} sequences; 1 to {self.max_sequences} share a batch")
        for sequence, (start, stop) in zip(sequences, spans, strict=True):
            if sequence.engine is not self:
                raise InputError("a sequence belongs to another engine")
            if not 0 <= start < stop <= sequence.n_tokens:
                raise InputError(f"span {start}:{stop} of {sequence.n_tokens} tokens")
            run.plans.push_back(&sequence.plan)
            run.starts.push_back(start)
            run.stops.push_back(stop)
            run.offsets.push_back(run.n_tokens)
            run.prefixes.push_back(sequence.n_prefix)
            run.n_tokens += sequence.n_tokens
        if pooled.shape[0] != len(sequences) or pooled.shape[1] != self.n_embd:
            raise InputError("pooled has the wrong shape")
        if hidden is not None:
            if hidden.shape[0] != run.n_tokens or hidden.shape[1] != self.n_embd:
                raise InputError("hidden has the wrong shape")
            run.hidden = &hidden[0, 0]
        self._plan_prefix(run)
        run.sums.resize(len(sequences) * self.n_embd)
        run.finite.resize(len(sequences), 1)
        self._plan_pictures(run)

    cdef _plan_prefix(self, Forward *run):
        """Finds the sequences that begin with one prefix, and counts cells of the cache."""
        cdef size_t s
        cdef int n = 0
        cdef bool shares
        cdef const llama.llama_token *tokens = NULL
        for s in range(run.plans.size()):
            shares = run.prefixes[s] > 0 and not self.undivided and not self.recurrent
            if shares and tokens == NULL:
                n = run.prefixes[s]
                tokens = run.plans[s].at(0).tokens
            elif shares:
                shares = n == run.prefixes[s] and memcmp(
                    tokens, run.plans[s].at(0).tokens, n * sizeof(llama.llama_token)) == 0
            if shares:
                run.sharing.push_back(<int>s)
            else:
                run.prefixes[s] = 0
        run.n_cells = _in_attention_tiles(n)
        for s in range(run.plans.size()):
            stop = run.offsets[s + 1] if s + 1 < run.offsets.size() else run.n_tokens
            run.n_cells += _in_attention_tiles(stop - run.offsets[s] - run.prefixes[s])

    cdef _plan_pictures(self, Forward *run):
        """Lists the pictures that the tower has to encode, and gives each its place."""
        cdef size_t n_values = 0
        cdef Plan *plan
        cdef Chunk *chunk
        cdef Picture picture
        cdef size_t i, k
        for i in range(run.plans.size()):
            plan = run.plans[i]
            for k in range(plan.size()):
                chunk = &plan[0][k]
                if chunk.source.patches != NULL or chunk.source.pixels != NULL:
                    n_values += chunk.n_tokens * self.n_embd_vision
        run.encoded.resize(n_values)
        n_values = 0
        for i in range(run.plans.size()):
            plan = run.plans[i]
            for k in range(plan.size()):
                chunk = &plan[0][k]
                if chunk.source.patches != NULL or chunk.source.pixels != NULL:
                    chunk.source.rows = run.encoded.data() + n_values
                    run.pictures.push_back(chunk.source)
                    n_values += chunk.n_tokens * self.n_embd_vision

    cdef _adapt(self, int index):
        """Makes an adapter the context's, or none."""
        cdef float scale = 1
        cdef llama.llama_adapter_lora *adapter
        if not -1 <= index < <int>self.adapters.size():
            raise InputError(f"adapter {index}; there are {self.adapters.size()}")
        if index < 0:
            llama.llama_set_adapters_lora(self.ctx, NULL, 0, NULL)
        else:
            adapter = self.adapters[index]
            llama.llama_set_adapters_lora(self.ctx, &adapter, 1, &scale)

    cdef _empty(self, bool with_data):
        """Empties batch and cache; a NaN left in a masked cell would reach the next batch."""
        llama.llama_batch_ext_clear(self.batch)
        if llama.llama_get_memory(self.ctx) != NULL:
            llama.llama_memory_clear(llama.llama_get_memory(self.ctx), with_data)

    def encode_vision(self, list pictures):
        """Runs the vision tower alone; see `Tower.encode_vision`."""
        self._enter_open()
        try:
            if not self.has_tower:
                raise InputError("the model was loaded without a vision tower")
            if self.patch_n_elem == 0:
                return _encode_tiles_apart(self, pictures)
            return _encode_vision(self, pictures)
        finally:
            self._leave()

    def record_nodes(self):
        """From now on keeps what every node of a graph gives: for a diagnosis, since it is slow.

        Loads the vision tower again.

        Raises:
            ModelLoadError, OutOfMemoryError: The tower cannot be loaded. The engine is closed.
        """
        self._enter_open()
        try:
            self._free_context()
            self.records = True
            if self.has_tower:
                mtmd.mtmd_free(self.vision)
                self.vision = NULL
                self._load_vision(self.mmproj_path, self.model, True)
        except BaseException as error:
            raise self._load_error(error, self.mmproj_path) from None
        finally:
            self._leave()

    def take_nodes(self):
        """What was recorded since the last call, in the order of the computation.

        Returns:
            list[tuple]: Per node whether it belongs to the vision tower, its name, operation and
            type; its values, those of them that are NaN, infinite, and infinite below zero, and
            the greatest finite magnitude; and its sources: name, type, and index in the list, -1
            for weights. A source that no node gives, as an input, stands there as a node itself,
            whose operation is "NONE".
        """
        self._enter_open()
        try:
            return _take_nodes(&self.recorder)
        finally:
            self._leave()

    def context_bytes(self, int n_tokens, int n_sequences=1):
        """Tells the memory that a batch takes in the language model.

        Args:
            n_tokens: Cells of the cache.
            n_sequences: At most `max_sequences`.

        Returns:
            int: Bytes of cache, buffers and outputs.
        """
        self._enter_open()
        try:
            return self._context_bytes(self._room(n_tokens, n_sequences))
        except BaseException as error:
            raise self._translate(error, f"a forecast of {n_tokens} tokens") from None
        finally:
            self._leave()

    cdef _check_memory(self, Forward *run, int n_tokens):
        """Raises OutOfMemoryError if what a batch needs beyond what there is cannot be had."""
        cdef size_t more = 0
        self.wanted = self.held
        if self.available is None:
            return
        if not self._has_room(n_tokens, <int>run.plans.size()):
            wanted = self._context_bytes(self._room(n_tokens, <int>run.plans.size()))
            held = self.sizes.get((self.capacity, self.n_states), 0) if self.ctx != NULL else 0
            more = max(0, wanted - held)
        if not run.pictures.empty():
            more += _tower_more(self, run.pictures)
        _check_room(self.available, more, f"a batch of {run.n_tokens} tokens")

    cdef bool _has_room(self, int n_tokens, int n_sequences) noexcept:
        return self.ctx != NULL and n_tokens <= self.capacity and n_sequences <= self.n_states

    cdef _room(self, int n_tokens, int n_sequences):
        """Cells and sequences of the context that is made for so much."""
        cdef int64_t capacity = 2 * CELL_BLOCK
        while capacity < n_tokens:
            capacity *= 2
        n_states = 1 if self.recurrent else N_SEQ_MAX
        while n_states < n_sequences:
            n_states *= 2
        return capacity, n_states

    cdef _context_bytes(self, room):
        if room not in self.sizes:
            _native.muted = True  # a context that is not made need not be told
            try:
                self.sizes[room] = llama.llama_context_n_bytes(
                    self.model, self._params(room[0], room[1]))
            finally:
                _native.muted = False
        return self.sizes[room]

    cdef llama.llama_context_params _params(self, int capacity, int n_states):
        cdef llama.llama_context_params params = llama.llama_context_default_params()
        params.n_ctx = capacity
        params.n_batch = max(self.n_batch or capacity, N_SEQ_MAX)
        params.n_ubatch = capacity if self.undivided else min(self.n_ubatch or N_UBATCH, capacity)
        params.n_seq_max = n_states
        params.n_threads = params.n_threads_batch = self.n_threads
        params.pooling_type = llama.LLAMA_POOLING_TYPE_NONE
        params.type_k = params.type_v = ggml.GGML_TYPE_F16 if self.f16_kv else ggml.GGML_TYPE_F32
        params.embeddings = True
        params.kv_unified = True
        params.no_perf = True
        params.abort_callback = _should_stop
        params.abort_callback_data = &self.watch
        if self.records:
            params.cb_eval = jmm_record_text
            params.cb_eval_user_data = &self.recorder
        return params

    cdef _reserve(self, int n_tokens, int n_sequences):
        """Makes a context with room for so much, unless there is one."""
        cdef llama.llama_context_params params
        if self._has_room(n_tokens, n_sequences):
            return
        self._free_context()
        capacity, n_states = self._room(n_tokens, n_sequences)
        params = self._params(capacity, n_states)
        with nogil:
            self.ctx = llama.llama_init_from_model(self.model, params)
        if self.ctx == NULL:
            raise _failure(DecodeError, f"no context of {capacity} tokens can be made")
        llama.llama_attach_threadpool(self.ctx, self.pool, self.pool)
        self.batch = llama.llama_batch_ext_init(self.ctx)
        self.capacity = capacity
        self.n_states = n_states
        undivided = (llama.llama_get_memory(self.ctx) == NULL
                     or not llama.llama_get_causal_attn(self.ctx))
        if undivided and not self.undivided:
            self.undivided = True
            self._free_context()
            self._reserve(n_tokens, n_sequences)

    cdef int _run(self, Forward *run) except -1 nogil:
        """Fills batches with the rows of all sequences, and decodes each when it is full."""
        cdef size_t s, c, i
        cdef int row
        cdef bool whole
        cdef llama.llama_pos pos
        cdef Chunk chunk
        cdef llama.llama_embd embd
        cdef int n_batch = self.capacity
        if self.n_batch > 0 and not self.undivided:
            n_batch = min(n_batch, self.n_batch)
        embd.n_rows = 1
        embd.n_embd = self.n_embd_vision
        run.rows.reserve(n_batch)
        self._add_prefix(run, n_batch)
        for s in range(run.plans.size()):
            pos, row = 0, 0
            for c in range(run.plans[s].size()):
                chunk = run.plans[s].at(c)
                embd.data = chunk.source.rows
                whole = self.non_causal_images and chunk.tokens == NULL and not self.undivided
                if whole:
                    self._decode(run)
                    llama.llama_set_causal_attn(self.ctx, False)
                for i in range(chunk.n_tokens):
                    if row < run.prefixes[s]:
                        row += 1
                        continue
                    if <int>run.rows.size() == n_batch:
                        self._decode(run)
                    if chunk.tokens != NULL:
                        self._add_token(run, s, row, chunk.tokens[i], pos + <llama.llama_pos>i)
                    else:
                        self._add_embd(run, s, row, embd, chunk, pos, i)
                        embd.data += embd.n_embd
                    row += 1
                if whole:
                    self._decode(run)
                    llama.llama_set_causal_attn(self.ctx, True)
                pos += chunk.n_pos
        self._decode(run)
        return 0

    cdef int _add_prefix(self, Forward *run, int n_batch) except -1 nogil:
        """Adds the rows of the prompt's prefix, once for all sequences that begin with it."""
        cdef size_t k
        cdef int i, row, n
        cdef llama.llama_pos pos
        cdef const llama.llama_token *tokens
        if run.sharing.empty():
            return 0
        n = run.prefixes[run.sharing[0]]
        tokens = run.plans[run.sharing[0]].at(0).tokens
        for i in range(n):
            if <int>run.rows.size() == n_batch:
                self._decode(run)
            row = llama.llama_batch_ext_add_token(self.batch, run.sharing[0], tokens[i])
            pos = i
            for k in range(1, run.sharing.size()):
                if row >= 0 and not llama.llama_batch_ext_add_seq(self.batch, row, run.sharing[k]):
                    row = -1
            if run.sharing.size() == 1 and row >= 0:  # tells where the prefix ends, as company does
                llama.llama_batch_ext_add_seq(self.batch, row, self.n_states - 1)
            if row < 0 or not llama.llama_batch_ext_set_pos(self.batch, row, &pos):
                with gil:
                    raise _failure(DecodeError, f"token {tokens[i]} cannot be added to the batch")
            llama.llama_batch_ext_set_output_embd(self.batch, row, True)
            run.rows.push_back(Row(-1, i))
        return 0

    cdef int _add_token(self, Forward *run, size_t s, int index, llama.llama_token token,
                        llama.llama_pos pos) except -1 nogil:
        cdef int32_t row = llama.llama_batch_ext_add_token(self.batch, <int32_t>s, token)
        if row < 0 or not llama.llama_batch_ext_set_pos(self.batch, row, &pos):
            with gil:
                raise _failure(DecodeError, f"token {token} cannot be added to the batch")
        self._added(run, s, index, row)
        return 0

    cdef int _add_embd(self, Forward *run, size_t s, int index, llama.llama_embd embd,
                       Chunk chunk, llama.llama_pos pos, size_t i) except -1 nogil:
        cdef mtmd.mtmd_decoder_pos at
        cdef llama.llama_pos[4] positions
        cdef int32_t row = llama.llama_batch_ext_add_embd(self.batch, <int32_t>s, embd)
        if chunk.in_order or chunk.picture == NULL:
            positions[0] = positions[1] = positions[2] = pos + <llama.llama_pos>i
            positions[3] = 0
        else:
            at = mtmd.mtmd_image_tokens_get_decoder_pos(
                mtmd.mtmd_input_chunk_get_tokens_image(chunk.picture), pos, i)
            positions[0], positions[1], positions[2], positions[3] = at.t, at.y, at.x, at.z
        if row < 0 or not llama.llama_batch_ext_set_pos(self.batch, row, positions):
            with gil:
                raise _failure(DecodeError, "a picture's row cannot be added to the batch")
        self._added(run, s, index, row)
        return 0

    cdef void _added(self, Forward *run, size_t s, int index, int32_t row) noexcept nogil:
        llama.llama_batch_ext_set_output_embd(self.batch, row, True)
        run.rows.push_back(Row(<int>s, index))

    cdef int _decode(self, Forward *run) except -1 nogil:
        """Decodes the batch, adds its rows to the sums and empties it."""
        cdef int status
        cdef size_t i
        cdef const float *states
        if run.rows.size() == 0:
            return 0
        status = llama.llama_process(self.ctx, llama.LLAMA_PROCESS_TYPE_DECODE, self.batch)
        if status != 0:
            with gil:
                raise _failure(DecodeError, f"llama_process returned {status}")
        states = llama.llama_get_embeddings(self.ctx)
        if states == NULL:
            with gil:
                raise _failure(DecodeError, "the model returned no hidden states")
        for i in range(run.rows.size()):
            _take_row(run, run.rows[i], states + i * self.n_embd, self.n_embd)
        self.n_rows += run.rows.size()
        run.rows.clear()
        llama.llama_batch_ext_clear(self.batch)
        return 0


cdef _plan_tokens(Forward *run, list sequences, list tokens, projection, int n_embd):
    """Notes where each sequence's projected rows go."""
    cdef float[:, ::1] out
    cdef const float[:, ::1] weight
    cdef const float[::1] bias
    cdef Sequence sequence
    weight, bias = projection
    if weight.shape[0] != n_embd or weight.shape[1] != bias.shape[0]:
        raise InputError("the projection has the wrong shape")
    for sequence, array in zip(sequences, tokens, strict=True):
        out = array
        if out.shape[0] != sequence.n_tokens or out.shape[1] != bias.shape[0]:
            raise InputError("tokens have the wrong shape")
        run.tokens.push_back(&out[0, 0])
    run.projection.weight = &weight[0, 0]
    run.projection.bias = &bias[0]
    run.projection.dim = bias.shape[0]
    run.projected.resize(bias.shape[0])
