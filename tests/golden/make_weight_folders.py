#!/usr/bin/env python3
"""Writes folders/{hub,dcp}-*: run in tests/golden with torch 2.13 and safetensors.

weight_folders_test.c and make_deepspeed_folders.py use the same network: entry k of its state has
the values (k * 37 + i * 11) % 100 - 50, i the element in row-major order.
"""
import collections
import json
import os
import shutil

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp


def network():
    net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5),
                              torch.nn.Linear(5, 2))
    with torch.no_grad():
        for k, value in enumerate(net.state_dict().values()):
            flat = torch.tensor([(k * 37 + i * 11) % 100 - 50 for i in range(value.numel())])
            value.copy_(flat.reshape(value.shape))
    return net


def hub(folder, base, suffix, save):
    os.makedirs(folder)
    state = {name: value.clone() for name, value in network().state_dict().items()}
    names = list(state)
    files = ["%s-%05d-of-00002%s" % (base, i + 1, suffix) for i in range(2)]
    parts = [names[:4], names[4:]]
    for file, part in zip(files, parts):
        save({name: state[name] for name in part}, folder + "/" + file)
    index = {"metadata": {"total_size": sum(v.nbytes for v in state.values())},
             "weight_map": {name: file for file, part in zip(files, parts) for name in part}}
    with open("%s/%s%s.index.json" % (folder, base, suffix), "w") as f:
        json.dump(index, f, indent=2, sort_keys=True)


def ranks(rank, port):
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank),
                      WORLD_SIZE="2")
    dist.init_process_group("gloo")
    net = network()
    dcp.save({"model": net.state_dict(), "step": 7, "words": ["a", "b"]},
             checkpoint_id="folders/dcp-replicated")
    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    dcp.save({name: distribute_tensor(value, mesh, [Shard(1) if value.dim() == 2 else Replicate()])
              for name, value in net.state_dict().items()}, checkpoint_id="folders/dcp-columns")
    fully_shard(net, mesh=mesh)
    dcp.save(net.state_dict(), checkpoint_id="folders/dcp-sharded")
    adam = torch.optim.Adam(net.parameters())
    net(torch.ones(4, 3)).sum().backward()
    for p in net.parameters():
        p.grad = None
    from torch.distributed.checkpoint.state_dict import get_state_dict

    model, optim = get_state_dict(net, adam)
    state = dict(model)
    state.update({name: network().state_dict()[name] for name in state if "1.running" in name
                  or "tracked" in name})  # the forward has changed them
    dcp.save({"app": {"model": state, "optim": optim}}, checkpoint_id="folders/dcp-app")
    dist.destroy_process_group()


if __name__ == "__main__":
    from safetensors.torch import save_file

    for kind in ("hub-safetensors", "hub-torch", "dcp-replicated", "dcp-columns", "dcp-sharded",
                 "dcp-app"):
        shutil.rmtree("folders/" + kind, ignore_errors=True)
    hub("folders/hub-safetensors", "model", ".safetensors", save_file)
    hub("folders/hub-torch", "pytorch_model", ".bin", torch.save)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    port = store.port
    del store
    torch.multiprocessing.spawn(ranks, (port,), nprocs=2)
