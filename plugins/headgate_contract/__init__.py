"""What both sides say: ids, paths, typed messages, the slot log, the catalogue, the mailbox, object stores and errors."""
