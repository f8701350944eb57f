"""tensorboard_reader.py - event files of libtrireme, read by TensorBoard and compared with those that
PyTorch's SummaryWriter writes of the same; and `trireme plot` of PyTorch's.

Run by `./run test --peers`, or with a Python that has PyTorch 2.13, tensorboard and Pillow:
    TRI_TEST_BIN=build/bin python tests/peers/tensorboard_reader.py
Our side is libtrireme itself, called through ctypes. Exit status 0 if all agree.
"""
import csv
import ctypes
import glob
import io
import math
import os
import struct
import subprocess
import sys
import tempfile
import traceback

BIN = os.environ.get("TRI_TEST_BIN", "build/bin")
LIB = ctypes.CDLL(os.path.join(BIN, "..", "lib", "libtrireme.so"))

import numpy as np
from PIL import Image
from tensorboard import data_compat
from tensorboard.backend.event_processing import event_file_loader, plugin_event_accumulator
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto import event_pb2
from tensorboard.plugins.hparams import plugin_data_pb2
from torch.utils.tensorboard import SummaryWriter

I64, PTR, F64, TEXT = ctypes.c_int64, ctypes.c_void_p, ctypes.c_double, ctypes.c_char_p
F32_DTYPE, F64_DTYPE = 8, 9
LIB.tri_last_error.restype = TEXT


class Opt(ctypes.Structure):  # tri_opt
    _fields_ = [("given", TEXT), ("value", F64)]


class OpenOptions(ctypes.Structure):  # tri_tensorboard_open_options
    _fields_ = [("keep_steps", Opt), ("flush_seconds", Opt), ("reserved", ctypes.c_uint64 * 4)]


class Hparam(ctypes.Structure):
    _fields_ = [("name", TEXT), ("value", F64), ("text", TEXT)]


class Metric(ctypes.Structure):
    _fields_ = [("key", TEXT), ("value", F64)]


def call(name, *args):
    if getattr(LIB, name)(*args) != 0:
        raise RuntimeError(name + ": " + LIB.tri_last_error().decode())


class Board:
    """tri_tensorboard with the methods of SummaryWriter."""

    def __init__(self, folder, keep_steps=None):
        self.handle = PTR()
        options = OpenOptions()
        if keep_steps is not None:
            options.keep_steps = Opt(b"given", keep_steps)
        call("tri_tensorboard_open", folder.encode(), ctypes.byref(options),
             ctypes.byref(self.handle))

    def add_scalar(self, tag, value, step):
        call("tri_tensorboard_scalar", self.handle, tag.encode(), I64(step), F64(value))

    def add_histogram(self, tag, values, step):
        values = np.ascontiguousarray(values)
        dtype = {np.dtype("float32"): F32_DTYPE, np.dtype("float64"): F64_DTYPE}[values.dtype]
        call("tri_tensorboard_histogram", self.handle, tag.encode(), I64(step),
             values.ctypes.data_as(PTR), I64(values.size), dtype)

    def add_image(self, tag, pixels, step, dataformats="CHW"):
        pixels = np.ascontiguousarray(pixels)
        shape = (I64 * pixels.ndim)(*pixels.shape)
        call("tri_tensorboard_image", self.handle, tag.encode(), I64(step),
             pixels.ctypes.data_as(PTR), shape, pixels.ndim, dataformats.encode())

    def add_text(self, tag, text, step):
        call("tri_tensorboard_text", self.handle, tag.encode(), I64(step), text.encode())

    def add_hparams(self, hparams, metrics, run_name):
        one = (Hparam * len(hparams))(*[
            Hparam(k.encode(), 0, v.encode()) if isinstance(v, str) else Hparam(k.encode(), v, None)
            for k, v in hparams.items()])
        two = (Metric * len(metrics))(*[Metric(k.encode(), v) for k, v in metrics.items()])
        call("tri_tensorboard_hparams", self.handle, run_name.encode(), one, len(one), two, len(two))

    def close(self):
        call("tri_tensorboard_close", self.handle)


