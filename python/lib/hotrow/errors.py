"""The errors of hotrow. Each is one of Python's own kinds too, so `except IndexError` catches a RowIndexError."""


class Error(Exception):
    """Any error of hotrow. After it the tables still hold their last good values."""


class RowIndexError(Error, IndexError):
    """An index or a row that its table does not have. The call did nothing."""


class InvalidValue(Error, ValueError):
    """A setting, or an array of another type or shape, that cannot be used."""


class InvalidType(InvalidValue, TypeError):
    """An argument of a type that the call does not take: a trace of floats, a list in place of a tensor."""


class OutOfMemory(Error, MemoryError):
    """More bytes than the device or the host has, or than one buffer can have."""


class OrderError(Error, RuntimeError):
    """A call in an order that would lose an update, of a closed group, or in a forked process."""


class DeviceError(Error, RuntimeError):
    """There is no device, it lacks a feature, or it is lost."""


class FileError(Error, OSError):
    """A file that cannot be written, read, or loaded into this group."""
