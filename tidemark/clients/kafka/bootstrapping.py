"""How kafka-python's clients make their first connection: who is not let in is told so at once.

When a broker ends a client's first connection, the library tries again until its time is up, and the server may lock the user
out. It cannot say why, either: over TLS, it drops the broker's last answer. So after the first failure, admission is asked.
"""

from __future__ import annotations

import time
from typing import Any

from kafka.net.compat import KafkaNetClient
from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from tidemark.clients.kafka.admission import check_admission
from tidemark.clients.kafka.endpoint import KafkaEndpoint


def net_client(endpoint: KafkaEndpoint, **configs: Any) -> KafkaNetClient:
    """The connections of a consumer, an admin client or a producer: the value of their setting `kafka_client`."""
    net = NetworkSelector(**configs)
    return KafkaNetClient(net=net, manager=_Connections(endpoint, net, **configs), **configs)


class _Connections(KafkaConnectionManager):  # type: ignore[misc]
    def __init__(self, endpoint: KafkaEndpoint, net: NetworkSelector, **configs: Any) -> None:
        super().__init__(net, **configs)
        self._endpoint = endpoint
        # The first failure. Nothing is noted once admission was asked, or a connection was there.
        self._failed: BaseException | None = None
        self._asked = False

    def bootstrap(self, timeout_ms: float | None = None, refresh: bool = True) -> None:
        """Make the first connection. Raises AuthenticationFailed, KafkaError.

        After an error its thread has ended, which the library leaves running.
        """
        began = time.monotonic()
        try:
            try:
                super().bootstrap(timeout_ms, refresh)
            except BaseException as problem:
                if problem is not self._failed:
                    raise
                self._asked, self._failed = True, None
                check_admission(self._endpoint, again=True)
                # A broker that is just restarting.
                passed = (time.monotonic() - began) * 1000
                super().bootstrap(None if timeout_ms is None else max(0, timeout_ms - passed))
            self._asked = True
        except BaseException:
            self.close()
            self._net.stop()
            raise

    def get_connection(self, node_id: Any, **settings: Any) -> KafkaConnection:
        connection = super().get_connection(node_id, **settings)
        if not self._asked and self.cluster.is_bootstrap(node_id):
            connection.init_future.add_errback(self._note)
        return connection

    def maybe_raise_auth_failure(self, node_id: Any) -> None:
        # The library asks this before each connection.
        super().maybe_raise_auth_failure(node_id)
        if self._failed is not None and self.cluster.is_bootstrap(node_id):
            raise self._failed

    def _note(self, problem: BaseException) -> None:
        if not self._asked and self._failed is None:
            self._failed = problem
