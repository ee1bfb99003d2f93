#!/bin/bash
# Trains a bundled model, or both, on all GPUs of the machine: tools/models/train_all.sh OUT [block|full]... [-- ARG...]
#
# OUT/tiny-block and OUT/tiny-full receive the folders, with training.json: what the training did, and what PyTorch's
# decoders answer. ARGs go to train.py, such as --shape 5x320x768, or --no-eval to train until the end. A model takes TRAIN_WALL
# seconds, 560 by default. The state is in build/training: a training that was cut off goes on when the same command is run
# again on the same machine.
set -euo pipefail
out=$(realpath -m "$1")
cd "$(dirname "$0")"
shift
families=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do families+=("$1") && shift; done
[ $# -gt 0 ] && shift
[ ${#families[@]} -gt 0 ] || families=(block full)
state=../../build/training
mkdir -p "$state"
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0}

for family in "${families[@]}"; do
    folder=$out/tiny-$family
    mkdir -p "$folder"
    cp ../../models/"tiny-$family"/*.json "$folder"
    PYTHONUNBUFFERED=1 python3 train.py --family "$family" --out "$folder" --state "$state/$family.pt" \
        --begin "$(date +%s)" --wall "${TRAIN_WALL:-560}" --eval ../../models/eval*.jsonl "$@"
done
