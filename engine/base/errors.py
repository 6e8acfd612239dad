"""Every refusal the engine can make: a code for programs, a sentence for people, and whose fault it is. Section 7."""

from __future__ import annotations

from collections.abc import Mapping


class Refusal(Exception):
    """The engine refuses. `code` is stable; `detail` is a sentence for people and holds no secret. `why` is that
    sentence for the log, where it may say more.

    `retry_after` is in seconds where a later try can succeed. `errors` names each wrong field of a request.
    """

    code: str = "refused"

    def __init__(
        self,
        detail: str,
        *,
        cause: str | None = None,
        retry_after: int | None = None,
        errors: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = self.why = detail
        self.cause = cause or self.code
        """What the log says; never sent, since it may tell apart what an answer must not."""
        self.retry_after = retry_after
        self.errors = dict(errors or {})


class PairingCodeRefused(Refusal):
    """Rejected, unknown, expired or already claimed: one answer for all four (section 3.1, rule 2)."""

    code = "invalid_pairing_code"

    def __init__(self, cause: str) -> None:
        super().__init__("invalid pairing code", cause=cause)


class PairingExpired(Refusal):
    """The decision window ended before the operator's answer (section 3.1)."""

    code = "pairing_expired_on_approval"

    def __init__(self) -> None:
        super().__init__("pairing expired on approval")


class SignatureRefused(Refusal):
    """The signature, or the nonce it answers, does not verify: one answer whatever the cause (section 7)."""

    code = "invalid_signature"

    def __init__(self, cause: str, detail: str | None = None) -> None:
        """`detail` is for those who have proved that the key is theirs."""
        words = detail or "the signature does not verify with a registered key and a fresh challenge"
        super().__init__(words, cause=cause)


FOREIGN = "foreign_address"
"""Cause of a refusal: a key, or a session of one, was used from where the key may not be used."""


class TokenRefused(Refusal):
    """No token, or one that is malformed, expired, ended or revoked. `sent` says whether there was one (RFC 6750)."""

    code = "invalid_token"

    def __init__(self, cause: str, *, sent: bool = True) -> None:
        super().__init__("sign in again: the session token is missing, expired or no longer valid", cause=cause)
        self.sent = sent


class PermissionDenied(Refusal):
    """The session lacks the permission, or holds it read-only (section 5, rule 4)."""

    code = "permission_denied"

    def __init__(self, permission: str) -> None:
        super().__init__(f"permission denied: this needs {permission}")
        self.permission = permission


class ModuleNotLicensed(Refusal):
    """The license does not grant the module (section 5, rule 4)."""

    code = "module_not_licensed"

    def __init__(self, module: str) -> None:
        super().__init__(f"permission denied: the license does not grant the module '{module}'")
        self.module = module


class NotJson(Refusal):
    """The body isn't one JSON object in UTF-8, repeats a key, or is nested too deep."""

    code = "not_json"


class InvalidRequest(Refusal):
    """A field is missing, unknown, or of the wrong type or form; `errors` names each and why."""

    code = "invalid_request"

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {why}" for name, why in errors.items()), errors=errors)


class TooManyRequests(Refusal):
    """A limit on failures, sessions or waiting requests was reached."""

    code = "too_many_requests"


class TooManyInstances(Refusal):
    """As many as `max_instances`, or as an identity may have, are live."""

    code = "too_many_instances"


class InstanceExists(Refusal):
    """The name is taken, by an instance of this engine or by one that it did not start."""

    code = "instance_exists"


class InstanceNotFound(Refusal):
    """No instance of this engine or its fleet has that name, or it has ended too long ago."""

    code = "instance_not_found"


class ImageNotFound(Refusal):
    """The image is not there, or not where images may be taken from."""

    code = "image_not_found"


class RuntimeUnavailable(Refusal):
    """The container runtime is missing, broken, or not to be used as root."""

    code = "runtime_unavailable"


class HostUnavailable(Refusal):
    """The instance is another engine's of the fleet, and that one does not answer."""

    code = "host_unavailable"


class ResourcesUnavailable(Refusal):
    """A limit that this host can't enforce, or more than it has."""

    code = "resources_unavailable"


class StoreUnavailable(Refusal):
    """The store can't be written: nothing was changed, and a later try may succeed."""

    code = "store_unavailable"

    def __init__(
        self, detail: str, *, why: str | None = None, cause: str | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(detail, cause=cause, retry_after=retry_after)
        self.why = why or detail
        """The sentence for the log and for commands on this host: it may say where the store is, as no answer does."""


class NotFound(Refusal):
    """No such session, chart or path."""

    code = "not_found"


class KeyRefused(Refusal):
    """A key file that is not taken, for the one reason that `detail` names."""

    code = "key_refused"


class FileRefused(Refusal):
    """A file of wider mode, another owner, or a symlink; `detail` ends with the command that mends it."""

    code = "file_refused"


class SettingRefused(Refusal):
    """An unknown setting or a value it can't take; `detail` names the nearest known one."""

    code = "setting_refused"


class LicenseRefused(Refusal):
    """The license is expired, forged, or signed by someone else."""

    code = "license_refused"


class EngineUnavailable(Refusal):
    """The engine can't start here, or isn't running."""

    code = "engine_unavailable"


def cause_of(fault: BaseException) -> str:
    """Why something ended by this, in the words of records: a refusal's cause, else `fault`."""
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    return fault.cause if isinstance(fault, Refusal) else "fault"
