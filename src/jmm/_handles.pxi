# What every engine owns whatever it runs: the thread pool, the vision tower, and the rules of use.

# How long the end of the interpreter waits for a call to stop.
cdef double RETIRE_SECONDS = 60

_engines = weakref.WeakSet()


cdef struct TowerRoom:
    size_t n_patches  # of one call
    size_t n_bytes


cdef class Handles:
    """Native handles that one thread at a time may use, in the process that made them."""

    cdef ggml.ggml_threadpool *pool  # owned, freed after what computes with it
    cdef mtmd.mtmd_context *vision  # owned, NULL without an mmproj
    cdef ggml.ggml_backend_dev_t device  # borrowed, NULL for the CPU
    cdef Watch watch
    cdef jmm_recorder recorder  # borrowed by the contexts while `records`
    cdef bool records
    cdef object __weakref__
    cdef object lock
    cdef atomic[uint64_t] owner  # thread that holds the lock, 0 for none
    cdef object available  # tells the bytes that may still be taken, None if it cannot; or None
    cdef TowerRoom held  # what the tower has had room for
    cdef TowerRoom wanted  # what it needs room for now, if that is more
    cdef atomic[bool] loaded
    cdef atomic[bool] closing  # close() came from inside a call; the call frees
    cdef int pid  # the process that may use the handles
    cdef readonly int n_threads
    cdef readonly int patch_n_elem
    cdef readonly int patch_size  # pixels
    cdef readonly int patch_n_merge
    cdef readonly int n_embd_vision

    def __cinit__(self, *args, **kwargs):
        # nothing that can raise: a subclass would be freed before it has its own methods
        self.pid = getpid()

    cdef _register(self):
        """Comes first in `__init__`."""
        self.lock = threading.Lock()
        _engines.add(self)

    def __dealloc__(self):
        if self.pid == getpid():
            Handles._free(self)

    cdef void _free(self) noexcept:
        self.loaded.store(False)
        if self.vision != NULL:
            mtmd.mtmd_free(self.vision)
            self.vision = NULL
        if self.pool != NULL:
            ggml.ggml_threadpool_free(self.pool)
            self.pool = NULL

    cdef void _abandon(self) noexcept:
        """Drops every handle without freeing: after a failed assertion nothing can be relied on."""
        self.loaded.store(False)
        self.vision = NULL
        self.pool = NULL

    cdef _start(self, int n_threads, device):
        """Makes the thread pool, and finds the GPU of that name."""
        cdef ggml.ggml_threadpool_params pool = ggml.ggml_threadpool_params_default(n_threads)
        cdef bytes name
        if device is not None:
            name = device.encode()
            self.device = ggml.ggml_backend_dev_by_name(name)
            if self.device == NULL:
                raise InputError(f"there is no device {device!r}")
        pool.poll = 0  # idle workers sleep
        self.n_threads = n_threads
        self.pool = ggml.ggml_threadpool_new(&pool)
        if self.pool == NULL:
            raise OutOfMemoryError(f"{n_threads} threads cannot be started; lower n_threads")

    cdef _load_vision(self, path, const llama.llama_model *model, bool with_weights):
        cdef bytes name = os.fsencode(path)
        cdef const char *c_name = name
        cdef mtmd.mtmd_context_params params = mtmd.mtmd_context_params_default()
        params.use_gpu = self.device != NULL and with_weights
        params.device = self.device
        params.print_timings = False
        params.warmup = False
        params.no_alloc = not with_weights
        params.n_threads = self.n_threads
        params.threadpool = self.pool
        params.abort_callback = _should_stop
        params.abort_callback_data = &self.watch
        params.progress_callback = _keep_loading
        params.progress_callback_user_data = &self.watch
        if self.records:
            params.cb_eval = jmm_record_vision
            params.cb_eval_user_data = &self.recorder
        with nogil:
            self.vision = mtmd.mtmd_init_from_file(c_name, model, params)
        self._raise_interrupt()
        if self.vision == NULL:
            raise _failure(ModelLoadError, f"{path}: the vision tower cannot be loaded")
        self.patch_n_elem = mtmd.mtmd_get_patch_n_elem(self.vision)
        self.patch_n_merge = mtmd.mtmd_get_patch_n_merge(self.vision)
        self.n_embd_vision = mtmd.mtmd_get_n_embd(self.vision)
        if self.patch_n_elem == 0 and model == NULL:
            raise ModelLoadError(f"{path}: a tower of this family cannot run apart from its model")
        self.patch_size = <int>sqrt(self.patch_n_elem / 6)  # of two frames in three channels

    cdef _load_error(self, error, path):
        """What to raise for an error of loading; frees what was loaded."""
        failed = _assertion_error(ModelLoadError, f"{path}: the model cannot be loaded")
        self._free()
        if failed is not None:
            return failed
        if type(error) is MemoryError:
            return OutOfMemoryError(f"{path}: no memory to load the model")
        if type(error) is RuntimeError:
            return _failure(ModelLoadError, f"{path}: {error}")
        return error

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

    cdef _raise_interrupt(self):
        error = _take_error(&self.watch)
        if error is not None:
            raise error

    # --- one caller at a time ---

    cdef _enter(self):
        """Takes the engine for this thread until `_leave`."""
        self._check_caller()
        self.lock.acquire()
        self.owner.store(threading.get_ident())
        jmm_guard(1)
        jmm_take_assertion()
        _forget_errors()

    cdef _enter_open(self):
        """As `_enter`, for an engine that must be loaded."""
        self._enter()
        if not self.loaded.load():
            self._leave()
            raise InputError("the model is closed")

    cdef _leave(self):
        jmm_guard(-1)
        if self.closing.load():
            self._free()
        self.owner.store(0)
        self.lock.release()
        _park_daemon()
        _raise_from_log()

    cdef _check_caller(self):
        if self.pid != getpid():
            raise ForkedProcessError(
                f"the model was loaded in process {self.pid} and this is process {getpid()}, "
                "forked from it; load the model after forking, or start processes by spawn"
            )
        if self.owner.load() == threading.get_ident():
            raise DecodeError(
                "the model is busy in this very thread: a signal handler or a log handler has "
                "called it in the midst of another call"
            )
        if _exiting.load():
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
        if not self.loaded.load():
            raise InputError("the model is closed")

    @property
    def is_open(self):
        """Whether the model is still there."""
        return self.loaded.load()

    def tower_bytes(self, list shapes):
        """Tells the memory that pictures of one call take in the tower, beside their patches.

        Args:
            shapes: ``(grid_h, grid_w)`` in patches each; of a tile, its sides in pixels.

        Returns:
            int: Bytes of the graph's buffers at their largest, and of all rows.
        """
        cdef vector[Picture] pictures
        cdef Picture picture
        cdef float mark = 0  # never read
        memset(&picture, 0, sizeof(picture))
        if self.patch_n_elem == 0:
            picture.pixels = &mark
        for picture.grid_h, picture.grid_w in shapes:
            pictures.push_back(picture)
        self._enter_open()
        try:
            return _tower_bytes(self.vision, pictures)
        except BaseException as error:
            raise self._translate(error, "a forecast of the tower's memory") from None
        finally:
            self._leave()

    def close(self):
        """Frees the model. Further calls raise InputError."""
        if self.pid != getpid() or _exiting.load():
            return
        self.closing.store(True)
        if self.owner.load() != threading.get_ident():
            self.lock.acquire()
            self.owner.store(threading.get_ident())
            jmm_guard(1)
            self._leave()

    def retire(self):
        """Waits for the call that runs, and lets none follow; for the end of the interpreter."""
        if self.pid == getpid() and self.owner.load() != threading.get_ident():
            self.lock.acquire(timeout=RETIRE_SECONDS)


def _park_daemon():
    """At the end of the interpreter, stops a daemon thread here, where it can be ended safely."""
    if _exiting.load() and threading.current_thread() is not threading.main_thread():
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
