"""make_corpus.py - writes tests/fuzz/corpus: small valid inputs of every parser, and a few that
were wrong once. Run it again after a change of a format; its output is kept in the tree.

    python3 tests/fuzz/make_corpus.py
"""
import gzip
import json
import os
import struct

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")


def put(target, name, data):
    folder = os.path.join(HERE, target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)


def text(data):
    return struct.pack("<Q", len(data)) + data


def rendezvous():
    """States as Python's pickle writes them, without PyTorch: classes of its names will do."""
    import datetime
    import pickle
    import sys
    import types

    name = "torch.distributed.elastic.rendezvous.dynamic_rendezvous"
    for i in range(1, len(name.split("."))):
        sys.modules.setdefault(".".join(name.split(".")[:i]), types.ModuleType("x"))
    module = sys.modules[name] = types.ModuleType(name)

    class _NodeDesc:
        def __init__(self, addr, pid):
            self.addr, self.pid, self.local_id = addr, pid, 0

    class _RendezvousState:
        pass

    for kind in (_NodeDesc, _RendezvousState):
        kind.__module__, kind.__qualname__ = name, kind.__name__
        setattr(module, kind.__name__, kind)
    now = datetime.datetime(2026, 11, 22, 1, 2, 3, 4, tzinfo=datetime.timezone.utc)
    a, b, c = _NodeDesc("host-a", 11), _NodeDesc("10.0.0.2", 70000), _NodeDesc("::1", 1)
    state = _RendezvousState()
    state.__dict__.update(round=3, complete=True, deadline=None, closed=False,
                          participants={a: 0, b: 1}, wait_list={c}, redundancy_list=set(),
                          last_heartbeats={a: now, b: now})
    for protocol in (4, 5):
        put("rendezvous", "two_and_one_%d" % protocol, pickle.dumps(state, protocol))
    put("rendezvous", "refused_protocol_2", pickle.dumps(state, 2))
    put("rendezvous", "call", b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.")


def agent_frames():
    def frame(kind, rank=0, number=0, value=0, token=b"", magic=b"TRA2"):
        return struct.pack("<4sIiiq16s", magic, kind, rank, number, value, token)

    heartbeat, hello, goodbye, preemption = range(4)
    token = b"0123456789abcdef"
    for name, frames in (("hello", [frame(hello, 1, 0, 3, token)]),
                         ("large", [frame(hello, 2**31 - 1, 0, 2**63 - 1, token)]),
                         ("negative", [frame(hello, -1, 0, 1, token), frame(heartbeat, value=-1)]),
                         ("and_beats", [frame(hello, 3, 0, 12, token), frame(heartbeat),
                                        frame(heartbeat, value=1200), frame(goodbye)]),
                         ("notice", [frame(preemption, 1, 1, 30000), frame(preemption, 3, 1, -1)]),
                         ("no_notice", [frame(preemption, 1, 0, 5), frame(preemption, -1, 1, 5),
                                        frame(preemption, 1, 1, -2)]),
                         ("later_kind", [frame(77, -1, -1, -1)]),
                         ("another_magic", [frame(hello, magic=b"TRA1"), frame(heartbeat)[:39]])):
        put("agent_frames", name, b"".join(frames))
    put("agent_frames", "key", b"TRIKEY1\n" + bytes(range(32)) + bytes(32) + b"TRA2")


def store_requests():
    validate = b"\x00\xce\xf7\x85\x3c"
    ping = b"\x0d" + struct.pack("<I", 4711)
    put("store_requests", "hello", validate + ping)
    put("store_requests", "set_get", validate + b"\x01" + text(b"/k") + text(b"value")
        + b"\x06" + struct.pack("<Q", 1) + text(b"/k") + b"\x03" + text(b"/k"))
    put("store_requests", "add", validate + b"\x04" + text(b"/n") + struct.pack("<q", -7)
        + b"\x04" + text(b"init/") + struct.pack("<q", 1))
    put("store_requests", "compare", validate + b"\x02" + text(b"/k") + text(b"") + text(b"x")
        + b"\x02" + text(b"/k") + text(b"x") + text(b"yy"))
    put("store_requests", "check_wait_cancel", validate + b"\x05" + struct.pack("<Q", 2)
        + text(b"/a") + text(b"/b") + b"\x06" + struct.pack("<Q", 2) + text(b"/a") + text(b"/b")
        + b"\x0c" + b"\x07" + b"\x08" + text(b"/a"))
    put("store_requests", "multi", validate + b"\x0b" + struct.pack("<Q", 2) + text(b"/a")
        + text(b"1") + text(b"/b") + text(b"22") + b"\x0a" + struct.pack("<Q", 2) + text(b"/a")
        + text(b"/b") + b"\x11")
    put("store_requests", "queues", validate + b"\x0e" + text(b"/q") + text(b"first")
        + b"\x10" + text(b"/q") + b"\x0f" + text(b"/q") + b"\x0f" + text(b"/q"))
    put("store_requests", "append_barrier", validate + b"\x09" + text(b"/k") + text(b"+")
        + b"\x12" + text(b"/b") + struct.pack("<q", 1) + b"\x12" + text(b"/b")
        + struct.pack("<q", 3))
    put("store_requests", "huge_length", validate + b"\x01" + struct.pack("<Q", 2 ** 63) + b"/k")
    put("store_requests", "many_keys", validate + b"\x05" + struct.pack("<Q", 131073))
    put("store_requests", "http", b"GET / HTTP/1.1\r\nHost: store\r\n\r\n")


def record(key, value):
    return struct.pack("<I", len(key)) + key + struct.pack("<I", len(value)) + value


def store_file():
    head = record(b"refcount/", b"1")
    put("store_file", "values", head + record(b"/a", b"xyz") + record(b"/b", b"7")
        + record(b"-/a", b"") + record(b"/c", b""))
    put("store_file", "counters", head + record(b"/n", b"1") + record(b"/n", b"2")
        + record(b"cleanup/", b"1") + record(b"refcount/", b"0"))
    put("store_file", "torn", head + record(b"/k", b"never finished")[:-5])
    put("store_file", "zeros", head + bytes(16))
    put("store_file", "huge", head + struct.pack("<I", 2) + b"/k" + struct.pack("<I", 2 ** 32 - 1))


def handshake():
    put("handshake", "hello", b"TRIKEY1\n" + bytes(range(32)))
    put("handshake", "hello_and_proof", b"TRIKEY1\n" + bytes(range(32)) + bytes(range(32, 64)))
    put("handshake", "pytorch", b"\x00\xce\xf7\x85\x3c\x0d\x01\x02\x03\x04")
    put("handshake", "almost", b"TRIKEY2\n" + bytes(32))


def frame(kind, call, dtype, op, root, seq, count, size, part):
    return struct.pack("<BBBBiQQQII24s", kind, call, dtype, op, root, seq, count, size, part, 17,
                       b"fuzz.c")


def tcp_frames():
    f32, floats = 8, struct.pack("<16f", *range(16))
    message = frame(3, 6, f32, 0, 0, 1, 16, 64, 0) + floats
    put("tcp_frames", "message", message)
    put("tcp_frames", "messages", message + frame(3, 6, f32, 0, 0, 2, 16, 64, 5) + floats)
    put("tcp_frames", "part", frame(1, 1, f32, 0, 0, 1, 16, 64, 0) + floats)
    put("tcp_frames", "part_result", frame(1, 1, f32, 0, 0, 1, 16, 32, 0) + floats[:32]
        + frame(2, 1, f32, 0, 0, 1, 16, 32, 0) + floats[:32])
    put("tcp_frames", "barrier", frame(1, 5, 0, 0, 0, 1, 0, 0, 0))
    put("tcp_frames", "goodbye", message + frame(4, 0, 0, 0, 0, 0, 0, 0, 0))
    put("tcp_frames", "fault", frame(5, 0, 0, 0, -7, 0, 0, 12, 0) + b"it went bad!")
    put("tcp_frames", "unknown_kind", frame(1, 129, f32, 0, 0, 1, 16, 64, 1) + floats)
    put("tcp_frames", "huge", frame(3, 6, f32, 0, 0, 1, 2 ** 61, 2 ** 63, 0) + floats)


def safetensors():
    def whole(header, data):
        raw = json.dumps(header).encode()
        raw += b" " * (-len(raw) % 8)
        return struct.pack("<Q", len(raw)) + raw + data

    put("safetensors", "two", whole(
        {"__metadata__": {"format": "pt"},
         "weight": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
         "bias": {"dtype": "I64", "shape": [1], "data_offsets": [16, 24]}}, bytes(24)))
    put("safetensors", "scalar", whole(
        {"x": {"dtype": "BF16", "shape": [], "data_offsets": [0, 2]}}, bytes(2)))
    put("safetensors", "empty", whole({}, b""))
    put("safetensors", "none", whole(
        {"x": {"dtype": "F16", "shape": [0, 3], "data_offsets": [0, 0]}}, b""))
    put("safetensors", "huge_shape", whole(
        {"x": {"dtype": "F64", "shape": [2 ** 62, 16], "data_offsets": [0, 8]}}, bytes(8)))
    put("safetensors", "huge_header", struct.pack("<Q", 2 ** 63) + b"{}")


def idx():
    labels = b"\0\0\x08\x01" + struct.pack(">I", 5) + bytes(range(5))
    put("idx", "labels", labels)
    put("idx", "images", b"\0\0\x08\x03" + struct.pack(">III", 2, 2, 3) + bytes(range(12)))
    put("idx", "floats", b"\0\0\x0d\x02" + struct.pack(">II", 1, 2) + struct.pack(">2f", 1, 2))
    put("idx", "packed", gzip.compress(labels, mtime=0))
    put("idx", "huge", b"\0\0\x0e\x04" + struct.pack(">IIII", *[2 ** 32 - 1] * 4))


def images():
    """Of what Pillow wrote: tests/golden/make_images.py."""
    golden = os.path.join(os.path.dirname(os.path.dirname(HERE)), "golden", "images")
    for name in ("17x33.jpg", "1x40.jpg", "420.jpg", "420_progressive.jpg", "422.jpg", "exif.jpg",
                 "grey.jpg", "restart_blocks.jpg", "cmyk.jpg", "rgb.png", "palette_4.png",
                 "grey_16.png", "interlaced.png", "interlaced_palette.png"):
        with open(os.path.join(golden, name), "rb") as file:
            put("images", name, file.read())


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    crc ^= 0xffffffff
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff)


