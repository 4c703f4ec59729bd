"""What a DAG does with streams: each operator parses its arguments, calls one verb of the control plane, and defers."""
