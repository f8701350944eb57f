"""peer_toy_step.py - the toy model of bench/toy_step.c in PyTorch DDP, two workers over gloo.
Prints the median time of a step in microseconds."""
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(model, opt, x, y, steps):
    for _ in range(steps):
        opt.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        loss.item()


def worker(rank, rendezvous):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    torch.manual_seed(rank)
    x, y = torch.randn(20, 10), torch.randn(20, 5)
    net = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5))
    model = DistributedDataParallel(net)
    opt = torch.optim.SGD(model.parameters(), lr=0.001)
    train(model, opt, x, y, 200)
    rounds = []
    for _ in range(11):
        start = time.perf_counter()
        train(model, opt, x, y, 100)
        rounds.append((time.perf_counter() - start) * 1e6 / 100)
    if rank == 0:
        print(f"{statistics.median(rounds):.3f}", flush=True)
    dist.barrier()
    os._exit(0)  # gloo's own end sometimes aborts ("terminate called without ...")


if __name__ == "__main__":
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, (os.path.join(folder, "rendezvous"),), nprocs=2)
