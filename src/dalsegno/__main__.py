"""`python -m dalsegno`."""

from dalsegno.cli import main

main()
