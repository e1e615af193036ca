"""Pure rules: states, workflows, outcomes, backoff, identity. Nothing here does I/O."""
