"""The functions of a stream's owner that Airflow calls when a run has ended."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.functions import load_function

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Callback:
    """Calls the function `module:name`, which a stream file names under `key`, with Airflow's context of the run.

    The module is imported at the call, not whenever Airflow parses the DAGs. Whatever the function does, the run's result
    stays: a failure is logged and goes no further.
    """

    key: str
    name: str

    def __call__(self, context: Context) -> None:
        try:
            load_function(self.key, self.name, "of Airflow's DAG processor: in PYTHONPATH, or installed")(context)
        except (Exception, SystemExit):
            log.exception("%s: %s has failed; the run's result stays as it is", self.key, self.name)
