"""The two processes that tests of several processes start."""

import signal
import subprocess
import sys

import pytest

from tests.deep.processes import start_two, wait_for_all

WAITS_FOR_THE_OTHER = """
import os, sys, time
if os.environ["RANK"] == "1":
    sys.exit("no")
while True:
    time.sleep(0.01)
"""
MEETS_THE_OTHER = """
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()  # one that is ready may not leave while the other connects
print(dist.get_rank(), dist.get_world_size())
"""
# names of the main module are let go when the interpreter shuts down
ENDS = """
import atexit, sys
import torch.distributed as dist
from isometry.deep.distributed import end_process

class Kept:
    def __del__(self):
        print("shut down")

kept = Kept()
dist.init_process_group("gloo")
dist.barrier()  # one that is ready may not leave while the other connects
atexit.register(print, "at exit")
print("done", end=" ")
end_process(int(sys.argv[1]))
"""


def test_if_one_fails_the_other_is_ended():
    _meeting, processes = start_two(sys.executable, "-c", WAITS_FOR_THE_OTHER, stderr=subprocess.PIPE)
    said = wait_for_all(processes)
    assert [process.returncode for process in processes] == [-signal.SIGKILL, 1] and said[1][1] == "no\n"


def test_they_meet_at_a_port_that_is_open_before_they_start():
    """A port that this process holds cannot be taken by another one."""
    _meeting, processes = start_two(sys.executable, "-c", MEETS_THE_OTHER, stdout=subprocess.PIPE)
    assert [out for out, _ in wait_for_all(processes)] == ["0 2\n", "1 2\n"]


@pytest.mark.parametrize("code", [0, 3])
def test_a_process_that_ends_writes_what_it_has_and_does_not_shut_python_down(code):
    """Threads of gloo may abort it there; how it looks to others is as if it had ended by itself."""
    _meeting, processes = start_two(sys.executable, "-c", ENDS, str(code), stdout=subprocess.PIPE)
    said = wait_for_all(processes) if code == 0 else [process.communicate() for process in processes]
    assert [out for out, _ in said] == ["done at exit\n"] * 2
    assert [process.returncode for process in processes] == [code] * 2
