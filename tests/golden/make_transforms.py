"""What torchvision makes of images: transforms.txt, for transforms_golden_test.c.

Made with torchvision 0.28 over Pillow 12.3; Pillow 13 has other pixels (it may resize columns first). A
line is a case, `NAME HEIGHT WIDTH NUMBERS.. : SIZES.. HASH`. The hash is FNV-1a of the bytes: u8
[height, width, 3], or f32 [3, height, width] if it ends in normal. Those of random_resized_crop have
torchvision's formulas over our draws (Philox), for the epochs 0 to 7 of sample 3 and seed 11."""
import struct

import numpy
import PIL
import torch
import torchvision.transforms.functional as F
from PIL import Image
from torchvision import transforms

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def image(height, width):
    h, w, c = numpy.meshgrid(numpy.arange(height), numpy.arange(width), numpy.arange(3), indexing="ij")
    return Image.fromarray(((h * 131 + w * 71 + c * 37) ^ (h * w)).astype(numpy.uint8))


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def result(x):
    if isinstance(x, torch.Tensor):
        x = x.contiguous().numpy()
        return f"{x.shape[1]} {x.shape[2]} {fnv(x.tobytes())}"
    return f"{x.height} {x.width} {fnv(x.tobytes())}"


class Draws:
    """src/train/data/draws.h"""

    def __init__(self, seed, epoch, index, place):
        self.seed, self.words = seed, []
        self.counter = [index & 0xFFFFFFFF, index >> 32, epoch, (place + 1) << 24]

    def word(self):
        if not self.words:
            c, key = list(self.counter), [self.seed & 0xFFFFFFFF, self.seed >> 32]
            for _ in range(10):
                p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
                c = [p1 >> 32 ^ c[1] ^ key[0], p1 & 0xFFFFFFFF, p0 >> 32 ^ c[3] ^ key[1], p0 & 0xFFFFFFFF]
                key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
            self.words, self.counter[3] = c, self.counter[3] + 1
        return self.words.pop()

    def uniform(self):
        high = self.word()
        return ((high << 32 | self.word()) >> 11) * 2.0**-53

    def below(self, n):
        return int(self.uniform() * n)


def with_draws(draws, call):
    uniform, randint = torch.Tensor.uniform_, torch.randint
    f32 = numpy.float32
    torch.Tensor.uniform_ = lambda self, a, b: self.fill_(
        float(f32(draws.uniform()) * (f32(float(b)) - f32(float(a))) + f32(float(a))))
    torch.randint = lambda low, high, size: torch.tensor([low + draws.below(high - low)])
    try:
        return call()
    finally:
        torch.Tensor.uniform_, torch.randint = uniform, randint


def main():
    assert int(PIL.__version__.split(".")[0]) < 13
    tail = transforms.Compose([transforms.ToTensor(), transforms.Normalize(MEAN, STD)])
    random = torch.Generator().manual_seed(5)
    with open("tests/golden/transforms.txt", "w", encoding="ascii") as file:
        def case(name, height, width, numbers, x):
            numbers = "".join(f" {n}" for n in numbers)
            file.write(f"{name} {height} {width}{numbers} : {result(x)}\n")

        for height, width in ((375, 500), (500, 333), (64, 64), (1, 9), (9, 1), (256, 300), (100, 7)):
            for side in (256, 64, 7, 1):
                case("resize", height, width, (side,), transforms.Resize(side)(image(height, width)))
        for height, width, h, w in ((8, 8, 3, 3), (8, 8, 3, 5), (8, 8, 2, 12), (37, 51, 37, 20), (37, 51, 5, 51),
                                    (3, 2, 40, 41), (300, 200, 299, 201), (64, 64, 224, 224), (1, 1, 5, 6)):
            case("resize_to", height, width, (h, w), transforms.Resize((h, w))(image(height, width)))
        for height, width, h, w in ((256, 341, 224, 224), (5, 6, 2, 3), (5, 6, 4, 5), (5, 6, 9, 10), (5, 6, 8, 3),
                                    (5, 6, 4, 11), (7, 7, 7, 7), (10, 13, 3, 6)):
            case("center_crop", height, width, (h, w), transforms.CenterCrop((h, w))(image(height, width)))
        for height, width in ((375, 500), (64, 64), (300, 231)):
            x = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), tail])(image(height, width))
            case("validation_normal", height, width, (), x)
        for k in range(40):
            height, width = (int(torch.randint(1, 400, (1,), generator=random)) for _ in range(2))
            h, w = (int(torch.randint(1, n + 1, (1,), generator=random)) for n in (height, width))
            top, left = (int(torch.randint(0, n + 1, (1,), generator=random)) for n in (height - h, width - w))
            x = F.resized_crop(image(height, width), top, left, h, w, (48, 40), antialias=True)
            case("resized_crop", height, width, (top, left, h, w), x)
            case("mirrored_normal", height, width, (top, left, h, w), tail(F.hflip(x)))
        for height, width, scale, ratio in ((375, 500, (0.08, 1.0), (3 / 4, 4 / 3)), (40, 300, (0.08, 1.0), (3 / 4, 4 / 3)),
                                            (300, 40, (0.9, 1.0), (3 / 4, 4 / 3)), (64, 64, (0.5, 0.5), (1.0, 1.0)),
                                            (2, 3, (0.08, 1.0), (3 / 4, 4 / 3)), (100, 90, (0.01, 0.02), (0.2, 5.0))):
            t = transforms.RandomResizedCrop((24, 20), scale, ratio)
            for epoch in range(8):
                x = with_draws(Draws(11, epoch, 3, 0), lambda: t(image(height, width)))
                case("random_resized_crop", height, width, (*scale, *ratio, epoch), x)


main()
