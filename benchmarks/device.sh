#!/usr/bin/env bash
# What only a GPU can show, in a few minutes: the gpu tests, the two speed ratios on CUDA, and three updates of the tiny recipe.
# Run from the repository root, in an environment with Unmask installed. Results go to $OUT (default: device/).
set -euo pipefail
out=${OUT:-device}
mkdir -p "$out"
python=${PYTHON:-python3}
"$python" -m pytest -q -m gpu | tee "$out/tests.txt"
"$python" benchmarks/decoding.py --json "$out/decoding.json"
"$python" benchmarks/replay.py --json "$out/replay.json"
"$python" -m unmask train tiny/forkgrpo trainer.steps=3 evaluation.every=0 model.dtype=float32 run.dir="$out/run"
