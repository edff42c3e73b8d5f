# Signal handlers run while native code computes: ggml asks between two nodes whether to stop.

cdef struct Watch:
    int64_t checked_us
    bool stop
    PyObject *error  # owned, what a signal handler raised


cdef bool _should_stop(void *data) noexcept nogil:
    cdef Watch *watch = <Watch *>data
    cdef int64_t now = ggml_time_us()
    if _exiting.load():
        return True
    if not watch.stop and now - watch.checked_us >= SIGNAL_PERIOD_US:
        watch.checked_us = now
        with gil:
            _run_signal_handlers(watch)
    return watch.stop


cdef void _run_signal_handlers(Watch *watch) noexcept:
    try:
        PyErr_CheckSignals()
    except BaseException as error:
        Py_INCREF(error)
        watch.error = <PyObject *>error
        watch.stop = True


cdef bool _keep_loading(float progress, void *data) noexcept nogil:
    return not _should_stop(data)


cdef object _take_error(Watch *watch):
    """What a signal handler or a log handler has raised in this call, or None."""
    raised = _take_log_error()
    if watch.error != NULL:
        raised = <object>watch.error
        watch.error = NULL
        watch.stop = False
        Py_DECREF(raised)
    return raised
