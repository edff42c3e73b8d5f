# Which instruction sets a build of jmm._core needs.

# As the compiler names them in its macros. Tiles are left out: ggml asks before it uses them.
set(JMM_INSTRUCTION_SETS SSE3 SSSE3 SSE4_1 SSE4_2 POPCNT MOVBE LZCNT BMI BMI2 AVX F16C FMA
    AVX2 AVXVNNI GFNI AVX512F AVX512CD AVX512BW AVX512DQ AVX512VL AVX512IFMA AVX512VBMI
    AVX512VBMI2 AVX512VNNI AVX512BITALG AVX512VPOPCNTDQ AVX512BF16 AVX512FP16)

# jmm_instruction_sets(<result> <compiler option>...): what ggml-cpu needs, with further options.
function(jmm_instruction_sets result)
    set(needed "")
    get_target_property(options ggml-cpu COMPILE_OPTIONS)
    if(MSVC) # its /arch options, as its documentation lists them
        if(options MATCHES "/arch:AVX")
            set(needed sse3 ssse3 sse4_1 sse4_2 popcnt avx)
        endif()
        if(options MATCHES "/arch:AVX(2|512)")
            list(APPEND needed bmi bmi2 lzcnt movbe f16c fma avx2)
        endif()
        if(options MATCHES "/arch:AVX512")
            list(APPEND needed avx512f avx512cd avx512bw avx512dq avx512vl)
        endif()
    else()
        list(FILTER options INCLUDE REGEX "^-m")
        separate_arguments(flags NATIVE_COMMAND "${JMM_CXX_FLAGS}")
        execute_process(
            COMMAND ${CMAKE_CXX_COMPILER} ${flags} ${options} ${ARGN} -dM -E -x c++ /dev/null
            OUTPUT_VARIABLE macros
            COMMAND_ERROR_IS_FATAL ANY)
        foreach(name ${JMM_INSTRUCTION_SETS})
            if(macros MATCHES "#define __${name}__ 1\n")
                string(TOLOWER ${name} name)
                list(APPEND needed ${name})
            endif()
        endforeach()
    endif()
    list(JOIN needed " " needed)
    set(${result} ${needed} PARENT_SCOPE)
endfunction()
