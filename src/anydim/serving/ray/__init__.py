"""anydim on a Ray cluster (extra `anydim[ray]`): serving on many machines, and jobs over files.

Input: saved models, requests, or files of items; output: answers, or files of results, with the
bits of a call of each item alone.

    deploying.py   deployment: an application of Ray Serve
    replica.py     the process that serves a model
    routing.py     requests go to the replica with the least predicted work
    jobs.py        map_files: offline jobs over Ray Data, which can be resumed
    items.py       the items of input files, in chunks
    worker.py      the process that runs chunks
    parts.py       the files of results, a part for each chunk
    packages.py    the packages of Ray
"""

from anydim.serving.ray.deploying import deployment
from anydim.serving.ray.jobs import Job, map_files

__all__ = ["Job", "deployment", "map_files"]
