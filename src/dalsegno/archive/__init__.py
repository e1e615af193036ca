"""Months of events and logs, put away in an object store and brought back."""