def record_all(writer):
    """The same calls of either."""
    generator = np.random.default_rng(7)
    for step in range(20):
        writer.add_scalar("loss/train", 2.0 ** -step, step)
    writer.add_scalar("odd", math.nan, 1)
    writer.add_scalar("odd", math.inf, 2)
    writer.add_scalar("größe", 1e-30, -3)
    for i, values in enumerate((generator.normal(size=10000).astype(np.float32),
                                generator.lognormal(0, 7, size=1000),
                                np.zeros(5, np.float32), np.array([-1e-13, 3.5]))):
        writer.add_histogram("weights", values, i)
    writer.add_image("rgb", generator.integers(0, 256, (3, 20, 30), dtype=np.uint8), 1)
    writer.add_image("rgba", generator.integers(0, 256, (10, 7, 4), dtype=np.uint8), 1,
                     dataformats="HWC")
    writer.add_image("grey", generator.integers(0, 256, (1, 8, 9), dtype=np.uint8), 1)
    writer.add_text("note", "**bold** 漢字\n\n| a | b |\n|---|---|\n| 1 | 2 |", 4)
    writer.add_hparams({"lr": 0.1, "layers": 3, "optimizer": "sgd"},
                       {"hparam/accuracy": 0.75, "hparam/loss": 1.5}, run_name="try")


def files_of(folder):
    return sorted(glob.glob(os.path.join(glob.escape(folder), "*tfevents*")))


def events_of(folder):
    """As TensorBoard's loader reads them, without what depends on the clock."""
    found = []
    for path in files_of(folder):
        for raw in event_file_loader.RawEventFileLoader(path).Load():
            event = event_pb2.Event.FromString(raw)
            event.ClearField("wall_time")
            event.ClearField("source_metadata")
            found.append(event)
    return found


def image_of(value):  # PyTorch makes three channels of grey
    image = Image.open(io.BytesIO(value.image.encoded_image_string))
    assert image.size == (value.image.width, value.image.height)
    return np.array(image.convert("RGBA"))


def check_values_are_those_of_torch(folder):
    ours, theirs = os.path.join(folder, "ours"), os.path.join(folder, "theirs")
    for kind, path in ((Board, ours), (SummaryWriter, theirs)):
        writer = kind(path)
        record_all(writer)
        writer.close()
    for run, start in (("", 0), ("try", 1)):  # one more: START, so that the last call counts
        a, b = events_of(os.path.join(ours, run)), events_of(os.path.join(theirs, run))
        if start:
            assert a[1].session_log.status == event_pb2.SessionLog.START, a[1]
            del a[1]
        assert len(a) == len(b), (run, len(a), len(b))
        for x, y in zip(a, b):
            for p, q in zip(x.summary.value, y.summary.value):
                if p.HasField("image"):  # other PNG files of the same pixels
                    assert (image_of(p) == image_of(q)).all(), p.tag
                    p.image.ClearField("encoded_image_string")
                    assert p.image.colorspace == (1 if p.tag == "grey" else q.image.colorspace)
                    p.image.colorspace = q.image.colorspace
                    q.image.ClearField("encoded_image_string")
                if p.HasField("histo"):  # sums in another order
                    for name in ("sum", "sum_squares"):
                        u, v = getattr(p.histo, name), getattr(q.histo, name)
                        assert abs(u - v) <= 1e-6 * max(abs(v), 1), (p.tag, name, u, v)
                        setattr(p.histo, name, v)
                if p.metadata.plugin_data.plugin_name == "hparams":
                    u = plugin_data_pb2.HParamsPluginData.FromString(p.metadata.plugin_data.content)
                    v = plugin_data_pb2.HParamsPluginData.FromString(q.metadata.plugin_data.content)
                    assert u == v, (u, v)
                    p.metadata.plugin_data.content = q.metadata.plugin_data.content
            # bytes: a NaN is not equal to itself
            assert (x.SerializeToString(deterministic=True)
                    == y.SerializeToString(deterministic=True)), (run, str(x)[:300], str(y)[:300])


