#!/usr/bin/env python3
"""peer_gpt.py [STEPS [RUNS]] [MODE] - bench/gpt_step.c in PyTorch.

One process; prints tokens a second, the median of RUNS runs. MODE: sdpa (eager, fused attention),
eager (attention from products and softmax), compile (torch.compile, fused attention).

peer_gpt.py --choose MODE.. prints the fastest of these modes.
"""
import os
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

LAYERS, WIDTH, HEADS, CONTEXT, VOCABULARY, BATCH = 6, 384, 6, 256, 256, 8

clock = time.process_time if "BENCH_CPU" in os.environ else time.perf_counter
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))


class Block(nn.Module):
    def __init__(self, fused):
        super().__init__()
        self.fused = fused
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.c_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.register_buffer("mask", torch.ones(CONTEXT, CONTEXT).tril() == 0, persistent=False)

    def attention(self, x):
        n, t, c = x.shape
        q, k, v = [a.view(n, t, HEADS, c // HEADS).transpose(1, 2)
                   for a in self.c_attn(x).split(c, dim=2)]
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * (c // HEADS) ** -0.5
            y = F.softmax(scores.masked_fill(self.mask[:t, :t], float("-inf")), dim=-1) @ v
        return self.proj(y.transpose(1, 2).reshape(n, t, c))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.c_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, fused):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.h = nn.Sequential(*[Block(fused) for _ in range(LAYERS)])
        self.ln_f = nn.LayerNorm(WIDTH)

    def forward(self, tokens):
        x = self.h(self.wte(tokens) + self.wpe.weight[:tokens.shape[1]])
        return F.linear(self.ln_f(x), self.wte.weight)


def task(mode):
    """A function that makes one training step."""
    torch.manual_seed(1)
    net = GPT(mode != "eager")
    opt = torch.optim.AdamW(net.parameters(), 3e-4, weight_decay=0.1, fused=True)
    forward = torch.compile(net) if mode == "compile" else net
    tokens = torch.randint(VOCABULARY, (BATCH * CONTEXT + 1,))
    x, y = tokens[:-1].view(BATCH, CONTEXT), tokens[1:]

    def step():
        opt.zero_grad()
        loss = F.cross_entropy(forward(x).view(-1, VOCABULARY), y)
        loss.backward()
        opt.step()

    return step


def rate(step, n):
    begin = clock()
    for _ in range(n):
        step()
    return n * BATCH * CONTEXT / (clock() - begin)


def choose(modes):
    """The mode whose later steps are the fastest; one that does not work here is out of question."""
    best = None
    for mode in modes:
        try:
            step = task(mode)
            step()
            step()
            got = rate(step, 2)
        except Exception as error:  # no compiler, an operation that cannot be compiled
            print("peer_gpt: %s: %s" % (mode, str(error).splitlines()[0]), file=sys.stderr)
            continue
        print("peer_gpt: %s: %.1f tokens/s" % (mode, got), file=sys.stderr)
        if best is None or got > best[0]:
            best = (got, mode)
    print(best[1])


def main():
    words = sys.argv[1:]
    if words[:1] == ["--choose"]:
        choose(words[1:])
        return
    modes = [w for w in words if w in ("sdpa", "eager", "compile")]
    steps, runs = [int(a) for a in ([w for w in words if w.isdigit()] + ["2", "3"])[:2]]
    step = task((modes + ["sdpa"])[0])
    for _ in range(3):
        step()
    print("%.1f" % statistics.median(rate(step, steps) for _ in range(runs)))


if __name__ == "__main__":
    main()
