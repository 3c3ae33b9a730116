"""Printing in a fixed order: the ranks there, the ranks back, then a line, in each iteration.

torchrun --nproc_per_node 3 examples/08_sequential_print.py
paceline run examples/08_sequential_print.py --ranks 3

Every rank makes its own line; rank 0 receives them and is the only one that writes. Taking turns would not
do: where each rank's output is a pipe of its own, whoever merges the pipes decides the order.
"""

import paceline as pl
from paceline.comm.ordered import print_there_and_back

with pl.join() as world:
    print_there_and_back(world.collective(), iterations=2)
