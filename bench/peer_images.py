#!/usr/bin/env python3
"""peer_images.py [train|val DIR] - bench/images.c in PyTorch: images a second of ImageFolder under a
DataLoader without workers, one thread. Without arguments: what it is. BENCH_CPU=1: processor time."""
import os
import sys
import time

import torch


def import_torchvision():
    """PyPI's torchvision beside a CPU build of PyTorch does not load its compiled operators, which
    transforms do not use: declared by name, they are enough."""
    try:
        import torchvision
        return torchvision
    except RuntimeError:
        pass
    library = torch.library.Library("torchvision", "DEF")
    for _ in range(100):
        for name in [n for n in sys.modules if n.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        try:
            import torchvision
            import_torchvision.library = library  # or its operators go away
            return torchvision
        except RuntimeError as error:
            missing = str(error).split("torchvision::")
            if len(missing) < 2:
                raise
            library.define(missing[1].split()[0] + "() -> Tensor")
    raise RuntimeError("torchvision cannot be imported")


def main():
    torchvision = import_torchvision()
    from torchvision import transforms
    from torchvision.datasets import ImageFolder
    if len(sys.argv) < 3:
        print("torchvision", torchvision.__version__.split("+")[0])
        return
    torch.set_num_threads(1)
    clock = time.process_time if "BENCH_CPU" in os.environ else time.perf_counter
    normalize = transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    look = {"train": [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()],
            "val": [transforms.Resize(256), transforms.CenterCrop(224)]}[sys.argv[1]]
    data = ImageFolder(sys.argv[2], transforms.Compose([*look, transforms.ToTensor(), normalize]))
    loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)
    images, began, epoch = 0, 0.0, 0
    while epoch < 2 or clock() - began < 3:
        if epoch == 1:  # the first one is for warming up
            images, began = 0, clock()
        for batch, _ in loader:
            images += len(batch)
        epoch += 1
    print("%.1f" % (images / (clock() - began)))


main()
