#!/usr/bin/env python3
"""Writes bf16_models.txt: what whole models in bf16 must come near to, by PyTorch in f64.

Usage: make_bf16_models.py > bf16_models.txt   (PyTorch 2.13; nothing of the build needs it)

Operands come from the formula of make_ops.py: 0 is the input, k + 1 parameter k of the model, in the
order of its state. The input and the first weight are -1, 0 and 1, so that bf16 keeps the first
product exactly and a ReLU or a maximum after it decides alike in every precision. Row i of the
logits is of class i mod 10; token i of a GPT's input is 7 i + 3 mod 10. Arrays are sketched as in make_bf16.py:
  case NAME / y OFF NORM SUMS.. / loss .. / g0 .. (gradient of parameter 0) ..

OFF is how far PyTorch's own bf16 (autocast on a cpu) is from these numbers, in units of the norm. In
"resnet" that is much: its later ReLUs decide on rounded numbers, and by those that are near zero
a gradient in bf16 is off by 0.1.
"""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

import gpt_torch
import make_bf16
import vision_torch

CLASSES = 10
IMAGES = (8, 3, 41, 37)
TOKENS = (4, 16)


class Block(nn.Module):
    def __init__(self, c_in, c_out, stride, act):
        super().__init__()
        self.act = act
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.downsample = nn.Identity()
        if c_in != c_out:
            way = nn.Conv2d(c_in, c_out, 1, stride, bias=False)
            self.downsample = nn.Sequential(way, nn.BatchNorm2d(c_out))

    def forward(self, x):
        y = self.act(self.bn1(self.conv1(x)))
        return self.act(self.bn2(self.conv2(y)) + self.downsample(x))


def resnet(act):
    return nn.Sequential(
        nn.Conv2d(3, 16, 7, 2, 3, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        Block(16, 16, 1, act),
        Block(16, 32, 2, act),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, CLASSES),
    )


def mlp():
    return nn.Sequential(
        nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, CLASSES)
    )


def uniform(k, shape):
    n = 1
    for size in shape:
        n *= size
    values = [2 * (make_bf16.word(k, i) >> 11) * 2.0**-53 - 1 for i in range(n)]
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def fill(model):
    for k, (name, p) in enumerate(model.named_parameters()):
        u = uniform(k + 1, tuple(p.shape))
        owner = model.get_submodule(name.rpartition(".")[0])
        if k == 0:
            u = (u * 1.5).round()
        elif p.ndim > 1:
            u = u * (p.numel() / p.shape[0]) ** -0.5
        elif isinstance(owner, (nn.BatchNorm2d, nn.LayerNorm)) and name.endswith("weight"):
            u = 1 + u / 2
        else:
            u = u / 4
        p.data = u.float()


def run(model, x, narrow):
    with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
        y = model(x).reshape(-1, CLASSES)
        target = torch.arange(y.shape[0]) % CLASSES
        loss = F.cross_entropy(y, target)
    loss.backward()
    grads = [("g%d" % k, p.grad) for k, p in enumerate(model.parameters())]
    return [(label, t.detach().double()) for label, t in [("y", y), ("loss", loss)] + grads]


def main():
    for name, model, shape in [
        ("resnet_silu", resnet(F.silu), IMAGES),
        ("resnet", resnet(F.relu), IMAGES),
        ("mlp", mlp(), (65, 48)),
        ("gpt", gpt_torch.Gpt(2, 32, 4, 16, CLASSES), TOKENS),
        ("vit", vision_torch.Vit(16, 4, 32, 2, 4, CLASSES), (8, 3, 16, 16)),
    ]:
        fill(model)
        x = (uniform(0, shape) * 1.5).round()
        if name == "gpt":
            x = (torch.arange(64).reshape(TOKENS) * 7 + 3) % CLASSES
        exact = run(copy.deepcopy(model).double(), x, False)
        narrow = run(model, x if name == "gpt" else x.float(), True)
        print("case", name)
        for (label, truth), (_, array) in zip(exact, narrow):
            off = float((array - truth).norm() / truth.norm())
            make_bf16.sketch("%s %.4f" % (label, off), truth)


if __name__ == "__main__":
    main()
