"""Measurements of one rank and how they become a run's summary. Imports no torch and never communicates.

clock.py       splits a rank's time into phases
journal.py     one rank's measurements, append-only JSON lines
resources.py   cores, memory, machine, versions, commit
summary.py     merges the journals of a run into summary.json and the per-epoch arrays
events.py      the same numbers for TensorBoard
measure.py     interleaved repetitions, medians and intervals for benchmarks
"""
