#!/usr/bin/env python3
"""Writes safetensors/*.safetensors with the Python package (safetensors 0.8.0, PyTorch 2.13).

safetensors_test.c reads them, and writes the same tensors: its files must have the same bytes.
Values of tensor number k (in the order below) are (k * 37 + i * 11) % 100 - 50, i the element.
"""
import os

import torch
from safetensors.torch import save_file

os.makedirs("safetensors", exist_ok=True)


def values(k, dtype, *shape):
    n = 1
    for size in shape:
        n *= size
    x = torch.tensor([(k * 37 + i * 11) % 100 - 50 for i in range(n)], dtype=torch.float64)
    if dtype == torch.bool:
        x = x > 0
    if dtype == torch.uint8:
        x = x.abs()
    return x.to(dtype).reshape(shape)


save_file({
    "layer1.0.weight": values(0, torch.float32, 2, 3, 1, 2),
    "layer1.0.bias": values(1, torch.float32, 5),
    "scalar": values(2, torch.float64),
    "steps": values(3, torch.int64, 3),
    "half": values(4, torch.float16, 3),
    "brain": values(5, torch.bfloat16, 1, 3),
    "small": values(6, torch.int8, 3),
    "bytes": values(7, torch.uint8, 3),
    "mask": values(8, torch.bool, 7),
    "words": values(9, torch.int32, 2, 2),
    "shorts": values(10, torch.int16, 3),
    "empty": values(11, torch.float32, 0, 4),
}, "safetensors/types.safetensors", {"format": "pt"})
save_file({"größe \"1\"/\\": values(0, torch.float32, 1)}, "safetensors/names.safetensors")
save_file({}, "safetensors/none.safetensors")
save_file({"u": torch.tensor([2**63 + 5], dtype=torch.uint64),
           "c": torch.zeros(2, dtype=torch.complex64)}, "safetensors/foreign.safetensors")
