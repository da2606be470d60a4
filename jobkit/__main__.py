"""`python -m jobkit` is `jobkit`."""

from jobkit.cli import main

if __name__ == "__main__":
    main()
