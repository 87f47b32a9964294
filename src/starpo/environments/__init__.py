"""Tasks for an agent that reads and writes text; ``registry.make`` builds one by name."""
