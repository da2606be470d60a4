"""What runs jobs: nodes, and the pieces that a node is made of."""
