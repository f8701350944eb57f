"""store_interop.py - our TCP store and PyTorch's, each as client and as server of the other, and
one file under PyTorch's FileStore and ours.

Run by `./run test --peers`, or with a Python that has PyTorch 2.13:
    TRI_TEST_BIN=build/bin python tests/peers/store_interop.py
Our side is libtrireme-comm itself, called through ctypes. Exit status 0 if all agree.
"""
import ctypes
import datetime
import os
import subprocess
import sys
import tempfile
import threading
import traceback

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # failures are provoked here
os.environ.setdefault("TRI_LOG", "error")

# Before PyTorch, whose libraries use up the room that the loader keeps for thread-local data.
BIN = os.environ.get("TRI_TEST_BIN", "build/bin")
LIB = ctypes.CDLL(os.path.join(BIN, "..", "lib", "libtrireme-comm.so"))

import torch
import torch.distributed as dist

I64, PTR, SIZE = ctypes.c_int64, ctypes.c_void_p, ctypes.c_size_t
LIB.tri_last_error.restype = ctypes.c_char_p
TIMEOUT, IO = -4, -5


class Options(ctypes.Structure):  # tri_store_tcp_options
    _fields_ = [("serve", ctypes.c_bool), ("serve_if_free", ctypes.c_bool),
                ("world_size", ctypes.c_int), ("timeout_ms", I64), ("listen_fd", ctypes.c_int),
                ("reserved", ctypes.c_uint64 * 4)]


class FileOptions(ctypes.Structure):  # tri_store_file_options
    _fields_ = [("world_size", ctypes.c_int), ("timeout_ms", I64), ("reserved", ctypes.c_uint64 * 4)]


class Failed(Exception):
    def __init__(self, status):
        super().__init__(LIB.tri_last_error().decode())
        self.status = status


def call(name, *args):
    status = getattr(LIB, name)(*args)
    if status != 0:
        raise Failed(status)


