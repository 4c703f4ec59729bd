"""What a DAG waits for: a stream that runs, a savepoint that is there. They hold no worker slot."""
