#!/usr/bin/env python3
"""Writes tests/testing/nn_golden.h: values of PyTorch for the tests of nn/ and optim/.

    python3 tests/golden/nn_golden.py        (made with PyTorch 2.13.0, CPU)
"""
import os

import torch
from torch import nn


def floats(values):
    return ", ".join(float(v).hex() for v in values)


def block(out, kind, name, values):
    out.append(f"static const {kind} {name}[] = {{{floats(values)}}};")


def initial_values(out):
    torch.manual_seed(0)
    m = nn.Linear(3, 4)
    block(out, "float", "golden_linear_weight", m.weight.detach().flatten())
    block(out, "float", "golden_linear_bias", m.bias.detach())
    c = nn.Conv2d(2, 3, 3)  # goes on with the same generator
    block(out, "float", "golden_conv_weight", c.weight.detach().flatten())
    block(out, "float", "golden_conv_bias", c.bias.detach())
    torch.manual_seed(7)
    m = nn.Linear(3, 4, dtype=torch.float64)
    block(out, "double", "golden_linear64_weight", m.weight.detach().flatten())
    block(out, "double", "golden_linear64_bias", m.bias.detach())
    torch.manual_seed(0)
    block(out, "float", "golden_normal37", torch.empty(37).normal_(0.5, 2.0))
    torch.manual_seed(0)
    block(out, "double", "golden_normal6", torch.empty(6, dtype=torch.float64).normal_(0.5, 2.0))
    torch.manual_seed(0)
    block(out, "double", "golden_normal37d", torch.empty(37, dtype=torch.float64).normal_(0.5, 2.0))


def lstm(out):
    """All weights of two layers in both directions, and what they make of a sequence."""
    torch.manual_seed(5)
    m = nn.LSTM(3, 2, 2, bidirectional=True, dtype=torch.float64)
    block(out, "double", "golden_lstm_weights",
          torch.cat([p.detach().flatten() for p in m.parameters()]))
    x = torch.linspace(-1, 1, 24, dtype=torch.float64).reshape(4, 2, 3)
    y, (h, c) = m(x)
    block(out, "double", "golden_lstm_y", torch.cat([v.detach().flatten() for v in (y, h, c)]))


SGD = [
    dict(),
    dict(weight_decay=0.1),
    dict(momentum=0.9),
    dict(momentum=0.9, weight_decay=0.05),
    dict(momentum=0.9, dampening=0.3),
    dict(momentum=0.8, nesterov=True),
    dict(momentum=0.8, nesterov=True, weight_decay=0.05),
    dict(momentum=0.7, dampening=0.2, weight_decay=0.01),
    dict(maximize=True),
    dict(momentum=0.8, nesterov=True, weight_decay=0.05, maximize=True),
]


def sgd(out):
    torch.manual_seed(3)
    x = torch.randn(4, 3, dtype=torch.float64)
    y = torch.randn(4, 2, dtype=torch.float64)
    w = torch.randn(2, 3, dtype=torch.float64)
    b = torch.randn(2, dtype=torch.float64)
    for name, t in (("x", x), ("y", y), ("w", w), ("b", b)):
        block(out, "double", f"golden_sgd_{name}", t.flatten())
    out.append("static const struct golden_sgd {")
    out.append("    double momentum, dampening, weight_decay;")
    out.append("    bool nesterov, maximize;")
    out.append("    double losses[4], weight64[6], bias64[2], weight32[6];")
    out.append("} golden_sgd[] = {")
    for options in SGD:
        result = {}
        for dtype in (torch.float64, torch.float32):
            m = nn.Linear(3, 2, dtype=dtype)
            with torch.no_grad():
                m.weight.copy_(w)
                m.bias.copy_(b)
            opt = torch.optim.SGD(m.parameters(), lr=0.1, **options)
            losses = []
            for step in range(4):
                opt.param_groups[0]["lr"] = 0.1 / (step + 1)
                opt.zero_grad()
                loss = nn.functional.mse_loss(m(x.to(dtype)), y.to(dtype))
                loss.backward()
                opt.step()
                losses.append(loss.item())
            result[dtype] = (losses, m.weight.detach().flatten(), m.bias.detach())
        r64, r32 = result[torch.float64], result[torch.float32]
        out.append("    {%s, %s, %s, %s, %s," % (options.get("momentum", 0.0),
                                             options.get("dampening", 0.0),
                                             options.get("weight_decay", 0.0),
                                             str(options.get("nesterov", False)).lower(),
                                             str(options.get("maximize", False)).lower()))
        out.append(f"     {{{floats(r64[0])}}},")
        out.append(f"     {{{floats(r64[1])}}},")
        out.append(f"     {{{floats(r64[2])}}},")
        out.append(f"     {{{floats(r32[1])}}}}},")
    out.append("};")


def schedules(out):
    def run(make, steps):
        p = nn.Parameter(torch.zeros(1))
        opt = torch.optim.SGD([p], lr=0.4, momentum=0.9)
        schedule = make(opt)
        lrs, momenta = [], []
        for _ in range(steps):
            lrs.append(opt.param_groups[0]["lr"])
            momenta.append(opt.param_groups[0]["momentum"])
            opt.step()
            schedule.step()
        return lrs, momenta

    from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR
    lrs, _ = run(lambda o: CosineAnnealingLR(o, T_max=12, eta_min=0.05), 13)
    block(out, "double", "golden_cosine", lrs)
    cases = (("plain", {}), ("linear", dict(anneal_strategy="linear", pct_start=0.25)),
             ("three", dict(three_phase=True, div_factor=10.0, final_div_factor=100.0,
                            base_momentum=0.8, max_momentum=0.9)))
    for name, options in cases:
        lrs, momenta = run(lambda o: OneCycleLR(o, max_lr=0.4, total_steps=21, **options), 20)
        block(out, "double", f"golden_cycle_{name}_lr", lrs)
        block(out, "double", f"golden_cycle_{name}_momentum", momenta)


def main():
    out = ["/* nn_golden.h - values of PyTorch %s, written by nn_golden.py. */" % torch.__version__,
           "#ifndef NN_GOLDEN_H", "#define NN_GOLDEN_H", "", "#include <stdbool.h>", ""]
    initial_values(out)
    lstm(out)
    sgd(out)
    schedules(out)
    out += ["", "#endif"]
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.path.join(here, "..", "testing", "nn_golden.h")
    with open(path, "w", encoding="ascii") as f:
        f.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
