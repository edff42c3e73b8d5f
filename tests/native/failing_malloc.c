// Loaded before the C library: lets one allocation of 4 KB or more fail, of those that jmm's native
// module makes, itself or through C++'s new. (Others' code is not tested here.)

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

static const size_t   LEAST = 4096;
static atomic_long    n_left = 0; // allocations until one fails; below 0 none fails, 0: not begun
static atomic_long    n_seen = 0;

// starts to count; the n-th allocation from here on fails, none for n = 0
void fail_allocation(long n) {
    n_seen = 0;
    n_left = n > 0 ? n : -1;
}

long count_allocations(void) {
    return n_seen;
}

static int fails(size_t size, const void * caller) {
    Dl_info info;
    if (size < LEAST || n_left == 0 || dladdr(caller, &info) == 0 ||
        (strstr(info.dli_fname, "/jmm/_core.") == NULL && strstr(info.dli_fname, "/libstdc++.") == NULL)) {
        return 0;
    }
    n_seen++;
    if (n_left == 1) {
        n_left = -1;
        return 1;
    }
    n_left -= n_left > 0;
    return 0;
}

void * __libc_malloc(size_t size);
void * __libc_calloc(size_t n, size_t size);
void * __libc_realloc(void * old, size_t size);
void * __libc_memalign(size_t alignment, size_t size);

void * malloc(size_t size) {
    return fails(size, __builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

void * calloc(size_t n, size_t size) {
    return fails(n * size, __builtin_return_address(0)) ? NULL : __libc_calloc(n, size);
}

void * realloc(void * old, size_t size) {
    return fails(size, __builtin_return_address(0)) ? NULL : __libc_realloc(old, size);
}

void * aligned_alloc(size_t alignment, size_t size) {
    return fails(size, __builtin_return_address(0)) ? NULL : __libc_memalign(alignment, size);
}

int posix_memalign(void ** pointer, size_t alignment, size_t size) {
    void * found = fails(size, __builtin_return_address(0)) ? NULL : __libc_memalign(alignment, size);
    if (found == NULL) {
        return ENOMEM;
    }
    *pointer = found;
    return 0;
}
