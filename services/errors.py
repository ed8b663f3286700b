"""Errors of the servers, in words for the person at the terminal."""


class ServiceError(Exception):
    """A server, or a tool that it needs, is missing, did not start, or died. The text says which, and what to do."""
