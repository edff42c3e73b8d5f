# A failed assertion of ggml as an exception, where the thread that called can take one.
#
# ggml ends the process on a failed GGML_ASSERT, some of which stand for "no memory". On the
# thread that entered an engine the hook throws instead, through the frames of llama.cpp, up to
# the `except +` of the call. A worker thread of ggml has nobody to take it: it sleeps for ever if
# its caller has failed as well, as with a bad operand, and else the process ends, as ever.

cdef extern from * nogil:
    """
    #include <atomic>
    #include <chrono>
    #include <cstdio>
    #include <string>
    #include <thread>

    // no std::exception, so that no handler in between takes it for an ordinary error
    struct jmm_assertion {};

    static thread_local int         jmm_guard_depth = 0;
    static thread_local std::string jmm_failed_assertion;
    static std::atomic<int64_t>     jmm_last_throw{-1}; // seconds

    static int64_t jmm_seconds() {
        using namespace std::chrono;
        return duration_cast<seconds>(steady_clock::now().time_since_epoch()).count();
    }

    // a worker fails where its caller does, and the caller takes the exception: it waits for that
    static bool jmm_caller_has_thrown() {
        const int64_t start = jmm_seconds();
        while (jmm_seconds() <= start + 5) {
            if (jmm_last_throw >= start - 5) {
                return true;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        return false;
    }

    static void jmm_guard(int change) { jmm_guard_depth += change; }

    static void jmm_on_abort(const char * message) {
        if (jmm_guard_depth > 0) {
            jmm_failed_assertion = message;
            jmm_last_throw = jmm_seconds();
            throw jmm_assertion();
        }
        if (jmm_caller_has_thrown()) {
            for (;;) {
                std::this_thread::sleep_for(std::chrono::hours(1));
            }
        }
        std::fputs(message, stderr);
        std::fputc(10, stderr);
    }

    static std::string jmm_take_assertion() {
        std::string message;
        message.swap(jmm_failed_assertion);
        return message;
    }
    """
    void jmm_guard(int change)
    string jmm_take_assertion()
    void jmm_on_abort(const char *message)

ggml.ggml_set_abort_callback(jmm_on_abort)


cdef object _assertion_error(kind, what):
    """The exception for an assertion that has failed since the last call, or None."""
    cdef string message = jmm_take_assertion()
    if message.empty():
        return None
    said = message.decode("utf-8", "replace")
    logged = "; ".join(getattr(_native, "errors", ()))
    if "alloc" in said + logged or "mem_buffer" in said:
        kind = OutOfMemoryError
    return kind(f"{what}: {said}")
