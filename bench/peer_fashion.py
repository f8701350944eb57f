#!/usr/bin/env python3
"""The model and recipe of examples/fashion.c in PyTorch DDP: two processes, one thread each.

    peer_fashion.py [--mode contiguous|channels_last|compile|bf16|bf16_channels_last] [options]

Prints one JSON object: training time in seconds (evaluation excluded), test accuracy (0 to 1,
logits of each image and its mirror image averaged), and the time of each epoch. Data lie in
memory and are augmented a batch at a time by tensor operations: the fastest way that PyTorch has
for a set as small as this one, and faster than its DataLoader.
"""
import argparse
import contextlib
import gzip
import json
import os
import time

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

MEAN, STD = 0.2860, 0.3530


def conv_bn(n_in, n_out):
    return nn.Sequential(nn.Conv2d(n_in, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out),
                         nn.ReLU())


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(conv_bn(width, width), conv_bn(width, width))

    def forward(self, x):
        return x + self.body(x)


class Net(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.layers = nn.Sequential(
            conv_bn(1, w), nn.MaxPool2d(2), conv_bn(w, 2 * w), Residual(2 * w), nn.MaxPool2d(2),
            conv_bn(2 * w, 4 * w), Residual(4 * w), nn.AdaptiveMaxPool2d(1), nn.Flatten(),
            nn.Linear(4 * w, 10))

    def forward(self, x):
        return self.layers(x)


def read_idx(folder, name, skip, shape):
    with gzip.open(os.path.join(folder, name + ".gz")) as file:
        return torch.from_numpy(
            numpy.frombuffer(file.read(), numpy.uint8, offset=skip).reshape(shape).copy())


def read_data(folder, part):
    images = read_idx(folder, part + "-images-idx3-ubyte", 16, (-1, 28, 28))
    labels = read_idx(folder, part + "-labels-idx1-ubyte", 8, (-1,)).long()
    return images, labels


def augment(images, shift):
    """u8 [N, 28, 28] -> normalised f32 [N, 1, 28, 28], shifted by up to `shift` pixels, mirrored."""
    n = images.shape[0]
    if shift == 0:
        mirrored = torch.rand(n, 1, 1, 1) < 0.5
        images = images.reshape(n, 1, 28, 28)
        return normalise(torch.where(mirrored, images.flip(3), images))
    padded = F.pad(images, (shift, shift, shift, shift))
    dy = torch.randint(0, 2 * shift + 1, (n, 1))
    dx = torch.randint(0, 2 * shift + 1, (n, 1))
    mirrored = torch.rand(n, 1) < 0.5
    column = torch.arange(28).expand(n, 28)
    column = torch.where(mirrored, 27 - column, column) + dx
    row = torch.arange(28).expand(n, 28) + dy
    index = row[:, :, None] * (28 + 2 * shift) + column[:, None, :]
    out = padded.reshape(n, -1).gather(1, index.reshape(n, -1)).reshape(n, 1, 28, 28)
    return normalise(out)


def normalise(images):
    return images.float().mul_(1 / (255 * STD)).sub_(MEAN / STD)


def evaluate(net, images, labels, rank, size, layout, cast):
    """Counts of this rank's share, added over the ranks."""
    net.eval()
    right = torch.zeros(1)
    with torch.no_grad(), cast():
        for at in range(rank * 500, len(images), size * 500):
            x = normalise(images[at:at + 500].reshape(-1, 1, 28, 28)).to(memory_format=layout)
            logits = net(x) + net(x.flip(3))
            right += (logits.argmax(1) == labels[at:at + 500]).sum()
    net.train()
    if size > 1:
        dist.all_reduce(right)
    return right.item() / len(images)


def train(rank, size, args, port, results):
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    if size > 1:
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                                world_size=size)
    images, labels = read_data(args.data, "train")
    test_images, test_labels = read_data(args.data, "t10k")
    if args.limit:
        images, labels = images[:args.limit], labels[:args.limit]

    layout = torch.channels_last if "channels_last" in args.mode else torch.contiguous_format
    cast = contextlib.nullcontext
    if "bf16" in args.mode:
        cast = lambda: torch.autocast("cpu", torch.bfloat16)
    net = Net(args.width).to(memory_format=layout)
    model = DistributedDataParallel(net) if size > 1 else net
    if "compile" in args.mode:
        model = torch.compile(model)
    torch.manual_seed(args.seed + rank)

    sampler = DistributedSampler(images, size, rank, seed=args.seed, drop_last=True)
    share = args.batch // size
    steps = len(sampler) // share
    optimizer = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=args.momentum,
                                nesterov=True, weight_decay=args.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, args.lr, total_steps=args.epochs * steps + 1, pct_start=args.warm,
        cycle_momentum=False, div_factor=args.div, final_div_factor=1e4,
        anneal_strategy=args.anneal)
    if "compile" in args.mode:  # compilation is not counted
        with cast():
            F.cross_entropy(model(augment(images[:share], args.shift)), labels[:share]).backward()
        optimizer.zero_grad()

    seconds, times = 0.0, []
    for epoch in range(args.epochs):
        started = time.perf_counter()
        sampler.set_epoch(epoch)
        order = torch.tensor(list(sampler))
        losses = []
        for step in range(steps):
            index = order[step * share:(step + 1) * share]
            x = augment(images[index], args.shift).to(memory_format=layout)
            with cast():
                loss = F.cross_entropy(model(x), labels[index], label_smoothing=args.smoothing)
            loss.backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        loss = torch.stack(losses).mean().item()
        times.append(time.perf_counter() - started)
        seconds += times[-1]
        if args.verbose or epoch == args.epochs - 1:
            accuracy = evaluate(net, test_images, test_labels, rank, size, layout, cast)
            if args.verbose and rank == 0:
                print(f"epoch {epoch} loss {loss:.4f} accuracy {accuracy:.4f} {times[-1]:.1f} s",
                      flush=True)
    if rank == 0:
        results["accuracy"], results["seconds"], results["epochs"] = accuracy, seconds, times
    if size > 1:
        dist.barrier()
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--mode", default="contiguous")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=128, help="of all workers together")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--smoothing", type=float, default=0.1)
    parser.add_argument("--shift", type=int, default=0)
    parser.add_argument("--warm", type=float, default=0.2)
    parser.add_argument("--div", type=float, default=25)
    parser.add_argument("--anneal", default="linear")
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()

    results = mp.Manager().dict()
    if args.workers == 1:
        train(0, 1, args, 0, results)
    else:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        port = store.port
        del store
        mp.spawn(train, (args.workers, args, port, results), nprocs=args.workers)
    print(json.dumps({"mode": args.mode, **results}))


if __name__ == "__main__":
    main()
