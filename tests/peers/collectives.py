"""collectives.py - tri_dist_* beside PyTorch's collectives with gradients
(torch.distributed.nn.functional and the functional collectives over gloo) on 2 and 3 ranks: values
and gradients, of broadcasts and sums of second order too, for random shapes and dtypes.

Run by `./run test --peers`, or with a Python that has PyTorch 2.13:
    TRI_TEST_BIN=build/bin python tests/peers/collectives.py [SEED]
Our side is libtrireme itself, called through ctypes by the same processes. The numbers are small
integers and halves, so that all sums are exact and both sides must have the same bits.
"""
import ctypes
import os
import random
import sys
import tempfile
import warnings

# Before PyTorch, whose libraries use up the room that the loader keeps for thread-local data.
BIN = os.environ.get("TRI_TEST_BIN", "build/bin")
LIB = ctypes.CDLL(os.path.join(BIN, "..", "lib", "libtrireme.so"))

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as nn
import torch.multiprocessing as mp

warnings.simplefilter("ignore")  # nn.functional is deprecated, and is what people come from

PTR, SIZE, INT, BOOL = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_bool
DTYPES = {torch.float64: 9, torch.float32: 8, torch.bfloat16: 7, torch.int64: 5}
SUM, AVG = 0, 1
CASES = 60

LIB.tri_last_error.restype = ctypes.c_char_p
LIB.tri_tensor_numel.restype = ctypes.c_int64
LIB.tri_tensor_size.restype = ctypes.c_int64
for name, types in {
        "tri_tensor_from": [PTR, INT, INT, PTR], "tri_tensor_unref": [PTR],
        "tri_requires_grad": [PTR, BOOL], "tri_grad": [PTR], "tri_keep": [PTR],
        "tri_tensor_copy_out": [PTR, PTR, SIZE], "tri_tensor_numel": [PTR],
        "tri_tensor_ndim": [PTR], "tri_tensor_size": [PTR, INT],
        "tri_gradients": [PTR, INT, PTR, INT, PTR, PTR],
        "tri_backward": [PTR], "tri_mul": [PTR, PTR], "tri_square": [PTR],
        "tri_sum": [PTR, PTR, INT, BOOL], "tri_dist_all_reduce": [PTR, INT, PTR],
        "tri_dist_all_gather": [PTR, INT, PTR], "tri_dist_reduce_scatter": [PTR, INT, INT, PTR],
        "tri_dist_all_to_all": [PTR, PTR], "tri_dist_all_to_all_v": [PTR, PTR, PTR, PTR],
        "tri_dist_broadcast": [PTR, INT, PTR]}.items():
    getattr(LIB, name).argtypes = types
    if name.startswith("tri_dist") or name in ("tri_tensor_from", "tri_grad", "tri_keep", "tri_mul",
                                               "tri_square", "tri_sum"):
        getattr(LIB, name).restype = PTR


class GradientsOptions(ctypes.Structure):  # tri_gradients_options
    _fields_ = [("seeds", PTR), ("create_graph", BOOL), ("keep_graph", BOOL),
                ("allow_unused", BOOL), ("reserved", ctypes.c_uint64 * 4)]


def check(status):
    if status != 0:
        raise RuntimeError(LIB.tri_last_error().decode())


def sizes(numbers):
    return (ctypes.c_int64 * max(len(numbers), 1))(*numbers)


def ours(tensor):
    """A persistent tensor of ours with the numbers of PyTorch's."""
    tensor = tensor.detach().contiguous()
    return LIB.tri_tensor_from(sizes(tensor.shape), tensor.dim(), DTYPES[tensor.dtype],
                               tensor.data_ptr())


def theirs(tensor, dtype):
    shape = [LIB.tri_tensor_size(tensor, d) for d in range(LIB.tri_tensor_ndim(tensor))]
    out = torch.empty(shape, dtype=dtype)
    check(LIB.tri_tensor_copy_out(tensor, out.data_ptr(), out.numel() * out.element_size()))
    return out


