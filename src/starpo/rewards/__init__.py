"""What a trajectory is worth: named reward terms per turn, and their sum. Pure functions on arrays."""
