#!/usr/bin/env python3
"""peer_imagenet.py MODE DIR [--epochs N] [--limit BATCHES] - pytorch/elastic's ImageNet example: the
ResNet-18, the transforms, the loader (in the training process) and the loop of its main.py, with DDP
over Gloo. Started by torch.distributed.run with one process a core.

MODE: contiguous, channels_last, compile or compile_channels_last. Prints the seconds of the last
epoch: training, and evaluation of this rank's share (the original evaluates everything on each
rank; a share is what the loop it is compared with does). --limit: no more batches than that, and no
evaluation, to choose a mode. "nan" is printed for a mode that does not run here.
"""
import argparse
import importlib
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset
from torch.utils.data.distributed import DistributedSampler

try:
    import torchvision
except RuntimeError:  # built for CUDA, with a torch for the CPU: its operators, unused here, do not load
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(name + "() -> ()")
    for name in [name for name in sys.modules if name.startswith("torchvision")]:
        del sys.modules[name]
    torchvision = importlib.import_module("torchvision")
from torchvision import transforms
from torchvision.datasets import ImageFolder
from torchvision.models import resnet18

BATCH = 32


def folders(path):
    normalize = transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
    train = ImageFolder(path + "/train", transforms.Compose([
        transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(),
        transforms.ToTensor(), normalize]))
    val = ImageFolder(path + "/val", transforms.Compose([
        transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor(), normalize]))
    return train, val


def accuracy(output, target, topk=(1, 5)):
    """As in main.py: percent of the batch."""
    with torch.no_grad():
        _, best = output.topk(max(topk), 1, True, True)
        right = best.t().eq(target.view(1, -1).expand_as(best.t()))
        return [right[:k].reshape(-1).float().sum(0, keepdim=True) * 100 / target.size(0)
                for k in topk]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mode")
    parser.add_argument("dir")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--limit", type=int, default=0)
    args = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    layout = torch.channels_last if "channels_last" in args.mode else torch.contiguous_format
    train, val = folders(args.dir)
    val = Subset(val, range(len(val) * rank // size, len(val) * (rank + 1) // size))
    sampler = DistributedSampler(train)
    train_loader = DataLoader(train, batch_size=BATCH, sampler=sampler)
    val_loader = DataLoader(val, batch_size=BATCH)
    model = DistributedDataParallel(resnet18(num_classes=len(train.classes)).to(memory_format=layout))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    forward = torch.compile(model) if "compile" in args.mode else model

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        dist.barrier()
        begin = time.perf_counter()
        model.train()
        for i, (images, target) in enumerate(train_loader):
            if args.limit and i == args.limit:
                break
            output = forward(images.to(memory_format=layout))
            loss = F.cross_entropy(output, target)
            acc1, acc5 = accuracy(output, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item(), acc1.item(), acc5.item()  # AverageMeter
        if not args.limit:
            model.eval()
            with torch.no_grad():
                for images, target in val_loader:
                    output = forward(images.to(memory_format=layout))
                    F.cross_entropy(output, target).item()
                    accuracy(output, target)
        dist.barrier()
        seconds = time.perf_counter() - begin
    if rank == 0:
        print(f"{seconds:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
