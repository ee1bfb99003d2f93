"""Loads libunmask.so and converts between C and Python values."""

from __future__ import annotations

import os
import pathlib
from typing import Any, Iterable, Optional, Union

import numpy as np

from . import errors
from ._declarations import ffi, version

PACKAGE = pathlib.Path(__file__).resolve().parent


def _load():
    path = os.environ.get("UNMASK_LIBRARY") or str(PACKAGE / "libunmask.so")
    try:
        library = ffi.dlopen(path)
    except OSError as error:
        raise ImportError(
            f"{path} can't be loaded ({error}). Install the wheel of this platform, or build one with `make wheel`"
        ) from error
    _check_version(library, path)
    return library


def _check_version(library, path: str) -> None:
    """Compares the library with the declarations that the package was built with."""
    found = ffi.string(library.um_version()).decode()
    if found != version:
        raise ImportError(f"{path} is unmask {found}, but this package needs {version}")
    config, chat = ffi.new("um_config *"), ffi.new("um_chat_request *")
    library.um_config_init(config)
    library.um_chat_init(chat)
    if config.size != ffi.sizeof("um_config") or chat.size != ffi.sizeof("um_chat_request"):
        raise ImportError(f"{path} was built from another unmask.h than this package")


lib = _load()


def new_error():
    """Returns a um_err."""
    return ffi.new("um_err *")


def error_of(err) -> errors.UnmaskError:
    """Converts a um_err to an exception."""
    status = text(lib.um_status_name(err.code))
    kind = errors.TYPE_OF_STATUS.get(status, errors.UnmaskError)
    return kind(text(err.msg), status, text(err.param) or None)


def check(status: int, err) -> None:
    """Raises the error if the status of a function is not UM_OK."""
    if status:
        raise error_of(err)


def text(pointer, size: int = -1) -> str:
    """Converts a C string of the library. It is UTF-8 in all cases; what is not becomes U+FFFD."""
    return (ffi.string(pointer) if size < 0 else ffi.buffer(pointer, size)[:]).decode("utf-8", "replace")


def optional_text(pointer) -> Optional[str]:
    """Converts a C string that may be NULL."""
    return None if pointer == ffi.NULL else text(pointer)


class OpenModel:
    """A um_model that is freed after close(), when no call uses it any more. Its engines must have been freed."""

    def __init__(self, pointer):
        owner = os.getpid()  # a forked process has none of the model's threads

        def free(model, getpid=os.getpid, close=lib.um_model_close) -> None:
            if getpid() == owner:
                close(model)

        self._pointer = ffi.gc(pointer, free)

    def get(self):
        """Returns the pointer. The model stays open as long as the returned object lives."""
        pointer = self._pointer
        if pointer is None:
            raise errors.ClosedError("the LLM is closed")
        return pointer

    def close(self) -> None:
        self._pointer = None


def octets(pointer, size: int) -> bytes:
    """Copies an array of the library. The pointer may be NULL if the size is 0."""
    return ffi.buffer(pointer, size)[:] if size else b""


def id_array(ids: Any) -> np.ndarray:
    """Converts ids to int32. Raises an error for numbers that do not fit; numpy would drop their upper bits."""
    given = np.asarray(ids)
    if len(given) and given.dtype != np.int32 and (given.min() < -(2**31) or given.max() >= 2**31):
        raise errors.InvalidValueError(f"token id {given.max() if given.max() >= 2**31 else given.min()} is too large")
    return np.ascontiguousarray(given, np.int32)


OptionValue = Union[None, bool, int, float, str, os.PathLike, Iterable[Any]]


def option_text(value: OptionValue) -> str:
    """Converts the value of an option to the text that um_config_set and um_request_set parse."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int)):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (list, tuple)):
        return ",".join(option_text(item) for item in value)
    item = getattr(value, "item", None)  # a number of numpy
    if callable(item):
        return option_text(item())
    raise TypeError(f"expected a bool, number, string or path; got {type(value).__name__}")


def set_option(function, target, name: str, value: OptionValue) -> Any:
    """Calls um_config_set or um_request_set. Returns the C string, which must live as long as the target."""
    err = new_error()
    try:
        string = ffi.new("char[]", option_text(value).encode())
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
    check(function(target, name.encode(), string, err), err)
    return string
