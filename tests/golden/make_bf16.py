#!/usr/bin/env python3
"""Writes bf16.txt: what operations on bf16 must come near to, by PyTorch in f64 on rounded operands.

Usage: make_bf16.py > bf16.txt   (PyTorch 2.13; nothing of the build needs it)

Operands come from the formula of make_ops.py. Images, matrices, weights and the weights of the loss
are rounded to bf16; parameters of one dimension are f32. Arrays are sketched: their norm, then sums
of all elements under SKETCH patterns of signs, which tell two arrays apart as well as the norm of
their difference does:
  case NAME / y NORM SUMS.. / g0 NORM SUMS.. (gradient of operand 0) ..
"""
import torch
import torch.nn.functional as F

MASK = (1 << 64) - 1
SKETCH = 24


def word(k, i):
    z = (((k + 1) << 32) + i * 0x9E3779B97F4A7C15 + 1) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def operand(kind, k, shape):
    n = 1
    for size in shape:
        n *= size
    u = [(word(k, i) >> 11) * 2.0**-53 for i in range(n)]
    if kind == "f":  # far from zero: decides the sign of what it is added to
        values = [-4.0 if x < 0.5 else 4.0 for x in u]
    else:
        values = [2 * x - 1 if kind.lower() == "n" else 0.5 + x for x in u]
    t = torch.tensor(values, dtype=torch.float64).reshape(shape)
    return (t.float() if len(shape) == 1 else t.bfloat16()).double()


def sketch(name, t):
    values = t.detach().reshape(-1)
    n = values.numel()
    sums = []
    for p in range(SKETCH):
        signs = []
        for i in range((n + 63) // 64):
            bits = word(100 + p, i)
            signs += [1.0 if bits >> b & 1 else -1.0 for b in range(64)]
        sums.append(float((values * torch.tensor(signs[:n], dtype=torch.float64)).sum()))
    print(name, "%.9g" % float(values.norm()), *["%.9g" % s for s in sums])


def bn(training, residual=False, relu=False):
    def run(x, w, b, mean, var, r=None):
        y = F.batch_norm(x, mean.clone(), var.clone(), w, b, training, 0.1, 1e-5)
        y = y + r if residual else y
        return F.relu(y) if relu else y

    return run


def conv(**options):
    return lambda x, w: F.conv2d(x, w, **options)


NORM = [("n", (16,)), ("n", (16,)), ("N", (16,)), ("P", (16,))]
IMAGES = ("n", (2, 16, 15, 13))
CASES = [
    ("conv", conv(padding=1), [("n", (2, 16, 9, 10)), ("n", (32, 16, 3, 3))]),
    ("conv_stem", conv(stride=2, padding=3), [("n", (1, 3, 20, 21)), ("n", (16, 3, 7, 7))]),
    ("conv_down", conv(stride=2), [("n", (2, 32, 7, 7)), ("n", (16, 32, 1, 1))]),
    ("conv_depth", conv(padding=1, groups=16), [("n", (1, 16, 8, 8)), ("n", (16, 1, 3, 3))]),
    ("max_over", lambda x: F.max_pool2d(x, 3, 2, 1), [IMAGES]),
    ("max_over_odd", lambda x: F.max_pool2d(x, 3, 2, 1), [("n", (2, 5, 15, 13))]),
    ("max_every", lambda x: F.max_pool2d(x, 3, 1, 1), [IMAGES]),
    ("max_halve", lambda x: F.max_pool2d(x, 2), [IMAGES]),
    ("avg_over", lambda x: F.avg_pool2d(x, 3, 2, 1), [IMAGES]),
    ("avg_wide", lambda x: F.avg_pool2d(x, 9, 1, 4), [IMAGES]),
    ("adaptive_max", lambda x: F.adaptive_max_pool2d(x, (4, 5)), [IMAGES]),
    ("adaptive_max_one", lambda x: F.adaptive_max_pool2d(x, 1), [IMAGES]),
    ("adaptive_avg", lambda x: F.adaptive_avg_pool2d(x, (4, 5)), [IMAGES]),
    ("adaptive_avg_one", lambda x: F.adaptive_avg_pool2d(x, 1), [IMAGES]),
    ("bn", bn(True), [IMAGES] + NORM),
    ("bn_relu", bn(True, relu=True), [IMAGES] + NORM),
    ("bn_add_relu", bn(True, True, True), [IMAGES] + NORM + [("f", (2, 16, 15, 13))]),
    ("bn_eval", bn(False), [IMAGES] + NORM),
    ("bn_eval_relu", bn(False, relu=True), [IMAGES] + NORM),
    ("linear", lambda x, w, b: F.linear(x, w, b), [("n", (33, 64)), ("n", (48, 64)), ("n", (48,))]),
    ("matmul", torch.matmul, [("n", (3, 20, 40)), ("n", (3, 40, 24))]),
    ("permute", lambda x: x.permute(2, 0, 3, 1), [IMAGES]),
    ("flip", lambda x: x.flip(3), [IMAGES]),
]


def main():
    for name, function, inputs in CASES:
        operands = [operand(kind, k, shape) for k, (kind, shape) in enumerate(inputs)]
        for (kind, _), t in zip(inputs, operands):
            t.requires_grad_(kind.islower())
        y = function(*operands)
        (y * operand("n", 9, tuple(y.shape)).reshape(y.shape)).sum().backward()
        print("case", name)
        sketch("y", y)
        for k, t in enumerate(operands):
            if t.requires_grad:
                sketch("g%d" % k, t.grad)


if __name__ == "__main__":
    main()
