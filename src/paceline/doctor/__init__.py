"""Is this machine ready? Facts are looked up, then judged: each is a line that says fine, or what to do.

examine.py    looks every fact up, in order; a fact that cannot be had is a line, too
line.py       Line: what, state, found, do
machine.py    cores and quota, threads, /dev/shm          ┐
network.py    the interface that gloo takes               │ judgements: pure functions of the facts,
software.py   the extension, torch, MPI, SLURM            │ so that tests can make the facts up
files.py      data sets                                   │
measured.py   five seconds of all-reduce against gloo     ┘
_trial.py     imports torch and measures, in a process of its own: torch may be what is broken
"""
