#!/usr/bin/env python3
"""peer_ddp.py share|fsdp MODEL BATCH [ROUNDS [STEPS]] - bench/ddp_step.c in PyTorch, over Gloo:

share: DistributedDataParallel against a replica of its own on each worker.
fsdp: FSDP2, which shards each block and then the rest, against DistributedDataParallel.

Started by torch.distributed.run; prints "share with without"."""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import peer_gpt
import peer_steps

clock = time.process_time if "BENCH_CPU" in os.environ else time.perf_counter


def sharded(net):
    for unit in [m for m in net.modules() if isinstance(m, (peer_gpt.Block, peer_steps.Block))]:
        fully_shard(unit)
    return fully_shard(net)


def task(model, batch, wrap):
    """A function that makes one training step."""
    torch.manual_seed(1)
    if model == "gpt":
        net = wrap(peer_gpt.GPT(True))
        opt = torch.optim.AdamW(net.parameters(), 3e-4, weight_decay=0.1, fused=True)
        x, y = torch.randint(peer_gpt.VOCABULARY, (2, batch, peer_gpt.CONTEXT))
    else:
        net = wrap(peer_steps.resnet18().to(memory_format=torch.channels_last))
        opt = torch.optim.SGD(net.parameters(), 0.001, momentum=0.9)
        x = torch.randn(batch, 3, 224, 224).to(memory_format=torch.channels_last)
        y = torch.randint(1000, (batch,))

    def step():
        opt.zero_grad()
        out = net(x)
        F.cross_entropy(out.view(-1, out.shape[-1]), y.view(-1)).backward()
        opt.step()

    for _ in range(3):
        step()
    return step


def worst(value):
    tensor = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return tensor.item()


def timed(step, steps):
    dist.barrier()
    begin = clock()
    for _ in range(steps):
        step()
    return worst((clock() - begin) / steps * 1e3)


def main():
    what, model, batch = sys.argv[1], sys.argv[2], int(sys.argv[3])
    rounds, steps = [int(a) for a in (sys.argv[4:6] + ["5", "4"][len(sys.argv[4:6]):])]
    dist.init_process_group("gloo")
    wraps = {"share": (DistributedDataParallel, lambda net: net),
             "fsdp": (sharded, DistributedDataParallel)}[what]
    measured, plain = [task(model, batch, wrap) for wrap in wraps]
    turns = [(timed(measured, steps), timed(plain, steps)) for _ in range(rounds)]
    if dist.get_rank() == 0:
        print("%.4f %.3f %.3f" % (statistics.median(b / a for a, b in turns),
                                  statistics.median(a for a, _ in turns),
                                  statistics.median(b for _, b in turns)))
    sys.stdout.flush()
    dist.destroy_process_group()


main()