class Case:
    """The same on all ranks: what is called, on which shape, and which rows go where."""

    def __init__(self, dice, size):
        self.call = dice.choice(["all_reduce", "average", "all_gather", "reduce_scatter",
                                 "mean_scatter", "all_to_all", "all_to_all_v", "broadcast"])
        self.dtype = dice.choice(list(DTYPES))
        if self.call in ("average", "mean_scatter") and size == 3 or self.dtype is torch.int64:
            self.call = self.call.replace("average", "all_reduce").replace("mean", "reduce")
        shape = [dice.choice([0, 1, 2, 3, 7]) for _ in range(dice.randint(1, 4))]
        self.dim = dice.randrange(len(shape))
        self.root = dice.randrange(size)
        self.rows = [[dice.choice([0, 0, 1, 2, 5]) for _ in range(size)] for _ in range(size)]
        if self.call in ("reduce_scatter", "mean_scatter"):
            shape[self.dim] *= size
        if self.call == "all_to_all":
            shape[0] *= size
        self.shape = shape

    def operand(self, rank, dice):
        if self.call == "all_to_all_v":
            self.shape[0] = sum(self.rows[rank])
        numbers = [dice.randint(-3, 3) for _ in range(torch.Size(self.shape).numel())]
        return torch.tensor(numbers, dtype=self.dtype).reshape(self.shape)

    def came(self, rank):
        return [row[rank] for row in self.rows]

    def torch(self, x, rank):
        world = dist.group.WORLD
        if self.call == "all_reduce":
            return nn.all_reduce(x, group=world)
        if self.call == "average":  # gloo has none
            return nn.all_reduce(x, group=world) / dist.get_world_size()
        if self.call == "all_gather":
            return functional.all_gather_single_autograd(x, self.dim, world)
        if self.call == "reduce_scatter":
            return functional.reduce_scatter_single_autograd(x, "sum", self.dim, world)
        if self.call == "mean_scatter":
            return functional.reduce_scatter_single_autograd(x, "sum", self.dim,
                                                             world) / dist.get_world_size()
        if self.call == "all_to_all":
            return functional.all_to_all_single_autograd(x, None, None, world)
        if self.call == "all_to_all_v":
            return functional.all_to_all_single_autograd(x, self.came(rank), self.rows[rank],
                                                         world)
        return nn.broadcast(x, self.root, group=world)

    def trireme(self, x, rank):
        if self.call in ("all_reduce", "average"):
            return LIB.tri_dist_all_reduce(x, SUM if self.call == "all_reduce" else AVG, None)
        if self.call == "all_gather":
            return LIB.tri_dist_all_gather(x, self.dim, None)
        if self.call in ("reduce_scatter", "mean_scatter"):
            return LIB.tri_dist_reduce_scatter(x, SUM if self.call == "reduce_scatter" else AVG,
                                               self.dim, None)
        if self.call == "all_to_all":
            return LIB.tri_dist_all_to_all(x, None)
        if self.call == "all_to_all_v":
            return LIB.tri_dist_all_to_all_v(x, sizes(self.rows[rank]), sizes(self.came(rank)),
                                             None)
        return LIB.tri_dist_broadcast(x, self.root, None)

    def has_second(self):
        return self.call in ("all_reduce", "average", "broadcast")

    def __str__(self):
        return f"{self.call} of {self.dtype} {self.shape}, dim {self.dim}, root {self.root}"


def by_torch(case, rank, x, weights):
    """Values, gradient, gradient of the gradient's sum: None where there is none."""
    if not x.dtype.is_floating_point:
        return [case.torch(x, rank), None, None]
    x = x.clone().requires_grad_()
    y = case.torch(x, rank)
    w = weights(y.shape)
    second = case.has_second()
    grad, = torch.autograd.grad((w * y * y).sum(), x, create_graph=second)
    twice = torch.autograd.grad((weights(x.shape) * grad).sum(), x)[0] if second else None
    return [y.detach(), grad.detach(), twice]


def total(tensor):
    return LIB.tri_sum(tensor, None, 0, False)


def by_trireme(case, rank, x, weights):
    dtype, mine = x.dtype, ours(x)
    held = [mine]
    try:
        if not dtype.is_floating_point:
            return [theirs(case.trireme(mine, rank), dtype), None, None]
        LIB.tri_requires_grad(mine, True)
        y = LIB.tri_keep(case.trireme(mine, rank))
        shape = [LIB.tri_tensor_size(y, d) for d in range(LIB.tri_tensor_ndim(y))]
        held += [ours(weights(shape)), ours(weights(x.shape))]
        second = case.has_second()
        grad, twice = (PTR * 1)(), (PTR * 1)()
        options = GradientsOptions(create_graph=second)
        loss = total(LIB.tri_mul(held[1], LIB.tri_square(y)))
        check(LIB.tri_gradients((PTR * 1)(loss), 1, (PTR * 1)(mine), 1, ctypes.byref(options),
                                grad))
        LIB.tri_keep(grad[0])
        if second:
            loss = total(LIB.tri_mul(held[2], grad[0]))
            check(LIB.tri_gradients((PTR * 1)(loss), 1, (PTR * 1)(mine), 1, None, twice))
            LIB.tri_keep(twice[0])
        return [theirs(y, dtype), theirs(grad[0], dtype),
                theirs(twice[0], dtype) if second else None]
    finally:
        check(LIB.tri_step_end_status())
        for tensor in held:
            LIB.tri_tensor_unref(tensor)


def run(rank, size, seed, folder, failures):
    torch.set_num_threads(1)
    os.environ.update(TRI_INIT=f"file://{folder}/ours?rank={rank}&world_size={size}",
                      TRI_NUM_THREADS="1")
    dist.init_process_group("gloo", init_method=f"file://{folder}/theirs", rank=rank,
                            world_size=size)
    check(LIB.tri_init(None))
    for number in range(CASES):
        case = Case(random.Random(f"{seed} {size} {number}"), size)
        x = case.operand(rank, random.Random(f"{seed} {rank} {number}"))

        def weights(shape):
            n = torch.Size(shape).numel()
            return ((rank + 1) * (1 + torch.arange(n) % 2)).reshape(shape).to(case.dtype)

        want, got = by_torch(case, rank, x, weights), by_trireme(case, rank, x, weights)
        for what, a, b in zip(("value", "gradient", "second gradient"), got, want):
            if a is not None and (a.shape != b.shape or not torch.equal(a, b)):
                print(f"rank {rank} of {size}, case {number}: {case}: {what} is\n{a}\nnot\n{b}",
                      flush=True)
                failures[rank] += 1
    LIB.tri_finalize()
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # gloo's own end sometimes aborts ("terminate called without ...")


def main():
    seed = sys.argv[1] if len(sys.argv) > 1 else "1"
    failed = 0
    for size in (2, 3):
        with tempfile.TemporaryDirectory() as folder:
            failures = torch.zeros(size, dtype=torch.int64).share_memory_()
            mp.spawn(run, (size, seed, folder, failures), nprocs=size)
        failed += int(failures.sum())
        print(f"{'FAILED' if failures.any() else 'ok    '} {CASES} collectives on {size} ranks",
              flush=True)
    print(f"collectives: {failed} failed (seed {seed})")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
