#!/usr/bin/env python3
"""Holds tri_engine against DeepSpeed 0.19.8: the same weights, batches and configuration files.

Run by `./run test --peers` where the Python has deepspeed 0.19.8 (else it says so and compares
nothing), or with such a Python:
    TRI_TEST_BIN=build/bin python tests/peers/deepspeed_engine.py

Two ranks, gloo and f32, 20 updates of two micro-batches, in stages 0 to 3 and with each schedule.
Learning rates have to be equal to the last digit that DeepSpeed prints, losses within 1e-5.
"""
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

UPDATES, MICRO, RANKS, BATCH = 20, 2, 2, 4
TOLERANCE = 1e-5

SCHEDULES = {
    "none": None,
    "LRRangeTest": {"lr_range_test_min_lr": 0.001, "lr_range_test_step_size": 5,
                    "lr_range_test_step_rate": 3},
    "OneCycle": {"cycle_min_lr": 0.001, "cycle_max_lr": 0.05, "cycle_first_step_size": 6,
                 "decay_lr_rate": 0.3, "decay_step_size": 2},
    "WarmupLR": {"warmup_max_lr": 0.05, "warmup_num_steps": 8},
    "WarmupDecayLR": {"total_num_steps": 18, "warmup_max_lr": 0.05, "warmup_num_steps": 6,
                      "warmup_type": "linear"},
    "WarmupCosineLR": {"total_num_steps": 18, "warmup_num_steps": 5},
}
OPTIMIZERS = {
    "adamw": {"type": "AdamW", "params": {"lr": 0.02, "torch_adam": True, "weight_decay": 0.01}},
    "sgd": {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}},
}


def configuration(stage, schedule, optimizer):
    config = {
        "train_micro_batch_size_per_gpu": BATCH,
        "gradient_accumulation_steps": MICRO,
        "gradient_clipping": 0.5,
        "zero_allow_untested_optimizer": True,
        "optimizer": OPTIMIZERS[optimizer],
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
    }
    if SCHEDULES[schedule] is not None:
        config["scheduler"] = {"type": schedule, "params": SCHEDULES[schedule]}
    return config


# --- DeepSpeed's side: one rank ---


class Draws:
    """Those of deepspeed_peer.c."""

    def __init__(self, state):
        self.state = state

    def draw(self):
        self.state = (self.state * 1664525 + 1013904223) & 0xFFFFFFFF
        return (self.state >> 8) / (1 << 23) - 1.0


def run_rank(paths):
    import torch
    import deepspeed

    deepspeed.init_distributed("gloo")
    for path in paths:
        draws = Draws(7)
        net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
        with torch.no_grad():
            for p in net.parameters():
                p.copy_(torch.tensor([draws.draw() * 0.5 for _ in range(p.numel())]).view_as(p))
        engine, _, _, _ = deepspeed.initialize(model=net, model_parameters=net.parameters(),
                                               config=json.loads(Path(path).read_text()))
        lines = []
        for step in range(UPDATES * MICRO):
            draws = Draws(1000 * step + int(os.environ["RANK"]) + 1)
            x = torch.tensor([[draws.draw() for _ in range(4)] for _ in range(BATCH)])
            y = torch.tensor([0 if r[0] + r[1] > 0 else 1 if r[2] > 0 else 2 for r in x])
            loss = torch.nn.functional.cross_entropy(engine(x), y)
            engine.backward(loss)
            engine.step()
            lines.append([step, float(engine.get_lr()[0]), loss.item()])
        Path(f"{path}.theirs{os.environ['RANK']}").write_text(json.dumps(lines))


# --- both sides ---


def run_theirs(paths):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = []
    for rank in range(RANKS):
        env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS),
                   LOCAL_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                   DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1")
        ranks.append(subprocess.Popen([sys.executable, __file__, "--rank", *paths], env=env,
                                      stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))
    for rank in ranks:
        _, err = rank.communicate()
        if rank.returncode != 0:
            print(err.decode()[-1500:])
    return all(rank.returncode == 0 for rank in ranks)


def run_ours(build, peer, path):
    run = subprocess.run([f"{build}/bin/trirun", "--standalone", "--nproc-per-node", str(RANKS), peer,
                          path, str(UPDATES * MICRO)], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(run.stderr)
    ours = {rank: [] for rank in range(RANKS)}
    for line in run.stdout.splitlines():
        rank, step, lr, loss = line.split()
        ours[int(rank)].append([int(step), float(lr), float(loss)])
    return ours


def compare(path, ours):
    worst = 0
    for rank in range(RANKS):
        theirs = json.loads(Path(f"{path}.theirs{rank}").read_text())
        for (step, lr, loss), (_, their_lr, their_loss) in zip(ours[rank], theirs, strict=True):
            if f"{lr:.16g}" != f"{their_lr:.16g}":
                sys.exit(f"{path}: micro-step {step}: lr {lr!r} instead of {their_lr!r}")
            worst = max(worst, abs(loss - their_loss))
    return worst


def main():
    if importlib.util.find_spec("deepspeed") is None:
        print("deepspeed_engine.py: not compared: pip install deepspeed==0.19.8 into this Python")
        return
    build = Path(os.environ.get("TRI_TEST_BIN", "build/bin")).parent
    here = Path(__file__).parent
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        peer = f"{folder}/deepspeed_peer"
        subprocess.run(["cc", "-I", str(here / "../../include"), str(here / "deepspeed_peer.c"), "-L",
                        f"{build}/lib", "-ltrireme", "-ltrireme-comm", "-lm",
                        f"-Wl,-rpath,{Path(build).resolve()}/lib", "-o", peer], check=True)
        for stage in range(4):
            paths = []
            for optimizer in OPTIMIZERS:
                for schedule in SCHEDULES:
                    path = f"{folder}/stage{stage}-{optimizer}-{schedule}.json"
                    Path(path).write_text(json.dumps(configuration(stage, schedule, optimizer)))
                    paths.append(path)
            if not run_theirs(paths):
                print(f"stage {stage}: DeepSpeed does not run here")
                continue
            for path in paths:
                worst = compare(path, run_ours(build, peer, path))
                failed += worst > TOLERANCE
                print(f"{Path(path).stem}: learning rates equal, losses within {worst:.2g}",
                      "" if worst <= TOLERANCE else f"(more than {TOLERANCE})")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--rank":
        run_rank(sys.argv[2:])
    else:
        main()
