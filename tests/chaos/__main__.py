"""`python -m tests.chaos`."""

from tests.chaos.run import main

main()
