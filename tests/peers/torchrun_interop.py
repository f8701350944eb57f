"""torchrun_interop.py - trirun and torchrun agents in one job, and what torchrun 2.13 gets wrong.

Run by `./run test --peers`, or with a Python that has PyTorch 2.13:
    TRI_TEST_BIN=build/bin python tests/peers/torchrun_interop.py [CASE]
Workers are PyTorch scripts that reduce with gloo. Exit status 0 if all is as it should be.
"""
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

BIN = os.path.abspath(os.environ.get("TRI_TEST_BIN", "build/bin"))
TRIRUN = [os.path.join(BIN, "trirun")]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
DEADLINE = 120

WORKER = '''
import os, sys, time, torch, torch.distributed as dist
rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print("sum %d of %s rank %d attempt %d" % (total.item(), os.environ["WORLD_SIZE"], rank, attempt),
      flush=True)
exec(os.environ.get("THEN", ""))
dist.destroy_process_group()
'''


class Job:
    def __init__(self, folder, name, launcher, args, then="", program=None):
        self.path = os.path.join(folder, name)
        self.name = name
        script = os.path.join(folder, "worker.py")
        with open(script, "w") as file:
            file.write(WORKER)
        env = dict(os.environ, THEN=then, PYTHON_EXEC=sys.executable, OMP_NUM_THREADS="1",
                   XDG_RUNTIME_DIR=folder, TORCH_CPP_LOG_LEVEL="ERROR")
        with open(self.path, "w") as out:
            self.process = subprocess.Popen(launcher + args + [program or script], stdout=out,
                                            stderr=out, env=env, start_new_session=True)

    def text(self):
        with open(self.path, errors="replace") as file:
            return file.read()

    def expect(self, pattern, count=1):
        end = time.monotonic() + DEADLINE
        while len(re.findall(pattern, self.text())) < count:
            if time.monotonic() > end or self.process.poll() not in (None, 0):
                raise AssertionError("%s: no %r in:\n%s" % (self.name, pattern, self.text()))
            time.sleep(0.02)

    def wait(self, status=0):
        try:
            got = self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            raise AssertionError("%s does not end:\n%s" % (self.name, self.text())) from None
        if status is not None and got != status:
            raise AssertionError("%s: status %d:\n%s" % (self.name, got, self.text()))

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for_server(port):
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise AssertionError("nobody listens on port %d" % port)


def c10d(port, nodes, conf="join_timeout=100", more=()):
    return ["--nnodes", nodes, "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:%d" % port,
            "--rdzv-id", "mixed", "--rdzv-conf", conf, "--local-addr", "127.0.0.1", *more]


def first_and_second(jobs, first, second, args, then=""):
    """The second agent starts when the first one serves the store."""
    port = free_port()
    a = jobs("first", first, args(port, 0), then)
    wait_for_server(port)
    b = jobs("second", second, args(port, 1), then)
    return a, b


def mixed_c10d(jobs, first, second, nodes="2"):
    conf = "join_timeout=100,last_call_timeout=15"
    a, b = first_and_second(jobs, first, second, lambda port, n: c10d(
        port, nodes, conf, more=["--nproc-per-node", str(n + 1)]))
    a.wait()
    b.wait()
    assert len(re.findall("sum 3 of 3", a.text())) == 1, a.text()
    assert len(re.findall("sum 3 of 3", b.text())) == 2, b.text()


def mixed_static(jobs, first, second):
    a, b = first_and_second(jobs, first, second, lambda port, n: [
        "--nnodes", "2", "--node-rank", str(n), "--master-addr", "127.0.0.1", "--master-port",
        str(port), "--nproc-per-node", "2"])
    a.wait()
    b.wait()
    assert len(re.findall("sum 4 of 4 rank [01]", a.text())) == 2, a.text()
    assert len(re.findall("sum 4 of 4 rank [23]", b.text())) == 2, b.text()


def joiner_of_the_other_kind(jobs, first, second):
    """A host of the other kind joins a running 1:2 job: both start again, together."""
    port = free_port()
    conf = "join_timeout=100,last_call_timeout=1"
    # torchrun takes longer to see the newcomer than a worker should live
    then = "time.sleep(0 if os.environ['WORLD_SIZE'] == '2' else 1000)"
    a = jobs("first", first, c10d(port, "1:2", conf, ["--max-restarts", "3"]), then)
    a.expect("sum 1 of 1")
    b = jobs("second", second, c10d(port, "1:2", conf, ["--max-restarts", "3"]), then)
    b.expect("sum 2 of 2")
    a.expect("sum 2 of 2")
    a.wait()
    b.wait()


def restarts_find_no_old_addresses(jobs):
    """Defect 1: with torchrun 3 of 6 restarts of gloo workers failed."""
    a = jobs("trirun", TRIRUN, ["--standalone", "--nproc-per-node", "2", "--max-restarts", "6"],
             "if rank == 1 and attempt < 6: os._exit(3)")
    a.wait()
    assert len(re.findall("restarting", a.text())) == 6, a.text()
    assert "sum 2 of 2 rank 0 attempt 6" in a.text(), a.text()
    assert len(re.findall("exited with code 3", a.text())) >= 6, a.text()


