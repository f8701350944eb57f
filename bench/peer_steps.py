#!/usr/bin/env python3
"""peer_steps.py MODEL [BATCH [STEPS [RUNS [contiguous|channels_last]]]] - bench/steps.c in PyTorch.

One thread, one process; prints the median time of a training step in microseconds.
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


def fashion():
    return nn.Sequential(conv_bn(1, 16), nn.MaxPool2d(2), conv_bn(16, 32), Residual(32),
                         nn.MaxPool2d(2), conv_bn(32, 64), Residual(64), nn.AdaptiveMaxPool2d(1),
                         nn.Flatten(), nn.Linear(64, 10))


def main():
    name = sys.argv[1]
    batch, steps, runs = [int(a) for a in (sys.argv[2:5] + ["0", "10", "5"][len(sys.argv[2:5]):])]
    layout = torch.channels_last if "channels_last" in sys.argv else torch.contiguous_format
    classes = True
    if name == "toy":
        classes = False
        net = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5))
        x, y = torch.randn(batch or 20, 10), torch.randn(batch or 20, 5)
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

    def step():
        opt.zero_grad()
        out = net(x)
        loss = F.cross_entropy(out, y) if classes else F.mse_loss(out, y)
        loss.backward()
        opt.step()

    for _ in range(3):
        step()
    clock = time.process_time if "BENCH_CPU" in os.environ else time.perf_counter
    times = []
    for _ in range(runs):
        begin = clock()
        for _ in range(steps):
            step()
        times.append((clock() - begin) / steps * 1e6)
    print("%.3f" % statistics.median(times))


main()
