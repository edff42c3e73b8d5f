// Instruction sets: those of this processor, and those that each build of jmm._core needs.
//
// Compiled for the plainest processor of its kind, as it runs before jmm._core is loaded.
// Bits: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, CPUID; volume 1,
// 13.3 for what the operating system must save.

#include <Python.h>

#include "jmm_levels.h"

enum { EAX, EBX, ECX, EDX };

#if (defined(__x86_64__) || defined(__i386__)) && (defined(__GNUC__) || defined(__clang__))
#define IS_X86
#include <cpuid.h>

static int cpuid(unsigned leaf, unsigned subleaf, unsigned words[4]) {
    return __get_cpuid_count(leaf, subleaf, &words[EAX], &words[EBX], &words[ECX], &words[EDX]);
}

static unsigned xcr0(void) {
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}
#elif defined(_M_X64) || defined(_M_IX86)
#define IS_X86
#include <immintrin.h>
#include <intrin.h>

static int cpuid(unsigned leaf, unsigned subleaf, unsigned words[4]) {
    __cpuid((int *) words, (int) (leaf & 0x80000000));
    if (words[EAX] < leaf) {
        return 0;
    }
    __cpuidex((int *) words, (int) leaf, (int) subleaf);
    return 1;
}

static unsigned xcr0(void) {
    return (unsigned) _xgetbv(0);
}
#endif

#ifdef IS_X86
enum { NONE = 0, YMM = 0x6, ZMM = 0xe6, TILE = 0x60000 };

static const struct {
    const char * name;
    unsigned leaf, subleaf, word, bit, saved;
} FEATURES[] = {
    { "sse3",             1, 0, ECX,  0, NONE },
    { "ssse3",            1, 0, ECX,  9, NONE },
    { "sse4_1",           1, 0, ECX, 19, NONE },
    { "sse4_2",           1, 0, ECX, 20, NONE },
    { "popcnt",           1, 0, ECX, 23, NONE },
    { "movbe",            1, 0, ECX, 22, NONE },
    { "lzcnt",   0x80000001, 0, ECX,  5, NONE },
    { "bmi",              7, 0, EBX,  3, NONE },
    { "bmi2",             7, 0, EBX,  8, NONE },
    { "avx",              1, 0, ECX, 28, YMM },
    { "f16c",             1, 0, ECX, 29, YMM },
    { "fma",              1, 0, ECX, 12, YMM },
    { "avx2",             7, 0, EBX,  5, YMM },
    { "avxvnni",          7, 1, EAX,  4, YMM },
    { "gfni",             7, 0, ECX,  8, NONE },
    { "avx512f",          7, 0, EBX, 16, ZMM },
    { "avx512cd",         7, 0, EBX, 28, ZMM },
    { "avx512bw",         7, 0, EBX, 30, ZMM },
    { "avx512dq",         7, 0, EBX, 17, ZMM },
    { "avx512vl",         7, 0, EBX, 31, ZMM },
    { "avx512ifma",       7, 0, EBX, 21, ZMM },
    { "avx512vbmi",       7, 0, ECX,  1, ZMM },
    { "avx512vbmi2",      7, 0, ECX,  6, ZMM },
    { "avx512vnni",       7, 0, ECX, 11, ZMM },
    { "avx512bitalg",     7, 0, ECX, 12, ZMM },
    { "avx512vpopcntdq",  7, 0, ECX, 14, ZMM },
    { "avx512bf16",       7, 1, EAX,  5, ZMM },
    { "avx512fp16",       7, 0, EDX, 23, ZMM },
    { "amx_tile",         7, 0, EDX, 24, TILE },
    { "amx_int8",         7, 0, EDX, 25, TILE },
    { "amx_bf16",         7, 0, EDX, 22, TILE },
};

// the registers that the operating system saves
static unsigned saved_registers(void) {
    unsigned words[4];
    const int has_xsave = cpuid(1, 0, words) && words[ECX] >> 27 & 1; // OSXSAVE
    return has_xsave ? xcr0() : 0;
}

static PyObject * available(PyObject * module, PyObject * unused) {
    const unsigned saved = saved_registers();
    PyObject * names = PyList_New(0);
    for (size_t i = 0; names && i < sizeof(FEATURES) / sizeof(FEATURES[0]); i++) {
        unsigned words[4] = { 0 };
        if (!cpuid(FEATURES[i].leaf, FEATURES[i].subleaf, words) ||
                !(words[FEATURES[i].word] >> FEATURES[i].bit & 1) ||
                (saved & FEATURES[i].saved) != FEATURES[i].saved) {
            continue;
        }
        PyObject * name = PyUnicode_FromString(FEATURES[i].name);
        if (!name || PyList_Append(names, name) < 0) {
            Py_CLEAR(names);
        }
        Py_XDECREF(name);
    }
    (void) module;
    (void) unused;
    return names;
}
#else
static PyObject * available(PyObject * module, PyObject * unused) {
    (void) module;
    (void) unused;
    Py_RETURN_NONE;
}
#endif

static PyMethodDef methods[] = {
    { "available", available, METH_NOARGS, "Names of this processor's, None where unknown." },
    { NULL, NULL, 0, NULL },
};

static int add_levels(PyObject * module) {
    return PyModule_AddStringConstant(module, "LEVELS", JMM_LEVELS);
}

static PyModuleDef_Slot slots[] = {
    { Py_mod_exec, add_levels },
#ifdef Py_mod_gil
    { Py_mod_gil, Py_MOD_GIL_NOT_USED },
#endif
    { 0, NULL },
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "jmm._cpu", NULL, 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__cpu(void) {
    return PyModuleDef_Init(&definition);
}