def events():
    def event(data):
        head = struct.pack("<Q", len(data))
        return head + crc32c(head) + data + crc32c(data)

    def message(number, data):
        return bytes([number << 3 | 2, len(data)]) + data

    moment = b"\x09" + struct.pack("<d", 1)
    version = event(moment + message(3, b"brain.Event:2"))
    loss = message(1, b"loss")
    scalar = event(moment + b"\x10\x0a" + message(5, message(1, loss + b"\x15"
                                                            + struct.pack("<f", 0.5))))
    tensors = [message(1, loss + message(8, b"\x08\x01" + data)) for data in
               (message(4, struct.pack("<f", 2)), b"\x2d" + struct.pack("<f", 2),
                message(5, struct.pack("<f", 2)), message(5, struct.pack("<2f", 2, 3)))]
    tensors.append(message(1, loss + message(8, b"\x08\x02" + b"\x31" + struct.pack("<d", 4))))
    put("events", "version", version)
    put("events", "scalar", version + scalar)
    put("events", "two_values", version + event(moment + message(5, 2 * message(1, loss))))
    put("events", "start", version + scalar + event(moment + b"\x10\x05" + message(7, b"\x08\x01"))
        + scalar)
    put("events", "tensors", version + event(moment + message(5, b"".join(tensors))))
    put("events", "negative_step", event(moment + b"\x10" + b"\xff" * 9 + b"\x01"))
    put("events", "data_of_a_record", moment + b"\x10\x0a" + message(5, b"".join(tensors)))
    put("events", "huge", struct.pack("<Q", 2 ** 64 - 1) + crc32c(b"\xff" * 8) + bytes(16))


