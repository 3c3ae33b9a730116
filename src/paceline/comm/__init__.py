"""Who talks to whom.

world.py         World: this rank among the others, joined and torn down
links/           one file a way of moving bytes between two ranks
collectives/     one file a way of combining a tensor over all ranks
shm/             memory that the ranks of one node share
measured.py      counts and times any collective                    ┐
checked.py       compares the ranks' calls (calls.py) before them   │ decorators
background.py    makes any collective asynchronous, by a thread     │
regrouped.py     goes on with those that are left of its ranks      ┘
backend.py       any collective as a backend of torch.distributed, with its _backend_*.py
ordered.py       printing in the order of the ranks
warned.py        a warning of several ranks, shown once
"""