def check_accumulator_shows_all(folder):
    board = Board(folder)
    record_all(board)
    board.add_histogram("empty", np.array([], np.float32), 1)
    board.add_histogram("far", np.array([1e30, -1e30, 1, math.nan, math.inf]), 1)
    board.close()
    shown = EventAccumulator(folder, size_guidance={"scalars": 0, "histograms": 0, "images": 0,
                                                    "tensors": 0})
    shown.Reload()
    tags = shown.Tags()
    assert sorted(tags["scalars"]) == ["größe", "loss/train", "odd"], tags
    assert tags["images"] == ["rgb", "rgba", "grey"], tags
    assert "note/text_summary" in tags["tensors"], tags
    points = shown.Scalars("loss/train")
    assert [(p.step, p.value) for p in points] == [(i, 2.0 ** -i) for i in range(20)]
    far = shown.Histograms("far")[0].histogram_value
    assert far.num == 3 and sum(far.bucket) == 3 and far.min == -1e30 and far.max == 1e30
    text = shown.Tensors("note/text_summary")[0].tensor_proto.string_val[0].decode()
    assert text.startswith("**bold** 漢字"), text
    # what the web server makes of them
    again = plugin_event_accumulator.EventAccumulator(folder)
    again.Reload()
    assert again.PluginTagToContent("text").keys() == {"note/text_summary"}
    for path in files_of(folder):
        for event in event_file_loader.EventFileLoader(path).Load():
            for value in event.summary.value:
                data_compat.migrate_value(value)


def check_resumed_run_has_no_double_points(folder):
    """Killed after step 6, resumed after step 3, twice."""
    for keep, steps in ((None, range(1, 7)), (3, range(4, 9)), (5, range(6, 8))):
        board = Board(folder, keep)
        for step in steps:
            board.add_scalar("loss", step if keep is None else 100 * keep + step, step)
        board.close()
    assert len(files_of(folder)) == 3
    shown = EventAccumulator(folder)
    shown.Reload()
    points = [(p.step, p.value) for p in shown.Scalars("loss")]
    assert points == [(1, 1), (2, 2), (3, 3), (4, 304), (5, 305), (6, 506), (7, 507)], points


def check_plot_draws_files_of_torch(folder):
    ours, theirs = os.path.join(folder, "ours"), os.path.join(folder, "theirs")
    pictures = []
    for kind, path in ((Board, ours), (SummaryWriter, theirs)):
        writer = kind(path)
        record_all(writer)
        writer.close()
        picture = path + ".svg"
        subprocess.run([os.path.join(BIN, "trireme"), "plot", path, "-o", picture], check=True)
        with open(picture) as file:
            pictures.append(file.read())
    assert pictures[0] == pictures[1] and "<svg" in pictures[0]


def check_bytes_are_those_of_tensorboard(folder):
    """The file that TensorBoard's own writer makes of the same events."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    board = Board(folder)
    board.add_scalar("loss", 0.5, 10)
    board.close()
    (path,) = files_of(folder)
    with open(path, "rb") as file:
        have = file.read()
    out = io.BytesIO()
    writer = RecordWriter(out)
    for raw in event_file_loader.RawEventFileLoader(path).Load():
        writer.write(event_pb2.Event.FromString(raw).SerializeToString())
    assert have == out.getvalue()
    assert struct.unpack_from("<Q", have)[0] == 24


def check_tables_are_read_by_python(folder):
    table = PTR()
    path = os.path.join(folder, "metrics.csv")
    call("tri_csv_open", path.encode(), I64(-1), ctypes.byref(table))
    for record in ({"step": 1, 'say "a,b"': 0.5}, {"step": 2, "größe": math.inf}):
        values = (Metric * len(record))(*[Metric(k.encode(), v) for k, v in record.items()])
        call("tri_csv_write", table, values, len(record))
    LIB.tri_csv_close(table)
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows == [{"step": "1", 'say "a,b"': "0.5", "größe": ""},
                    {"step": "2", 'say "a,b"': "", "größe": "inf"}], rows
    assert float(rows[1]["größe"]) == math.inf


def main():
    failed = 0
    for name, check in list(globals().items()):
        if not name.startswith("check_"):
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(folder)
                print("passed", name[6:])
            except Exception:
                traceback.print_exc()
                print("FAILED", name[6:])
                failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
