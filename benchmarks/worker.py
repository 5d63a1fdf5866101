"""One fit in a process of its own: reads data, fits, writes seconds, peak memory and the map. Runs in any environment.

Usage: python worker.py JOB.json, where the job names the module, class and parameters, and where data and result lie.
"""

import importlib
import json
import resource
import sys
import time
import warnings

import numpy as np


def main(path):
    with open(path) as file:
        job = json.load(file)
    warnings.simplefilter("ignore")
    data = np.load(job["data"])
    X, y = data["X"], data["y"]
    learner = getattr(importlib.import_module(job["module"]), job["class"])(**job["params"])
    baseline = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, cpu = time.perf_counter(), time.process_time()
    learner.fit(X, y)
    result = {
        "seconds": time.perf_counter() - start,
        "cpu": time.process_time() - cpu,
        "mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - baseline) / 1024,
    }
    np.savez(job["result"], L=np.real(learner.components_), finite=bool(np.isfinite(learner.components_).all()))
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
