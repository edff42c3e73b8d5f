# One wheel for every x86-64 processor from AVX2 on: jmm._core, and a second build of it for AVX-512.
#
# Only ggml-cpu differs, but its options are of the whole project's, so the second is a project of
# its own, whose objects of everything else come from ccache where there is one. jmm/cpu.py chooses.

set(JMM_LEVEL "" CACHE STRING "Of the inner build; empty in the one that is asked for")
mark_as_advanced(JMM_LEVEL)
option(JMM_LEVELS "With JMM_NATIVE=OFF on x86-64, build for AVX-512, too" ON)

# Skylake-X lacks VNNI and takes AVX2. ggml asks for tiles at run time, so they may be compiled in.
set(JMM_AVX512_FEATURES AVX512 AVX512_VNNI)
set(JMM_AVX512_OPTIONS -mavx512f -mavx512cd -mavx512vl -mavx512dq -mavx512bw -mavx512vnni)

if(JMM_LEVEL)
    jmm_instruction_sets(needed)
    if(NOT needed STREQUAL JMM_NEEDED)
        message(FATAL_ERROR "The build for ${JMM_LEVEL} needs ${needed}, not ${JMM_NEEDED}")
    endif()
    set_target_properties(_core PROPERTIES OUTPUT_NAME _core_${JMM_LEVEL})
    target_link_options(_core PRIVATE "LINKER:--strip-all") # it is no target where it is installed
    return()
endif()

jmm_instruction_sets(needed)
if(JMM_NATIVE)
    set(levels "native:${needed}")
elseif(needed MATCHES "avx2" AND NOT needed MATCHES "avx512")
    set(levels "avx2:${needed}")
else()
    set(levels "plain:${needed}")
endif()

if(JMM_LEVELS AND levels MATCHES "^avx2:" AND CMAKE_SYSTEM_NAME STREQUAL "Linux" AND
        CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64)$" AND NOT JMM_SANITIZE AND NOT JMM_CUDA)
    include(CheckCXXCompilerFlag)
    include(ExternalProject)
    check_cxx_compiler_flag("-mamx-tile -mamx-int8" JMM_COMPILER_HAS_AMX)
    if(JMM_COMPILER_HAS_AMX)
        list(APPEND JMM_AVX512_FEATURES AMX_TILE AMX_INT8)
    endif()
    list(TRANSFORM JMM_AVX512_FEATURES REPLACE "(.+)" "-DGGML_\\1=ON" OUTPUT_VARIABLE features)
    jmm_instruction_sets(needed ${JMM_AVX512_OPTIONS})
    string(PREPEND levels "avx512:${needed};")
    set(folder ${CMAKE_BINARY_DIR}/avx512)
    set(init "")
    if(EXISTS ${CMAKE_BINARY_DIR}/CMakeInit.txt) # scikit-build-core's settings
        set(init -C${CMAKE_BINARY_DIR}/CMakeInit.txt)
    endif()
    get_target_property(suffix _core SUFFIX)
    ExternalProject_Add(level_avx512
        SOURCE_DIR ${CMAKE_SOURCE_DIR}
        BINARY_DIR ${folder}
        CMAKE_ARGS ${init} -DJMM_NATIVE=OFF -DJMM_LEVEL=avx512 "-DJMM_NEEDED=${needed}" ${features}
            -DCMAKE_BUILD_TYPE=${CMAKE_BUILD_TYPE}
            -DCMAKE_C_COMPILER=${CMAKE_C_COMPILER} -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}
            "-DCMAKE_C_FLAGS=${CMAKE_C_FLAGS}" "-DCMAKE_CXX_FLAGS=${CMAKE_CXX_FLAGS}"
            -DPython_EXECUTABLE=${Python_EXECUTABLE} -DJMM_LLAMA_CPP_DIR=${JMM_LLAMA_CPP_DIR}
            -DSKBUILD_PROJECT_VERSION=${PROJECT_VERSION}
        BUILD_ALWAYS ON
        BUILD_BYPRODUCTS ${folder}/_core_avx512${suffix}
        INSTALL_COMMAND ""
        DEPENDS _core) # not both at once
    install(FILES ${folder}/_core_avx512${suffix} DESTINATION jmm)
endif()
message(STATUS "native module for ${levels}")

# jmm._cpu tells them to jmm/cpu.py, and needs none of the instruction sets itself.
file(CONFIGURE OUTPUT jmm_levels.h CONTENT "#define JMM_LEVELS \"${levels}\"\n" @ONLY)
jmm_add_module(_cpu src/jmm/_cpu.c)
target_include_directories(_cpu PRIVATE ${CMAKE_CURRENT_BINARY_DIR})
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$" AND NOT MSVC)
    target_compile_options(_cpu PRIVATE -march=x86-64 -mtune=generic) # after the user's own flags
endif()
install(TARGETS _core _cpu LIBRARY DESTINATION jmm)
