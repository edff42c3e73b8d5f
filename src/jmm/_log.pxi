# Native log lines go to logging.getLogger("jmm.native"); errors also into the next exception.

_logger = logging.getLogger("jmm.native")
_native = threading.local()
cdef atomic[int] _level
_level.store(ggml.GGML_LOG_LEVEL_ERROR)

# What llama.cpp warns of is advice for its own programs.
_PYTHON_LEVEL = {
    ggml.GGML_LOG_LEVEL_DEBUG: logging.DEBUG,
    ggml.GGML_LOG_LEVEL_INFO: logging.DEBUG,
    ggml.GGML_LOG_LEVEL_WARN: logging.INFO,
    ggml.GGML_LOG_LEVEL_ERROR: logging.ERROR,
}


cdef extern from * nogil:
    """
    // no memory for a line, which may have told that there was none
    static thread_local bool jmm_lost_line = false;
    """
    bool jmm_lost_line


cdef void _on_log(ggml.ggml_log_level level, const char *text, void *user_data) noexcept nogil:
    if _exiting.load() or level < _level.load() or level == ggml.GGML_LOG_LEVEL_CONT:
        return
    with gil:
        _log(level, text)


cdef void _log(int level, const char *text) noexcept:
    try:
        line = text.decode("utf-8", "replace").strip()
        if level == ggml.GGML_LOG_LEVEL_ERROR:
            _native.errors = [*getattr(_native, "errors", ()), line][-4:]
        elif getattr(_native, "muted", False):
            return
        _logger.log(_PYTHON_LEVEL.get(level, logging.INFO), "%s", line)
    except MemoryError:
        _lose_line()
    except Exception:
        pass  # a log line is never worth an application
    except BaseException as error:
        _native.raised = error  # Ctrl-C in a handler; raised when the native call returns


cdef object _take_log_error():
    raised = getattr(_native, "raised", None)
    _native.raised = None
    return raised


cdef _raise_from_log():
    """For lines that come when the call has its result or its error, as those of freeing."""
    raised = _take_log_error()
    if raised is not None:
        raise raised


def set_native_log_level(int level):
    """Sets from which `logging` level on native log lines reach the logger ``jmm.native``."""
    wanted = [native for native, python in _PYTHON_LEVEL.items() if python >= level]
    _level.store(min(wanted, default=ggml.GGML_LOG_LEVEL_ERROR))


cdef void _lose_line() noexcept:
    global jmm_lost_line
    jmm_lost_line = True


cdef _forget_errors():
    global jmm_lost_line
    jmm_lost_line = False
    _native.errors = []


def _failure(kind, what):
    """The exception for a native call that failed, with what native code logged about it."""
    said = "; ".join(getattr(_native, "errors", ()))
    if jmm_lost_line or "alloc" in said.lower():
        kind = OutOfMemoryError
    return kind(f"{what}: {said}" if said else what)
