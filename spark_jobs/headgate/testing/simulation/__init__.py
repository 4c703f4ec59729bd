"""The protocol under one seed: drivers, storage and people by turns, with faults, without Spark and threads.

The classes that decide (coordinator, ledger, slot log, catalogue, shared files, sweeping) are those of production; the
participants, the source, the step and the sink are models of them.
"""
