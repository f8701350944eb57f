"""torchrun_flags.py - trirun and torchrun side by side on one host: the workers' environment and
command line, exit statuses, log folders, error files.

Run by `./run test --peers`, or with a Python that has PyTorch 2.13:
    TRI_TEST_BIN=build/bin python tests/peers/torchrun_flags.py
Exit status 0 if all agree but for the differences on purpose that docs/TORCHRUN.md lists.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

BIN = os.environ.get("TRI_TEST_BIN", "build/bin")
TRIRUN = [os.path.abspath(os.path.join(BIN, "trirun"))]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
LAUNCH = [sys.executable, "-W", "ignore", "-m", "torch.distributed.launch"]
POOL = ThreadPoolExecutor(max_workers=2)  # torchrun takes seconds to start

SHOW = """import json, os, sys
out = os.environ["SHOW_DIR"] + "/" + os.environ["RANK"] + ".json"
json.dump({"env": dict(os.environ), "argv": sys.argv[1:], "name": __name__,
           "unbuffered": sys.stdout.write_through if hasattr(sys.stdout, "write_through") else None},
          open(out, "w"))
"""
FAIL = """import os, sys
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    if os.environ["RANK"] == "1":
        raise ValueError("boom \\"quoted\\"")
    import time
    time.sleep(60)
