"""peer_rpc_updates.py - bench/rpc_updates.c in torch.distributed.rpc, after examples/distributed/rpc/batch/
parameter_server.py: the server prints "FLOATS<tab>updates a second" for each size.

    peer_rpc_updates.py PORT RANK TRAINERS FLOATS:UPDATES ...     rank 0 serves
"""
import os
import sys
import threading
import time

import torch
import torch.distributed.rpc as rpc
from torch import nn, optim


class Model(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(count))


class Server:
    def __init__(self, count, trainers):
        self.model = Model(count)
        self.lock = threading.Lock()
        self.future = torch.futures.Future()
        self.trainers = trainers
        self.n = 0
        self.optimizer = optim.SGD(self.model.parameters(), lr=0.001, momentum=0.9)
        self.times = []

    def get(self):
        return self.model

    @staticmethod
    @rpc.functions.async_execution
    def update_and_fetch_model(ref, grads):
        self = ref.local_value()
        with self.lock:
            self.n += 1
            for p, g in zip(self.model.parameters(), grads):
                if p.grad is None:
                    p.grad = g
                else:
                    p.grad += g
            future = self.future
            if self.n >= self.trainers:
                for p in self.model.parameters():
                    p.grad /= self.trainers
                self.n = 0
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.times.append(time.perf_counter())
                future.set_result(self.model)
                self.future = torch.futures.Future()
        return future


def train(ref, count, updates):
    grads = [1 / torch.arange(1, count + 1, dtype=torch.float32)]
    for _ in range(updates):
        rpc.rpc_sync(ref.owner(), Server.update_and_fetch_model, args=(ref, grads), timeout=600)


def main():
    port, rank, trainers = (int(a) for a in sys.argv[1:4])
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    rpc.init_rpc("ps" if rank == 0 else f"trainer{rank}", rank=rank, world_size=trainers + 1,
                 rpc_backend_options=rpc.TensorPipeRpcBackendOptions(rpc_timeout=600))
    for case in sys.argv[4:] if rank == 0 else []:
        count, updates = (int(part) for part in case.split(":"))
        server = Server(count, trainers)
        ref = rpc.RRef(server)
        for future in [rpc.rpc_async(f"trainer{i}", train, args=(ref, count, updates), timeout=600)
                       for i in range(1, trainers + 1)]:
            future.wait()
        print(f"{count}\t{(updates - 1) / (server.times[-1] - server.times[0]):.3f}", flush=True)
    rpc.shutdown()


main()
