#!/usr/bin/env python3
"""Writes results and gradients of every case of tests/testing/op_cases.h by PyTorch.

Usage: make_ops.py > ops.txt              in f64
       make_ops.py bf16 > ops_bf16.txt    with activations in bf16, under autocast
       make_ops.py f16 > ops_f16.txt      in f16
       make_ops.py second > ops_second.txt    second gradients of what records other first ones
(PyTorch 2.13; nothing of the build needs it)

Operands come from a formula that both sides know (operand()); the loss is sum(result * w), w being
operand 9 of the result's shape. One line an array: name, dimensions, sizes, then the elements:
  case NAME / y ... / g0 ... (gradient of operand 0) / a3 ... (operand 3 afterwards: a buffer)
Second gradients h0 ... are those of the sum over all first ones g0, g1 .. of sum(g * w), w being
operand 5 and following; there the loss is sum(result^2 * w).
"""
import sys
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

MASK = (1 << 64) - 1


def uniform(k, i):
    z = (((k + 1) << 32) + i * 0x9E3779B97F4A7C15 + 1) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    z ^= z >> 31
    return (z >> 11) * 2.0**-53


def operand(kind, k, shape):
    n = 1
    for size in shape:
        n *= size
    low = kind.lower()
    u = [uniform(k, i) for i in range(n)]
    if low == "n":
        values = [2 * x - 1 for x in u]
    elif low == "p":
        values = [0.5 + x for x in u]
    elif low == "q":
        values = [float(int(x * 3)) - 1 for x in u]
    elif low == "m":
        return torch.tensor([x < 0.5 for x in u]).reshape(shape)
    else:
        return torch.tensor([int(x * 3) for x in u], dtype=torch.int64).reshape(shape)
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def conv(**options):
    def run(x, w, bias=None):
        return (F.conv1d if w.dim() == 3 else F.conv2d)(x, w, bias, **options)

    return run


def bn(training):
    def run(x, w=None, b=None, mean=None, var=None):
        return F.batch_norm(x, mean, var, w, b, training, 0.1, 1e-5)

    return run


def one(function):
    return lambda a: function(a)


SDPA = F.scaled_dot_product_attention
EW = [("n", (3, 4))]
C3 = ("n", (3,))
RM, RV = ("N", (3,)), ("P", (3,))
NONE = (None, ())
def avg_pool_row(a):
    return F.avg_pool1d(a, 3, 2, 1, ceil_mode=True, count_include_pad=False)


def lstm(layers=1, both=False, batch_first=False):
    """y, h_n and c_n of torch.nn.LSTM; weights of what follows the first layer and direction are
    multiples of its own."""
    def run(x, w, u, b=None, c=None, h0=None, c0=None):
        n = layers * (2 if both else 1)
        own = [w, u] + ([b, c] if b is not None else [])
        weights = [v * (1 + 0.25 * k) for k in range(n) for v in own]
        if h0 is None:
            h0 = c0 = x.new_zeros([n] + ([x.shape[1]] if x.dim() == 3 else []) + [u.shape[1]])
        batched = x.dim() == 3
        if not batched:
            x, h0, c0 = x.unsqueeze(1), h0.unsqueeze(1), c0.unsqueeze(1)
        out = torch.lstm(x, (h0, c0), weights, b is not None, layers, 0.0, False, both, batch_first)
        return torch.cat([v.reshape(-1) for v in out])

    return run


