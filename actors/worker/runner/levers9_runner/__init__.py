"""What runs in the person's interpreter: the fork server, the keeper and the runner. Standard library only."""
