"""`python -m eigenscape` is the command `eigenscape`."""

from .cli import main

if __name__ == "__main__":
    main()
