"""Tidemark: Kafka topics become tables in bounded batches, and the ledger of which offsets are in which results is kept.

Only `tidemark.airflow` and `tidemark.plugin` import Airflow, and only `tidemark.spark` imports pyspark; ARCHITECTURE.md
has the rooms.
"""

__version__ = "0.1.0"

# For functions of one's own, which stream files name: `from tidemark import Message, PermanentFailure`.
from tidemark.functions import Message, PermanentFailure

__all__ = ["Message", "PermanentFailure", "__version__"]
