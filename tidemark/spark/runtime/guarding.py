"""Who reaches Spark's ports: what each application has set before it listens, whichever way it was started.

Whoever reaches the ports of a Spark without authentication gets what tasks are made of, without a login: the passwords of
the stream's connections, and its rows.
"""

from __future__ import annotations

import os
import re

from pyspark import SparkConf

from tidemark.errors import WrongUse
from tidemark.submit.command import INSECURE

_AUTHENTICATE, _SECRET, _ENCRYPT = "spark.authenticate", "spark.authenticate.secret", "spark.network.crypto.enabled"
# Where Spark's own daemons look for the secret, if their settings have none.
_SECRET_VARIABLE = "_SPARK_AUTH_SECRET"  # noqa: S105
_LOCAL = re.compile(r"local(\[.*\])?")
# Spark makes a secret for each application, and hands it to the executors.
_MAKES_SECRETS = ("yarn", "k8s://")
# Nothing comes from elsewhere to a local master.
_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
# Spark's own page has no login, and listens on all interfaces: nobody ends a stage or a job there, unless the user's
# settings say so. A local application has none.
_PAGE, _NO_KILLING = {"spark.ui.enabled": "false"}, {"spark.ui.killEnabled": "false"}


def guarded(given: SparkConf) -> dict[str, str]:
    """Settings for a new application, over those that were given. Raises WrongUse for a cluster that is open to anybody."""
    master = str(given.get("spark.master", "local[*]"))
    if _LOCAL.fullmatch(master):
        return {**_unless_given({**_NO_KILLING, **_PAGE}, given), **_LOOPBACK, _AUTHENTICATE: "true"}
    settings = _unless_given(_NO_KILLING, given)
    secret = given.get(_SECRET) or os.environ.get(_SECRET_VARIABLE)
    makes = master.startswith(_MAKES_SECRETS)
    asked = str(given.get(_AUTHENTICATE, "true" if makes or secret else "false")).strip().lower()
    if asked == "true" and (makes or secret):
        if not makes:
            settings[_SECRET] = str(secret)
        return {**settings, _AUTHENTICATE: "true", **_unless_given({_ENCRYPT: "true"}, given)}
    if given.get(INSECURE) == "true":
        return settings
    how = (
        f"take {_AUTHENTICATE}: false out of its settings"
        if makes
        else f"set {_AUTHENTICATE} to true, and {_SECRET} to the same secret, in the spark-defaults.conf of the master, of the "
        "workers and of the machine that starts jobs, readable for its owner alone"
    )
    raise WrongUse(
        f"Spark's master is {master}, without authentication: whoever reaches the ports of a job gets the passwords of the "
        f'stream\'s connections, and its rows. To refuse others, {how} (or say {{"allow_insecure": true}} among the extras of '
        "the Spark connection, in a network that you trust)"
    )


def _unless_given(settings: dict[str, str], given: SparkConf) -> dict[str, str]:
    return {name: value for name, value in settings.items() if not given.contains(name)}
