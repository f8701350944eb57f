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
    first = {name: t.clone() for name, t in net.state_dict().items()}
    train(net, data, f"{folder}/out.safetensors",
          torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3), None)
    net.load_state_dict(first)
    train(net, data, f"{folder}/out_adamw.safetensors",
          torch.optim.AdamW(net.parameters(), lr=0.02, weight_decay=0.1), 0.25)


def train(net, data, path, opt, max_norm):
    losses = []
    for k in range(STEPS):
        rows = [(k * BATCH + i) % ROWS for i in range(BATCH)]
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(data["x"].double()[rows]), data["y"][rows])
        loss.backward()
        if max_norm is not None:
            nn.utils.clip_grad_norm_(net.parameters(), max_norm)
        opt.step()
        losses.append(loss.item())
    out = dict(net.state_dict())
    out["losses"] = torch.tensor(losses, dtype=torch.float64)
    save_file(out, path)


if __name__ == "__main__":
    main()