main()
"""

# Ours on purpose: another value, or a variable that only one has.
DIFFERENT = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE"}
OURS_ONLY = {"TRI_RUN_DIR", "TRI_NUM_THREADS", "TRI_STOP_GRACE_MS", "TRI_AGENT_STORE"}
# What torchrun's own process sets by importing PyTorch, and a shell's leftovers.
THEIRS_ONLY = {"_", "LC_CTYPE", "KMP_INIT_AT_FORK", "KMP_DUPLICATE_LIB_OK", "TORCHINDUCTOR_CACHE_DIR",
               "CUDA_MODULE_LOADING"}

failures = []


def check(case, ok, text):
    if not ok:
        failures.append(f"{case}: {text}")


def run(command, env, folder):
    environment = {k: v for k, v in os.environ.items()
                   if not k.startswith(("PET_", "TORCHELASTIC", "TRI_")) and k != "OMP_NUM_THREADS"}
    environment.update(env, SHOW_DIR=folder, PYTHON_EXEC=sys.executable, TMPDIR=folder,
                       XDG_RUNTIME_DIR=folder)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)


def both(args, env, folder, theirs=None, ours_extra=()):
    """The results of torchrun and trirun, each with a folder of its own."""
    ours_dir, theirs_dir = os.path.join(folder, "ours"), os.path.join(folder, "theirs")
    os.makedirs(ours_dir)
    os.makedirs(theirs_dir)
    a = run(TRIRUN + list(ours_extra) + [x.replace("@", ours_dir) for x in args], env, ours_dir)
    b = run((theirs or TORCHRUN) + [x.replace("@", theirs_dir) for x in args], env, theirs_dir)
    return a, b, ours_dir, theirs_dir


def shown(folder, rank):
    with open(os.path.join(folder, f"{rank}.json")) as file:
        return json.load(file)


def environments(case, args, env, n, folder, theirs=None, ours_extra=()):
    a, b, ours_dir, theirs_dir = both(args, env, folder, theirs, ours_extra)
    if a.returncode or b.returncode:
        check(case, False, f"status {a.returncode} and {b.returncode}: {a.stderr[-500:]} "
              f"{b.stderr[-500:]}")
        return
    for rank in range(n):
        ours, their = shown(ours_dir, rank), shown(theirs_dir, rank)
        check(case, ours["argv"] == their["argv"], f"argv {ours['argv']} and {their['argv']}")
        check(case, ours["name"] == their["name"], "__name__")
        for key in sorted(set(ours["env"]) | set(their["env"])):
            if key in OURS_ONLY | THEIRS_ONLY | {"SHOW_DIR", "TMPDIR", "XDG_RUNTIME_DIR"}:
                continue
            x, y = ours["env"].get(key), their["env"].get(key)
            if key in DIFFERENT:
                check(case, (x is None) == (y is None), f"{key}: {x} and {y}")
                continue
            check(case, x == y, f"{key}: {x} and {y}")
        x, y = ours["env"]["TORCHELASTIC_ERROR_FILE"], their["env"]["TORCHELASTIC_ERROR_FILE"]
        check(case, x[-22:] == y[-22:], f"error file {x} and {y}")


def statuses(case, args, env, folder):
    a, b, _, _ = both(args, env, folder)
    check(case, a.returncode == b.returncode,
          f"status {a.returncode} ({a.stderr.strip()[:120]}) and {b.returncode}")


def layout(folder):
    found = []
    for root, _, files in os.walk(folder):
        for name in files:
            path = os.path.relpath(os.path.join(root, name), folder)
            with open(os.path.join(root, name)) as file:
                text = "" if name == "error.json" else file.read()
            if name.startswith("filtered_"):  # of several workers, in any order
                text = "".join(sorted(text.splitlines(True)))
            found.append((re.sub(r"^job_[^/]+", "job_X", path), text))
    return sorted(found)


def logs(case, args, folder):
    a, b, ours_dir, theirs_dir = both(["--log-dir", "@/logs", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--rdzv-id", "job"] + args, {},
                                      folder)
    check(case, a.returncode == b.returncode, f"status {a.returncode} and {b.returncode} {a.stderr}")
    x, y = layout(ours_dir + "/logs"), layout(theirs_dir + "/logs")
    check(case, x == y, f"{x} and {y}")
    check(case, sorted(a.stdout.splitlines()) == sorted(b.stdout.splitlines()),
          f"stdout {a.stdout!r} and {b.stdout!r}")


def error_files(folder):
    case = "error file"
    script = os.path.join(folder, "fail.py")
    with open(script, "w") as file:
        file.write(FAIL)
    ours_dir, theirs_dir = os.path.join(folder, "ours"), os.path.join(folder, "theirs")
    results = []
    for command, where in ((TRIRUN, ours_dir), (TORCHRUN, theirs_dir)):
        os.makedirs(where)
        path = os.path.join(where, "error.json")
        done = run(command + ["--nproc-per-node=2", script], {"TORCHELASTIC_ERROR_FILE": path}, where)
        with open(path) as file:
            results.append((done, json.load(file)["message"]))
    (a, x), (b, y) = results
    check(case, a.returncode == b.returncode == 1, f"status {a.returncode} and {b.returncode}")
    check(case, x["message"] == y["message"], f"{x['message']} and {y['message']}")
    check(case, x["errorCode"] == y["errorCode"], f"{x['errorCode']} and {y['errorCode']}")
    check(case, sorted(x) == sorted(y), f"{sorted(x)} and {sorted(y)}")
    for word in ("rank      : 1 (local_rank: 1)", "exitcode  : 1 (pid: "):
        check(case, word in b.stderr and re.sub(" +:", " *:", word).split(" *:")[0] in a.stderr, word)


def main():
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "show.py")
        with open(script, "w") as file:
            file.write(SHOW)
        speak = os.path.join(folder, "speak.py")
        with open(speak, "w") as file:
            file.write("import os, sys\nr = os.environ['RANK']\nprint('apple', r)\nprint('pear', r)\n"
                       "print('err', r, file=sys.stderr)\n")
        n = 0
        jobs = []

        def start(function, *args):
            nonlocal n
            n += 1
            sub = os.path.join(folder, f"case{n}")
            os.makedirs(sub)
            jobs.append(POOL.submit(lambda: function(*[sub if a == "FOLDER" else a for a in args[:-1]],
                                                     **args[-1])))

        S = "--standalone"
        for case, args, env, workers, more in (
                ("one worker", [script], {}, 1, {}),
                ("two workers", [S, "--nproc_per_node=2", "--role", "r", script, "--x", "${local_rank}",
                                 "$local_rank", "$$", "$HOME"], {}, 2, {}),
                ("threads", ["--nproc-per-node=2", script], {"OMP_NUM_THREADS": "3"}, 2, {}),
                ("PET", [script], {"PET_NPROC_PER_NODE": "2", "PET_MAX_RESTARTS": "2",
                                   "PET_ROLE": "x"}, 2, {}),
                ("nccl", [script], {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}, 1, {}),
                ("signals", ["--signals-to-handle=SIGTERM,SIGUSR2", script], {}, 1, {}),
                ("virtual rank", ["--nproc-per-node=2", "--virtual-local-rank", script],
                 {"CUDA_VISIBLE_DEVICES": "4,6"}, 2, {}),
                ("run path", ["--run-path", script, "a"], {}, 1, {}),
                ("no log files", ["--log-dir=/dev/null", script], {}, 1, {}),
                ("static", ["--nnodes=1", "--node_rank=0", "--master_addr=127.0.0.1",
                            "--master_port=29731", "--nproc-per-node=2", script], {}, 2, {}),
                ("launch", ["--nproc_per_node=2", script, "a"], {}, 2,
                 {"theirs": LAUNCH, "ours_extra": ["--launch-compat"]}),
                ("launch use_env", ["--use_env", "--nproc_per_node=2", script, "a"], {}, 2,
                 {"theirs": LAUNCH})):
            start(environments, case, args, env, workers, "FOLDER", more)
        for args, env in (
                (["--no-such-flag", script], {}), (["--nproc-per-node=x", script], {}),
                (["--nnodes=2:1", script], {}), (["--nnodes=1:2:3", script], {}),
                (["--max-restarts=x", script], {}), (["--max-restarts=-1", script], {}),
                (["--tee=4", script], {}), (["--redirects=10:1", script], {}),
                (["-m", "--no-python", script], {}), ([script], {"PET_STANDALONE": "yes"}),
                (["--start-method=x", script], {}), (["--local-ranks-filter=a", script], {}),
                (["--rdzv-conf=a", "--master-port=29732", script], {}), ([], {}),
                (["no-such-script.py"], {}), (["--no-python", "false"], {}),
                (["--no-python", "sh", "-c", "kill -SEGV $$$$"], {})):
            start(statuses, "status of " + " ".join(args), args, env, "FOLDER", {})
        start(logs, "redirects", ["--nproc-per-node=2", "-r", "0:1,1:3", speak], "FOLDER", {})
        start(logs, "tee", ["--nproc-per-node=2", "-t", "3", "--local-ranks-filter=1", speak], "FOLDER",
              {})
        start(logs, "filters", ["--nproc-per-node=2", "--tee=1", "--duplicate-stdout-filters=apple,z",
                                speak], "FOLDER", {})
        start(error_files, "FOLDER", {})
        for job in jobs:
            try:
                job.result()
            except Exception as error:  # one case must not hide the others
                failures.append(repr(error))
        for failure in failures:
            print("torchrun_flags:", failure)
        print(f"torchrun_flags: {len(jobs)} cases, {len(failures)} differences")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