class Ours:
    """tri_store with the methods of torch.distributed's Store."""

    def __init__(self, port, serve=False, world_size=0, timeout_ms=20000, handle=None):
        self.handle = handle
        if handle is None:
            self.handle = PTR()
            options = Options(serve=serve, world_size=world_size, timeout_ms=timeout_ms)
            call("tri_store_tcp", b"127.0.0.1", port, ctypes.byref(options),
                 ctypes.byref(self.handle))
        self.port = LIB.tri_store_port(self.handle)

    @staticmethod
    def file(path, world_size=0):
        handle, options = PTR(), FileOptions(world_size=world_size, timeout_ms=20000)
        call("tri_store_file", path.encode(), ctypes.byref(options), ctypes.byref(handle))
        return Ours(0, handle=handle)

    def prefix(self, prefix):
        handle = PTR()
        call("tri_store_prefix", prefix.encode(), self.handle, ctypes.byref(handle))
        return Ours(0, handle=handle)

    def close(self):
        LIB.tri_store_unref(self.handle)

    def set(self, key, value):
        call("tri_store_set", self.handle, key.encode(), value, SIZE(len(value)))

    def append(self, key, value):
        call("tri_store_append", self.handle, key.encode(), value, SIZE(len(value)))

    def get(self, key, timeout_ms=0):
        value, size = PTR(), SIZE()
        call("tri_store_get", self.handle, key.encode(), I64(timeout_ms), ctypes.byref(value),
             ctypes.byref(size))
        data = ctypes.string_at(value, size.value)
        LIB.tri_store_free(value)
        return data

    def multi_get(self, keys):
        values, sizes = (PTR * len(keys))(), (SIZE * len(keys))()
        call("tri_store_multi_get", self.handle, self.names(keys), len(keys), I64(0), values, sizes)
        data = [ctypes.string_at(v, s) for v, s in zip(values, sizes)]
        for value in values:
            LIB.tri_store_free(PTR(value))
        return data

    def multi_set(self, keys, values):
        call("tri_store_multi_set", self.handle, self.names(keys),
             (ctypes.c_char_p * len(keys))(*values), (SIZE * len(keys))(*[len(v) for v in values]),
             len(keys))

    def list_keys(self):
        keys, n = ctypes.POINTER(ctypes.c_char_p)(), I64()
        call("tri_store_list_keys", self.handle, ctypes.byref(keys), ctypes.byref(n))
        names = sorted(keys[i].decode() for i in range(n.value))
        LIB.tri_store_free(keys)
        return names

    def queue_push(self, key, value):
        call("tri_store_queue_push", self.handle, key.encode(), value, SIZE(len(value)))

    def queue_pop(self, key, timeout_ms=0):
        value, size = PTR(), SIZE()
        call("tri_store_queue_pop", self.handle, key.encode(), I64(timeout_ms), ctypes.byref(value),
             ctypes.byref(size))
        data = ctypes.string_at(value, size.value)
        LIB.tri_store_free(value)
        return data

    def queue_len(self, key):
        n = I64()
        call("tri_store_queue_length", self.handle, key.encode(), ctypes.byref(n))
        return n.value

    def compare_set(self, key, expected, desired):
        value, size = PTR(), SIZE()
        call("tri_store_compare_set", self.handle, key.encode(), expected, SIZE(len(expected)),
             desired, SIZE(len(desired)), ctypes.byref(value), ctypes.byref(size))
        data = ctypes.string_at(value, size.value)
        LIB.tri_store_free(value)
        return data

    def add(self, key, delta):
        total = I64()
        call("tri_store_add", self.handle, key.encode(), I64(delta), ctypes.byref(total))
        return total.value

    @staticmethod
    def names(keys):
        return (ctypes.c_char_p * len(keys))(*[k.encode() for k in keys])

    def wait(self, keys, timeout_ms=0):
        call("tri_store_wait", self.handle, self.names(keys), len(keys), I64(timeout_ms))

    def barrier(self, key, size, timeout_ms=0):
        call("tri_store_barrier", self.handle, key.encode(), I64(size), I64(timeout_ms))

    def check(self, keys):
        present = ctypes.c_bool()
        call("tri_store_check", self.handle, self.names(keys), len(keys), ctypes.byref(present))
        return present.value

    def delete_key(self, key):
        existed = ctypes.c_bool()
        call("tri_store_delete", self.handle, key.encode(), ctypes.byref(existed))
        return existed.value

    def num_keys(self):
        n = I64()
        call("tri_store_num_keys", self.handle, ctypes.byref(n))
        return n.value


for name in ("tri_store_tcp", "tri_store_set", "tri_store_append", "tri_store_get"):
    getattr(LIB, name).restype = ctypes.c_int
LIB.tri_store_free.argtypes = [PTR]
LIB.tri_store_unref.argtypes = [PTR]
LIB.tri_store_port.argtypes = [PTR]


def seconds(n):
    return datetime.timedelta(seconds=n)


def raises(function, *args):
    """The exception that the call ends with, as text."""
    try:
        function(*args)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is looked at
        return str(error)
    raise AssertionError(f"{function} did not fail")


def later(function, *args):
    """Calls it in a thread that can go on once this one lets go of the interpreter: in its wait."""
    go = threading.Event()
    thread = threading.Thread(target=lambda: (go.wait(), function(*args)))
    thread.start()
    go.set()
    return thread


