#!/usr/bin/env python3
"""Writes samplers.txt: indices of torch.utils.data.RandomSampler and WeightedRandomSampler (PyTorch
2.13) for a generator that is seeded by seed + epoch.

A line: random length replacement n_samples seed epoch n index...
        weighted length n_samples seed epoch n index..., the weights are (7 * i) % 5 + i / 4
"""
import itertools

import torch
from torch.utils.data import RandomSampler, WeightedRandomSampler


def generator(seed, epoch):
    g = torch.Generator()
    g.manual_seed(seed + epoch)
    return g


with open("samplers.txt", "w", encoding="ascii") as out:
    for length, replacement, count in itertools.product(
            (1, 2, 5, 23, 70, (1 << 28) - 1, 1 << 28, 1 << 33), (0, 1), (None, 1, 3, 23, 50, 100)):
        if length > 100 and (not replacement or count is None):
            continue
        seed, epoch = length % 5, length % 3
        indices = list(RandomSampler(range(length), bool(replacement), count,
                                     generator(seed, epoch)))
        print("random", length, replacement, count or 0, seed, epoch, len(indices), *indices,
              file=out)
    for length, count in itertools.product((1, 2, 5, 23, 70), (2, 3, 23, 100)):
        seed, epoch = length % 5, length % 3
        weights = [(7 * i) % 5 + i / 4 for i in range(1, length + 1)]
        indices = list(WeightedRandomSampler(weights, count, True, generator(seed, epoch)))
        print("weighted", length, count, seed, epoch, len(indices), *indices, file=out)
