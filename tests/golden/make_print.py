"""What torch prints of tensors: print.txt, for print_test.c. A case is a line
`TYPE NDIM SIZES.. : VALUES..` (values as hexadecimal bits of f64), torch's lines, and `end`."""
import struct

import torch

NAMES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16",
         torch.int64: "i64", torch.int32: "i32", torch.uint8: "u8", torch.int8: "i8",
         torch.bool: "bool"}


def case(file, x):
    values = " ".join(struct.pack(">d", v).hex() for v in x.double().flatten().tolist())
    sizes = "".join(f" {n}" for n in x.shape)
    file.write(f"{NAMES[x.dtype]} {x.dim()}{sizes} : {values}\n")
    text = str(x)
    for dtype, name in NAMES.items():
        text = text.replace(f"dtype={dtype}", f"dtype={name}")
    file.write(text + "\nend\n")


def main():
    generator = torch.Generator().manual_seed(7)

    def random(*shape):
        return torch.randn(*shape, generator=generator)

    inf, nan = float("inf"), float("nan")
    with open("tests/golden/print.txt", "w", encoding="ascii") as file:
        for x in (
            torch.tensor(3.0), torch.tensor(0.1), torch.tensor(-7), torch.tensor(True),
            torch.tensor([]), torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64), torch.zeros(2, 0, 5, dtype=torch.int32),
            torch.zeros(3), torch.zeros(2, 2, dtype=torch.float64), torch.arange(5.0),
            torch.arange(12).reshape(3, 4), random(4), random(2, 3), random(2, 3, 4),
            random(2, 2, 2, 3), random(40), random(3, 29).double(), random(2, 8).double(), random(5).bfloat16(),
            random(5).half(), torch.tensor([1e-5, 1.0]), torch.tensor([1e9, 1.0]),
            torch.tensor([1.5, 2000.0]), torch.tensor([1.0, 2000.0]), torch.tensor([1.0, 999.0]),
            torch.tensor([nan, inf, -inf, 0.5]), torch.tensor([nan, nan]),
            torch.tensor([0.0, inf]), torch.tensor([[1.0, -2.0], [0.0, 100.0]]),
            torch.tensor([0, 255], dtype=torch.uint8), torch.tensor([-128, 1], dtype=torch.int8),
            torch.tensor([[True, False], [False, True]]), random(1001), random(10, 200),
            random(101, 3, 7), random(7, 7, 30), torch.arange(1000), torch.arange(1001),
            torch.tensor([1e-4, 0.5]), torch.tensor([9e-5]), torch.tensor([123456.789]),
        ):
            case(file, x)


main()
