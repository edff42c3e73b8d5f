# jmm_add_module(<name> <source>): a module for the stable ABI, or for this Python alone.
function(jmm_add_module name source)
    set(sabi "")
    if(SKBUILD_SABI_VERSION)
        set(sabi USE_SABI ${SKBUILD_SABI_VERSION})
    endif()
    python_add_library(${name} MODULE ${sabi} WITH_SOABI ${source})
    jmm_export_only_init(${name})
endfunction()

# jmm_add_cython_module(<name> <pyx>): the extension module jmm.<name>.

string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
string(STRIP "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}}" JMM_CXX_FLAGS)
set(JMM_COMPILER "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")

function(jmm_add_cython_module name pyx)
    file(GLOB declarations CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/jmm/*.pxd
        ${CMAKE_SOURCE_DIR}/src/jmm/*.pxi)
    set(cpp ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
    # The path is relative so that tracebacks show it, not this machine's folders.
    add_custom_command(
        OUTPUT ${cpp}
        COMMAND ${Python_EXECUTABLE} -m cython --cplus -3 --module-name jmm.${name}
                -I src ${pyx} -o ${cpp}
        WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
        DEPENDS ${pyx} ${declarations}
        COMMENT "Cython ${pyx}"
        VERBATIM)
    configure_file(${CMAKE_SOURCE_DIR}/cmake/jmm_build.h.in jmm_build.h @ONLY ESCAPE_QUOTES)
    jmm_add_module(${name} ${cpp})
    target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_BINARY_DIR})
endfunction()
