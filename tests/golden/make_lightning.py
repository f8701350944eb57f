#!/usr/bin/env python3
"""make_lightning.py - what Lightning's EarlyStopping and ModelCheckpoint decide for sequences of values:
lightning.txt, one case a line. Needs lightning 2.6.6; run it by hand, tests/golden/lightning_test.c
compares tri_fit with what it wrote.

  early MODE MIN_DELTA PATIENCE FINITE STOP DIVERGE : VALUE.. : INDEX
  best MODE K : VALUE.. : BEST STEP.. (those that stay, in order of steps)

INDEX is that of the value that ends the fit, -1 = none does; "-" is an option that is not set. A step is
the index of its value plus 1.
"""
import math
import os
import random
from unittest import mock

import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

random.seed(25)


def text(value):
    return "-" if value is None else repr(float(value))


def draw():
    kind = random.random()
    if kind < 0.04:
        return math.nan
    if kind < 0.06:
        return random.choice([math.inf, -math.inf])
    return random.randrange(-8, 33) / 8


def early(mode, min_delta, patience, finite, stop, diverge, values):
    callback = EarlyStopping("m", min_delta=min_delta, patience=patience, mode=mode, check_finite=finite,
                             stopping_threshold=stop, divergence_threshold=diverge)
    for i, value in enumerate(values):
        ends, _ = callback._evaluate_stopping_criteria(torch.tensor(value, dtype=torch.float64))
        if ends:
            return i
    return -1


def best(mode, k, values):
    callback = ModelCheckpoint("/tmp/none", monitor="m", mode=mode, save_top_k=k, filename="{step}",
                               enable_version_counter=False)
    callback.file_exists = lambda path, trainer: False
    callback._save_checkpoint = lambda trainer, path: None
    trainer = mock.MagicMock(callback_metrics={}, ckpt_path=None)
    trainer.strategy.reduce_boolean_decision = lambda decision, *rest: decision
    trainer.strategy.broadcast = lambda value, *rest: value
    for i, value in enumerate(values):
        tensor = torch.tensor(value, dtype=torch.float64)
        candidates = {"m": tensor, "step": torch.tensor(i + 1), "epoch": torch.tensor(i)}
        callback._save_topk_checkpoint(trainer, candidates)

    def step(path):
        return int(os.path.basename(path).split("=")[1].split(".")[0])

    return [step(callback.best_model_path)] + sorted(step(path) for path in callback.best_k_models)


with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "lightning.txt"), "w") as out:
    for _ in range(60):
        values = [draw() for _ in range(random.randrange(1, 13))]
        case = (random.choice(["min", "max"]), random.choice([0.0, 0.0, 0.125, 0.5]), random.randrange(0, 5),
                random.random() < 0.6, random.choice([None, None, 0.0, 3.0]), random.choice([None, None, 0.5, 2.5]))
        out.write(f"early {case[0]} {case[1]} {case[2]} {int(case[3])} {text(case[4])} {text(case[5])} : "
                  f"{' '.join(text(v) for v in values)} : {early(*case, values)}\n")
    for _ in range(40):
        values = [draw() for _ in range(random.randrange(1, 11))]
        mode, k = random.choice(["min", "max"]), random.randrange(1, 4)
        out.write(f"best {mode} {k} : {' '.join(text(v) for v in values)} : "
                  f"{' '.join(str(s) for s in best(mode, k, values))}\n")
