# The targets `llama` and `mtmd`, static, from the pinned and patched tree.

if(JMM_LLAMA_CPP_DIR)
    set(tree ${JMM_LLAMA_CPP_DIR})
    set(JMM_LLAMA_CPP_VERSION "local")
    set(JMM_PATCHES "")
    message(STATUS "llama.cpp: ${tree}, as it is")
else()
    set(tree ${CMAKE_SOURCE_DIR}/extern/llama.cpp)
    execute_process(
        COMMAND ${Python_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/llama_source.py patch
        RESULT_VARIABLE status)
    if(NOT status EQUAL 0)
        message(FATAL_ERROR "The llama.cpp tree could not be made; the reason is above.")
    endif()
    file(READ ${CMAKE_SOURCE_DIR}/extern/llama.cpp.lock lock)
    string(JSON JMM_LLAMA_CPP_VERSION GET "${lock}" llama_cpp_version)
    file(STRINGS ${CMAKE_SOURCE_DIR}/patches/series JMM_PATCHES REGEX "^[^#]")
    list(TRANSFORM JMM_PATCHES PREPEND ${CMAKE_SOURCE_DIR}/patches/ OUTPUT_VARIABLE patch_files)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
        ${CMAKE_SOURCE_DIR}/extern/llama.cpp.lock ${CMAKE_SOURCE_DIR}/patches/series ${patch_files})
endif()

if(NOT EXISTS ${tree}/tools/mtmd/mtmd.h)
    message(FATAL_ERROR
        "${tree} is no llama.cpp tree: it has no tools/mtmd/mtmd.h. "
        "Point JMM_LLAMA_CPP_DIR at the root of one, or leave it empty.")
endif()

if(JMM_HIP AND NOT EXISTS ${tree}/ggml/src/ggml-hip)
    message(FATAL_ERROR
        "The pinned source comes without ggml's HIP backend. Apply patches/ to a whole llama.cpp "
        "tree of the version in extern/llama.cpp.lock, and point JMM_LLAMA_CPP_DIR at it.")
endif()

set(BUILD_SHARED_LIBS OFF)
set(LLAMA_BUILD_MTMD ON)
foreach(part COMMON TOOLS TESTS EXAMPLES SERVER APP UI)
    set(LLAMA_BUILD_${part} OFF)
endforeach()
set(LLAMA_OPENSSL OFF)
set(LLAMA_SUBPROCESS OFF)
set(LLAMA_TOOLS_INSTALL OFF)
set(LLAMA_ALL_WARNINGS OFF)
set(MTMD_VIDEO OFF CACHE BOOL "" FORCE)
set(GGML_OPENMP OFF)
set(GGML_CCACHE OFF)

# Without these upstream asks git, which answers with our commit and rebuilds all at each one.
set(GIT_EXE "")
set(LLAMA_BUILD_NUMBER 0)
set(LLAMA_BUILD_COMMIT ${JMM_LLAMA_CPP_VERSION})

set(GGML_NATIVE ${JMM_NATIVE})
if(NOT JMM_NATIVE)
    foreach(feature SSE42 AVX AVX2 FMA F16C BMI2)
        option(GGML_${feature} "" ON)
    endforeach()
    foreach(feature AVX_VNNI AVX512 AVX512_VBMI AVX512_VNNI AVX512_BF16
                    AMX_TILE AMX_INT8 AMX_BF16)
        option(GGML_${feature} "" OFF)
    endforeach()
endif()

add_subdirectory(${tree} ${CMAKE_BINARY_DIR}/llama.cpp EXCLUDE_FROM_ALL)

# Parsing the same headers for each vision model costs CPU time: twelve in one unit took 3.7 s,
# one alone 1.8 s. The files that patches touch stay apart, so that an edit rebuilds only them.
set_target_properties(mtmd PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
get_target_property(apart mtmd SOURCES)
list(FILTER apart EXCLUDE REGEX "^models/[^q].*\\.cpp$")
list(TRANSFORM apart PREPEND ${tree}/tools/mtmd/)
set_source_files_properties(${apart} TARGET_DIRECTORY mtmd PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)

# They lie in the tree that this build fetches, too late for project.license-files.
if(DEFINED SKBUILD_METADATA_DIR)
    file(GLOB_RECURSE licences RELATIVE ${tree}
        ${tree}/LICENSE ${tree}/licenses/* ${tree}/vendor/LICENSE* ${tree}/gguf-py/LICENSE)
    foreach(licence ${licences})
        get_filename_component(folder ${licence} DIRECTORY)
        install(FILES ${tree}/${licence}
            DESTINATION ${SKBUILD_METADATA_DIR}/licenses/extern/llama.cpp/${folder})
    endforeach()
endif()
