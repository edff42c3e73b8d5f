# jmm._cpu: tells the instruction sets that jmm._core needs, without needing them itself.

# As the compiler names them in its macros. Tiles are left out: ggml asks before it uses them.
set(known SSE3 SSSE3 SSE4_1 SSE4_2 POPCNT MOVBE LZCNT BMI BMI2 AVX F16C FMA AVX2 AVXVNNI GFNI
    AVX512F AVX512CD AVX512BW AVX512DQ AVX512VL AVX512IFMA AVX512VBMI AVX512VBMI2 AVX512VNNI
    AVX512BITALG AVX512VPOPCNTDQ AVX512BF16 AVX512FP16)

set(needed "")
if(NOT MSVC)
    get_target_property(options ggml-cpu COMPILE_OPTIONS)
    list(FILTER options INCLUDE REGEX "^-m")
    separate_arguments(flags NATIVE_COMMAND "${JMM_CXX_FLAGS}")
    execute_process(
        COMMAND ${CMAKE_CXX_COMPILER} ${flags} ${options} -dM -E -x c++ /dev/null
        OUTPUT_VARIABLE macros
        COMMAND_ERROR_IS_FATAL ANY)
    foreach(name ${known})
        if(macros MATCHES "#define __${name}__ 1\n")
            string(TOLOWER ${name} name)
            list(APPEND needed ${name})
        endif()
    endforeach()
endif()
list(JOIN needed " " needed)
message(STATUS "instruction sets needed: ${needed}")
file(CONFIGURE OUTPUT jmm_needed.h CONTENT "#define JMM_NEEDED \"${needed}\"\n" @ONLY)

python_add_library(_cpu MODULE WITH_SOABI src/jmm/_cpu.c)
target_include_directories(_cpu PRIVATE ${CMAKE_CURRENT_BINARY_DIR})
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$" AND NOT MSVC)
    target_compile_options(_cpu PRIVATE -march=x86-64 -mtune=generic) # after the user's own flags
endif()
jmm_export_only_init(_cpu)
