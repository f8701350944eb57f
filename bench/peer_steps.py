#!/usr/bin/env python3
"""peer_steps.py MODEL [BATCH [STEPS [RUNS]]] [f32|bf16] [MODE] - bench/steps.c in PyTorch.

One thread, one process; prints the median time of a training step in microseconds. MODE: contiguous,
channels_last, compile, compile_channels_last.

peer_steps.py --choose MODEL BATCH f32|bf16 MODE.. prints the fastest of these modes.
"""
import os
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))


def conv_bn(n_in, n_out):
    return nn.Sequential(nn.Conv2d(n_in, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out),
                         nn.ReLU())


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(conv_bn(width, width), conv_bn(width, width))

    def forward(self, x):
        return x + self.body(x)


class Block(nn.Module):
    def __init__(self, n_in, n_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or n_in != n_out:
            self.downsample = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False),
                                            nn.BatchNorm2d(n_out))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


def resnet18():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
              nn.MaxPool2d(3, 2, 1)]
    n_in = 64
    for i, width in enumerate((64, 128, 256, 512)):
        layers += [Block(n_in, width, 1 if i == 0 else 2), Block(width, width, 1)]
        n_in = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


class Layers(nn.Module):
    """The layers of a word language model."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(200, 200, 2)

    def forward(self, x):
        return self.lstm(x)[0].flatten(1)


def fashion():
    return nn.Sequential(conv_bn(1, 16), nn.MaxPool2d(2), conv_bn(16, 32), Residual(32),
                         nn.MaxPool2d(2), conv_bn(32, 64), Residual(64), nn.AdaptiveMaxPool2d(1),
                         nn.Flatten(), nn.Linear(64, 10))


def task(name, batch, narrow, mode):
    """A function that makes one training step, and another that makes it `n` times and says how
    many microseconds each took."""
    torch.manual_seed(0)
    layout = torch.channels_last if "channels_last" in mode else torch.contiguous_format
    classes = True
    if name == "toy":
        classes, layout = False, torch.contiguous_format
        net = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5))
        x, y = torch.randn(batch or 20, 10), torch.randn(batch or 20, 5)
    elif name == "lstm":
        classes, layout = False, torch.contiguous_format
        net = Layers()
        x, y = torch.randn(35, batch or 20, 200), torch.randn(35, (batch or 20) * 200)
    elif name == "fashion":
        net = fashion().to(memory_format=layout)
        x, y = torch.randn(batch or 64, 1, 28, 28), torch.randint(10, (batch or 64,))
        x = x.to(memory_format=layout)
    else:
        size = int(name[9:]) if "_" in name else 224
        net = resnet18().to(memory_format=layout)
        x = torch.randn(batch or 16, 3, size, size).to(memory_format=layout)
        y = torch.randint(1000, (batch or 16,))
    opt = torch.optim.SGD(net.parameters(), 0.001, momentum=0.9 if classes else 0)
    forward = torch.compile(net) if "compile" in mode else net
    clock = time.process_time if "BENCH_CPU" in os.environ else time.perf_counter

    def step():
        opt.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            out = forward(x)
        out = out.float()
        loss = F.cross_entropy(out, y) if classes else F.mse_loss(out, y)
        loss.backward()
        opt.step()

    def timed(n):
        begin = clock()
        for _ in range(n):
            step()
        return (clock() - begin) / n * 1e6

    return step, timed


def choose(name, batch, narrow, modes):
    """The mode whose second step is the fastest; one that does not work here is out of question."""
    best = None
    for mode in modes:
        try:
            step, timed = task(name, batch, narrow, mode)
            step()
            took = min(timed(1), timed(1))
        except Exception as error:  # no compiler, an operation that cannot be compiled
            print("peer_steps: %s: %s" % (mode, str(error).splitlines()[0]), file=sys.stderr)
            continue
        if best is None or took < best[0]:
            best = (took, mode)
    print(best[1])


def main():
    words = sys.argv[1:]
    precisions = [w for w in words if w in ("f32", "bf16")]
    modes = [w for w in words if "contiguous" in w or "channels_last" in w or "compile" in w]
    words = [w for w in words if w not in precisions + modes]
    narrow = "bf16" in precisions
    if words[0] == "--choose":
        choose(words[1], int(words[2]), narrow, modes)
        return
    batch, steps, runs = [int(a) for a in (words[1:4] + ["0", "10", "5"][len(words[1:4]):])]
    step, timed = task(words[0], batch, narrow, (modes + ["contiguous"])[0])
    for _ in range(3):
        step()
    print("%.3f" % statistics.median(timed(steps) for _ in range(runs)))


if __name__ == "__main__":
    main()
