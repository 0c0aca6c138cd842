"""`python -m ninfer` is `ninfer`."""

from ninfer.cli.main import main

if __name__ == "__main__":
    main()
