"""The driver's parts: the loop, the ledger, the snapshot taker, heart, ear and log; and whole lives without Spark."""