def csv():
    put("csv", "plain", b"step,loss\n1,0.5\n2,\n")
    put("csv", "quoted", b'step,"a,b","say ""x"""\r\n1,"2","line\r\nline"\r\n')
    put("csv", "open_quote", b'a,b\n1,"2\n3,4\n')
    put("csv", "numbers", b"a\nnan\n-inf\n1e400\n 0x1p3 \n1,\n\"\"\"\"\n")


def etcd_answers():
    header = {"cluster_id": "15875391935852295136", "member_id": "7383792418829112008",
              "revision": "12", "raft_term": "2"}
    kv = {"key": "YQ==", "create_revision": "3", "mod_revision": "12", "version": "4",
          "value": "gASVAAE=", "lease": "1353509813800588549"}
    lost = "etcdserver: requested lease not found"
    for name, answer in (
            ("range", {"header": header, "kvs": [kv], "count": "1"}),
            ("txn_refused", {"header": header, "responses": [
                {"response_range": {"header": header, "kvs": [kv], "count": "1"}},
                {"response_range": {"header": header}}]}),
            ("txn_done", {"header": header, "succeeded": True, "responses": [
                {"response_put": {"header": header}}, {"response_delete_range": {"deleted": "2"}}]}),
            ("grant", {"header": header, "ID": "1353509813800588549", "TTL": "10"}),
            ("lease_lost", {"result": {"header": header, "ID": "77"}}),
            ("watch_created", {"result": {"header": header, "created": True}}),
            ("watch_events", {"result": {"header": header, "events": [
                {"kv": kv}, {"type": "DELETE", "kv": {"key": "YQ==", "mod_revision": "14"}}]}}),
            ("watch_compacted", {"result": {"header": header, "watch_id": "1", "canceled": True,
                                            "compact_revision": "115"}}),
            ("watch_no_leader", {"error": {"grpc_code": 14, "http_code": 503,
                                           "message": "etcdserver: no leader"}}),
            ("failure_34", {"error": lost, "message": lost, "code": 5}),
            ("failure_36", {"code": 16, "message": "etcdserver: invalid auth token",
                            "details": []}),
            ("token", {"header": header, "token": "kHqRTsBhbSYdLkDn.15"})):
        put("etcd_answers", name, json.dumps(answer, separators=(",", ":")).encode())


