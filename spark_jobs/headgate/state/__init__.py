"""Keyed state: versions, sessions and tables on whole Arrow batches, behind one interface for all backends."""
