#!/usr/bin/env python3
"""Writes tests/golden/attention_masks.txt: nn.MultiheadAttention in f64 with masks of every kind.
Of each case a line "== name", then its output and the gradients of query, key and value for
sum(output^2), all numbers in one line each. attention_masks_test.c has the same operands.

    python3 tests/golden/make_attention_masks.py        (made with PyTorch 2.13.0, CPU)
"""
import math
import os
import warnings

import torch
from torch import nn

N, T, S, C, HEADS = 2, 3, 4, 6, 2


def numbers(shape, seed):
    count = math.prod(shape)
    return torch.tensor([math.sin(0.7 * i + seed) for i in range(count)],
                        dtype=torch.float64).reshape(shape)


def filled(shape, rule):
    n, t, s = shape
    return torch.tensor([[[rule(i, j, k) for k in range(s)] for j in range(t)] for i in range(n)])


PADDING = filled((N, 1, S), lambda n, _, s: n == 1 and s >= 2)[:, 0]
PADDING_NUMBERS = numbers((N, S), 5)
ATTN = filled((1, T, S), lambda _, t, s: s > t + 1)[0]
ATTN_NUMBERS = numbers((T, S), 6)
HEADS_ATTN = filled((N * HEADS, T, S), lambda b, t, s: (b + t + s) % 3 == 0)
HEADS_NUMBERS = numbers((N * HEADS, T, S), 7)

CASES = {
    "none": (None, None),
    "padding": (PADDING, None),
    "padding_numbers": (PADDING_NUMBERS, None),
    "attn": (None, ATTN),
    "attn_numbers": (None, ATTN_NUMBERS),
    "heads": (None, HEADS_ATTN),
    "heads_numbers": (None, HEADS_NUMBERS),
    "padding_attn": (PADDING, ATTN),
    "padding_heads": (PADDING, HEADS_ATTN),
    "padding_attn_numbers": (PADDING, ATTN_NUMBERS),
    "padding_numbers_attn": (PADDING_NUMBERS, ATTN),
    "padding_numbers_heads_numbers": (PADDING_NUMBERS, HEADS_NUMBERS),
    "padding_heads_numbers": (PADDING, HEADS_NUMBERS),
}


def main():
    warnings.simplefilter("ignore")  # masks of two types are deprecated
    layer = nn.MultiheadAttention(C, HEADS, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        for seed, parameter in enumerate(layer.parameters()):
            parameter.copy_(numbers(parameter.shape, seed) / 2)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "attention_masks.txt")
    with open(path, "w", encoding="ascii") as out:
        for name, (padding, attn) in CASES.items():
            operands = [numbers((N, T, C), 10), numbers((N, S, C), 11), numbers((N, S, C), 12)]
            for x in operands:
                x.requires_grad_()
            y, _ = layer(*operands, key_padding_mask=padding, attn_mask=attn, need_weights=False)
            y.square().sum().backward()
            out.write(f"== {name}\n")
            for x in [y] + [x.grad for x in operands]:
                out.write(" ".join(f"{v:.15g}" for v in x.flatten().tolist()) + "\n")


if __name__ == "__main__":
    main()
