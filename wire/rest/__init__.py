"""What the control plane answers over REST, where our own command line reads the same structs."""
