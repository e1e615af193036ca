"""What the engine does when its database does not."""
