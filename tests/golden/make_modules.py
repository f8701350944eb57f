#!/usr/bin/env python3
"""Writes tests/golden/modules.txt: modules as PyTorch prints them, after a line "== name" each.

    python3 tests/golden/make_modules.py        (made with PyTorch 2.13.0, CPU)
"""
import os

from torch import nn


class Wrapped(nn.Module):
    """What DistributedDataParallel prints, without a process group."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def _get_name(self):
        return "DistributedDataParallel"


MODULES = {
    "linear": nn.Linear(784, 128),
    "linear_no_bias": nn.Linear(1, 2, bias=False),
    "conv2d": nn.Conv2d(3, 64, 3),
    "conv2d_options": nn.Conv2d(4, 8, (3, 1), stride=2, padding=(1, 0), dilation=(1, 2), groups=2,
                                bias=False),
    "batch_norm1d": nn.BatchNorm1d(32, eps=1e-3),
    "batch_norm2d": nn.BatchNorm2d(64),
    "batch_norm2d_options": nn.BatchNorm2d(6, eps=1e-3, momentum=0.25, affine=False,
                                           track_running_stats=False),
    "batch_norm2d_cumulative": nn.BatchNorm2d(6, momentum=None),
    "sync_batch_norm": nn.SyncBatchNorm(64),
    "sync_batch_norm_options": nn.SyncBatchNorm(6, eps=1e-3, momentum=None, affine=False,
                                                track_running_stats=False),
    "sync_batch_norm_converted": nn.SyncBatchNorm.convert_sync_batchnorm(
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, momentum=0.25),
                      nn.Sequential(nn.BatchNorm2d(8), nn.ReLU()))),
    "layer_norm": nn.LayerNorm(768),
    "layer_norm_options": nn.LayerNorm((4, 6), eps=1e-12, bias=False),
    "layer_norm_plain": nn.LayerNorm(5, eps=0.0, elementwise_affine=False),
    "rms_norm": nn.RMSNorm(64),
    "rms_norm_options": nn.RMSNorm((4, 6), eps=1e-6, elementwise_affine=False),
    "embedding": nn.Embedding(1000, 16),
    "embedding_padding": nn.Embedding(10, 3, padding_idx=-1),
    "embedding_bag": nn.EmbeddingBag(10, 3),
    "embedding_bag_options": nn.EmbeddingBag(10, 3, mode="max", padding_idx=-2),
    "lstm": nn.LSTM(10, 20),
    "lstm_options": nn.LSTM(4, 2, num_layers=2, bias=False, batch_first=True, dropout=0.25,
                            bidirectional=True),
    "multihead_attention": nn.MultiheadAttention(64, 4, batch_first=True),
    "activations": nn.Sequential(nn.ReLU(), nn.LeakyReLU(0.01), nn.LeakyReLU(1e-5), nn.GELU(),
                                 nn.GELU(approximate="tanh"), nn.SiLU(), nn.Tanh(), nn.Sigmoid(),
                                 nn.Softmax(dim=-1), nn.LogSoftmax(dim=1)),
    "pools": nn.Sequential(nn.MaxPool2d(3, 2, 1), nn.MaxPool2d((3, 2), ceil_mode=True),
                           nn.AvgPool2d(2), nn.AvgPool2d((2, 3), 1, (1, 0)),
                           nn.AdaptiveAvgPool2d((1, 1)), nn.AdaptiveMaxPool2d((7, 5))),
    "pools_of_rows": nn.Sequential(nn.MaxPool1d(3, 2, 1), nn.MaxPool1d(2, ceil_mode=True),
                                   nn.AvgPool1d(2), nn.AvgPool1d(3, 2, 1),
                                   nn.AdaptiveAvgPool1d(1), nn.AdaptiveMaxPool1d(5)),
    "others": nn.Sequential(nn.Flatten(1), nn.Flatten(0), nn.Dropout(0.5), nn.Dropout(0.125),
                            nn.Dropout2d(0.25), nn.Identity()),
    "nothing": nn.Sequential(),
    "nested": nn.Sequential(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), nn.Sequential()),
    "wrapped": Wrapped(nn.Sequential(nn.Linear(2, 3))),
}


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "modules.txt")
    with open(path, "w", encoding="ascii") as out:
        for name, module in MODULES.items():
            text = str(module).replace("NonDynamicallyQuantizableLinear", "Linear")
            out.write(f"== {name}\n{text}\n")


if __name__ == "__main__":
    main()
