"""Findings: what is not as it should be under the work, each with its fix. Pure reads of the database.

A module a subject: `loops`, `work`, `schema`, `holders`, `queries`, `tables`, `server`, `file`, `clocks`, `keeping`,
`deep`. What is on disks and in object stores is looked at in the room `doctor`, which puts all of them together.
"""
