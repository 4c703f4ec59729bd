"""Which numbered behaviours have tests that passed, and whether the tests notice when one is reversed."""
