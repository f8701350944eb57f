#!/usr/bin/env python3
"""Writes torch/*.pth by torch.save: run in tests/golden with the torch of the version in the names.

torch_file_test.c reads them. Values of a tensor are (key * 37 + i * 11) % 100 - 50, i the element in
row-major order and key its place in `types` or the number given.
"""
import collections
import os
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
save("alone", w)
save("epoch", {"epoch": 9, "model": {"module." + k: v for k, v in state.items()}})
save("odd-key", {"epoch": 9, "agent": {k: v for k, v in state.items()}})
save("whole", torch.nn.Linear(2, 2))
save("whole-inside", {"model": torch.nn.Linear(2, 2)})
torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), "torch/script-%s.pth" % version)
torch.serialization.set_crc32_options(False)
save("unchecked", state)
