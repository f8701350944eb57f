#!/usr/bin/env python3
"""Writes sampler.txt: shares of torch.utils.data.DistributedSampler (PyTorch 2.13).

A line: length replicas rank shuffle drop_last seed epoch n index...
"""
import itertools

from torch.utils.data import DistributedSampler

with open("sampler.txt", "w", encoding="ascii") as out:
    for length, replicas, shuffle, drop in itertools.product(
            (1, 2, 5, 7, 10, 23), (1, 2, 3, 5, 16), (0, 1), (0, 1)):
        for rank in sorted({0, 1, replicas // 2, replicas - 1} & set(range(replicas))):
            seed, epoch = (length * 7) % 5, (length + replicas) % 3
            sampler = DistributedSampler(range(length), replicas, rank, bool(shuffle), seed,
                                         bool(drop))
            sampler.set_epoch(epoch)
            try:
                share = list(sampler)
            except AssertionError:  # PyTorch has no answer when the set is smaller than the ranks
                continue
            print(length, replicas, rank, shuffle, drop, seed, epoch, len(share), *share, file=out)
