"""optim_golden.py - writes tests/testing/optim_golden.h: what PyTorch's optimisers make of a linear
layer, with clipping, groups and averages, and what its schedules give.

    python tests/golden/optim_golden.py      needs PyTorch 2.13
"""
import os
import subprocess

import torch
from torch import nn
from torch.optim import lr_scheduler as S
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

STEPS = 6


def floats(values):
    return ", ".join(float(v).hex() for v in values)


# The options of type tri_opt.
OPT = dict(sgd=[], adam=["eps", "weight_decay"], adamw=["eps", "weight_decay"],
           rmsprop=["alpha", "eps"], adagrad=["eps"])


def c_options(options, kind):
    def number(name, value):
        # Not TRI_SET: a compound literal in static storage is no constant to a pedantic compiler.
        return f'.{name} = {{"{value!r}", {value!r}}}'

    fields = []
    for name, value in options.items():
        if name == "betas":
            fields += [number("beta1", value[0]), number("beta2", value[1])]
        elif isinstance(value, bool):
            fields.append(f".{name} = {str(value).lower()}")
        else:
            fields.append(number(name, value) if name in OPT[kind] else f".{name} = {value!r}")
    return ", ".join(fields) if fields else ".maximize = false"


# kind, options, lr, clip: None, ("norm", x), ("value", x), ("value, norm", v, x)
CASES = [
    ("adam", {}, 0.1, None),
    ("adam", dict(betas=(0.8, 0.95), eps=1e-6, weight_decay=0.05), 0.05, None),
    ("adam", dict(betas=(0.3, 0.9)), 0.05, None),
    ("adam", dict(amsgrad=True, betas=(0.9, 0.6)), 0.1, None),
    ("adam", dict(amsgrad=True, maximize=True, weight_decay=0.1), 0.1, None),
    ("adamw", {}, 0.1, None),
    ("adamw", dict(betas=(0.9, 0.95), weight_decay=0.1), 0.1, ("norm", 1.0)),
    ("adamw", dict(weight_decay=0.0), 0.1, None),
    ("adamw", dict(amsgrad=True, betas=(0.9, 0.6), maximize=True), 0.1, None),
    ("rmsprop", {}, 0.05, None),
    ("rmsprop", dict(alpha=0.8, eps=1e-5, weight_decay=0.05), 0.05, None),
    ("rmsprop", dict(momentum=0.9), 0.02, None),
    ("rmsprop", dict(centered=True, weight_decay=0.05), 0.02, None),
    ("rmsprop", dict(centered=True, momentum=0.7, maximize=True), 0.02, ("value", 0.2)),
    ("adagrad", {}, 0.2, None),
    ("adagrad", dict(lr_decay=0.1, weight_decay=0.05, initial_accumulator_value=0.3, eps=1e-6),
     0.2, None),
    ("adagrad", dict(maximize=True), 0.2, ("norm", 0.5)),
    ("sgd", dict(momentum=0.9), 0.1, ("norm", 0.7)),
    ("sgd", dict(momentum=0.9), 0.1, ("norm", 1e9)),
    ("sgd", dict(momentum=0.9), 0.1, ("value", 0.3)),
    ("sgd", {}, 0.1, ("value, norm", 0.3, 0.4)),
    ("sgd", {}, 0.1, ("norm, value", 0.8, 0.3)),
]
MAKE = dict(sgd=torch.optim.SGD, adam=torch.optim.Adam, adamw=torch.optim.AdamW,
            rmsprop=torch.optim.RMSprop, adagrad=torch.optim.Adagrad)


def problem(dtype):
    torch.manual_seed(3)  # as nn_golden.py's
    x = torch.randn(4, 3, dtype=torch.float64)
    y = torch.randn(4, 2, dtype=torch.float64)
    w = torch.randn(2, 3, dtype=torch.float64)
    b = torch.randn(2, dtype=torch.float64)
    net = nn.Linear(3, 2, dtype=dtype)
    with torch.no_grad():
        net.weight.copy_(w)
        net.bias.copy_(b)
    return net, x.to(dtype), y.to(dtype)


def clip(net, how):
    if how is None:
        return 0.0
    norm = 0.0
    bounds = list(how[1:])
    for kind in how[0].split(", "):
        bound = bounds.pop(0)
        if kind == "norm":
            norm = nn.utils.clip_grad_norm_(net.parameters(), bound).item()
        else:
            nn.utils.clip_grad_value_(net.parameters(), bound)
    return norm


def train(net, x, y, opt, how=None, after=lambda: None):
    losses, norms = [], []
    lrs = [g["lr"] for g in opt.param_groups]
    for step in range(STEPS):
        for g, lr in zip(opt.param_groups, lrs):
            g["lr"] = lr / (step + 1)
        opt.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        norms.append(clip(net, how))
        opt.step()
        after()
        losses.append(loss.item())
    return losses, norms


