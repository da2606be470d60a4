"""The comparison of jobkit with its peers: how fast each one is, on one machine, in one run."""
