"""Where containers run: the face of a runtime, the process runtime, and one in virtual time."""
