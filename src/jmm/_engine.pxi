# The engine: one model, the contexts that run it, and the forward pass.

# LLAMA_MAX_SEQ: more sequences cannot share a batch.
MAX_SEQUENCES = 256
cdef int N_SEQ_MAX = 256

# A page of 768 tokens and its prompt pass at once.
cdef int N_UBATCH = 1024

# llama.cpp pads the cache to a multiple of this.
cdef int CELL_BLOCK = 256

# How long the end of the interpreter waits for a call to stop.
cdef double RETIRE_SECONDS = 60

_engines = weakref.WeakSet()


cdef class Engine:
    """One model in memory, and the contexts that run it.

    Thread-safe: calls from several threads run one after another. An engine belongs to the
    process that made it.

    Args:
        model_path: GGUF of the language model.
        mmproj_path: GGUF of the vision tower, None for text alone.
        n_threads: Threads of the one pool that vision and language share.
        n_gpu_layers: Layers on a GPU, -1 for all that fit there.
        n_batch: Most tokens per native batch, 0 for as many as the work has.
        n_ubatch: Most tokens per forward, 0 for a default.
        f16_kv: Keeps keys and values in half precision.

    Raises:
        ModelLoadError: A file cannot be loaded, or the two do not fit.
        OutOfMemoryError: They do not fit in memory.
    """

    cdef ggml.ggml_threadpool *pool  # owned, freed after the contexts that use it
    cdef llama.llama_model *model  # owned
    cdef llama.llama_context *ctx  # owned, made again when a batch needs more room
    cdef llama.llama_batch_ext *batch  # owned, belongs to ctx
    cdef mtmd.mtmd_context *vision  # owned, NULL without an mmproj
    cdef const llama.llama_vocab *vocab  # borrowed from model
    cdef Watch watch
    cdef object __weakref__
    cdef object lock
    cdef object owner  # thread that holds the lock
    cdef bool closing  # close() came from inside a call; the call frees
    cdef int pid  # the process that may use the handles
    cdef int capacity  # tokens that ctx has room for
    cdef int n_batch
    cdef int n_ubatch
    cdef bool f16_kv
    cdef bool undivided  # all of a batch must share one ubatch: no cache, or not causal
    cdef readonly int n_threads
    cdef readonly int n_embd
    cdef readonly int n_ctx_train
    cdef readonly int n_vocab
    cdef readonly int patch_n_elem
    cdef readonly int patch_n_merge
    cdef readonly object n_bytes

    def __cinit__(self, *args, **kwargs):
        self.lock = threading.Lock()
        self.pid = getpid()
        _engines.add(self)

    def __init__(self, model_path, mmproj_path=None, *, int n_threads, int n_gpu_layers=-1,
                 int n_batch=0, int n_ubatch=0, bool f16_kv=False):
        self.n_batch = n_batch
        self.n_ubatch = n_ubatch
        self.f16_kv = f16_kv
        self.n_threads = n_threads
        self._enter()
        try:
            self._load(model_path, n_gpu_layers)
            if mmproj_path is not None:
                self._load_vision(mmproj_path, n_gpu_layers != 0)
        except BaseException as error:
            failed = _assertion_error(ModelLoadError, f"{model_path}: the model cannot be loaded")
            self._free()
            if failed is not None:
                raise failed from None
            if type(error) is MemoryError:
                raise OutOfMemoryError(f"{model_path}: no memory to load the model") from None
            if type(error) is RuntimeError:
                raise _failure(ModelLoadError, f"{model_path}: {error}") from None
            raise
        finally:
            self._leave()

    def __dealloc__(self):
        if self.pid == getpid():
            self._free()

    cdef void _free(self) noexcept:
        self._free_context()
        if self.vision != NULL:
            mtmd.mtmd_free(self.vision)
            self.vision = NULL
        if self.model != NULL:
            llama.llama_model_free(self.model)
            self.model = NULL
        if self.pool != NULL:
            ggml.ggml_threadpool_free(self.pool)
            self.pool = NULL

    cdef void _free_context(self) noexcept:
        if self.batch != NULL:
            llama.llama_batch_ext_free(self.batch)
            self.batch = NULL
        if self.ctx != NULL:
            llama.llama_free(self.ctx)
            self.ctx = NULL
        self.capacity = 0

    cdef _load(self, path, int n_gpu_layers):
        cdef bytes name = os.fsencode(path)
        cdef const char *c_name = name
        cdef llama.llama_model_params params = llama.llama_model_default_params()
        cdef ggml.ggml_threadpool_params pool = ggml.ggml_threadpool_params_default(self.n_threads)
        pool.poll = 0  # idle workers sleep
        self.pool = ggml.ggml_threadpool_new(&pool)
        if self.pool == NULL:
            raise OutOfMemoryError(f"{self.n_threads} threads cannot be started; lower n_threads")
        params.n_gpu_layers = n_gpu_layers
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

    cdef _load_vision(self, path, bool use_gpu):
        cdef bytes name = os.fsencode(path)
        cdef const char *c_name = name
        cdef mtmd.mtmd_context_params params = mtmd.mtmd_context_params_default()
        params.use_gpu = use_gpu
        params.print_timings = False
        params.warmup = False
        params.n_threads = self.n_threads
        params.threadpool = self.pool
        params.abort_callback = _should_stop
        params.abort_callback_data = &self.watch
        params.progress_callback = _keep_loading
        params.progress_callback_user_data = &self.watch
        with nogil:
            self.vision = mtmd.mtmd_init_from_file(c_name, self.model, params)
        self._raise_interrupt()
        if self.vision == NULL:
            raise _failure(ModelLoadError, f"{path}: the vision tower cannot be loaded")
        self.patch_n_elem = mtmd.mtmd_get_patch_n_elem(self.vision)
        self.patch_n_merge = mtmd.mtmd_get_patch_n_merge(self.vision)
        if self.patch_n_elem == 0:
            raise ModelLoadError(f"{path}: not a Qwen2-VL or Qwen2.5-VL vision tower")

    cdef _raise_interrupt(self):
        error = _take_error(&self.watch)
        if error is not None:
            raise error

    # --- one caller at a time ---

    cdef _enter(self):
        """Takes the engine for this thread until `_leave`."""
        self._check_caller()
        self.lock.acquire()
        self.owner = threading.get_ident()
        jmm_guard(1)
        jmm_take_assertion()
        _forget_errors()

    cdef _enter_open(self):
        """As `_enter`, for an engine that must be loaded."""
        self._enter()
        if self.model == NULL:
            self._leave()
            raise InputError("the model is closed")

    cdef _leave(self):
        jmm_guard(-1)
        if self.closing:
            self._free()
        self.owner = None
        self.lock.release()
        _park_daemon()
        _raise_from_log()

    cdef _check_caller(self):
        if self.pid != getpid():
            raise ForkedProcessError(
                f"the model was loaded in process {self.pid} and this is process {getpid()}, "
                "forked from it; load the model after forking, or start processes by spawn"
            )
        if self.owner == threading.get_ident():
            raise DecodeError(
                "the model is busy in this very thread: a signal handler or a log handler has "
                "called it in the midst of another call"
            )
        if _exiting:
            _park_daemon()
            raise DecodeError("the interpreter is shutting down")

    def check(self):
        """Raises unless the engine can be used now.

        Raises:
            InputError: It is closed.
            ForkedProcessError: It belongs to the parent process.
            DecodeError: This thread is in the midst of another call.
        """
        self._check_caller()
        if self.model == NULL:
            raise InputError("the model is closed")

    @property
    def is_open(self):
        """Whether the model is still there."""
        return self.model != NULL

    def close(self):
        """Frees the model. Further calls raise InputError."""
        if self.pid != getpid() or _exiting:
            return
        self.closing = True
        if self.owner != threading.get_ident():
            self.lock.acquire()
            self.owner = threading.get_ident()
            self._leave()

    def retire(self):
        """Waits for the call that runs, and lets none follow; for the end of the interpreter."""
        if self.pid == getpid() and self.owner != threading.get_ident():
            self.lock.acquire(timeout=RETIRE_SECONDS)

    # --- tokens ---

    def tokenize(self, parts, *, bool add_special=False):
        """Makes one sequence.

        Args:
            parts: In order, ``(text, parse_special)`` or ``(patches, grid_h, grid_w)``, where
                ``patches`` is float32 ``[grid_h * grid_w, patch_n_elem]``, C-contiguous. With
                ``parse_special`` false, text that looks like a special token stays text.
            add_special: Adds the tokens that the vocabulary wants at the ends of a text.

        Returns:
            Sequence: It holds a copy of the patches.

        Raises:
            InputError: The parts have no tokens, are too long, or the model reads no pictures.
        """
        cdef Sequence sequence = Sequence()
        self._enter_open()
        try:
            sequence.engine = self
            if any(len(part) == 3 for part in parts):
                sequence._add_parts(parts)
            else:
                sequence._add_texts(parts, add_special)
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
                float[:, ::1] hidden=None):
        """Runs sequences through the model in one batch.

        Args:
            sequences: At most `MAX_SEQUENCES`, made by this engine's `tokenize`.
            spans: Per sequence ``(start, stop)``: the rows whose mean is wanted.
            pooled: float32 ``[len(sequences), n_embd]``; receives the means, not normalised.
            hidden: float32 ``[sum of n_tokens, n_embd]``; receives the hidden state of every
                token after the final norm. None if not wanted.

        Returns:
            list[bool]: Per sequence, whether all its numbers are finite.

        Raises:
            DecodeError, OutOfMemoryError: The native library failed. The engine stays usable,
                unless an assertion of ggml failed: then `is_open` is false.
        """
        cdef Forward run
        self._enter_open()
        try:
            self._plan(&run, sequences, spans, pooled, hidden)
            self._reserve(run.n_tokens)
            with nogil:
                self._run(&run)
            self._raise_interrupt()
            _write_means(&run, pooled)
            finite = [flag != 0 for flag in run.finite]
            self._empty(not all(finite))
        except BaseException as error:
            translated = self._translate(error, f"a batch of {run.n_tokens} tokens")
            self._free_context()
            raise translated from None
        finally:
            self._leave()
        return finite

    cdef _translate(self, error, what):
        """What to raise for an error of native code."""
        failed = _assertion_error(
            DecodeError, f"{what} failed and the model had to be given up; load it again")
        if failed is not None:
            self._abandon()
            return failed
        interrupt = _take_error(&self.watch)
        if interrupt is not None:
            return interrupt
        if type(error) is MemoryError:
            return OutOfMemoryError(f"no memory for {what}")
        if type(error) is RuntimeError:
            return _failure(DecodeError, f"{what} failed: {error}")
        return error

    cdef void _abandon(self) noexcept:
        """Drops every handle without freeing: after a failed assertion nothing can be relied on."""
        self.batch = NULL
        self.ctx = NULL
        self.vision = NULL
        self.model = NULL
        self.pool = NULL
        self.capacity = 0

    cdef _plan(self, Forward *run, list sequences, list spans, float[:, ::1] pooled,
               float[:, ::1] hidden):
        cdef Sequence sequence
        if not 0 < len(sequences) <= MAX_SEQUENCES:
            raise InputError(f"{len(sequences)} sequences; 1 to {MAX_SEQUENCES} share a batch")
        for sequence, (start, stop) in zip(sequences, spans, strict=True):
            if sequence.engine is not self:
                raise InputError("a sequence belongs to another engine")
            if not 0 <= start < stop <= sequence.n_tokens:
                raise InputError(f"span {start}:{stop} of {sequence.n_tokens} tokens")
            run.plans.push_back(&sequence.plan)
            run.starts.push_back(start)
            run.stops.push_back(stop)
            run.offsets.push_back(run.n_tokens)
            run.n_tokens += sequence.n_tokens
        if pooled.shape[0] != len(sequences) or pooled.shape[1] != self.n_embd:
            raise InputError("pooled has the wrong shape")
        if hidden is not None:
            if hidden.shape[0] != run.n_tokens or hidden.shape[1] != self.n_embd:
                raise InputError("hidden has the wrong shape")
            run.hidden = &hidden[0, 0]
        run.sums.resize(len(sequences) * self.n_embd)
        run.finite.resize(len(sequences), 1)

    cdef _empty(self, bool with_data):
        """Empties batch and cache; a NaN left in a masked cell would reach the next batch."""
        llama.llama_batch_ext_clear(self.batch)
        if llama.llama_get_memory(self.ctx) != NULL:
            llama.llama_memory_clear(llama.llama_get_memory(self.ctx), with_data)

    def encode_picture(self, Sequence sequence):
        """Runs the vision tower alone, on the pictures of a sequence.

        Args:
            sequence: Made by this engine's `tokenize`, with at least one picture.

        Returns:
            float32 ``[rows of all pictures, n_embd_inp]``, in the sequence's order: what the
            language model reads in the pictures' place.

        Raises:
            InputError: The sequence has no picture, or belongs to another engine.
            DecodeError, OutOfMemoryError: The native library failed. The engine stays usable,
                unless an assertion of ggml failed: then `is_open` is false.
        """
        cdef float[:, ::1] rows
        cdef Chunk chunk
        cdef size_t n_embd
        cdef size_t n_rows = 0
        self._enter_open()
        try:
            if sequence.engine is not self:
                raise InputError("a sequence belongs to another engine")
            if sequence.picture_span is None:
                raise InputError("the sequence has no picture")
            for chunk in sequence.plan:
                if chunk.tokens == NULL:
                    n_rows += chunk.n_tokens
            n_embd = llama.llama_model_n_embd_inp(self.model)
            rows = values = np.empty((n_rows, n_embd), np.float32)
            with nogil:
                self._encode_all(&sequence.plan, &rows[0, 0], n_embd)
            self._raise_interrupt()
        except BaseException as error:
            raise self._translate(error, f"a picture of {n_rows} tokens") from None
        finally:
            self._leave()
        return values

    cdef int _encode_all(self, Plan *plan, float *rows, size_t n_embd) except -1 nogil:
        cdef Chunk chunk
        for chunk in plan[0]:
            if chunk.tokens == NULL:
                self._encode(chunk.picture)
                memcpy(rows, mtmd.mtmd_get_output_embd(self.vision),
                       chunk.n_tokens * n_embd * sizeof(float))
                rows += chunk.n_tokens * n_embd
        return 0

    cdef _reserve(self, int n_tokens):
        """Makes a context with room for so many tokens, unless there is one."""
        cdef llama.llama_context_params params
        if self.ctx != NULL and n_tokens <= self.capacity:
            return
        self._free_context()
        cdef int capacity = 2 * CELL_BLOCK
        while capacity < n_tokens:
            capacity *= 2
        params = llama.llama_context_default_params()
        params.n_ctx = capacity
        params.n_batch = max(self.n_batch or capacity, N_SEQ_MAX)
        params.n_ubatch = capacity if self.undivided else min(self.n_ubatch or N_UBATCH, capacity)
        params.n_seq_max = N_SEQ_MAX
        params.n_threads = params.n_threads_batch = self.n_threads
        params.pooling_type = llama.LLAMA_POOLING_TYPE_NONE
        params.type_k = params.type_v = ggml.GGML_TYPE_F16 if self.f16_kv else ggml.GGML_TYPE_F32
        params.embeddings = True
        params.kv_unified = True
        params.no_perf = True
        params.abort_callback = _should_stop
        params.abort_callback_data = &self.watch
        with nogil:
            self.ctx = llama.llama_init_from_model(self.model, params)
        if self.ctx == NULL:
            raise _failure(DecodeError, f"no context of {capacity} tokens can be made")
        llama.llama_attach_threadpool(self.ctx, self.pool, self.pool)
        self.batch = llama.llama_batch_ext_init(self.ctx)
        self.capacity = capacity
        undivided = (llama.llama_get_memory(self.ctx) == NULL
                     or not llama.llama_get_causal_attn(self.ctx))
        if undivided and not self.undivided:
            self.undivided = True
            self._free_context()
            self._reserve(n_tokens)

    cdef int _run(self, Forward *run) except -1 nogil:
        """Fills batches with the rows of all sequences, and decodes each when it is full."""
        cdef size_t s, c, i
        cdef int row
        cdef llama.llama_pos pos
        cdef Chunk chunk
        cdef llama.llama_embd embd
        cdef int n_batch = self.capacity
        if self.n_batch > 0 and not self.undivided:
            n_batch = min(n_batch, self.n_batch)
        embd.n_rows = 1
        embd.n_embd = llama.llama_model_n_embd_inp(self.model)
        run.rows.reserve(n_batch)
        for s in range(run.plans.size()):
            pos, row = 0, 0
            for c in range(run.plans[s].size()):
                chunk = run.plans[s].at(c)
                if chunk.tokens == NULL:
                    self._encode(chunk.picture)
                    embd.data = mtmd.mtmd_get_output_embd(self.vision)
                for i in range(chunk.n_tokens):
                    if <int>run.rows.size() == n_batch:
                        self._decode(run)
                    if chunk.tokens != NULL:
                        self._add_token(s, chunk.tokens[i], pos + <llama.llama_pos>i)
                    else:
                        self._add_embd(s, embd, chunk.picture, pos, i)
                        embd.data += embd.n_embd
                    run.rows.push_back(Row(<int>s, row))
                    row += 1
                pos += chunk.n_pos
        self._decode(run)
        return 0

    cdef int _encode(self, const mtmd.mtmd_input_chunk *picture) except -1 nogil:
        cdef int status = mtmd.mtmd_encode_chunk(self.vision, picture)
        if status != 0:
            with gil:
                raise _failure(DecodeError, "the vision tower failed")
        return 0

    cdef int _add_token(self, size_t s, llama.llama_token token, llama.llama_pos pos) except -1 nogil:
        cdef int32_t row = llama.llama_batch_ext_add_token(self.batch, <int32_t>s, token)
        if row < 0 or not llama.llama_batch_ext_set_pos(self.batch, row, &pos):
            with gil:
                raise _failure(DecodeError, f"token {token} cannot be added to the batch")
        llama.llama_batch_ext_set_output_embd(self.batch, row, True)
        return 0

    cdef int _add_embd(self, size_t s, llama.llama_embd embd, const mtmd.mtmd_input_chunk *picture,
                       llama.llama_pos pos, size_t i) except -1 nogil:
        cdef mtmd.mtmd_decoder_pos at = mtmd.mtmd_image_tokens_get_decoder_pos(
            mtmd.mtmd_input_chunk_get_tokens_image(picture), pos, i)
        cdef llama.llama_pos[4] positions
        cdef int32_t row = llama.llama_batch_ext_add_embd(self.batch, <int32_t>s, embd)
        positions[0], positions[1], positions[2], positions[3] = at.t, at.y, at.x, at.z
        if row < 0 or not llama.llama_batch_ext_set_pos(self.batch, row, positions):
            with gil:
                raise _failure(DecodeError, "a picture's row cannot be added to the batch")
        llama.llama_batch_ext_set_output_embd(self.batch, row, True)
        return 0

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
        run.rows.clear()
        llama.llama_batch_ext_clear(self.batch)
        return 0


def _park_daemon():
    """At the end of the interpreter, stops a daemon thread here, where it can be ended safely."""
    if _exiting and threading.current_thread() is not threading.main_thread():
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
