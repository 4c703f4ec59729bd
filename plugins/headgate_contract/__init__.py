"""What both sides say: ids, paths, typed messages, the slot log, the catalogue, the mailbox, stores and errors."""