def python_clients_of_our_server():
    ours = Ours(0, serve=True)
    a = dist.TCPStore("127.0.0.1", ours.port, None, False, seconds(10))
    b = a.clone()
    a.set("k", "value")
    assert ours.get("k") == b"value" and b.get("k") == b"value"
    ours.set("bytes", b"a\0b")
    assert a.get("bytes") == b"a\0b"
    ours.set("empty", b"")
    assert a.get("empty") == b""
    a.append("k", "+")
    assert ours.get("k") == b"value+"
    assert a.add("n", 5) == 5 and ours.add("n", -7) == -2 and b.add("n", 1) == -1
    assert a.compare_set("c", "", "one") == b"one"
    assert a.compare_set("c", "x", "two") == b"one"
    assert a.compare_set("none", "x", "two") == b"x"
    assert a.check(["k", "n"]) and not a.check(["k", "nothing"])
    assert a.num_keys() == ours.num_keys() == 5
    assert a.delete_key("k") and not a.delete_key("k")
    a.multi_set(["m1", "m2"], ["1", "22"])
    assert a.multi_get(["m1", "m2"]) == [b"1", b"22"] == ours.multi_get(["m1", "m2"])
    keys = sorted(k.lstrip("/") for k in a.list_keys())
    assert keys == ["bytes", "c", "empty", "m1", "m2", "n"], keys
    a.queue_push("q", b"first")
    a.queue_push("q", b"second")
    assert b.queue_len("q") == 2
    assert b.queue_pop("q") == b"first" and b.queue_pop("q") == b"second"
    thread = later(a.queue_push, "q", b"late")
    assert b.queue_pop("q") == b"late"
    thread.join()
    thread = later(ours.set, "late", b"x")
    a.wait(["late"], seconds(5))
    thread.join()
    text = raises(a.wait, ["never", "late"], seconds(0.1))
    assert "timed out" in text.lower() or "timeout" in text.lower(), text
    assert a.get("late") == b"x"  # the connection goes on after a cancelled wait
    prefix = dist.PrefixStore("p", a)
    prefix.set("k", "in prefix")
    assert ours.get("p/k") == b"in prefix"
    ours.queue_push("q", b"from us")
    assert a.queue_pop("q") == b"from us"
    a.queue_push("q", b"to us")
    assert ours.queue_len("q") == 1 and ours.queue_pop("q") == b"to us"
    assert "empty" in raises(ours.queue_pop, "q", 30)
    assert sorted(k.lstrip("/") for k in a.list_keys()) == ours.list_keys()
    big = bytes(range(256)) * (4 * 65536)  # 64 MiB
    a.set("big", big)
    assert ours.get("big") == big and b.get("big") == big
    raises(lambda: (a.set("big", big + b"x"), a.get("bytes")))  # above the limit: closed
    assert b.get("bytes") == b"a\0b"  # and nobody else
    ours.close()
    assert raises(b.get, "bytes")


def barriers_of_both(server):
    """One barrier: clients of both, on a server of either; with a prefix and in a file too."""
    ours = Ours(0, serve=True) if server == "ours" else None
    theirs = dist.TCPStore("127.0.0.1", ours.port if ours else 0, None, not ours, seconds(20),
                           use_libuv=server != "plain")
    ours = ours or Ours(theirs.port)
    folder = tempfile.mkdtemp(prefix="tri-interop-")
    path = os.path.join(folder, "store")
    pairs = [(ours, theirs), (ours.prefix("p"), dist.PrefixStore("p", theirs)),
             (Ours.file(path), dist.FileStore(path, -1))]
    for mine, other in pairs:
        assert "1 of 2" in raises(mine.barrier, "short", 2, 50)
        other.barrier("short", 2)  # the one that gave up stays counted
        done = []
        thread = threading.Thread(target=lambda: (other.barrier("b", 2), done.append(1)))
        thread.start()
        mine.barrier("b", 2)
        thread.join()
        assert done == [1]
        mine.close()
    os.remove(path)
    os.rmdir(folder)


