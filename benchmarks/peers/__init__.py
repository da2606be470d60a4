"""One adapter a peer, each run by that peer's own environment and by nothing else."""