def rpc_frames():
    request, reply, cancel, where, freed, define, hold, held, drop, gone, leaving, joined, bye = range(1, 14)

    def frame(kind, body=b"", refs=0, parts=0, data=0, flags=0, call=1, chain=7, obj=0, ns=-1, function=0):
        return struct.pack("<IBBHQQQQqiIQ", 0x54525031, kind, flags, refs, len(body), call, chain, obj, ns,
                           function, parts, data) + body

    def ref(incarnation, obj, name):
        return struct.pack("<QQ128s", incarnation, obj, name)

    def part(size, at, arena=0):
        return struct.pack("<QQII", size, at, arena, 0)

    defined = frame(define, b"echo\0", data=5)
    two_parts = part(8, 64) + part(3, 128)
    put("rpc_frames", "call", defined + frame(request, bytes(24), data=24))
    put("rpc_frames", "calls", defined + frame(define, b"keep\0", data=5, function=1)
        + frame(request, bytes(8), data=8, call=2, function=1) + frame(where, call=2)
        + frame(cancel, call=2) + frame(request, call=3))
    put("rpc_frames", "parts", defined + frame(request, two_parts + bytes(16) + bytes(8) + bytes(56) + b"abc",
                                               parts=2, data=16))
    put("rpc_frames", "refs", defined + frame(request, ref(77, 5, b"third") + ref(1, 0, b"rogue"), refs=2))
    put("rpc_frames", "holds", frame(hold, ref(99, 0, b"other"), refs=1, obj=2 ** 32 + 1)
        + frame(drop, obj=2 ** 32 + 1, chain=2) + frame(gone, obj=99) + frame(held, call=4))
    put("rpc_frames", "unknown", frame(define, b"nobody\0", data=7) + frame(request))
    put("rpc_frames", "object", defined + frame(request, obj=2 ** 32 + 1))
    put("rpc_frames", "find", frame(define, b"trireme.find\0", data=13) + frame(request, b"thing\0", data=6)
        + frame(cancel))
    put("rpc_frames", "promises", defined + frame(define, b"trireme.find\0", data=13, function=1)
        + frame(request, b"thing\0", data=6, function=1, flags=4, call=1)
        + frame(request, flags=6, obj=1, call=2) + frame(request, flags=2, obj=2, call=3)
        + frame(request, flags=2, obj=2, call=4) + frame(cancel, call=3) + frame(request, flags=2, obj=9, call=5)
        + frame(cancel, call=1) + frame(request, flags=2, obj=1, call=6) + frame(freed, call=1, chain=1)
        + frame(reply, flags=2, call=2 ** 32))
    put("rpc_frames", "end", frame(joined) + frame(leaving) + frame(freed) + frame(bye))
    put("rpc_frames", "reply", frame(reply, call=2 ** 32))
    put("rpc_frames", "arena", defined + frame(request, part(8, 0, 3) + bytes(8), parts=1))
    put("rpc_frames", "large", defined + frame(request, bytes(3000), data=3000))
    put("rpc_frames", "huge", defined + frame(request, bytes(8), data=8)[:8] + struct.pack("<Q", 2 ** 62)
        + bytes(48))


