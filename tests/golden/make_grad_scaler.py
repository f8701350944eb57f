#!/usr/bin/env python3
"""Writes grad_scaler.txt: what torch.amp.GradScaler makes of steps in which gradients overflow.

Usage: make_grad_scaler.py > grad_scaler.txt   (PyTorch 2.13; nothing of the build needs it)

Two parameters of five elements, whose losses are means of squares times a factor that is infinite
in some steps. After each of them:
  case NAME / STEP SCALE TRACKER a0 .. a4 b0 .. b4 / ..
"""
import torch

INF = float("inf")
STEPS = 14
BAD = {"a": (2, 3, 8), "b": (3, 9)}


def run(name, make, clip=None, micro=1):
    a = torch.tensor([0.5, -1.0, 2.0, 0.25, -0.125], requires_grad=True)
    b = torch.tensor([1.5, 0.75, -2.0, 1.0, 0.5], requires_grad=True)
    optimizers = make(a, b)
    scaler = torch.amp.GradScaler(
        "cpu", init_scale=1024.0, growth_factor=4.0, backoff_factor=0.25, growth_interval=3
    )
    print("case", name)
    for step in range(STEPS):
        for m in range(micro):
            fa = INF if step in BAD["a"] and m == 0 else 1.0 + 0.125 * m
            fb = INF if step in BAD["b"] and m == micro - 1 else 0.75
            loss = (a * a).mean() * fa + ((b - 0.5) * (b - 0.5)).mean() * fb
            scaler.scale(loss).backward()
        for o in optimizers:
            if clip is not None:
                scaler.unscale_(o)
                torch.nn.utils.clip_grad_norm_(o.param_groups[0]["params"], clip)
            scaler.step(o)
            o.zero_grad()
        scaler.update()
        numbers = [scaler.get_scale(), scaler._growth_tracker.item()] + a.tolist() + b.tolist()
        print(step, *["%.9g" % x for x in numbers])


def adam(a, b):
    return [torch.optim.Adam([a, b], 0.125)]


def two(a, b):
    return [torch.optim.Adam([a], 0.125), torch.optim.SGD([b], 0.25, momentum=0.5)]


def main():
    run("adam", adam)
    run("two", two)
    run("clip", adam, clip=0.25)
    run("two_clip", two, clip=0.25)
    run("accumulate", adam, micro=2)


if __name__ == "__main__":
    main()
