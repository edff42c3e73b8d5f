# A failed assertion of ggml as an exception, where the thread that called can take one.
#
# ggml ends the process on a failed GGML_ASSERT, some of which stand for "no memory". On the
# thread that entered an engine the hook throws instead, through the frames of llama.cpp, up to
# the `except +` of the call. On a worker thread of ggml there is nobody to take it: the message
# is printed and the process ends, as ever.

cdef extern from * nogil:
    """
    #include <cstdio>
    #include <stdexcept>
    #include <string>

    static const char JMM_ASSERTION[] = "ggml assertion: ";
    static thread_local bool jmm_thread_is_guarded = false;

    static void jmm_guard_thread(bool guarded) { jmm_thread_is_guarded = guarded; }

    static void jmm_on_abort(const char * message) {
        if (jmm_thread_is_guarded) {
            throw std::runtime_error(std::string(JMM_ASSERTION) + message);
        }
        std::fputs(message, stderr);
        std::fputc(10, stderr);
    }
    """
    const char *JMM_ASSERTION
    void jmm_guard_thread(bool guarded)
    void jmm_on_abort(const char *message)

_ASSERTION = JMM_ASSERTION.decode()
ggml.ggml_set_abort_callback(jmm_on_abort)
