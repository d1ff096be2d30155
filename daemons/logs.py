"""Structured logs: pretty for a person at a terminal, else JSON lines; the standard library's loggers go the same way.

A process below a root writes into the root's pipe, and is told by LEVERS9_LOGS which of the two it is.
"""

from __future__ import annotations

import logging
import os
import sys

import structlog

from .lines import LogStyle, chosen_style


def set_up_logs(level: int = logging.INFO) -> None:
    """Send structlog and `logging` to standard error; tracebacks without the values of variables: some are secret."""
    style = chosen_style(os.environ, is_terminal=sys.stderr.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler()
    remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[remove, *_renderer(style)])
    )
    logging.basicConfig(handlers=[handler], level=level, force=True)
    logging.getLogger("httpx2").setLevel(max(level, logging.WARNING))  # at INFO it tells each request


def _renderer(style: LogStyle) -> list[structlog.typing.Processor]:
    if style is LogStyle.PRETTY:
        colours = not os.environ.get("NO_COLOR")
        return [structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=structlog.dev.plain_traceback)]
    tracebacks = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    return [structlog.processors.ExceptionRenderer(tracebacks), structlog.processors.JSONRenderer()]
