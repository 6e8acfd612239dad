"""Apptainer's messages, which hold paths of the host: what of them a client may know."""

from __future__ import annotations

from hatchway.engine.base.errors import (
    ImageNotFound,
    InstanceExists,
    InvalidRequest,
    Refusal,
    ResourcesUnavailable,
    RuntimeUnavailable,
)
from hatchway.engine.instances import binds

_NO_IMAGE = ("Unable to handle", "could not open image", "image format not recognized")
_CONVERTING = ("Extracting OCI image", "Inserting Apptainer", "Creating SIF")
_FETCHING = ("Fetching", "Copying", "Converting OCI blobs", "Starting build", "Downloading")


def refusal_of(words: str) -> Refusal:
    """Why a start failed."""
    if binds.CHANGED in words:
        return InvalidRequest({"volume": binds.CHANGED})
    if binds.UNSEEN in words:
        return RuntimeUnavailable(f"{binds.UNSEEN}: volumes want an Apptainer that is not installed setuid")
    if "already exists" in words:
        return InstanceExists("an instance of that name runs already")
    if "cgroup" in words.partition("FATAL")[2]:
        return ResourcesUnavailable("this host can't enforce the limits that were asked for")
    if any(phrase in words for phrase in _NO_IMAGE):
        # One sentence for every cause: a registry's port that is closed must not differ from one that is open.
        return ImageNotFound("the image can't be had: it is not there, or is no image")
    return RuntimeUnavailable("the runtime could not start the instance; the engine's log has its words")


def progress_of(words: str) -> str:
    """What a start is doing, by what the runtime has said so far."""
    if any(phrase in words for phrase in _CONVERTING):
        return "converting image"
    return "fetching image" if any(phrase in words for phrase in _FETCHING) else "starting"
