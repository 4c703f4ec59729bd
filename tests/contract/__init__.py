"""The contract: ids, stores, logs, decisions, formats."""
