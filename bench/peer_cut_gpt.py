#!/usr/bin/env python3
"""peer_cut_gpt.py pipeline|tensor LAYERS [ROUNDS [STEPS]] - bench/cut_gpt.c in PyTorch, over Gloo:

pipeline: two stages of torch.distributed.pipelining, Schedule1F1B with 8 micro-batches.
tensor: parallelize_module, queries, keys and values in layers of their own, since it cuts no fused one.

Started by torch.distributed.run; prints "of_bound cut own"."""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                               parallelize_module)

WIDTH, HEADS, CONTEXT = (128, 4, 64) if os.environ.get("GPT_SIZE") == "small" else (384, 6, 256)
VOCABULARY, BATCH = 256, 8

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)

    def forward(self, tokens):
        return self.wte(tokens) + self.wpe.weight


class Block(nn.Module):
    def __init__(self, fused):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.fused = fused
        if fused:
            self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        else:
            self.q, self.k, self.v = [nn.Linear(WIDTH, WIDTH) for _ in range(3)]
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.fc, self.out = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attention(self, x):
        qkv = self.qkv(x).split(WIDTH, dim=2) if self.fused else (self.q(x), self.k(x), self.v(x))
        q, k, v = [a.view(*a.shape[:2], -1, WIDTH // HEADS).transpose(1, 2) for a in qkv]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(*x.shape[:2], -1))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


def network(layers, fused):
    torch.manual_seed(1)
    return nn.Sequential(Words(), *[Block(fused) for _ in range(layers)],
                         nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)))


def loss_fn(logits, target):
    return F.cross_entropy(logits.view(-1, VOCABULARY), target.view(-1))


class Update:
    """AdamW; one optimizer for parameters that are cut and one for others, which mixes no kinds."""

    def __init__(self, net):
        kinds = [[p for p in net.parameters() if isinstance(p, DTensor) == cut]
                 for cut in (False, True)]
        self.optimizers = [torch.optim.AdamW(kind, 3e-4, weight_decay=0.1, fused=True)
                           for kind in kinds if kind]

    def zero_grad(self):
        for opt in self.optimizers:
            opt.zero_grad()

    def step(self):
        for opt in self.optimizers:
            opt.step()


def whole(net, x, y, pieces):
    """A function that makes one training step of a network on this worker."""
    opt = Update(net)

    def step():
        opt.zero_grad()
        for part, target in zip(x.chunk(pieces), y.chunk(pieces)):
            (loss_fn(net(part), target) / pieces).backward()
        opt.step()

    return step


def staged(net, layers, x, y):
    rank, size = dist.get_rank(), dist.get_world_size()
    cuts = [0] + [1 + layers * s // size for s in range(1, size)] + [layers + 2]
    part = net[cuts[rank]:cuts[rank + 1]]
    schedule = Schedule1F1B(PipelineStage(part, rank, size, torch.device("cpu")),
                            n_microbatches=BATCH, loss_fn=loss_fn)
    opt = Update(part)

    def step():
        opt.zero_grad()
        schedule.step(*([x] if rank == 0 else []), **({"target": y} if rank == size - 1 else {}))
        opt.step()

    return step


def tensor_parallel(net):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in net[1:-1]:
        parallelize_module(block, mesh, {
            "q": ColwiseParallel(), "k": ColwiseParallel(), "v": ColwiseParallel(),
            "proj": RowwiseParallel(), "fc": ColwiseParallel(), "out": RowwiseParallel()})
    return net


def timed(step, steps):
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    tensor = torch.tensor([(time.perf_counter() - begin) / steps * 1e3], dtype=torch.float64)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return tensor.item()


def main():
    what, layers = sys.argv[1], int(sys.argv[2])
    rounds, steps = [int(a) for a in (sys.argv[3:5] + ["5", "2"][len(sys.argv[3:5]):])]
    dist.init_process_group("gloo")
    size = dist.get_world_size()
    x, y = torch.randint(VOCABULARY, (2, BATCH, CONTEXT))
    if what == "pipeline":
        cut = staged(network(layers, True), layers, x, y)
        own = whole(network(layers, True), x, y, BATCH)
        bound = size * BATCH / (BATCH + size - 1)
    else:
        cut = whole(tensor_parallel(network(layers, False)), x, y, 1)
        own = whole(network(layers, True), x, y, 1)
        bound = size
    for step in (cut, own):
        timed(step, 2)
    turns = [(timed(cut, steps), timed(own, steps)) for _ in range(rounds)]
    if dist.get_rank() == 0:
        print("%.4f %.3f %.3f" % (statistics.median(b / a / bound for a, b in turns),
                                  statistics.median(a for a, _ in turns),
                                  statistics.median(b for _, b in turns)))
    sys.stdout.flush()
    dist.destroy_process_group()


main()
