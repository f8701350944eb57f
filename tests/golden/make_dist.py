#!/usr/bin/env python3
"""Writes dist.txt: collectives of tensors and their gradients by PyTorch 2.13, of
torch.distributed.nn.functional and of the functional collectives, on 2 and 3 ranks over gloo.

Usage: make_dist.py > dist.txt   (nothing of the build needs it)

Rank r has x [2 p, p, 3] of p ranks, f64, x[i] = ((7 i + 5 r) mod 11) / 4 - 1, and the loss
sum of (r + 1) (1 + i mod 3) y[i]^2. A line for each rank:
  CALL NUMBER RANKS RANK ndim sizes.. n y.. m gradient..
where NUMBER is the dimension, or the source of a broadcast, or says how many rows of an all_to_all_v
go where (rows_to).
"""
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as nn
import torch.multiprocessing as mp

CALLS = [("all_reduce", 0)]
CALLS += [("all_gather", dim) for dim in (0, 1, 2)]
CALLS += [("reduce_scatter", dim) for dim in (0, 1)]
CALLS += [("all_to_all", 0), ("broadcast", 0), ("broadcast", 1)]
CALLS += [("all_to_all_v", number) for number in (0, 1)]


def rows_to(number, rank, size):
    """Of 2 size rows, how many the rank sends to each: some none."""
    rows = [(rank + 2 * r + number) % 3 for r in range(size - 1)]
    return rows + [2 * size - sum(rows)]


def call(name, number, x):
    world = dist.group.WORLD
    if name == "all_reduce":
        return nn.all_reduce(x, group=world)
    if name == "all_gather":
        return functional.all_gather_single_autograd(x, number, world)
    if name == "reduce_scatter":
        return functional.reduce_scatter_single_autograd(x, "sum", number, world)
    if name == "all_to_all":
        return functional.all_to_all_single_autograd(x, None, None, world)
    if name == "all_to_all_v":
        rank, size = dist.get_rank(), dist.get_world_size()
        came = [rows_to(number, r, size)[rank] for r in range(size)]
        return functional.all_to_all_single_autograd(x, came, rows_to(number, rank, size), world)
    return nn.broadcast(x, number, group=world)


def run(rank, size, folder):
    dist.init_process_group("gloo", init_method="file://" + folder + "/meet", rank=rank,
                            world_size=size)
    with open("%s/%d" % (folder, rank), "w", encoding="ascii") as out:
        for name, number in CALLS:
            n = 2 * size * size * 3
            i = torch.arange(n, dtype=torch.float64)
            x = (((7 * i + 5 * rank) % 11) / 4 - 1).reshape(2 * size, size, 3).requires_grad_()
            y = call(name, number, x)
            w = (1 + torch.arange(y.numel(), dtype=torch.float64) % 3).reshape(y.shape)
            ((rank + 1) * w * y * y).sum().backward()
            print(name, number, size, rank, y.dim(), *y.shape, y.numel(),
                  *["%.17g" % v for v in y.detach().flatten().tolist()], n,
                  *["%.17g" % v for v in x.grad.flatten().tolist()], file=out)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    for ranks in (2, 3):
        with tempfile.TemporaryDirectory() as where:
            mp.spawn(run, (ranks, where), ranks)
            for r in range(ranks):
                with open(os.path.join(where, str(r)), encoding="ascii") as part:
                    sys.stdout.write(part.read())
