"""Two processes of one group on this machine, and what each of them saves."""

import os
import socket
import subprocess
import sys

import torch


def start_two(launcher, script):
    """The two processes, or the launcher that starts them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": os.getcwd()}
    if launcher == "torchrun":
        options = ["--nproc-per-node", "2", "--master-port", port]
        command = [sys.executable, "-m", "torch.distributed.run", *options, script]
        return [subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)]
    env |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    places = ({"RANK": rank, "LOCAL_RANK": rank} for rank in "01")
    command = [sys.executable, script]
    return [subprocess.Popen(command, env=env | place, stderr=subprocess.PIPE, text=True) for place in places]


def results_of_two(module, folder, launcher="by hand", main="distributed_main"):
    """Both processes call ``distributed_main(folder)`` of a test module, which saves rank0.pt and rank1.pt: these."""
    script = folder / "main.py"
    script.write_text(f"from {module} import {main}\n{main}({str(folder)!r})\n")
    processes = start_two(launcher, script)
    try:
        for process in processes:
            _, said = process.communicate()
            assert process.returncode == 0, said
    finally:
        for process in processes:
            process.kill()
    return [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in range(2)]
