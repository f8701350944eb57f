"""peer_rpc.py - torch.distributed.rpc in the cases of bench/rpc.c: prints "case<tab>value" lines.

    peer_rpc.py PORT RANK MAX_BYTES     calls, large arguments, what a worker costs, over tcp, on one
                                        core, and a death; rank 1 serves
"""
import os
import signal
import statistics
import sys
import time

import torch
import torch.distributed.rpc as rpc


def nothing(*_):
    return None


def hang():
    time.sleep(600)


def round_trip(n, *args, pause=0.0):
    times = []
    for i in range(-n // 10, n):
        until = time.perf_counter() + pause
        while time.perf_counter() < until:
            pass
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


def bind(cores):
    """All threads of this process."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), cores)


def number_in(path, name):
    with open(path, encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name))


def costs():
    return number_in("/proc/self/status", "Threads:"), number_in("/proc/self/smaps_rollup", "Pss:")


def begin(rank, port, **options):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    rpc.init_rpc("ps" if rank == 1 else "bench", rank=rank, world_size=2,
                 rpc_backend_options=rpc.TensorPipeRpcBackendOptions(**options))


def measure_calls(most):
    print(f"executor, round trip\t{round_trip(1000):.2f}")
    print(f"executor, 64 at once\t{per_second(3000):.0f}")
    print(f"asleep, round trip\t{round_trip(300, pause=0.001):.2f}")
    size = 65536
    while size <= most:
        x = torch.ones(size, dtype=torch.uint8)
        print(f"heap {size}\t{size / round_trip(10 if size <= 1 << 24 else 3, x) / 1e3:.2f}")
        size *= 4
    rpc.rpc_sync("ps", bind, args=({0},))
    bind({0})
    print(f"one core, round trip\t{round_trip(500):.2f}")


def measure_death():
    process = rpc.rpc_sync("ps", os.getpid)
    future = rpc.rpc_async("ps", hang)
    time.sleep(0.1)
    began = time.perf_counter()
    os.kill(process, signal.SIGKILL)
    try:
        future.wait()
    except RuntimeError:
        print(f"death known\t{(time.perf_counter() - began) * 1e3:.2f}", flush=True)
    os._exit(0)  # its shutdown would wait for the dead


def main():
    port, rank = int(sys.argv[1]), int(sys.argv[2])
    cores = os.sched_getaffinity(0)
    before = costs()
    begin(rank, port)
    if rank == 0:
        rpc.rpc_sync("ps", nothing)
        threads, pss = (now - old for now, old in zip(costs(), before))
        print(f"threads\t{threads}\nPSS\t{pss}")
        measure_calls(int(sys.argv[3]))
        rpc.rpc_sync("ps", bind, args=(cores,))
        bind(cores)
    rpc.shutdown()
    begin(rank, port + 1, _transports=["uv"], _channels=["basic"])
    if rank == 0:
        print(f"tcp executor, round trip\t{round_trip(500):.2f}")
        print(f"tcp executor, 64 at once\t{per_second(2000):.0f}", flush=True)
        measure_death()
    time.sleep(600)  # until it is killed


main()
