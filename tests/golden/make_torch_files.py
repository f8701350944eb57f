#!/usr/bin/env python3
"""Writes torch/*.pth by torch.save: run in tests/golden with the torch of the version in the names.

torch_file_test.c and torch_odd_tensors_test.c read them. Values of a tensor are (key * 37 + i * 11) % 100 - 50, i the element in
row-major order and key its place in `types` or the number given.
"""
import argparse
import collections
import os
import pathlib
import sys

import torch

os.makedirs("torch", exist_ok=True)
version = ".".join(torch.__version__.split(".")[:2])


def values(key, dtype, *shape):
    n = 1
    for size in shape:
        n *= size
    x = torch.tensor([(key * 37 + i * 11) % 100 - 50 for i in range(n)], dtype=torch.float64)
    if dtype == torch.bool:
        x = x > 0
    elif not dtype.is_signed:
        x = x.abs()
    return x.to(dtype).reshape(shape)


def save(name, what, **options):
    torch.save(what, "torch/%s-%s.pth" % (name, version), **options)


state = collections.OrderedDict()
state["weight"] = values(1, torch.float32, 2, 3)
state["bias"] = values(2, torch.float32, 2)
state._metadata = collections.OrderedDict({"": {"version": 1}})
save("state", state)
save("state-legacy", state, _use_new_zipfile_serialization=False)
if version != "2.13":
    sys.exit(0)
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_tensor

types = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8",
         "bool", "float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64", "complex64"]
w = values(20, torch.float32, 4, 6)
everything = {
    "epoch": 3, "arch": "größe", "best": 0.5, "huge": 1 << 80, "negative": -70000, "flag": True,
    "none": None, "bytes": b"\x00\xff", "set": {1}, "device": torch.device("cpu"),
    "dtype": torch.bfloat16, "size": torch.Size([4, 6]), "pair": (1.5, "x"),
    "state_dict": collections.OrderedDict(
        plain=w, tied=w, turned=w.t(), part=w[1:3, ::2], spread=w[0, :1].expand(3),
        empty=torch.zeros(0, 4), scalar=torch.tensor(7),
        parameter=torch.nn.Parameter(values(21, torch.float32, 3))),
    "list": [values(22, torch.float32, 2)], 5: values(23, torch.float32, 1),
    "types": {name: values(k, getattr(torch, name), 3) for k, name in enumerate(types)},
}
save("everything", everything)
save("everything-legacy", everything, _use_new_zipfile_serialization=False)
for protocol in 3, 4, 5:
    save("everything-protocol%d" % protocol, everything, pickle_protocol=protocol)
for protocol in 3, 4, 5:
    save("state-legacy-protocol%d" % protocol, state, pickle_protocol=protocol,
         _use_new_zipfile_serialization=False)
save("alone", w)
save("epoch", {"epoch": 9, "model": {"module." + k: v for k, v in state.items()}})
save("odd-key", {"epoch": 9, "agent": {k: v for k, v in state.items()}})
save("whole", torch.nn.Linear(2, 2))
save("whole-inside", {"model": torch.nn.Linear(2, 2)})
# What training programs leave.
linear = torch.nn.Linear(3, 2)
adam = torch.optim.Adam(linear.parameters())
linear(torch.ones(1, 3)).sum().backward()
adam.step()
save("lightning", {
    "epoch": 3, "global_step": 10, "pytorch-lightning_version": "2.5.0", "loops": {"fit_loop": {"state": {}}},
    "state_dict": collections.OrderedDict(("model." + k, v) for k, v in state.items()),
    "callbacks": {}, "optimizer_states": [adam.state_dict()], "lr_schedulers": [], "hparams_name": "args",
    "hyper_parameters": argparse.Namespace(lr=0.5, folder=pathlib.PurePosixPath("/x"))})
save("optimizer", adam.state_dict())
save("nested", {"epoch": 9, "model": {"encoder": dict(state)}})
save("wrapped", {"model": {"module._orig_mod." + k: v for k, v in state.items()}})
# Tensors that are no plain numbers in a storage, beside two that are.
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
eye = torch.eye(3)
odd = collections.OrderedDict(
    weight=state["weight"], quantized=torch.quantize_per_tensor(w, 0.5, 0, torch.qint8),
    quarters=torch.quantize_per_channel(w, torch.ones(4), torch.zeros(4), 0, torch.quint4x2),
    sparse=eye.to_sparse(), rows=eye.to_sparse_csr(), nested=torch.nested.nested_tensor([w[0], w[1, 1:]]),
    jagged=torch.nested.nested_tensor([w[0], w[1, 1:]], layout=torch.jagged),
    meta=torch.empty(3, 4, device="meta"), parameter=torch.nn.Parameter(torch.empty(5, device="meta")),
    nine=w.reshape(1, 1, 1, 1, 1, 2, 3, 2, 2), conj=torch.view_as_complex(w.reshape(12, 2).clone()).conj(),
    neg=torch.view_as_complex(w.reshape(12, 2).clone()).conj().imag,
    sharded=distribute_tensor(w, init_device_mesh("cpu", (1,))), bits=w[0, :2].clone().view(torch.uint8).view(torch.bits8),
    bias=state["bias"])
save("odd-tensors", odd)
save("odd-tensors-legacy", odd, _use_new_zipfile_serialization=False)
torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), "torch/script-%s.pth" % version)
torch.serialization.set_crc32_options(False)
save("unchecked", state)
