"""Errors of the library as exceptions."""

from __future__ import annotations

from typing import Optional

__all__ = [
    "UnmaskError",
    "InvalidValueError",
    "NotFoundError",
    "UnsupportedError",
    "OutOfMemoryError",
    "ModelError",
    "DeviceError",
    "CanceledError",
    "ClosedError",
]


class UnmaskError(Exception):
    """An error of unmask. Its text is one sentence: what was expected, what was found, and what to do.

    status: symbol of the library's status code ("UM_ERANGE"), or None for an error of the Python package.
    param:  name of the wrong parameter ("max_tokens"), or None.
    """

    def __init__(self, message: str, status: Optional[str] = None, param: Optional[str] = None):
        super().__init__(message)
        self.status = status
        self.param = param

    def with_prefix(self, prefix: str) -> UnmaskError:
        """Returns the same error with words in front of its text."""
        return type(self)(f"{prefix}{self}", self.status, self.param)

    def __reduce__(self):
        return type(self), (str(self), self.status, self.param)


class InvalidValueError(UnmaskError, ValueError):
    """A value is malformed, out of its range, or beyond a limit."""


class NotFoundError(UnmaskError, LookupError):
    """A model, a file or a name was not found."""


class UnsupportedError(UnmaskError, NotImplementedError):
    """The model or the device does not support what was asked for."""


class OutOfMemoryError(UnmaskError, MemoryError):
    """A large buffer could not be allocated."""


class ModelError(UnmaskError):
    """The folder of a model can't be read, or contradicts itself."""


class DeviceError(UnmaskError):
    """The device has failed. The LLM can't be used any more."""


class CanceledError(UnmaskError):
    """Loading was canceled."""


class ClosedError(UnmaskError, RuntimeError):
    """The LLM is closed, or belongs to another process."""


TYPE_OF_STATUS = {
    "UM_EINVAL": InvalidValueError,
    "UM_ENOENT": NotFoundError,
    "UM_EIO": ModelError,
    "UM_EPARSE": InvalidValueError,
    "UM_ENOMEM": OutOfMemoryError,
    "UM_EUNSUPPORTED": UnsupportedError,
    "UM_EMODEL": ModelError,
    "UM_ERANGE": InvalidValueError,
    "UM_ELIMIT": InvalidValueError,
    "UM_ETEMPLATE": InvalidValueError,
    "UM_EDEVICE": DeviceError,
    "UM_ECANCELED": CanceledError,
}
