#!/usr/bin/env python3
"""Writes deepspeed_rates.txt: rates and momenta of DeepSpeed's schedules for 30 updates.

Usage: make_deepspeed_rates.py > deepspeed_rates.txt   (DeepSpeed 0.19.8; nothing of the build needs it)

A case is a configuration, and then for each update what the optimizer has during it:
  case JSON / LR BETA1 BETA2 / ..
"""
import json
import logging

import torch

logging.disable(logging.CRITICAL)  # which DeepSpeed writes to stdout
from deepspeed.runtime import lr_schedules  # noqa: E402

UPDATES = 30
LR = 0.02

CASES = [
    ("LRRangeTest", {}),
    ("LRRangeTest", {"lr_range_test_min_lr": 1e-4, "lr_range_test_step_size": 7,
                     "lr_range_test_step_rate": 5}),
    ("LRRangeTest", {"lr_range_test_min_lr": 0.003, "lr_range_test_step_size": 7,
                     "lr_range_test_step_rate": 2.5, "lr_range_test_staircase": True}),
    ("OneCycle", {"cycle_min_lr": 1e-3, "cycle_max_lr": 0.1, "cycle_first_step_size": 9}),
    ("OneCycle", {"cycle_min_lr": 1e-3, "cycle_max_lr": 0.1, "cycle_first_step_size": 5,
                  "cycle_second_step_size": 11, "decay_lr_rate": 0.5, "decay_step_size": 4,
                  "cycle_min_mom": 0.7, "cycle_max_mom": 0.95, "decay_mom_rate": 0.001}),
    ("OneCycle", {"cycle_min_lr": 0.01, "cycle_max_lr": 0.05, "cycle_first_step_size": 12,
                  "cycle_second_step_size": 7, "cycle_first_stair_count": 4,
                  "cycle_second_stair_count": 3, "decay_lr_rate": 2, "decay_step_size": 1}),
    ("OneCycle", {"cycle_min_lr": 0.01, "cycle_max_lr": 0.05, "cycle_first_step_size": 10,
                  "cycle_first_stair_count": 5, "cycle_momentum": False}),
    ("OneCycle", {"cycle_min_lr": 0.01, "cycle_max_lr": 0.05, "cycle_first_step_size": 10,
                  "cycle_second_step_size": 0}),
    ("WarmupLR", {"warmup_num_steps": 10}),
    ("WarmupLR", {"warmup_min_lr": 1e-5, "warmup_max_lr": 0.3, "warmup_num_steps": 12,
                  "warmup_type": "linear"}),
    ("WarmupLR", {"warmup_num_steps": 1}),
    ("WarmupDecayLR", {"total_num_steps": 25, "warmup_num_steps": 10}),
    ("WarmupDecayLR", {"total_num_steps": 25, "warmup_min_lr": 1e-4, "warmup_max_lr": 0.05,
                       "warmup_num_steps": 6, "warmup_type": "linear"}),
    ("WarmupDecayLR", {"total_num_steps": 5, "warmup_num_steps": 10}),
    ("WarmupCosineLR", {"total_num_steps": 25, "warmup_num_steps": 5}),
    ("WarmupCosineLR", {"total_num_steps": 28, "warmup_min_ratio": 0.1, "warmup_num_steps": 8,
                        "cos_min_ratio": 0.02, "warmup_type": "linear"}),
    ("WarmupCosineLR", {"total_num_steps": 4, "warmup_num_steps": 8}),
]


def run(name, params):
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=LR)
    schedule = getattr(lr_schedules, name)(optimizer, **params)
    config = {"train_batch_size": 1, "scheduler": {"type": name, "params": params}}
    print("case", json.dumps(config))
    for _ in range(UPDATES):
        group = optimizer.param_groups[0]
        print(repr(group["lr"]), *(repr(beta) for beta in group["betas"]))
        optimizer.step()
        schedule.step()


for case in CASES:
    run(*case)
