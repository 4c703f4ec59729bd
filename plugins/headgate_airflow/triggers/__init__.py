"""What waits in the triggerer: small loops that look at storage and say what they saw; they decide nothing."""
