"""vision_torch.py - ResNets and vision transformers in PyTorch, computing what torchvision's compute
under the same names, as src/models/resnet.c and vit.c do (torchvision is not always installed):
for golden values and tests/peers/parity.py.
"""
import torch
from torch import nn
from torch.nn import functional as F


class ResidualBlock(nn.Module):
    """torchvision's BasicBlock, or its Bottleneck."""

    def __init__(self, bottleneck, i, width, stride):
        super().__init__()
        o = 4 * width if bottleneck else width
        shape = ([(i, width, 1, 1), (width, width, 3, stride), (width, o, 1, 1)] if bottleneck
                 else [(i, width, 3, stride), (width, o, 3, 1)])
        self.n = len(shape)
        for k, (a, b, kernel, step) in enumerate(shape, 1):
            self.add_module(f"conv{k}", nn.Conv2d(a, b, kernel, step, kernel // 2, bias=False))
            self.add_module(f"bn{k}", nn.BatchNorm2d(b))
        self.downsample = None
        if stride != 1 or i != o:
            self.downsample = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False),
                                            nn.BatchNorm2d(o))

    def forward(self, x):
        around = x if self.downsample is None else self.downsample(x)
        for k in range(1, self.n + 1):
            x = getattr(self, f"bn{k}")(getattr(self, f"conv{k}")(x))
            x = F.relu(x) if k < self.n else F.relu(x + around)
        return x


class ResNet(nn.Module):
    DEPTHS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}

    def __init__(self, depth, classes):
        super().__init__()
        i = 64
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        for layer, n in enumerate(self.DEPTHS[depth]):
            blocks = []
            for k in range(n):
                blocks.append(ResidualBlock(depth >= 50, i, 64 << layer,
                                            2 if layer > 0 and k == 0 else 1))
                i = (256 if depth >= 50 else 64) << layer
            self.add_module(f"layer{layer + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(i, classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class EncoderBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln_2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.0),
                                 nn.Linear(4 * width, width), nn.Dropout(0.0))

    def forward(self, x):
        y = self.ln_1(x)
        x = x + self.self_attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    def __init__(self, places, width, depth, heads):
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.empty(1, places, width).normal_(std=0.02))
        self.layers = nn.Sequential()
        for i in range(depth):
            self.layers.add_module(f"encoder_layer_{i}", EncoderBlock(width, heads))
        self.ln = nn.LayerNorm(width, eps=1e-6)

    def forward(self, x):
        return self.ln(self.layers(x + self.pos_embedding))


class Vit(nn.Module):
    def __init__(self, size, patch, width, depth, heads, classes):
        super().__init__()
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.conv_proj = nn.Conv2d(3, width, patch, patch)
        self.encoder = Encoder((size // patch) ** 2 + 1, width, depth, heads)
        self.heads = nn.Sequential()
        self.heads.add_module("head", nn.Linear(width, classes))

    def forward(self, x):
        x = self.conv_proj(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], dim=1)
        return self.heads(self.encoder(x)[:, 0])


def states():
    """What a state_dict of each holds, a line for each tensor."""
    models = {"resnet18": ResNet(18, 10), "resnet34": ResNet(34, 10), "resnet50": ResNet(50, 10),
              "vit:32,8,64,2,4,10": Vit(32, 8, 64, 2, 4, 10)}
    for model, net in models.items():
        for name, t in net.state_dict().items():
            shape = ", ".join(str(s) for s in t.shape)
            yield f'{model} {name} {"i64" if t.dtype == torch.int64 else "f32"}[{shape}]'
        yield f"{model} parameters {sum(p.numel() for p in net.parameters())}"


if __name__ == "__main__":  # > tests/golden/model_states.txt
    print("\n".join(states()))
