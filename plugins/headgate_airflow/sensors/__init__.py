"""What a DAG waits for: a stream that runs, a savepoint, a checkpoint that has everything. They hold no worker slot."""