def optimisers(out):
    out.append("static const struct golden_optim {")
    out.append("    const char *kind;")
    out.append("    double lr;")
    out.append("    union {")
    for kind, name in (("sgd", "sgd"), ("adam", "adam"), ("rmsprop", "rmsprop"),
                       ("adagrad", "adagrad")):
        out.append(f"        tri_{kind}_options {name};")
    out.append("    } opt;")
    out.append("    const char *clip;")
    out.append("    double bounds[2];")
    out.append(f"    double losses[{STEPS}], norms[{STEPS}], weight64[6], bias64[2], weight32[6];")
    out.append("} golden_optim[] = {")
    for kind, options, lr, how in CASES:
        r = {}
        for dtype in (torch.float64, torch.float32):
            net, x, y = problem(dtype)
            opt = MAKE[kind](net.parameters(), lr=lr, **options)
            losses, norms = train(net, x, y, opt, how)
            r[dtype] = (losses, norms, net.weight.detach().flatten(), net.bias.detach())
        wide, narrow = r[torch.float64], r[torch.float32]
        member = "adam" if kind == "adamw" else kind
        bounds = list(how[1:]) + [0.0] * 2 if how else [0.0, 0.0]
        out.append(f'    {{"{kind}", {lr!r}, {{.{member} = {{{c_options(options, kind)}}}}},')
        out.append(f'     "{how[0] if how else ""}", {{{bounds[0]!r}, {bounds[1]!r}}},')
        out.append(f"     {{{floats(wide[0])}}}, {{{floats(wide[1])}}},")
        out.append(f"     {{{floats(wide[2])}}}, {{{floats(wide[3])}}},")
        out.append(f"     {{{floats(narrow[2])}}}}},")
    out.append("};")


def groups(out):
    """The bias without decay and at a rate of its own."""
    net, x, y = problem(torch.float64)
    opt = torch.optim.AdamW([dict(params=[net.weight]),
                             dict(params=[net.bias], lr=0.02, weight_decay=0.0)],
                            lr=0.1, weight_decay=0.2)
    train(net, x, y, opt)
    out.append(f"static const double golden_groups_weight[] = {{{floats(net.weight.flatten())}}};")
    out.append(f"static const double golden_groups_bias[] = {{{floats(net.bias)}}};")


def average(out):
    net, x, y = problem(torch.float64)
    ema = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.8))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    train(net, x, y, opt, after=lambda: ema.update_parameters(net))
    out.append(f"static const double golden_ema_weight[] = "
               f"{{{floats(ema.module.weight.flatten())}}};")
    out.append(f"static const double golden_ema_plain[] = {{{floats(net.weight.flatten())}}};")


def run(make, steps, lr=0.4):
    opt = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=lr)
    schedule = make(opt)
    lrs = []
    for _ in range(steps):
        lrs.append(opt.param_groups[0]["lr"])
        opt.step()
        schedule.step()
    return lrs


def schedules(out):
    for name, make, steps in (
            ("step", lambda o: S.StepLR(o, 3, 0.5), 12),
            ("multi_step", lambda o: S.MultiStepLR(o, [2, 5, 5, 9], 0.3), 12),
            ("exponential", lambda o: S.ExponentialLR(o, 0.9), 12),
            ("linear", lambda o: S.LinearLR(o, 0.25, 0.75, 6), 12),
            ("linear_default", lambda o: S.LinearLR(o), 8),
            ("restarts", lambda o: S.CosineAnnealingWarmRestarts(o, 4, 1, 0.05), 14),
            ("restarts_2", lambda o: S.CosineAnnealingWarmRestarts(o, 3, 2, 0.01), 24),
            ("sequential", lambda o: S.SequentialLR(
                o, [S.LinearLR(o, 0.1, 1.0, 4), S.CosineAnnealingLR(o, 8, 0.02),
                    S.ExponentialLR(o, 0.5)], [4, 10]), 14),
            ("chained", lambda o: S.ChainedScheduler(
                [S.LinearLR(o, 0.5, 1.0, 4), S.ExponentialLR(o, 0.9)]), 12)):
        out.append(f"static const double golden_lr_{name}[] = {{{floats(run(make, steps))}}};")


def group_schedules(out):
    """Two groups with rates of their own, warmed up and then along a cosine to one lowest rate."""
    opt = torch.optim.SGD([dict(params=[nn.Parameter(torch.zeros(1))], lr=1e-4),
                           dict(params=[nn.Parameter(torch.zeros(1))])], lr=1e-2)
    schedule = S.SequentialLR(opt, [S.LinearLR(opt, 0.1, 1.0, 4), S.CosineAnnealingLR(opt, 8, 5e-5)],
                              [4])
    lrs = [[], []]
    for _ in range(12):
        for g, group in enumerate(opt.param_groups):
            lrs[g].append(group["lr"])
        opt.step()
        schedule.step()
    out.append("static const double golden_lr_groups[2][12] = {")
    out += [f"    {{{floats(of_group)}}}," for of_group in lrs]
    out.append("};")


def main():
    out = [f"/* optim_golden.h - values of PyTorch {torch.__version__}, written by "
           "optim_golden.py. */", "#ifndef OPTIM_GOLDEN_H", "#define OPTIM_GOLDEN_H", "",
           "#include <trireme/optim.h>", ""]
    optimisers(out)
    groups(out)
    average(out)
    schedules(out)
    group_schedules(out)
    out += ["", "#endif"]
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.path.join(here, "..", "testing", "optim_golden.h")
    with open(path, "w", encoding="ascii") as f:
        f.write("\n".join(out) + "\n")
    subprocess.run(["clang-format-14", "-i", path], check=True)


if __name__ == "__main__":
    main()
