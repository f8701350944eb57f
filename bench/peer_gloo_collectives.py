#!/usr/bin/env python3
"""The measurement of bench/collective_loop.h with PyTorch's Gloo: `peer_gloo_collectives.py RANKS
MAX_BYTES [OP]` prints the same lines. Ranks are processes of one thread each; with RANK and its
sisters set this process is one of them (`0` for RANKS)."""
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SIZES = [("4 B", 4), ("64 B", 64), ("1 KiB", 1 << 10), ("16 KiB", 16 << 10), ("256 KiB", 256 << 10),
         ("1 MiB", 1 << 20), ("4 MiB", 4 << 20), ("16 MiB", 16 << 20), ("64 MiB", 64 << 20)]
PARTED = ("all_gather", "reduce_scatter", "all_to_all")
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv")


def call(op, rank, src, dst):
    if op == "all_reduce":
        dist.all_reduce(dst)
    elif op == "all_gather":
        dist.all_gather_into_tensor(dst, src)
    elif op == "reduce_scatter":
        dist.reduce_scatter_tensor(dst, src)
    elif op == "broadcast":
        dist.broadcast(dst, 0)
    elif op == "all_to_all":
        dist.all_to_all_single(dst, src)
    elif rank == 0:
        dist.send(dst, 1)
        dist.recv(dst, 1)
    elif rank == 1:
        dist.recv(dst, 0)
        dist.send(dst, 0)


def once(op, rank, src, dst, number):
    src.fill_(number & 7)
    dst.fill_(-1 if op in ("broadcast", "send_recv") and rank > 0 else number & 7)
    dist.barrier()
    start = time.perf_counter()
    call(op, rank, src, dst)
    took = time.perf_counter() - start
    return took * 1e6 / (2 if op == "send_recv" else 1)


def worst(value):
    tensor = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return tensor.item()


def case(op, rank, size, name, nbytes):
    n = max(1, nbytes // 4 // (size if op in PARTED else 1))
    whole = n * size
    src = torch.zeros(whole if op in ("reduce_scatter", "all_to_all") else n)
    dst = torch.zeros(whole if op in ("all_gather", "all_to_all") else n)
    for number in range(4):
        start = time.perf_counter()
        once(op, rank, src, dst, number)
        total = time.perf_counter() - start
    count = min(1000, max(5, int(0.3 / worst(total))))
    samples = sorted(once(op, rank, src, dst, number) for number in range(count))
    median = worst(0 if op == "send_recv" and rank > 1 else samples[count // 2])
    if rank == 0:
        print(f"{op} {size} ranks heap {name}\t{median:.4f}", flush=True)


def run(rank, size, init, max_bytes, only):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=init, rank=rank, world_size=size)
    for op in OPERATIONS:
        if only and op != only:
            continue
        for name, nbytes in SIZES:
            if nbytes <= max_bytes:
                case(op, rank, size, name, nbytes)
    dist.destroy_process_group()


def main():
    size, max_bytes = int(sys.argv[1]), int(sys.argv[2])
    only = sys.argv[3] if len(sys.argv) > 3 else ""
    if "RANK" in os.environ:
        run(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://", max_bytes, only)
        return
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    port = store.port
    del store
    mp.spawn(run, args=(size, f"tcp://127.0.0.1:{port}", max_bytes, only), nprocs=size)


if __name__ == "__main__":
    main()