def bags(mode, even=False, **options):
    """The bags of op_bags in op_cases.h; even: indices are rows of them."""
    def run(a, b, c=None):
        n = b.numel()
        last = n if "include_last_offset" in options else 2 * n // 3
        offsets = None if even else torch.tensor([0, n // 3, n // 3, last])
        return F.embedding_bag(b, a, offsets, mode=mode, per_sample_weights=c, **options)

    return run


CASES = [
    ("add", torch.add, [("n", (3, 4)), ("n", (3, 4))]),
    ("add_broadcast", torch.add, [("n", (2, 3, 4)), ("n", (3, 1))]),
    ("add_scalar_tensor", torch.add, [("n", ()), ("n", (2, 3))]),
    ("add_empty", torch.add, [("n", (0, 3)), ("n", (3,))]),
    ("mul_empty", torch.mul, [("n", (4, 1)), ("n", (1, 0))]),
    ("sub_broadcast", torch.sub, [("n", (4, 1)), ("n", (1, 3))]),
    ("mul", torch.mul, [("n", (3, 4)), ("n", (3, 4))]),
    ("mul_broadcast", torch.mul, [("n", (4,)), ("n", (2, 3, 4))]),
    ("div", torch.div, [("n", (3, 4)), ("p", (3, 4))]),
    ("div_broadcast", torch.div, [("n", (1, 4)), ("p", (3, 1))]),
    ("maximum", torch.maximum, [("n", (3, 4)), ("n", (4,))]),
    ("minimum", torch.minimum, [("n", (3, 4)), ("n", (3, 1))]),
    ("maximum_ties", torch.maximum, [("q", (3, 4)), ("q", (3, 4))]),
    ("minimum_ties", torch.minimum, [("q", (3, 4)), ("q", (3, 4))]),
    ("add_scalar", lambda a: a + 0.75, EW),
    ("mul_scalar", lambda a: a * -1.5, EW),
    ("neg", torch.neg, EW),
    ("abs", torch.abs, EW),
    ("abs_zero", torch.abs, [("q", (3, 4))]),
    ("square", torch.square, EW),
    ("sqrt", torch.sqrt, [("p", (3, 4))]),
    ("exp", torch.exp, EW),
    ("log", torch.log, [("p", (3, 4))]),
    ("relu", F.relu, EW),
    ("relu_zero", F.relu, [("q", (3, 4))]),
    ("relu_empty", F.relu, [("n", (0, 4))]),
    ("leaky_relu", lambda a: F.leaky_relu(a, 0.125), EW),
    ("sigmoid", torch.sigmoid, EW),
    ("tanh", torch.tanh, EW),
    ("gelu", lambda a: F.gelu(a * 3), EW),
    ("gelu_tanh", lambda a: F.gelu(a * 3, approximate="tanh"), EW),
    ("silu", lambda a: F.silu(a * 3), EW),
    ("cast", lambda a: a.float().double(), EW),
    ("dropout_off", lambda a: F.dropout(a, 0.25, False), EW),
    ("dropout2d_off", lambda a: F.dropout2d(a, 0.25, False), [("n", (3, 4, 2))]),
    ("reshape", lambda a: a.reshape(4, -1), [("n", (2, 3, 4))]),
    ("flatten", lambda a: a.flatten(1), [("n", (2, 3, 2, 2))]),
    ("permute", lambda a: a.permute(2, 0, 1), [("n", (2, 3, 4))]),
    ("transpose", lambda a: a.transpose(0, -1), [("n", (2, 3, 4))]),
    ("expand", lambda a: a.expand(2, 3, 4), [("n", (3, 1))]),
    ("flip", lambda a: a.flip(1), [("n", (2, 3, 4))]),
    ("sum_all", torch.sum, [("n", (2, 3, 4))]),
    ("sum_empty", torch.sum, [("n", (0, 3))]),
    ("sum_empty_dim", lambda a: a.sum((0, 2)), [("n", (2, 3, 0))]),
    ("sum_dims", lambda a: a.sum((0, 2)), [("n", (2, 3, 4))]),
    ("sum_keep", lambda a: a.sum(-2, keepdim=True), [("n", (2, 3, 4))]),
    ("mean_all", torch.mean, [("n", (2, 3, 4))]),
    ("mean_dims", lambda a: a.mean(1, keepdim=True), [("n", (2, 3, 4))]),
    ("mean_empty", torch.mean, [("n", (0, 3))]),
    ("mean_empty_dim", lambda a: a.mean(1, keepdim=True), [("n", (2, 0, 4))]),
    ("amax_all", torch.amax, [("n", (2, 3, 4))]),
    ("amax_dims", lambda a: a.amax((0, 2)), [("n", (2, 3, 4))]),
    ("amax_ties", lambda a: a.amax(1, keepdim=True), [("q", (2, 5, 4))]),
    ("argmax", lambda a: a.argmax(1), [("N", (2, 3, 4))]),
    ("argmax_ties", lambda a: a.argmax(1), [("Q", (2, 5, 4))]),
    ("matmul", torch.matmul, [("n", (5, 7)), ("n", (7, 6))]),
    ("matmul_batch", torch.matmul, [("n", (2, 3, 4)), ("n", (2, 4, 5))]),
    ("matmul_left", torch.matmul, [("n", (2, 3, 4)), ("n", (4, 5))]),
    ("matmul_right", torch.matmul, [("n", (3, 4)), ("n", (2, 2, 4, 5))]),
    ("matmul_inner_empty", torch.matmul, [("n", (3, 0)), ("n", (0, 5))]),
    ("matmul_outer_empty", torch.matmul, [("n", (0, 4)), ("n", (4, 5))]),
    ("matmul_batch_empty", torch.matmul, [("n", (0, 3, 4)), ("n", (0, 4, 5))]),
    ("matmul_broadcast", torch.matmul, [("n", (2, 1, 3, 4)), ("n", (3, 4, 5))]),
    ("matmul_both_ways", torch.matmul, [("n", (1, 3, 2, 4)), ("n", (2, 1, 4, 3))]),
    ("matmul_vectors", torch.matmul, [("n", (4,)), ("n", (4,))]),
    ("matmul_row", torch.matmul, [("n", (4,)), ("n", (2, 4, 3))]),
    ("matmul_column", torch.matmul, [("n", (2, 3, 4)), ("n", (4,))]),
    ("embedding", lambda a, b: F.embedding(b, a), [("n", (5, 4)), ("C", (3, 4))]),
    ("embedding_padding", lambda a, b: F.embedding(b, a, padding_idx=-2),
     [("n", (3, 4)), ("C", (9,))]),
    ("bag_mean", bags("mean", padding_idx=-1), [("n", (3, 4)), ("C", (9,))]),
    ("bag_sum", bags("sum", include_last_offset=True), [("n", (5, 4)), ("C", (5,)), ("n", (5,))]),
    ("bag_max", bags("max", include_last_offset=True), [("n", (3, 4)), ("C", (5,))]),
    ("bag_mean_even", bags("mean", True), [("n", (5, 4)), ("C", (3, 4))]),
    ("bag_sum_even", bags("sum", True, padding_idx=0), [("n", (3, 4)), ("C", (3, 4)), ("n", (3, 4))]),
    ("bag_max_even", bags("max", True, padding_idx=1), [("n", (3, 4)), ("C", (5, 3))]),
    ("bag_empty", bags("mean", True), [("n", (3, 4)), ("C", (0, 3))]),
    ("lstm", lstm(), [("n", (4, 3, 5)), ("n", (8, 5)), ("n", (8, 2)), ("n", (8,)), ("n", (8,))]),
    ("lstm_state",
     lambda x, w, u, h0, c0: lstm(batch_first=True)(x, w, u, h0=h0, c0=c0),
     [("n", (5, 3, 4)), ("n", (12, 4)), ("n", (12, 3)), ("n", (1, 5, 3)), ("n", (1, 5, 3))]),
    ("lstm_deep", lstm(2, True),
     [("n", (3, 2, 4)), ("n", (8, 4)), ("n", (8, 2)), ("n", (8,)), ("n", (8,))]),
    ("lstm_lone", lstm(), [("n", (1, 3)), ("n", (4, 3)), ("n", (4, 1)), ("n", (4,)), ("n", (4,))]),
    ("lstm_empty", lstm(), [("n", (2, 0, 3)), ("n", (4, 3)), ("n", (4, 1)), ("n", (4,)), ("n", (4,))]),
    ("embedding_empty", lambda a, b: F.embedding(b, a), [("n", (3, 4)), ("C", (0,))]),
    ("layer_norm", lambda a, w, b: F.layer_norm(a, (5,), w, b),
     [("n", (2, 3, 5)), ("n", (5,)), ("n", (5,))]),
    ("layer_norm_deep", lambda a, w: F.layer_norm(a, (3, 5), w, None, 0.5),
     [("n", (2, 3, 5)), ("n", (3, 5))]),
    ("layer_norm_bare", lambda a: F.layer_norm(a, (7,)), [("n", (3, 7))]),
    ("layer_norm_empty", lambda a, w, b: F.layer_norm(a, (5,), w, b),
     [("n", (0, 5)), ("n", (5,)), ("n", (5,))]),
    ("rms_norm", lambda a, w: F.rms_norm(a, (5,), w), [("n", (2, 3, 5)), ("n", (5,))]),
    ("rms_norm_bare", lambda a: F.rms_norm(a, (7,)), [("n", (3, 7))]),
    ("attention", SDPA, [("n", (2, 2, 3, 4)), ("n", (2, 2, 5, 4)), ("n", (2, 2, 5, 3))]),
    ("attention_causal", lambda q, k, v: SDPA(q, k, v, is_causal=True, scale=0.7),
     [("n", (1, 2, 5, 4))] * 3),
    ("attention_masked", lambda q, k, v, m: SDPA(q, k, v, attn_mask=m, enable_gqa=True),
     [("n", (2, 4, 3, 4)), ("n", (2, 2, 5, 4)), ("n", (2, 2, 5, 4)), ("M", (3, 5))]),
    ("attention_biased", lambda q, k, v, m: SDPA(q, k, v, attn_mask=m),
     [("n", (2, 2, 3, 4)), ("n", (2, 2, 5, 4)), ("n", (2, 2, 5, 4)), ("N", (2, 1, 3, 5))]),
    ("attention_empty", SDPA, [("n", (0, 2, 3, 4)), ("n", (0, 2, 5, 4)), ("n", (0, 2, 5, 4))]),
    ("linear", F.linear, [("n", (5, 6)), ("n", (9, 6)), ("n", (9,))]),
    ("linear_plain", F.linear, [("n", (3, 4)), ("n", (5, 4))]),
    ("linear_deep", F.linear, [("n", (2, 3, 4)), ("n", (5, 4)), ("n", (5,))]),
    ("linear_vector", F.linear, [("n", (4,)), ("n", (5, 4)), ("n", (5,))]),
    ("linear_empty", F.linear, [("n", (0, 4)), ("n", (5, 4)), ("n", (5,))]),
    ("conv", conv(), [("n", (2, 3, 5, 6)), ("n", (4, 3, 3, 2)), ("n", (4,))]),
    ("conv_pad", conv(padding=1), [("n", (2, 3, 5, 5)), ("n", (4, 3, 3, 3))]),
    ("conv_stride", conv(stride=(2, 1), padding=(1, 2)),
     [("n", (2, 2, 6, 5)), ("n", (3, 2, 3, 3)), ("n", (3,))]),
    ("conv_dilate", conv(dilation=(2, 1), padding=(2, 1)),
     [("n", (1, 2, 6, 5)), ("n", (3, 2, 3, 3)), ("n", (3,))]),
    ("conv_groups", conv(padding=1, groups=2),
     [("n", (2, 4, 4, 4)), ("n", (6, 2, 3, 3)), ("n", (6,))]),
    ("conv_depth", conv(stride=2, padding=1, groups=4),
     [("n", (2, 4, 5, 5)), ("n", (4, 1, 3, 3))]),
    ("conv_down", conv(stride=2), [("n", (2, 3, 5, 5)), ("n", (4, 3, 1, 1))]),
    ("conv_stem", conv(stride=2, padding=3), [("n", (1, 2, 9, 8)), ("n", (2, 2, 7, 7))]),
    ("conv_row", conv(stride=2, padding=1, dilation=2, groups=2),
     [("n", (2, 4, 9)), ("n", (6, 2, 3)), ("n", (6,))]),
    ("conv_one_row", conv(), [("n", (3, 7)), ("n", (4, 3, 2)), ("n", (4,))]),
    ("conv_one_image", conv(padding=1), [("n", (3, 5, 4)), ("n", (2, 3, 3, 3))]),
    ("conv_empty", conv(), [("n", (0, 3, 5, 6)), ("n", (4, 3, 3, 2)), ("n", (4,))]),
    ("max_pool", lambda a: F.max_pool2d(a, 2), [("n", (2, 3, 4, 5))]),
    ("max_pool_over", lambda a: F.max_pool2d(a, 3, 2, 1), [("n", (2, 2, 5, 6))]),
    ("max_pool_ceil", lambda a: F.max_pool2d(a, (2, 3), 2, ceil_mode=True), [("n", (1, 2, 5, 6))]),
    ("max_pool_ties", lambda a: F.max_pool2d(a, 3, 2, 1), [("q", (2, 2, 5, 6))]),
    ("avg_pool", lambda a: F.avg_pool2d(a, 2), [("n", (2, 3, 4, 5))]),
    ("avg_pool_over", lambda a: F.avg_pool2d(a, 3, 2, 1), [("n", (2, 2, 5, 6))]),
    ("avg_pool_ceil",
     lambda a: F.avg_pool2d(a, (3, 2), 2, 1, ceil_mode=True, count_include_pad=False),
     [("n", (1, 2, 6, 5))]),
    ("avg_pool_ceil_pad", lambda a: F.avg_pool2d(a, (3, 2), 2, 1, ceil_mode=True),
     [("n", (1, 2, 6, 5))]),
    ("adaptive_avg", lambda a: F.adaptive_avg_pool2d(a, (3, 2)), [("n", (2, 2, 5, 7))]),
    ("adaptive_avg_one", lambda a: F.adaptive_avg_pool2d(a, 1), [("n", (2, 3, 4, 5))]),
    ("adaptive_max", lambda a: F.adaptive_max_pool2d(a, (3, 2)), [("n", (2, 2, 5, 7))]),
    ("max_pool_row", lambda a: F.max_pool1d(a, 3, 2, 1), [("n", (2, 3, 8))]),
    ("max_pool_one_image", lambda a: F.max_pool2d(a, 2), [("n", (3, 4, 5))]),
    ("avg_pool_row", avg_pool_row, [("n", (2, 3, 8))]),
    ("avg_pool_one_row", avg_pool_row, [("n", (3, 7))]),
    ("adaptive_avg_row", lambda a: F.adaptive_avg_pool1d(a, 3), [("n", (2, 3, 7))]),
    ("adaptive_max_row", lambda a: F.adaptive_max_pool1d(a, 4), [("n", (2, 3, 7))]),
    ("bn_train", bn(True), [("n", (2, 3, 2, 3)), C3, C3, RM, RV]),
    ("bn_train_rows", bn(True), [("n", (5, 3)), C3, C3, RM, RV]),
    ("bn_train_bare", bn(True), [("n", (2, 3, 2, 3))]),
    ("bn_shared", bn(True), [("n", (2, 3, 2, 3)), C3, C3, RM, RV]),
    ("bn_shared_rows", bn(True), [("n", (5, 3)), C3, C3, RM, RV]),
    ("bn_shared_bare", bn(True), [("n", (2, 3, 2, 3))]),
    ("bn_eval", bn(False), [("n", (2, 3, 2, 3)), C3, C3, RM, RV]),
    ("bn_eval_bare", bn(False), [("n", (2, 3, 4)), NONE, NONE, RM, RV]),
    ("pow", torch.pow,
     [("p", (3, 4)), ("n", (4,))]),
    ("pow_scalar", lambda a: a.pow(2.5),
     [("p", (3, 4))]),
    ("pow_cube", lambda a: a.pow(3),
     [("n", (3, 4))]),
    ("pow_half", lambda a: a.pow(0.5),
     [("p", (3, 4))]),
    ("clamp", lambda a: a.clamp(-0.5, 0.25),
     [("n", (3, 4))]),
    ("clamp_below", lambda a: a.clamp(min=0),
     [("q", (3, 4))]),
    ("sign", torch.sign,
     [("q", (3, 4))]),
    ("floor", lambda a: (a * 4).floor(),
     [("n", (3, 4))]),
    ("ceil", lambda a: (a * 4).ceil(),
     [("n", (3, 4))]),
    ("round", lambda a: (a * 0.5).round(),
     [("q", (3, 4))]),
    ("rsqrt", torch.rsqrt,
     [("p", (3, 4))]),
    ("sin", torch.sin,
     [("n", (3, 4))]),
    ("cos", torch.cos,
     [("n", (3, 4))]),
    ("elu", lambda a: F.elu(a * 3, 0.75),
     [("n", (3, 4))]),
    ("softplus", lambda a: F.softplus(a * 3),
     [("n", (3, 4))]),
    ("softplus_sharp", lambda a: F.softplus(a, 4, 2),
     [("n", (3, 4))]),
    ("hardswish", lambda a: F.hardswish(a * 4),
     [("n", (3, 4))]),
    ("eq", lambda a, b: torch.eq(a, b).long(),
     [("Q", (3, 4)), ("Q", (4,))]),
    ("ne", lambda a, b: torch.ne(a, b).long(),
     [("Q", (3, 4)), ("Q", (4,))]),
    ("lt", lambda a, b: torch.lt(a, b).long(),
     [("Q", (3, 4)), ("Q", (4,))]),
    ("le", lambda a, b: torch.le(a, b).long(),
     [("Q", (3, 4)), ("Q", (4,))]),
    ("gt", lambda a, b: torch.gt(a, b).long(),
     [("Q", (3, 4)), ("Q", (4,))]),
    ("ge", lambda a, b: torch.ge(a, b).long(),
     [("Q", (3, 4)), ("Q", (4,))]),
    ("logical", lambda a, b: ((a & b) | (b ^ ~a)).long(),
     [("M", (3, 4)), ("M", (3, 1))]),
    ("where", lambda a, b, c: torch.where(c, a, b),
     [("n", (3, 4)), ("n", (4,)), ("M", (3, 1))]),
    ("masked_fill", lambda a, b: a.masked_fill(b, 2.5),
     [("n", (2, 3, 4)), ("M", (3, 1))]),
    ("narrow", lambda a: a.narrow(1, -3, 2),
     [("n", (2, 4, 3))]),
    ("slice", lambda a: a[:, 1::2],
     [("n", (2, 6, 3))]),
    ("slice_last", lambda a: a[:, -5:-1:3],
     [("n", (2, 7))]),
    ("slice_nothing", lambda a: a[3:1],
     [("n", (4, 3))]),
    ("slice_scatter", lambda a, b: torch.slice_scatter(a, b, 1, -5, None, 2),
     [("n", (2, 6, 3)), ("n", (2, 3, 3))]),
    ("slice_scatter_all", lambda a, b: torch.slice_scatter(a, b),
     [("n", (2, 3)), ("n", (2, 3))]),
    ("unfold", lambda a: a.unfold(1, 3, 2),
     [("n", (2, 8, 3))]),
    ("unfold_whole", lambda a: a.unfold(-1, 4, 1),
     [("n", (3, 4))]),
    ("squeeze", lambda a: a.squeeze((1, -2)),
     [("n", (2, 1, 3, 1))]),
    ("squeeze_all", lambda a: a.squeeze(),
     [("n", (1, 2, 1, 3))]),
    ("unsqueeze", lambda a: a.unsqueeze(-2),
     [("n", (2, 3))]),
    ("select", lambda a: a.select(1, -1),
     [("n", (2, 3, 4))]),
    ("select_last", lambda a: a.select(-1, 1),
     [("n", (2, 3, 4))]),
    ("pad", lambda a: F.pad(a, (1, 2, 0, 1), value=0.5),
     [("n", (2, 3, 2))]),
    ("pad_cut", lambda a: F.pad(a, (-1, 2)),
     [("n", (3, 4))]),
    ("tril", torch.tril,
     [("n", (2, 3, 4))]),
    ("triu", lambda a: torch.triu(a, 1),
     [("n", (4, 3))]),
    ("concat", lambda a, b, c: torch.cat((a, b, c), 1),
     [("n", (2, 3, 2)), ("n", (2, 1, 2)), ("n", (2, 2, 2))]),
    ("concat_empty", lambda a, b: torch.cat((a, b), 0),
     [("n", (2, 3)), ("n", (0, 3))]),
    ("stack", lambda a, b: torch.stack((a, b), -1),
     [("n", (2, 3)), ("n", (2, 3))]),
    ("gather", lambda a, b: a.gather(1, b),
     [("n", (3, 4)), ("C", (2, 5))]),
    ("scatter_add", lambda a, b, c: a.scatter_add(0, b, c),
     [("n", (3, 4)), ("C", (5, 3)), ("n", (5, 3))]),
    ("index_select", lambda a, b: a.index_select(1, b),
     [("n", (2, 3, 4)), ("C", (5,))]),
    ("one_hot", lambda a: F.one_hot(a, 4),
     [("C", (2, 3))]),
    ("argmin_keep", lambda a: (-a).argmax(-1, keepdim=True),
     [("Q", (2, 5, 4))]),
    ("amin", lambda a: a.amin((0, 2)),
     [("n", (2, 3, 4))]),
    ("max", lambda a: a.max(1).values,
     [("n", (2, 3, 4))]),
    ("min_keep", lambda a: a.min(-1, keepdim=True).values,
     [("n", (2, 3, 4))]),
    ("topk", lambda a: a.topk(2, 1).values,
     [("n", (2, 5, 3))]),
    ("topk_smallest", lambda a: a.topk(3, -1, largest=False).values,
     [("n", (2, 5))]),
    ("prod", lambda a: a.prod(1),
     [("p", (2, 3, 4))]),
    ("prod_zeros", lambda a: a.prod(1, keepdim=True),
     [("q", (4, 3))]),
    ("any", lambda a: a.any(1).long(),
     [("M", (5, 2))]),
    ("all", lambda a: a.all(1, keepdim=True).long(),
     [("M", (5, 2))]),
    ("var", lambda a: a.var((0, 2)),
     [("n", (2, 3, 4))]),
    ("std", lambda a: a.std(1, correction=0, keepdim=True),
     [("n", (3, 4))]),
    ("norm", lambda a: a.norm(),
     [("n", (3, 4))]),
    ("norm_one", lambda a: a.norm(1, 1),
     [("n", (3, 4))]),
    ("norm_three", lambda a: a.norm(3, 1),
     [("n", (3, 4))]),
    ("norm_largest", lambda a: a.norm(float("inf"), 1, keepdim=True),
     [("n", (3, 4))]),
    ("logsumexp", lambda a: a.logsumexp(1),
     [("n", (2, 3, 4))]),
    ("cumsum", lambda a: a.cumsum(1),
     [("n", (2, 4, 3))]),
    ("l1_loss", F.l1_loss,
     [("n", (3, 4)), ("n", (3, 4))]),
    ("smooth_l1_loss", lambda a, b: F.smooth_l1_loss(a, b, beta=0.5, reduction="sum"),
     [("n", (3, 4)), ("n", (3, 4))]),
    ("bce_loss", lambda a, b, c: F.binary_cross_entropy(a.sigmoid(), b - 0.5, c.expand(3, 4), reduction="none"),
     [("n", (3, 4)), ("P", (3, 4)), ("P", (4,))]),
    ("bce_loss_target", lambda a, b: F.binary_cross_entropy(a - 0.5, b - 0.5),
     [("p", (3, 4)), ("p", (3, 4))]),
    ("bce_logits", lambda a, b: F.binary_cross_entropy_with_logits(a * 3, b),
     [("n", (3, 4)), ("n", (3, 4))]),
    ("bce_logits_weighted", lambda a, b, c, d: F.binary_cross_entropy_with_logits(a, b, c, pos_weight=d, reduction="sum"),
     [("n", (3, 4)), ("n", (3, 4)), ("P", (3, 1)), ("P", (4,))]),
    ("kl_div", F.kl_div,
     [("n", (3, 4)), ("p", (3, 4))]),
    ("softmax", lambda a: F.softmax(a, 1), [("n", (3, 5))]),
    ("softmax_empty", lambda a: F.softmax(a, 1), [("n", (0, 5))]),
    ("softmax_first", lambda a: F.softmax(a, 0), [("n", (3, 2, 2))]),
    ("log_softmax", lambda a: F.log_softmax(a, -1), [("n", (3, 5))]),
    ("log_softmax_empty", lambda a: F.log_softmax(a, -1), [("n", (5, 0))]),
    ("log_softmax_mid", lambda a: F.log_softmax(a, 1), [("n", (2, 3, 2))]),
    ("cross_entropy", F.cross_entropy, [("n", (5, 3)), ("C", (5,))]),
    ("cross_entropy_smooth", lambda a, b: F.cross_entropy(a, b, label_smoothing=0.1),
     [("n", (5, 3)), ("C", (5,))]),
    ("cross_entropy_weight", lambda a, b, c: F.cross_entropy(a, b, c, ignore_index=1),
     [("n", (5, 3)), ("C", (5,)), ("P", (3,))]),
    ("cross_entropy_sum", lambda a, b: F.cross_entropy(a, b, label_smoothing=0.2, reduction="sum"),
     [("n", (5, 3)), ("C", (5,))]),
    ("cross_entropy_images", lambda a, b, c: F.cross_entropy(a, b, c, ignore_index=2, label_smoothing=0.1),
     [("n", (2, 3, 2, 4)), ("C", (2, 2, 4)), ("P", (3,))]),
    ("cross_entropy_none", lambda a, b, c: F.cross_entropy(a, b, c, ignore_index=0, label_smoothing=0.1, reduction="none"),
     [("n", (2, 3, 4)), ("C", (2, 4)), ("P", (3,))]),
    ("cross_entropy_one", F.cross_entropy, [("n", (3,)), ("C", ())]),
    ("nll_loss", lambda a, b, c: F.nll_loss(F.log_softmax(a, 1), b, c, ignore_index=0),
     [("n", (5, 3)), ("C", (5,)), ("P", (3,))]),
    ("nll_loss_none", lambda a, b, c: F.nll_loss(a, b, c, ignore_index=1, reduction="none"),
     [("n", (2, 3, 4)), ("C", (2, 4)), ("P", (3,))]),
    ("cross_entropy_empty", F.cross_entropy, [("n", (0, 3)), ("C", (0,))]),
    ("mse_loss_empty", F.mse_loss, [("n", (0, 4)), ("n", (0, 4))]),
    ("mse_loss", F.mse_loss, [("n", (3, 4)), ("n", (3, 4))]),
    ("mse_loss_sum", lambda a, b: F.mse_loss(a, b, reduction="sum"), [("n", (3, 4)), ("n", (3, 4))]),
    ("mse_loss_none", lambda a, b: F.mse_loss(a, b, reduction="none"), [("n", (3, 4)), ("n", (3, 4))]),
    ("l1_loss_none", lambda a, b: F.l1_loss(a, b, reduction="none"), [("n", (3, 4)), ("n", (3, 4))]),
    ("kl_div_sum", lambda a, b: F.kl_div(a, b, reduction="sum"), [("n", (3, 4)), ("p", (3, 4))]),
    ("kl_div_batchmean", lambda a, b: F.kl_div(a, b, reduction="batchmean"), [("n", (3, 2, 4)), ("p", (3, 2, 4))]),
    ("count_correct", lambda a, b: (a.argmax(1) == b).sum(), [("N", (9, 3)), ("C", (9,))]),
]


# PyTorch rounds to 16 bits in the middle of these, or adds up gradients in it: here one rounding of
# its results in f32 is what counts.
WIDE = {"bce_logits_weighted", "kl_div", "kl_div_sum", "kl_div_batchmean", "norm_three", "rsqrt", "pow",
        "lstm", "lstm_state", "lstm_deep", "lstm_lone", "lstm_empty", "bag_mean", "bag_sum", "bag_max", "bag_mean_even", "bag_sum_even",
        "bag_max_even", "bag_empty"}


def line(name, tensor):
    values = tensor.detach().reshape(-1).tolist()
    digits = "%.15g" if tensor.dtype == torch.float64 else "%.9g"
    text = " ".join(digits % v for v in values)
    sizes = "".join(" %d" % s for s in tensor.shape)
    print(("%s %d%s %s" % (name, tensor.dim(), sizes, text)).rstrip())


def is_activation(name, k):
    """Operand 0; weights, biases and statistics stay f32. Of other operations all operands."""
    return k == 0 or (not name.startswith(("linear", "conv", "bn", "lstm"))
                         and "_norm" not in name)


def arguments(name, inputs, narrow):
    """The leaves, and what the function is called with."""
    leaves = [None if kind is None else operand(kind, k, shape)
              for k, (kind, shape) in enumerate(inputs)]
    if narrow:
        leaves = [x.float() if x is not None and x.dtype == torch.float64 else x for x in leaves]
    for (kind, _), leaf in zip(inputs, leaves):
        if kind in ("n", "p", "q"):
            leaf.requires_grad_(True)
    if not narrow:
        return leaves, leaves
    return leaves, [x.to(narrow) if x is not None and x.dtype == torch.float32 and is_activation(name, k)
                    else x for k, x in enumerate(leaves)]


SECOND = ("layer_norm", "rms_norm", "attention", "max_pool", "adaptive_max", "bn", "pow", "prod",
          "bce", "kl_div", "lstm")
# The square of a root has none; PyTorch adds 1e-12 to factors here where it does not there.
NO_SECOND = {"pow_half", "bce_loss_target"}


def second():
    print("# PyTorch %s, second gradients in f64; made by make_ops.py" % torch.__version__)
    for name, function, inputs in CASES:
        if not name.startswith(SECOND) or name in NO_SECOND:
            continue
        leaves, args = arguments(name, inputs, None)
        wanted = [k for k, (kind, _) in enumerate(inputs) if kind in ("n", "p", "q")]
        with sdpa_kernel(SDPBackend.MATH):
            y = function(*args)
        loss = (y * y * operand("n", 9, tuple(y.shape))).sum()
        grads = torch.autograd.grad(loss, [leaves[k] for k in wanted], create_graph=True)
        total = sum((g * operand("n", 5 + i, tuple(g.shape))).sum() for i, g in enumerate(grads))
        print("case", name)
        for k, h in zip(wanted, torch.autograd.grad(total, [leaves[k] for k in wanted])):
            line("h%d" % k, h)
    print("end")


def main():
    if sys.argv[1:] == ["second"]:
        return second()
    what = sys.argv[1] if sys.argv[1:] else "f64"
    narrow = {"bf16": torch.bfloat16, "f16": torch.float16, "f64": None}[what]
    print("# PyTorch %s, %s; made by make_ops.py" % (torch.__version__, what))
    for name, function, inputs in CASES:
        leaves, args = arguments(name, inputs, narrow)
        with torch.autocast("cpu", narrow, enabled=narrow is not None):
            y = function(*args)
        if narrow and ("_norm" in name or name in WIDE):
            y = function(*[x.float() if x.is_floating_point() else x for x in args])
            y = y.to(narrow) if y.is_floating_point() else y
        if narrow and y.is_floating_point():
            y = y.float()
        print("case", name)
        line("y", y)
        if y.requires_grad:
            (y * operand("n", 9, tuple(y.shape)).to(y.dtype)).sum().backward()
        for k, (kind, _) in enumerate(inputs):
            if kind in ("n", "p", "q") and y.requires_grad:
                line("g%d" % k, leaves[k].grad)
            elif name.startswith("bn") and kind in ("N", "P"):
                line("a%d" % k, leaves[k])
    print("end")


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
