# Flags for our module and for llama.cpp alike.

# Keys that name absolute paths would make a fresh clone, or another build folder, miss the cache.
find_program(JMM_CCACHE ccache)
if(JMM_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(launcher ${CMAKE_COMMAND} -E env
        CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
        CCACHE_IGNOREOPTIONS=-ffile-prefix-map=* ${JMM_CCACHE})
    set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()

if(NOT MSVC)
    set(CMAKE_C_VISIBILITY_PRESET hidden)
    set(CMAKE_CXX_VISIBILITY_PRESET hidden)
    set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
    # The last matching map wins: the build folder may lie inside the source folder.
    # -fexceptions: a failed assertion is thrown through C frames too (src/jmm/_guard.pxi).
    foreach(option -ffunction-sections -fdata-sections -fexceptions
                   -ffile-prefix-map=${CMAKE_SOURCE_DIR}=.
                   -ffile-prefix-map=${CMAKE_BINARY_DIR}=build)
        add_compile_options(
            $<$<COMPILE_LANGUAGE:C,CXX>:${option}>
            $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${option}>)
    endforeach()
endif()

# After the build type's own flags, so that they hold; build_info()["flags"] tells them.
set(JMM_SANITIZE "" CACHE STRING "address (with undefined behaviour), thread, or nothing")
set_property(CACHE JMM_SANITIZE PROPERTY STRINGS "" address thread)
if(JMM_SANITIZE)
    set(sanitize "-fsanitize=thread")
    if(JMM_SANITIZE STREQUAL "address")
        set(sanitize "-fsanitize=address,undefined -fno-sanitize-recover=undefined")
        # What tools/sanitizers/undefined.txt lists.
        string(APPEND sanitize " -fsanitize-recover=enum")
    elseif(NOT JMM_SANITIZE STREQUAL "thread")
        message(FATAL_ERROR
            "JMM_SANITIZE is \"${JMM_SANITIZE}\"; address, thread or nothing is needed")
    endif()
    string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
    foreach(language C CXX)
        string(APPEND CMAKE_${language}_FLAGS_${build_type}
            " ${sanitize} -fno-omit-frame-pointer -O1 -g1")
    endforeach()
endif()

# Makes the init function the module's only export, whatever is linked into it.
function(jmm_export_only_init target)
    if(APPLE)
        target_link_options(${target} PRIVATE
            "LINKER:-exported_symbols_list,${CMAKE_SOURCE_DIR}/cmake/exports.txt"
            "LINKER:-dead_strip")
        set(list ${CMAKE_SOURCE_DIR}/cmake/exports.txt)
    elseif(UNIX)
        target_link_options(${target} PRIVATE
            "LINKER:--version-script=${CMAKE_SOURCE_DIR}/cmake/exports.map"
            "LINKER:--exclude-libs,ALL" "LINKER:--gc-sections" "LINKER:--no-undefined-version"
            "LINKER:-z,relro,-z,now")
        set(list ${CMAKE_SOURCE_DIR}/cmake/exports.map)
    endif()
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${list})
endfunction()
