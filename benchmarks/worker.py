"""Fits in a process of their own: reads the data, fits, writes the map and when it began and ended.

Usage: python worker.py JOB.json, in any environment. The job names the call (see peers.py), its parameters, the folder
with X.npy and y.npy, and where the result goes. Memory is watched from outside, by the process that started this one.

python worker.py --series JOB.json … runs several, each with the CPU seconds that it states, and writes JOB.json.done.
"""

import json
import math
import resource
import sys
import time
import warnings

import numpy as np
import peers

# of a series: fits below SHORT CPU seconds are repeated TIMES or for as long, and for LEAST seconds: clocks have steps,
# and the first fit of its kind pays for memory and code that have to be fetched; thrice SHORT is within every limit
SHORT, TIMES, LEAST, MOST = 1.5, 5, 0.2, 2000


def run(path, *, repeated=False):
    """Times and figures of one job; its map is in the file that it names."""
    with open(path) as file:
        job = json.load(file)
    X, y = (np.load(f"{job['data']}/{name}.npy", mmap_mode="r" if job["mapped"] else None) for name in "Xy")
    arrays = {name: np.load(file) for name, file in job["arrays"].items()}
    fit, embed = peers.prepare(job["call"], X, y, arrays, job["params"]), None
    if isinstance(fit, tuple):
        fit, embed = fit
    start, cpu = time.monotonic(), time.process_time()
    result = fit()
    times = {"cpu": time.process_time() - cpu, "start": start, "end": time.monotonic()}
    if repeated and times["cpu"] < SHORT:
        cpu, times["cpu"], n = time.process_time(), 0.0, 0
        while n < MOST and times["cpu"] < (SHORT if n < TIMES else LEAST):
            fit()
            times["cpu"], n = time.process_time() - cpu, n + 1
        times["cpu"] /= n
    if embed is not None:
        result, times["figures"] = embed(result), {"embedded": 1.0}
    if isinstance(result, dict):
        times["figures"] = result
    else:
        np.save(job["result"], result)
    return times


def run_series(paths):
    """Each job with its CPU seconds, after which the kernel ends the process; an error is told and ends none."""
    for path in paths:
        with open(path) as file:
            seconds = json.load(file)["limit_cpu"]
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time() + seconds), resource.RLIM_INFINITY))
        try:
            told = run(path, repeated=True)
        except Exception as error:
            told = {"error": f"{type(error).__name__}: {error}"[:160]}
        with open(f"{path}.done", "w") as file:
            json.dump(told, file)


def main(arguments):
    warnings.simplefilter("ignore")
    if arguments[0] == "--series":
        run_series(arguments[1:])
    else:
        print("\n" + json.dumps(run(arguments[0])))


if __name__ == "__main__":
    main(sys.argv[1:])
