#!/usr/bin/env python3
"""Writes folders/deepspeed-*: run in tests/golden with DeepSpeed 0.19.8 and torch 2.13.

The network is that of make_weight_folders.py. Where it is trained in bf16, the optimizer's f32
weights are set to 0.125 more than the network's, so that it shows which are read.
"""
import glob
import os
import shutil

os.environ["DS_ACCELERATOR"] = "cpu"
import deepspeed
import torch
import torch.distributed as dist

from make_weight_folders import network

KINDS = [("stage0", 0, False, False), ("stage1", 1, False, False), ("stage2-bf16", 2, True, False),
         ("stage2-frozen", 2, False, True), ("stage3", 3, False, False),
         ("stage3-frozen", 3, False, True)]


def save(kind, stage, bf16, frozen):
    net = network()
    net[0].bias.requires_grad = not frozen
    groups = [{"params": list(net[0].parameters())}, {"params": list(net[1:].parameters())}]
    for group in groups:
        group["params"] = [p for p in group["params"] if p.requires_grad]
    config = {"train_batch_size": 2, "zero_allow_untested_optimizer": True,
              "bf16": {"enabled": bf16},
              "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0}}
    engine, optimizer, _, _ = deepspeed.initialize(
        model=net, optimizer=torch.optim.SGD(groups, lr=0.5), config=config)
    if bf16:
        for flat in optimizer.single_partition_of_fp32_groups:
            flat.data.add_(0.125)
    engine.save_checkpoint("folders/deepspeed-" + kind, client_state={"epoch": 3})


def save_run():
    """Three updates with a schedule, which any number of ranks goes on from."""
    net = network()
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2,
              "optimizer": {"type": "AdamW", "params": {"lr": 0.05, "torch_adam": True}},
              "scheduler": {"type": "WarmupLR",
                            "params": {"warmup_max_lr": 0.05, "warmup_num_steps": 20}},
              "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}}
    engine, _, _, _ = deepspeed.initialize(model=net, model_parameters=net.parameters(),
                                           config=config)
    for step in range(6):
        x = torch.arange(6).view(2, 3) * 0.1 + step
        engine.backward(engine(x).square().mean())
        engine.step()
    engine.save_checkpoint("folders/deepspeed-run", client_state={"epoch": 3})


def mix():
    """Rank 1's file of stage 1 as runs of other sizes would leave it."""
    os.makedirs("folders/deepspeed-mixed", exist_ok=True)
    for name, key, change in (("three-ranks", "partition_count", lambda n: n + 1),
                              ("longer", "single_partition_of_fp32_groups",
                               lambda share: torch.cat([share, share]))):
        states = torch.load("folders/deepspeed-stage1/global_step0/"
                            "zero_pp_rank_1_mp_rank_00_optim_states.pt", weights_only=False)
        states["optimizer_state_dict"][key] = [change(v) for v in states["optimizer_state_dict"][key]]
        torch.save(states, "folders/deepspeed-mixed/%s.pt" % name)


def ranks(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank),
                      LOCAL_RANK=str(rank), WORLD_SIZE="2")
    deepspeed.init_distributed("gloo")
    for kind in KINDS:
        save(*kind)
    save_run()
    dist.destroy_process_group()


if __name__ == "__main__":
    for kind in [kind[0] for kind in KINDS] + ["run"]:
        shutil.rmtree("folders/deepspeed-" + kind, ignore_errors=True)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    port = store.port
    del store
    torch.multiprocessing.spawn(ranks, (port,), nprocs=2)
    for script in glob.glob("folders/deepspeed-*/zero_to_*.py"):
        os.remove(script)
    mix()
