#!/usr/bin/env bash
# Builds for the GPU of this machine, then checks and times there, in under ten minutes.
#
#   benchmarks/gpu.sh [PYTHON]
#
# Needs a driver, a C++ compiler, and pip with packages to install from. With PYTHON nothing is
# installed: the build uses what that environment holds (the build tools, a CUDA 13 toolkit or its
# packages, numpy, pillow, tqdm, gguf, pytest), and its torch is the one that is timed.
# JMM_GPU_TORCH=1 installs torch and transformers; without torch jmm is timed alone.
# JMM_GPU_ARCHITECTURES and JMM_GPU_DEVICE name another architecture and device.
set -euo pipefail

cd "$(dirname "$0")/.."
work=build/gpu
results=benchmarks/results
deadline=600
mkdir -p "$work" "$results"

step() { printf '\n== %s (%ss)\n' "$1" "$SECONDS"; }

# A step may not take what the ones after it need: its limit, or what is left, in seconds.
limited() {
    local limit=$1 left=$((deadline - SECONDS))
    shift
    if [ "$left" -lt 5 ]; then
        echo "no time is left for: $*" >&2
        return 1
    fi
    timeout --kill-after=5 "$((limit < left ? limit : left))" "$@"
}

step "the machine"
if ! nvidia-smi --query-gpu=name,compute_cap,driver_version,memory.total --format=csv,noheader; then
    [ -n "${JMM_GPU_ARCHITECTURES:-}" ] || { echo "nvidia-smi finds no GPU" >&2; exit 1; }
fi
architectures=${JMM_GPU_ARCHITECTURES:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader |
    sort -u | sed 's/\.\(.*\)/\1-real/' | paste -sd ';')}
device=${JMM_GPU_DEVICE:-CUDA0}

step "the build, for $architectures"
build=(-C "cmake.define.JMM_CUDA_ARCHITECTURES=$architectures" -C "build-dir=$PWD/$work/cmake")
python=${1:-}
if [ -z "$python" ]; then
    python3 -m venv "$work/venv"
    python=$work/venv/bin/python
    packages=('.[test,cuda]')
    [ -z "${JMM_GPU_TORCH:-}" ] || packages+=('torch>=2.9' 'transformers==5.24.0')
    JMM_CUDA=1 limited 480 "$python" -m pip install --quiet "${build[@]}" "${packages[@]}"
    site=
else
    site=$PWD/$work/site
    JMM_CUDA=1 limited 480 "$python" -m pip install --quiet --no-build-isolation --no-deps \
        --upgrade --target "$site" "${build[@]}" .
    # cuBLAS lies where the packages of that environment are, and not beside the module.
    folders=$("$python" -c "import nvidia; print(*(p + '/cu13/lib' for p in nvidia.__path__), sep=':')" 2> /dev/null || true)
    export LD_LIBRARY_PATH=$folders:${LD_LIBRARY_PATH:-}
fi
export PYTHONPATH=$site:tests:benchmarks

step "the devices"
"$python" - "$device" << 'END'
import sys

import jmm

print(jmm.__file__, jmm.build_info()["backends"])
found = jmm.devices()
print(*found, sep="\n")
if sys.argv[1] not in (device["name"] for device in found):
    sys.exit(f"there is no {sys.argv[1]}")
END

failed=0
step "parity with the golden files"
limited 120 "$python" -m pytest -q -rfEs -p no:cacheprovider tests/native/test_gpu.py || failed=1

export JMM_BENCH_MODELS=${JMM_BENCH_MODELS:-$PWD/$work/models}
step "finiteness"
limited 200 "$python" benchmarks/bench_finite.py --device "$device" \
    --output "$results/gpu-finite.json" || failed=1

step "speed"
engines=(jmm:bf16 jmm:f16 jmm:q8_0)
if "$python" -c "import sys, torch; sys.exit(not torch.cuda.is_available())" 2> /dev/null; then
    engines+=(torch:bf16)
else
    echo "torch finds no GPU: no ceiling and no ratio to it"
fi
limited 150 "$python" benchmarks/bench_image.py --device "$device" --engines "${engines[@]}" \
    --sizes 784 --batch 1 8 --output "$results/gpu-image.json" || failed=1
limited 100 "$python" benchmarks/bench_text.py --device "$device" --engines "${engines[@]}" \
    --tokens 20 500 --together 64 --batches 1 64 --mixed 0 \
    --output "$results/gpu-text.json" || failed=1

step "done"
exit "$failed"