def a_process_group_over_our_server():
    ours = Ours(0, serve=True)
    results = {}

    def rank(r):
        store = dist.TCPStore("127.0.0.1", ours.port, None, False, seconds(10))
        group = dist.ProcessGroupGloo(dist.PrefixStore("pg", store), r, 2, seconds(10))
        x = torch.full((4,), float(r + 1))
        group.allreduce([x]).wait()
        results[r] = x.tolist()

    threads = [threading.Thread(target=rank, args=(r,)) for r in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {0: [3.0] * 4, 1: [3.0] * 4}, results
    ours.close()


def our_client_of_python_server(libuv):
    server = dist.TCPStore("127.0.0.1", 0, None, True, seconds(10), use_libuv=libuv)
    ours = Ours(server.port)
    ours.set("k", b"a\0b")
    assert server.get("k") == b"a\0b"
    server.set("s", "text")
    assert ours.get("s") == b"text"
    ours.set("empty", b"")
    assert ours.get("empty") == b""
    ours.append("k", b"c")
    assert server.get("k") == b"a\0bc"
    assert ours.add("n", -3) == -3 and server.add("n", 1) == -2
    assert ours.compare_set("c", b"", b"one") == b"one"
    assert ours.compare_set("c", b"x", b"two") == b"one"
    assert ours.compare_set("none", b"x", b"two") == b"x"
    assert ours.check(["k", "n"]) and not ours.check(["k", "nothing"])
    assert ours.num_keys() == server.num_keys()
    assert ours.delete_key("k") and not ours.delete_key("k")
    assert ours.multi_get(["s", "n", "c"]) == [b"text", b"-2", b"one"]
    thread = later(server.set, "late", "x")
    ours.wait(["late", "s"])
    thread.join()
    text = raises(ours.wait, ["never"], 50)
    assert "never" in text, text
    assert ours.get("s") == b"text"  # a cancelled wait leaves the stream whole
    ours.multi_set(["m1", "m2"], [b"1", b"22"])
    assert server.multi_get(["m1", "m2"]) == [b"1", b"22"]
    assert ours.list_keys() == sorted(k.lstrip("/") for k in server.list_keys())
    big = bytes(range(256)) * 32768
    ours.set("big", big)
    assert ours.get("big") == big
    if libuv:
        server.queue_push("q", b"to us")
        assert ours.queue_pop("q") == b"to us"
        thread = later(server.queue_push, "q", b"late")
        assert ours.queue_pop("q") == b"late"
        thread.join()
        ours.queue_push("q", b"from us")
        assert ours.queue_len("q") == 1 and server.queue_pop("q") == b"from us"
        text = raises(lambda: (ours.set("big", big + b"x"), ours.get("s")))
        assert "8 MiB" in text or "closed" in text or "reset" in text, text
    else:
        ours.set("big", big * 8)  # without libuv there is no limit
        assert server.get("big") == big * 8
        assert raises(ours.queue_len, "q")  # nor are there queues
    ours.close()


def our_agent(*flags):
    return subprocess.Popen([os.path.join(BIN, "trirun"), "--nproc-per-node", "1", "--rdzv-id", "job",
                             *flags, "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def our_agent_ends_no_wait_for_hosts():
    """torchrun's host 0 waits until all have said who they are, and ours looks who has."""
    server = dist.TCPStore("127.0.0.1", 0, None, True, seconds(20), use_libuv=True)
    waiter = dist.PrefixStore("job", server.clone())
    agent = our_agent("--nnodes", "3", "--node-rank", "1", "--master-addr", "127.0.0.1",
                      "--master-port", str(server.port))
    try:
        waiter.wait(["torchelastic/role_info/1"], seconds(20))
        text = raises(waiter.wait, ["torchelastic/role_info/2"], seconds(2))
        assert "timeout" in text.lower(), text
    finally:
        agent.kill()
        agent.wait()


def our_agent_ends_no_wait_for_a_rounds_keys():
    """torchrun's hosts wait for the address that host 0 has not said yet, and so does ours."""
    from torch.distributed.elastic.rendezvous import RendezvousParameters, dynamic_rendezvous
    from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
    server = dist.TCPStore("127.0.0.1", 0, None, True, seconds(20), use_libuv=True)
    handler = dynamic_rendezvous.create_handler(
        server.clone(), C10dRendezvousBackend(server.clone(), "job"),
        RendezvousParameters("c10d", f"127.0.0.1:{server.port}", "job", 2, 2, local_addr="0"))
    agent = our_agent("--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-conf", "is_host=0",
                      "--rdzv-endpoint", f"127.0.0.1:{server.port}")
    try:
        handler._op_executor.run(dynamic_rendezvous._RendezvousJoinOp(),
                                 handler._get_deadline(seconds(20)), handler._get_deadline)
        assert handler._get_world() == (0, 2)  # by its address it is host 0
        waiter = handler._get_store()
        waiter.wait(["torchelastic/role_info/1"], seconds(20))
        text = raises(waiter.wait, ["MASTER_ADDR"], seconds(2))
        assert "timeout" in text.lower(), text
    finally:
        agent.kill()
        agent.wait()


def worlds_join(libuv):
    # PyTorch hosts and waits for us
    joined = []
    port_box = dist.TCPStore("127.0.0.1", 0, None, True, seconds(10), use_libuv=libuv)
    port = port_box.port
    del port_box

    def host():
        store = dist.TCPStore("127.0.0.1", port, 2, True, seconds(10), wait_for_workers=True,
                              use_libuv=libuv)
        store.set("hosted", "yes")
        joined.append(store)

    thread = threading.Thread(target=host)
    thread.start()
    ours = Ours(port, world_size=2)
    assert ours.get("hosted") == b"yes"
    thread.join()
    ours.close()


def our_server_waits_for_python():
    box = Ours(0, serve=True)
    port = box.port
    box.close()
    clients = []
    thread = threading.Thread(target=lambda: clients.append(
        dist.TCPStore("127.0.0.1", port, 2, False, seconds(10))))
    thread.start()
    ours = Ours(port, serve=True, world_size=2)
    thread.join()
    clients[0].set("k", "v")
    assert ours.get("k") == b"v"
    ours.close()


def one_file_under_both():
    folder = tempfile.mkdtemp(prefix="tri-interop-")
    path = os.path.join(folder, "store")
    theirs = dist.FileStore(path, 2)
    theirs.set_timeout(seconds(20))
    ours = Ours.file(path, 2)
    theirs.set("k", "value")
    assert ours.get("k") == b"value"
    ours.set("bytes", b"a\0b")
    assert theirs.get("bytes") == b"a\0b"
    ours.set("empty", b"")
    assert theirs.get("empty") == b""
    assert theirs.add("n", 5) == 5 and ours.add("n", -7) == -2 and theirs.add("n", 1) == -1
    assert theirs.compare_set("c", "", "one") == b"one"
    assert ours.compare_set("c", b"x", b"two") == b"one"
    assert ours.compare_set("c", b"one", b"two") == b"two"
    assert theirs.compare_set("c", "two", "three") == b"three"
    assert theirs.check(["k", "n"]) and ours.check(["k", "n"]) and not ours.check(["k", "nothing"])
    ours.append("k", b"+")
    assert theirs.get("k") == b"value+"
    assert ours.delete_key("k") and not theirs.check(["k"])
    theirs.delete_key("empty")
    assert not ours.check(["empty"])
    assert ours.num_keys() == 3 and theirs.num_keys() >= 3  # PyTorch counts its own keys too
    thread = later(ours.set, "late", b"x")
    theirs.wait(["late"], seconds(5))
    thread.join()
    thread = later(theirs.set, "later", "x")
    ours.wait(["later"])
    thread.join()
    big = bytes(range(256)) * 32768
    theirs.set("big", big)
    assert ours.get("big") == big
    ours.set("big2", big)
    assert theirs.get("big2") == big

    # many writers of both kinds at once lose nothing
    def add_ours():
        for _ in range(100):
            ours.add("count", 1)

    threads = [threading.Thread(target=add_ours)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        theirs.add("count", 1)
    for thread in threads:
        thread.join()
    assert theirs.add("count", 0) == 200 == ours.add("count", 0)

    # a torn record would stop PyTorch for ever; our next write takes it away
    with open(path, "ab") as f:
        f.write(b"\x02\0\0\0/z\x50\0\0\0half")
    ours.set("after", b"torn")
    assert theirs.get("after") == b"torn" and not theirs.check(["z"])
    ours.close()
    assert os.path.exists(path)  # PyTorch still has it open
    del theirs
    assert not os.path.exists(path), "the last of the world removes the file"
    os.rmdir(folder)


def main():
    print(f"PyTorch {torch.__version__}")
    checks = [(python_clients_of_our_server, ()), (barriers_of_both, ("ours",)),
              (barriers_of_both, ("libuv",)), (barriers_of_both, ("plain",)),
              (a_process_group_over_our_server, ()), (our_client_of_python_server, (True,)),
              (our_client_of_python_server, (False,)), (our_agent_ends_no_wait_for_hosts, ()),
              (our_agent_ends_no_wait_for_a_rounds_keys, ()), (worlds_join, (True,)),
              (worlds_join, (False,)), (our_server_waits_for_python, ()),
              (one_file_under_both, ())]
    for check, args in checks:
        try:
            check(*args)
        except BaseException:
            traceback.print_exc()
            os._exit(1)  # the check's other threads may wait for what will not come
        print(f"  ok: {check.__name__}{args if args else ''}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
