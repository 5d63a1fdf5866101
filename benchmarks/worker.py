"""One fit in a process of its own: reads the data, fits, writes the map and when it began and ended.

Usage: python worker.py JOB.json, in any environment. The job names the call (see peers.py), its parameters, the folder
with X.npy and y.npy, and where the result goes. Memory is watched from outside, by the process that started this one.
"""

import json
import sys
import time
import warnings

import numpy as np
import peers


def main(path):
    with open(path) as file:
        job = json.load(file)
    warnings.simplefilter("ignore")
    X, y = (np.load(f"{job['data']}/{name}.npy", mmap_mode="r" if job["mapped"] else None) for name in "Xy")
    arrays = {name: np.load(file) for name, file in job["arrays"].items()}
    fit, embed = peers.prepare(job["call"], X, y, arrays, job["params"]), None
    if isinstance(fit, tuple):
        fit, embed = fit
    start, cpu = time.monotonic(), time.process_time()
    result = fit()
    times = {"cpu": time.process_time() - cpu, "start": start, "end": time.monotonic()}
    if embed is not None:
        result, times["figures"] = embed(result), {"embedded": 1.0}
    if isinstance(result, dict):
        times["figures"] = result
    else:
        np.save(job["result"], result)
    print("\n" + json.dumps(times))


if __name__ == "__main__":
    main(sys.argv[1])
