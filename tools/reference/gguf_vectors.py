"""Writes build/data/gguf/formats.json: groups of ggml's formats, and their fp32 values from the package gguf.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install gguf numpy
    /tmp/venv/bin/python gguf_vectors.py        # a second; the same bytes each time (gguf 0.19.0)

The bytes of a group are random, except that its fp16 scales are finite. The last group of each format has subnormal
scales, the one before it a negative scale.
"""
import json
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

ROOT = Path(__file__).resolve().parents[2]
ELEMENTS = 768      # of each format

# The offsets in bytes of the fp16 scales of a group. MXFP4 has an exponent of 8 bits instead.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": []}


def random_groups(rng, scales, n, size):
    """Returns n groups of `size` bytes."""
    groups = rng.integers(0, 256, (n, size), dtype=np.uint8)
    for at in scales:
        bits = rng.integers(0, 0x7c00, n, dtype=np.uint16)
        bits[-1] = rng.integers(1, 0x400)
        bits[-2] |= 0x8000
        groups[:, at:at + 2] = bits.reshape(n, 1).view(np.uint8)
    return groups


def vector(name, scales):
    """Returns the type's number, its groups and the 32 bits of their values, all bytes as hexadecimal digits."""
    kind = GGMLQuantizationType[name]
    elements, size = GGML_QUANT_SIZES[kind]
    groups = random_groups(np.random.default_rng(kind.value), scales, ELEMENTS // elements, size)
    values = quants.dequantize(groups, kind).astype("<f4")
    assert np.isfinite(values).all()
    return {"type": kind.value, "elements": elements, "groups": [g.tobytes().hex() for g in groups],
            "values": ["".join(f"{v:08x}" for v in row.view("<u4")) for row in values]}


def main():
    out = ROOT / "build/data/gguf/formats.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{json.dumps(name)}:{json.dumps(vector(name, scales), separators=(',', ':'))}"
             for name, scales in SCALES.items()]
    out.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
