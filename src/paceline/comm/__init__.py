"""Who talks to whom.

world.py         World: this rank among the others, joined and torn down
collectives/     one file per way of combining a tensor over all ranks
measured.py      counts and times any collective
"""
