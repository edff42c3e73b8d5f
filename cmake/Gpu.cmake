# GPUs: which backends of ggml are built, and where CUDA's toolkit comes from.

option(JMM_METAL "Compute on GPUs of Apple" OFF)
option(JMM_VULKAN "Compute on GPUs by Vulkan; needs its headers and glslc" OFF)
option(JMM_HIP "Compute on AMD GPUs; needs ROCm" OFF)
foreach(kind METAL VULKAN HIP)
    set(GGML_${kind} ${JMM_${kind}})
endforeach()
set(GGML_METAL_EMBED_LIBRARY ON) # one module, no file beside it

option(JMM_CUDA "Compute on NVIDIA GPUs; needs the CUDA 13 toolkit or its Python packages" OFF)
set(JMM_CUDA_ARCHITECTURES "" CACHE STRING
    "As CMAKE_CUDA_ARCHITECTURES; empty: of the GPUs here with JMM_NATIVE, else those of a wheel")

set(GGML_CUDA ${JMM_CUDA})
set(GGML_CUDA_FA ON)
set(GGML_CUDA_FA_ALL_QUANTS OFF)
set(GGML_CUDA_FORCE_CUBLAS OFF)
set(GGML_CUDA_FORCE_MMQ OFF)
set(GGML_CUDA_GRAPHS ON)
set(GGML_CUDA_NCCL OFF)
set(GGML_CUDA_NO_PEER_COPY OFF)
set(GGML_CUDA_NO_VMM ON) # what needs libcuda.so at link time; without it a driver is no condition
# Upstream sets these two in the cache, which under its policies drops a plain variable.
set(GGML_CUDA_COMPRESSION_MODE size CACHE STRING "" FORCE)
set(GGML_CUDA_FA_QUANTS "f16-f16;bf16-bf16" CACHE STRING "" FORCE) # no cache of ours is quantized

# The folder nvidia/cu13 of this Python, where it holds a whole toolkit.
function(jmm_find_cuda_packages result)
    execute_process(
        COMMAND ${Python_EXECUTABLE} -c
                "import nvidia, pathlib; print(*(pathlib.Path(p, 'cu13').as_posix() for p in nvidia.__path__), sep=';')"
        OUTPUT_VARIABLE folders ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    set(${result} "" PARENT_SCOPE)
    foreach(folder ${folders})
        set(whole ON)
        foreach(part bin/nvcc bin/crt nvvm/bin/cicc include/cuda_runtime.h include/cccl
                     include/cublas_v2.h lib/libcudart_static.a lib/libcublas.so.13)
            if(NOT EXISTS ${folder}/${part})
                set(whole OFF)
            endif()
        endforeach()
        if(whole)
            set(${result} ${folder} PARENT_SCOPE)
            return()
        endif()
    endforeach()
endfunction()

if(JMM_CUDA)
    if(NOT CMAKE_CUDA_COMPILER AND NOT CUDAToolkit_ROOT AND NOT DEFINED ENV{CUDACXX})
        jmm_find_cuda_packages(packages)
        if(packages)
            # They have lib/ where nvcc looks for lib64/, and no names without a version.
            set(CMAKE_CUDA_COMPILER ${packages}/bin/nvcc)
            set(CUDAToolkit_ROOT ${packages})
            set(CUDA_CUDART ${packages}/lib/libcudart.so.13 CACHE FILEPATH "")
            set(CUDA_cublas_LIBRARY ${packages}/lib/libcublas.so.13 CACHE FILEPATH "")
            string(APPEND CMAKE_CUDA_FLAGS " -L${packages}/lib")
        endif()
    endif()
    find_package(CUDAToolkit)
    if(NOT TARGET CUDA::cudart_static OR NOT TARGET CUDA::cublas)
        message(FATAL_ERROR
            "JMM_CUDA needs nvcc, the CUDA runtime and cuBLAS. With JMM_CUDA=1 in the environment "
            "pip gets their packages for the build. Or install the toolkit and name it by "
            "CUDAToolkit_ROOT, or build with --no-build-isolation in a Python that has "
            "'nvidia-cuda-nvcc==13.0.*' 'nvidia-cuda-crt==13.0.*' 'nvidia-nvvm==13.0.*' "
            "'nvidia-cuda-cccl==13.0.*' 'nvidia-cuda-runtime==13.0.*' 'nvidia-cublas==13.*'; "
            "this one is ${Python_EXECUTABLE}.")
    endif()
    if(CUDAToolkit_VERSION VERSION_LESS 13)
        message(FATAL_ERROR "JMM_CUDA needs CUDA 13; this toolkit is ${CUDAToolkit_VERSION} "
            "(${CUDAToolkit_BIN_DIR}).")
    endif()

    if(JMM_CUDA_ARCHITECTURES)
        set(CMAKE_CUDA_ARCHITECTURES ${JMM_CUDA_ARCHITECTURES})
    elseif(JMM_NATIVE)
        set(CMAKE_CUDA_ARCHITECTURES native)
    else()
        set(CMAKE_CUDA_ARCHITECTURES 75-virtual 80-real 86-real 89-real 90-real 120a-real)
    endif()
    set(CMAKE_CUDA_STANDARD 17)
    set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
    enable_language(CUDA)
    if(CMAKE_CUDA_ARCHITECTURES STREQUAL native AND
       NOT CMAKE_CUDA_ARCHITECTURES_NATIVE MATCHES "^[0-9]")
        message(FATAL_ERROR "No GPU was found here to build for: name some, as in "
            "-C cmake.define.JMM_CUDA_ARCHITECTURES=90 for an H100.")
    endif()
endif()

# Links the runtime statically, so that cuBLAS is all that a wheel asks of the nvidia packages.
function(jmm_link_cuda module)
    foreach(property LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
        get_target_property(libraries ggml-cuda ${property})
        list(TRANSFORM libraries REPLACE "CUDA::cudart(>?)$" "CUDA::cudart_static\\1")
        set_target_properties(ggml-cuda PROPERTIES ${property} "${libraries}")
    endforeach()
    target_link_options(${module} PRIVATE "LINKER:-rpath,$ORIGIN/../nvidia/cu13/lib")
endfunction()
