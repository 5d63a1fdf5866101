"""Two processes of one group on this machine, and what each of them saves."""

import os
import subprocess
import sys
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import torch
from torch.distributed import TCPStore


def start_two(*command, **options):
    """A command as two processes of one group, and the place where they meet, which lives as long as it is kept.

    They meet at a port that this process has open before they start. A port that was free a moment ago may be taken by
    the time the first of them opens it; the second would wait for half an hour.
    """
    meeting = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": os.getcwd()}
    env |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(meeting.port)}
    env |= {"TORCHELASTIC_USE_AGENT_STORE": "True"}  # as torchrun says it: whoever started the processes has the store
    places = ({"RANK": rank, "LOCAL_RANK": rank} for rank in "01")
    return meeting, [subprocess.Popen(command, env=env | place, text=True, **options) for place in places]


def start_torchrun(script):
    options = ["--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, "-m", "torch.distributed.run", *options, str(script)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": os.getcwd()}
    return subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)


def wait_for_all(processes):
    """What each process wrote, (stdout, stderr); if one fails, the others are ended, since they would wait for it."""
    with ThreadPoolExecutor(len(processes)) as pool:
        said = {pool.submit(process.communicate): process for process in processes}
        waiting = set(said)
        while waiting:
            ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            if any(said[one].returncode for one in ended):
                for one in waiting:
                    said[one].kill()
    return [one.result() for one in said]


def results_of_two(module, folder, launcher="by hand", main="distributed_main"):
    """Both processes call ``distributed_main(folder)`` of a test module, which saves rank0.pt and rank1.pt: these."""
    script = folder / "main.py"
    called = f"from {module} import {main}\n{main}({str(folder)!r})\n"
    script.write_text(f"from isometry.deep.distributed import end_process\n{called}end_process()\n")
    if launcher == "torchrun":
        processes = [start_torchrun(script)]
    else:
        _meeting, processes = start_two(sys.executable, str(script), stderr=subprocess.PIPE)
    said = wait_for_all(processes)
    assert [process.returncode for process in processes] == [0] * len(processes), said
    return [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in range(2)]
