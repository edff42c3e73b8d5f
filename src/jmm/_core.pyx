# cython: freethreading_compatible=True
"""The native layer: owns every C handle, releases the GIL, raises jmm's exceptions.

`Engine` holds one model and computes; `Tower` is a vision tower alone; `Sequence` is one
tokenised item; `read_gguf` reads a file's header; the rest tells about this build. Nothing here
knows prompts, profiles or pictures: those live above, in Python.
"""

import atexit
import logging
import os
import threading
import weakref

from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport (
    int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t,
)
from libc.math cimport sqrt
from libc.string cimport memcmp, memcpy, memset
from libcpp cimport bool
from libcpp.algorithm cimport stable_sort
from libcpp.atomic cimport atomic
from libcpp.string cimport string
from libcpp.unordered_set cimport unordered_set
from libcpp.vector cimport vector

import numpy as np

from jmm cimport _ggml as ggml
from jmm cimport _llama as llama
from jmm cimport _mtmd as mtmd
from jmm cimport _quant as quant

from jmm.errors import (
    DecodeError,
    ForkedProcessError,
    InputError,
    ModelLoadError,
    OutOfMemoryError,
)

cdef extern from "jmm_build.h":
    const char *JMM_VERSION
    const char *JMM_LLAMA_CPP_VERSION
    const char *JMM_PATCHES
    const char *JMM_COMPILER
    const char *JMM_CXX_FLAGS

cdef extern from "ggml.h" nogil:
    int64_t ggml_time_us()

cdef extern from * nogil:
    """
    #ifdef _WIN32
    #include <process.h>
    #else
    #include <unistd.h>
    #endif
    """
    int getpid()

cdef int64_t SIGNAL_PERIOD_US = 50_000

# Set at the end of the interpreter, read by threads that compute: taking the GIL would then end them
# within C++ frames.
cdef atomic[int] _exiting


include "_guard.pxi"
include "_log.pxi"
include "_signals.pxi"
include "_header.pxi"
include "_health.pxi"
include "_handles.pxi"
include "_vision.pxi"
include "_memory.pxi"
include "_sequence.pxi"
include "_rows.pxi"
include "_engine.pxi"
include "_quantize.pxi"

llama.llama_log_set(_on_log, NULL)
mtmd.mtmd_log_set(_on_log, NULL)
# A build for GPUs calls it an error that there is no driver; who loads a model is told.
_logger.disabled = True
llama.llama_backend_init()
_logger.disabled = False
START_ERRORS = tuple(getattr(_native, "errors", ()))


def _stop_engines():
    _exiting.store(1)
    for engine in list(_engines):
        engine.retire()


atexit.register(_stop_engines)


def build_info():
    cdef size_t index
    backends = []
    for index in range(ggml.ggml_backend_reg_count()):
        backends.append(ggml.ggml_backend_reg_name(ggml.ggml_backend_reg_get(index)).decode())
    return {
        "version": JMM_VERSION.decode(),
        "llama_cpp": JMM_LLAMA_CPP_VERSION.decode(),
        "patches": [name for name in JMM_PATCHES.decode().split(";") if name],
        "compiler": JMM_COMPILER.decode(),
        "flags": JMM_CXX_FLAGS.decode(),
        "backends": backends,
        "system_info": llama.llama_print_system_info().decode().strip(),
    }


def devices(*, bool with_memory=True):
    """As `jmm.devices`. To ask a GPU for its memory makes a context there, which takes some."""
    cdef size_t index, free, total
    cdef ggml.ggml_backend_dev_t device
    kinds = {
        ggml.GGML_BACKEND_DEVICE_TYPE_CPU: "cpu",
        ggml.GGML_BACKEND_DEVICE_TYPE_GPU: "gpu",
        ggml.GGML_BACKEND_DEVICE_TYPE_IGPU: "igpu",
        ggml.GGML_BACKEND_DEVICE_TYPE_ACCEL: "accel",
    }
    found = []
    for index in range(ggml.ggml_backend_dev_count()):
        device = ggml.ggml_backend_dev_get(index)
        entry = {
            "name": ggml.ggml_backend_dev_name(device).decode(),
            "description": ggml.ggml_backend_dev_description(device).decode(),
            "kind": kinds.get(<int>ggml.ggml_backend_dev_type(device), "other"),
        }
        if with_memory:
            ggml.ggml_backend_dev_memory(device, &free, &total)
            entry |= {"memory_free": free, "memory_total": total}
        found.append(entry)
    return found
