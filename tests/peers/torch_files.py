"""torch_files.py - files of tri_torch_write read by torch.load with weights_only=True, and mapped.

Run by `./run test --peers`, or with a Python that has PyTorch 2.13:
    TRI_TEST_BIN=build/bin python tests/peers/torch_files.py
Our side is libtrireme itself, called through ctypes. Exit status 0 if all agree. (The other way, files
of torch.save read by us, is src/train/torch/torch_file_test.c.)
"""
import ctypes
import os
import sys
import tempfile

import torch

BIN = os.environ.get("TRI_TEST_BIN", "build/bin")
LIB = ctypes.CDLL(os.path.join(BIN, "..", "lib", "libtrireme.so"))
LIB.tri_last_error.restype = ctypes.c_char_p


class Entry(ctypes.Structure):  # tri_safetensors_entry
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_int), ("type_name", ctypes.c_char_p),
                ("ndim", ctypes.c_int), ("shape", ctypes.c_int64 * 8), ("data", ctypes.c_void_p),
                ("bytes", ctypes.c_size_t), ("reserved", ctypes.c_uint64 * 4)]


DTYPES = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
          torch.float32, torch.float64, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2]
SHAPES = [(), (1,), (0, 5), (3, 4, 5), (300, 7)]


def main():
    torch.manual_seed(1)
    tensors = {}
    for number, dtype in enumerate(DTYPES, 1):
        for shape in SHAPES:
            bits = torch.randint(0, 2 if dtype == torch.bool else 256, (*shape, dtype.itemsize),
                                 dtype=torch.uint8)
            tensors["größe.%d.%d" % (number, len(tensors))] = (number, bits, bits.view(dtype).reshape(shape))
    entries = (Entry * len(tensors))()
    for entry, (name, (number, bits, tensor)) in zip(entries, tensors.items()):
        entry.name, entry.dtype, entry.ndim = name.encode(), number, tensor.dim()
        entry.shape[:tensor.dim()] = tensor.shape
        entry.data, entry.bytes = bits.data_ptr() or None, bits.numel()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ours.pth")
        if LIB.tri_torch_write(path.encode(), entries, ctypes.c_int64(len(entries))) != 0:
            sys.exit(LIB.tri_last_error().decode())
        for options in {}, {"mmap": True}:
            loaded = torch.load(path, weights_only=True, **options)
            wrong += list(loaded) != list(tensors)
            for name, (number, bits, tensor) in tensors.items():
                got = loaded[name]
                same = (got.dtype == tensor.dtype and got.shape == tensor.shape and got.is_contiguous()
                        and torch.equal(got.reshape(-1).view(torch.uint8), bits.reshape(-1)))
                if not same:
                    print("differs: %s %s, not %s %s" % (name, got.dtype, tensor.dtype, options))
                wrong += not same
    print("torch_files: %d tensors of %d types, %d wrong" % (len(tensors), len(DTYPES), wrong))
    return wrong > 0


sys.exit(main())
