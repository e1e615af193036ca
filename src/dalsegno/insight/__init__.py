"""Reads for people: what the command line, the API and the console show. Nothing here writes.

Functions take a transaction of `store.read`, so that one page shows one moment. Lists are paged by key, and
numbers come from the counters the engine maintains: no page gets slower with a million items.
"""
