#!/usr/bin/env python3
"""Writes tests/golden/parity/: first weights of an MLP, a small GPT-2 and a small vision transformer,
batches, and what PyTorch makes of them.

    python3 tests/golden/parity_files.py        (made with PyTorch 2.13.0, CPU, and safetensors)
"""
import os

import torch
from safetensors.torch import save_file
from torch import nn

from gpt_torch import Gpt
from vision_torch import Vit

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
    gpt(folder)
    vit(folder)


def gpt(folder):
    """Under the names of published files, with masks of attention and the tied head."""
    torch.manual_seed(6)
    net = Gpt(2, 8, 2, 6, 7)
    for p in net.parameters():
        nn.init.normal_(p, 1.0 if p.shape == (8,) else 0.0, 0.3)
    tokens = torch.randint(0, 7, (ROWS, 7))
    data = {"x": tokens[:, :-1].contiguous(), "y": tokens[:, 1:].contiguous()}
    published = {f"transformer.{name}": t for name, t in net.state_dict().items()}
    published.update({f"transformer.h.{i}.attn.bias": torch.ones(1, 1, 6, 6).tril()
                      for i in range(2)})
    published["lm_head.weight"] = net.wte.weight.detach().clone()
    save_file(published, f"{folder}/gpt_init.safetensors")
    save_file(data, f"{folder}/gpt_data.safetensors")
    net.double()
    first = {name: t.clone() for name, t in net.state_dict().items()}
    for name, opt, max_norm in (
            ("sgd", torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), None),
            ("adamw", torch.optim.AdamW(net.parameters(), lr=0.02, weight_decay=0.1), 0.5)):
        net.load_state_dict(first)
        train(net, data, f"{folder}/gpt_{name}.safetensors", opt, max_norm)


def vit(folder):
    torch.manual_seed(7)
    net = Vit(8, 4, 8, 2, 2, 5)
    for name, p in net.named_parameters():
        nn.init.normal_(p, 1.0 if "ln" in name and "weight" in name else 0.0, 0.3)
    data = {"x": torch.randn(ROWS, 3, 8, 8), "y": torch.randint(0, 5, (ROWS,))}
    save_file(net.state_dict(), f"{folder}/vit_init.safetensors")
    save_file(data, f"{folder}/vit_data.safetensors")
    net.double()
    first = {name: t.clone() for name, t in net.state_dict().items()}
    for name, opt, max_norm in (
            ("sgd", torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), None),
            ("adam", torch.optim.Adam(net.parameters(), lr=0.02), 0.5)):
        net.load_state_dict(first)
        train(net, data, f"{folder}/vit_{name}.safetensors", opt, max_norm)


def train(net, data, path, opt, max_norm):
    losses = []
    for k in range(STEPS):
        rows = [(k * BATCH + i) % ROWS for i in range(BATCH)]
        opt.zero_grad()
        x, y = data["x"][rows], data["y"][rows]
        out = net(x.double() if x.is_floating_point() else x)
        loss = nn.functional.cross_entropy(out.flatten(0, -2), y.flatten())
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
