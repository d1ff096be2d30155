"""The REST interface: one small module a subject, one table of routes, errors that say what to do."""

from .app import build_app
from .desk import Desk

__all__ = ["Desk", "build_app"]
