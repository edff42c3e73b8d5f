// Prints, for each call of ggml_tile_config_init(), the 64 bytes that its ldtilecfg loaded (zeros: it loaded none).
// Two calls on the main thread, one on a second thread. tile_config.inc holds the function's text from mmq.cpp.

#include <immintrin.h>
#include <signal.h>
#include <ucontext.h>

#include <cpuid.h>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <thread>

#include "tile_config.inc"

static_assert(sizeof(tile_config_t) == 64, "ldtilecfg reads 64 bytes");

static uint8_t loaded[64];

static bool has_amx() {
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_OSXSAVE)) {
        return false;
    }
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || !(edx & (1u << 24))) {
        return false;
    }
    uint32_t lo, hi;
    __asm__("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (lo >> 17 & 3) == 3;
}

// Without AMX ldtilecfg raises #UD: read its memory operand here and step over it.
// Encoding: VEX.128.NP.0F38.W0 49 !(11):000:bbb (Intel SDM volume 2, LDTILECFG).
static void on_sigill(int, siginfo_t *, void * context) {
    static const int order[16] = { REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                   REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15 };
    greg_t *        regs = static_cast<ucontext_t *>(context)->uc_mcontext.gregs;
    const uint8_t * p    = reinterpret_cast<const uint8_t *>(regs[REG_RIP]);

    const int mod = p[4] >> 6;
    if (p[0] != 0xC4 || (p[1] & 0x1F) != 0x02 || p[2] != 0x78 || p[3] != 0x49 || (p[4] & 0x38) != 0 || mod == 3) {
        signal(SIGILL, SIG_DFL);
        return;
    }
    const int ext_x = p[1] & 0x40 ? 0 : 8;
    const int ext_b = p[1] & 0x20 ? 0 : 8;
    const int rm    = p[4] & 7;
    p += 5;

    int64_t address  = 0;
    int     base     = rm;
    if (rm == 4) {
        const int index = (*p >> 3 & 7) | ext_x;
        if (index != 4) {
            address = regs[order[index]] << (*p >> 6);
        }
        base = *p++ & 7;
    }
    const bool rip_relative = mod == 0 && rm == 5;
    const bool no_base      = mod == 0 && base == 5;
    if (!no_base) {
        address += regs[order[base | ext_b]];
    }
    if (mod == 1) {
        address += static_cast<int8_t>(*p++);
    } else if (mod == 2 || no_base) {
        int32_t disp;
        memcpy(&disp, p, sizeof(disp));
        address += disp;
        p += sizeof(disp);
    }
    if (rip_relative) {
        address += reinterpret_cast<int64_t>(p);
    }
    memcpy(loaded, reinterpret_cast<const void *>(address), sizeof(loaded));
    regs[REG_RIP] = reinterpret_cast<greg_t>(p);
}

// What the stack holds must not look like a configuration.
__attribute__((noinline)) static void dirty_stack() {
    volatile uint8_t stack[4096];
    for (volatile uint8_t & byte : stack) {
        byte = 0xA5;
    }
}

__attribute__((noinline)) static void call() {
    ggml_tile_config_init();
}

static void load_and_print(bool amx) {
    if (amx) {
        __asm__ volatile("tilerelease");
    }
    memset(loaded, 0, sizeof(loaded));
    dirty_stack();
    call();
    if (amx) {
        __asm__ volatile("sttilecfg %0" : "=m"(loaded));
    }
    for (uint8_t byte : loaded) {
        printf("%02x", byte);
    }
    printf("\n");
}

int main() {
    const bool amx = has_amx();
    if (!amx) {
        struct sigaction action = {};
        action.sa_sigaction = on_sigill;
        action.sa_flags     = SA_SIGINFO;
        sigaction(SIGILL, &action, nullptr);
    }
    load_and_print(amx);
    load_and_print(amx);
    std::thread(load_and_print, amx).join();
}
