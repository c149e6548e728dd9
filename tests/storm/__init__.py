"""Fault simulation: the live scheduler in virtual time, against a cluster and a cloud that fail.

    python -m tests.storm --seeds 1..100

The same seed and the same commit give the same run, byte for byte, in any process.
"""
