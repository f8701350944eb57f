#!/usr/bin/env python3
"""Writes tests/golden/parity/: an MLP's first weights, batches, and what PyTorch makes of them.

    python3 tests/golden/parity_files.py        (made with PyTorch 2.13.0, CPU, and safetensors)
"""
import os

import torch
from safetensors.torch import save_file
from torch import nn

STEPS, BATCH, ROWS = 10, 21, 30


def main():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "parity")
    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(10, 12), nn.ReLU(), nn.Linear(12, 5))
    data = {"x": torch.randn(ROWS, 10), "y": torch.randint(0, 5, (ROWS,))}
    save_file(net.state_dict(), f"{folder}/init.safetensors")
    save_file(data, f"{folder}/data.safetensors")
    net.double()
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    losses = []
    for k in range(STEPS):
        rows = [(k * BATCH + i) % ROWS for i in range(BATCH)]
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(data["x"].double()[rows]), data["y"][rows])
        loss.backward()
        opt.step()
        losses.append(loss.item())
    out = dict(net.state_dict())
    out["losses"] = torch.tensor(losses, dtype=torch.float64)
    save_file(out, f"{folder}/out.safetensors")


if __name__ == "__main__":
    main()
