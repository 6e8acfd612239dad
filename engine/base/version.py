"""Which Hatchway this is."""

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """The installed distribution's version, or that there is none."""
    try:
        return version("hatchway")
    except PackageNotFoundError:
        return "a checkout that is not installed"