def torch_files():
    """Those of the golden files that have no checksums: damage gets through to the reader."""
    golden = os.path.join(HERE, "..", "..", "golden", "torch")
    for name, source in (("everything_legacy", "everything-legacy-2.13.pth"),
                         ("odd_tensors_legacy", "odd-tensors-legacy-2.13.pth"),
                         ("state_legacy", "state-legacy-1.13.pth"), ("unchecked", "unchecked-2.13.pth")):
        with open(os.path.join(golden, source), "rb") as file:
            put("torch_files", name, file.read())


def deepspeed():
    """Configurations with every kind of value, right ones and wrong ones."""
    put("deepspeed", "plain", b'{"train_batch_size": 120, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}')
    put("deepspeed", "comments", b"""\xef\xbb\xbf# a line
{ // a line
  train_micro_batch_size_per_gpu: "4", /* a
  block */ gradient_accumulation_steps: 3,
  "gradient_clipping": "1e-3",
  "bf16": {"enabled": true,},
}
// the end""")
    put("deepspeed", "zero", b"""{"train_batch_size": 60, "gradient_accumulation_steps": null,
"zero_optimization": {"stage": 3, "reduce_bucket_size": 5e8, "stage3_prefetch_bucket_size": 0,
 "stage3_param_persistence_threshold": 1e4, "overlap_comm": true, "sub_group_size": 1e12,
 "offload_optimizer": {"device": "cpu", "pin_memory": true, "ratio": 0.5}, "compute_grad_norm": false},
"activation_checkpointing": {"a": [1, [2, {"b": []}], -0.5e+3]}, "timers": {"throughput": {}}}""")
    put("deepspeed", "fp16", b"""{"train_micro_batch_size_per_gpu": 2147483647, "gradient_accumulation_steps": 2147483647,
"fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 32, "loss_scale_window": 9007199254740992,
 "hysteresis": 2, "consecutive_hysteresis": false, "min_loss_scale": 1}, "wandb": {"enabled": false},
"optimizer": {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9, "nesterov": true}}}""")
    for name, params in (
            ("LRRangeTest", {"lr_range_test_min_lr": 1e-3, "lr_range_test_step_size": 7,
                             "lr_range_test_staircase": True}),
            ("OneCycle", {"cycle_min_lr": 0.1, "cycle_max_lr": 1, "cycle_first_step_size": 1,
                          "cycle_second_step_size": 0, "cycle_first_stair_count": 3, "decay_step_size": 2,
                          "decay_lr_rate": 1, "decay_mom_rate": 2}),
            ("WarmupLR", {"warmup_max_lr": 1, "warmup_num_steps": 1, "warmup_type": "linear", "count_from": 1}),
            ("WarmupDecayLR", {"total_num_steps": 1, "last_batch_iteration": -1}),
            ("WarmupCosineLR", {"total_num_steps": 100, "warmup_min_ratio": 0.5, "cos_min_ratio": 0})):
        config = {"train_batch_size": 60, "scheduler": {"type": name, "params": params}, "steps_per_print": 2,
                  "optimizer": {"type": "Adam", "params": {"betas": [0.8, 0.99], "eps": 1e-8, "adam_w_mode": False}}}
        put("deepspeed", name, json.dumps(config).encode())
    put("deepspeed", "refused", b"""{"train_batch_size": 60, "nebula": {}, "zero_optimization": {"stgae": 1}}""")
    put("deepspeed", "texts", b"""{"train_batch_size": 60, "optimizer": {"type": "RMSprop", "params": {"lr": "0.1"}},
"csv_monitor": {"enabled": true, "output_path": "a\\\\b\\"c\\u00e9\\ud83d\\ude00\\n\\t\\/"},
"tensorboard": {"job_name": "\xc3\xa9"}, "checkpoint": {"tag_validation": "Fail"}, "torch_autocast":
{"enabled": true, "dtype": "torch.float16"}, "communication_data_type": "bf16"}""")
    put("deepspeed", "deep", b'{"aio": ' + b"[" * 31 + b"]" * 31 + b"}")
    put("deepspeed", "deeper", b'{"aio": ' + b"[" * 200)
    put("deepspeed", "adagrad", b'{"train_batch_size": 60, "zero_optimization": true, "optimizer": {"type": '
        b'"adagrad", "params": {"lr": 1, "lr_decay": 1e308, "max_grad_norm": 1}}}')


for make in (rendezvous, agent_frames, store_requests, store_file, handshake, tcp_frames, safetensors,
             idx, images, events, csv, etcd_answers, rpc_frames, torch_files,
             deepspeed):
    make()