def restarts_on_two_hosts_find_no_old_addresses(jobs):
    args = lambda port, n: c10d(port, "2", more=["--max-restarts", "3"])
    a, b = first_and_second(jobs, TRIRUN, TRIRUN, args,
                            "if rank == attempt % 2 and attempt < 3: os._exit(3)")
    a.wait()
    b.wait()
    assert "attempt 3" in a.text() and "attempt 3" in b.text(), a.text() + b.text()


def a_joining_node_is_taken_in(jobs):
    """Defect 2: torchrun's agents both die after 60 s."""
    joiner_of_the_other_kind(jobs, TRIRUN, TRIRUN)


def survivors_of_rank_0_get_a_new_address(jobs):
    """Defect 3: with torchrun they keep the dead master's address."""
    port = free_port()
    conf = "join_timeout=100,last_call_timeout=1"
    then = ("print('group', os.environ['GROUP_RANK'], flush=True)\n"
            "time.sleep(0 if os.environ['WORLD_SIZE'] == '2' else 1000)")
    agents = []
    for n in range(3):
        # nodes are sorted by their address: the store's host must not be the first of them
        args = c10d(port, "2:3", conf)
        args[args.index("--local-addr") + 1] = "127.0.0.%d" % (3 - n)
        agents.append(jobs("agent%d" % n, TRIRUN, args, then))
        if n == 0:
            wait_for_server(port)
    for agent in agents:
        agent.expect("group [012]")
    first = [agent for agent in agents if "group 0" in agent.text()]
    assert first == [agents[2]], [agent.text() for agent in agents]
    first[0].kill()
    for agent in agents[:2]:
        agent.expect("sum 2 of 2")
        agent.wait()


def an_agent_dies(jobs, survivor, victim, bound, broken=False):
    """Workers that wait say nothing of it: the agents' keep-alives are all there is, 3 of 1 s here (of
    5 s by default). broken: the survivor's worker ends with an error when the other host is gone, as
    in a collective."""
    port = free_port()
    conf = "join_timeout=100,last_call_timeout=15,keep_alive_interval=1,keep_alive_max_attempt=3"
    flag = os.path.join(tempfile.gettempdir(), "tri-gone-%d" % port)
    then = ("if os.environ['WORLD_SIZE'] == '2':\n"
            "    agent = os.getppid()\n"  # torchrun's workers outlive it
            "    while not os.path.exists('%s') and os.getppid() == agent: time.sleep(0.05)\n"
            "    os._exit(1)\n"
            "print('alone', flush=True)" % flag)
    args = c10d(port, "1:2", conf, ["--max-restarts", "3"])
    a = jobs("survivor", survivor, args, then)
    wait_for_server(port)
    b = jobs("victim", victim, args, then)
    a.expect("sum 2 of 2")
    b.expect("sum 2 of 2")
    start = time.monotonic()
    b.kill()
    try:
        if broken:
            open(flag, "w").close()
        a.expect("alone")
        seconds = time.monotonic() - start
        assert seconds < bound, "it took %.1f s:\n%s" % (seconds, a.text())
        print("        alone after %.1f s" % seconds, flush=True)
        a.wait()
    finally:
        if os.path.exists(flag):
            os.remove(flag)


def torchrun_starts_a_tutorial_of_ours(jobs):
    a = jobs("torchrun", TORCHRUN, ["--standalone", "--no-python", "--nproc-per-node", "2"],
             program=os.path.join(BIN, "elastic_ddp"))
    a.wait()
    for rank in range(2):
        assert "Finished running basic DDP example on rank %d." % rank in a.text(), a.text()


CASES = {
    "a tutorial of ours": torchrun_starts_a_tutorial_of_ours,
    "c10d, trirun serves": lambda jobs: mixed_c10d(jobs, TRIRUN, TORCHRUN),
    "c10d, torchrun serves": lambda jobs: mixed_c10d(jobs, TORCHRUN, TRIRUN),
    "static, trirun first": lambda jobs: mixed_static(jobs, TRIRUN, TORCHRUN),
    "static, torchrun first": lambda jobs: mixed_static(jobs, TORCHRUN, TRIRUN),
    "torchrun joins": lambda jobs: joiner_of_the_other_kind(jobs, TRIRUN, TORCHRUN),
    "torchrun dies": lambda jobs: an_agent_dies(jobs, TRIRUN, TORCHRUN, 40),
    "trirun dies": lambda jobs: an_agent_dies(jobs, TORCHRUN, TRIRUN, 60, broken=True),
    "restarts": restarts_find_no_old_addresses,
    "restarts on two hosts": restarts_on_two_hosts_find_no_old_addresses,
    "a node joins": a_joining_node_is_taken_in,
    "rank 0 is lost": survivors_of_rank_0_get_a_new_address,
}


def run(name, case):
    folder = tempfile.mkdtemp(prefix="tri-peers-")
    started = []

    def jobs(*args, **more):
        started.append(Job(folder, *args, **more))
        return started[-1]

    begin = time.monotonic()
    try:
        case(jobs)
        print("ok      %-28s %.1f s" % (name, time.monotonic() - begin), flush=True)
        return True
    except AssertionError as error:
        print("FAILED  %s: %s" % (name, error), flush=True)
        return False
    finally:
        for job in started:
            job.kill()
        shutil.rmtree(folder, ignore_errors=True)


def main():
    wanted = sys.argv[1:] or list(CASES)
    results = [run(name, CASES[name]) for name in wanted]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
