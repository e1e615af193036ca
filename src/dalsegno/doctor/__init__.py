"""A look at the whole system: what the database says (`insight.health`), and what is on disks, in object stores and in
the settings file. It only looks; every finding says what mends it.

| module | what it does |
|---|---|
| `subjects` | everything there is to look at |
| `examination` | looks at them, each for so long at most |
| `rounds` | the same for the console, now and then and behind its back |
| `opening` | opens the database, or says why it cannot be opened |
| `disks`, `parts`, `uploads`, `secrets` | what is not in the database |
"""
