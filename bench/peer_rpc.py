"""peer_rpc.py - torch.distributed.rpc in the cases of bench/rpc.c: prints "case<tab>value" lines.

    peer_rpc.py PORT RANK     rank 1 serves
"""
import os
import statistics
import sys
import time

import torch
import torch.distributed.rpc as rpc


def nothing(*_):
    return None


def round_trip(n, *args):
    times = []
    for i in range(-n // 10, n):
        began = time.perf_counter()
        rpc.rpc_sync("ps", nothing, args=args)
        if i >= 0:
            times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


def per_second(n):
    futures = [None] * 64
    began = time.perf_counter()
    for i in range(n + 64):
        if futures[i % 64] is not None:
            futures[i % 64].wait()
        futures[i % 64] = rpc.rpc_async("ps", nothing) if i < n else None
    return n / (time.perf_counter() - began)


def main():
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1])
    rank = int(sys.argv[2])
    rpc.init_rpc("ps" if rank == 1 else "bench", rank=rank, world_size=2)
    if rank == 0:
        print(f"executor, round trip\t{round_trip(1000):.2f}")
        print(f"executor, 64 at once\t{per_second(5000):.0f}")
        size = 65536
        while size <= int(sys.argv[3]):
            x = torch.ones(size, dtype=torch.uint8)
            print(f"heap {size}\t{size / round_trip(10, x) / 1e3:.2f}")
            size *= 4
    rpc.shutdown()


main()
