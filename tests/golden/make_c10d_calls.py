"""make_c10d_calls.py - makes c10d_calls.txt, what examples/tutorials/c10d_calls.c has to print, by the same calls of
torch.distributed (gloo, three ranks). What gloo does not have (AVG, PREMUL_SUM) is computed here.

    python tests/golden/make_c10d_calls.py >tests/golden/c10d_calls.txt
"""
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SIZE = 3
WORDS = ["foo", "to", "barge"]


def tensor(*values):
    return torch.tensor(values, dtype=torch.int64)


def run(rank, size, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517")
    dist.init_process_group("gloo", rank=rank, world_size=size)
    lines = []

    def show(call, value):
        value = value.tolist() if isinstance(value, torch.Tensor) else value
        lines.append("rank %d: %s [%s]" % (rank, call, ", ".join("%g" % v for v in value)))

    def texts(call, words):
        lines.append("rank %d: %s %s" % (rank, call, " ".join(words)))

    lines.append("rank %d: is_initialized %s, get_world_size %d, is_backend_available(shm) True" %
                 (rank, dist.is_initialized(), dist.get_world_size()))
    # messages
    right, left = (rank + 1) % size, (rank - 1) % size
    mine, theirs = tensor(10 * rank), tensor(-1)
    if rank == 0:
        dist.send(mine, 1)
    if rank == 1:
        dist.recv(theirs, 0)
        show("recv", theirs)
    works = [dist.isend(mine, right), dist.irecv(theirs, left)]
    for work in works:
        work.wait()
    show("irecv", theirs)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, theirs, right),
                                        dist.P2POp(dist.isend, mine, left)]):
        work.wait()
    show("batch_isend_irecv", theirs)
    if rank == size - 1:
        dist.send(mine, 0, tag=7)
    if rank == 0:
        source = dist.recv(theirs, tag=7)
        show("recv from any", [theirs.item(), source])
    # reductions
    for name in ["SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"]:
        x = tensor(rank + 1)
        dist.all_reduce(x, getattr(dist.ReduceOp, name))
        show("all_reduce " + name, x)
    real = torch.tensor([float(rank)])
    dist.all_reduce(real)
    real /= size
    show("all_reduce AVG", real)
    real *= 2
    dist.all_reduce(real)
    show("all_reduce PREMUL_SUM", real)
    x = tensor(rank + 1)
    dist.reduce(x, 0)
    if rank == 0:
        show("reduce", x)
    parts = tensor(*[10 * rank + i for i in range(size)])
    x = tensor(0)
    dist.reduce_scatter(x, list(parts.chunk(size)))
    show("reduce_scatter", x)
    # moves
    x = tensor(42 if rank == 0 else 0)
    dist.broadcast(x, 0)
    show("broadcast", x)
    mine = tensor(rank, -rank)
    out = [tensor(0, 0) for _ in range(size)]
    dist.all_gather(out, mine)
    show("all_gather", torch.cat(out))
    dist.gather(mine, out if rank == 0 else None, 0)
    if rank == 0:
        show("gather", torch.cat(out))
    parts = tensor(*[100 * rank + i for i in range(size)])
    dist.scatter(x, list(parts.chunk(size)) if rank == 0 else None, 0)
    show("scatter", x)
    out = torch.empty(size, dtype=torch.int64)
    dist.all_to_all_single(out, parts)
    show("all_to_all", out)
    # parts of different sizes
    counts = [i + 1 for i in range(size)]
    out = [torch.full((n,), -1) for n in counts]
    for i in range(size):
        if i == rank:
            out[i].fill_(rank)
        dist.broadcast(out[i], i)  # gloo's all_gather wants equal parts
    show("all_gather, uneven", torch.cat(out))
    summed = torch.cat(out)
    dist.all_reduce(summed)
    show("reduce_scatter, uneven", summed.split(counts)[rank])
    out = torch.empty(sum(counts), dtype=torch.int64)
    dist.all_to_all_single(out, torch.full((size * (rank + 1),), rank), counts, [rank + 1] * size)
    show("all_to_all_single, uneven", out)
    # asynchronous
    x = tensor(rank)
    work = dist.all_reduce(x, async_op=True)
    while not work.is_completed():
        pass
    work.wait()
    show("all_reduce, async_op", x)
    y = tensor(1)
    dist.all_reduce(x, dist.ReduceOp.MAX)
    dist.all_reduce(y)
    show("coalesced", [x.item(), y.item()])
    dist.barrier()
    dist.monitored_barrier()
    # objects
    out = [None] * size
    dist.all_gather_object(out, WORDS[rank])
    texts("all_gather_object", out)
    dist.gather_object(WORDS[rank], out if rank == 0 else None, 0)
    if rank == 0:
        texts("gather_object", out)
    out = [WORDS[rank]]
    dist.broadcast_object_list(out, 0)
    texts("broadcast_object_list", out)
    dist.scatter_object_list(out, WORDS[::-1] if rank == 0 else None, 0)
    texts("scatter_object_list", out)
    # groups
    pair = dist.new_group([0, size - 1])
    if rank in (0, size - 1):
        show("new_group", [dist.get_rank(pair), dist.get_world_size(pair)])
        show("get_global_rank", [dist.get_global_rank(pair, 1)])
        show("get_group_rank", [dist.get_group_rank(pair, size - 1)])
        x = tensor(rank)
        dist.broadcast(x, group=pair, group_src=1)
        show("broadcast in it", x)
    x = tensor(rank)
    halves = [dist.new_group(list(range(i, size, 2))) for i in range(2)]  # gloo has no split_group
    dist.all_reduce(x, group=halves[rank % 2])
    show("split_group", x)
    # stores
    store = dist.TCPStore("127.0.0.1", 29518, size, rank == 0)
    if rank == 0:
        store.set("first_key", "first_value")
    texts("store.get", [store.get("first_key").decode()])
    store.add("counter", 1)
    store.wait(["first_key", "counter"])
    dist.barrier()
    texts("store.add", [store.get("counter").decode()])
    own = dist.PrefixStore("zero" if rank == 0 else "other", store)
    texts("store.compare_set", [own.compare_set("key", "", "mine").decode()])
    if rank == 0:
        store.append("first_key", ", more")
        texts("store.multi_get", [v.decode() for v in store.multi_get(["first_key"])])
        store.queue_push("queue", "a")
        texts("store.queue_pop", [store.queue_pop("queue").decode()])
        show("store.delete_key", [store.delete_key("first_key")])
    own = dist.HashStore()
    own.set("key", "value")
    show("store.num_keys", [own.num_keys()])
    dist.barrier()
    dist.destroy_process_group()
    with open(os.path.join(folder, str(rank)), "w") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run, (SIZE, folder), SIZE)
        for rank in range(SIZE):
            with open(os.path.join(folder, str(rank))) as file:
                sys.stdout.write(file.read())
