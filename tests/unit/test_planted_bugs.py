"""Whether the model would find a bug: each is planted in the product's own code, and has to be found within some sequences."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.model.bugs import BUGS
from tests.model.planting import planted
from tests.model.sequences import explore
from tests.support.quick import some_of

_SEQUENCES = range(400)


@pytest.mark.slow
@pytest.mark.parametrize("bug", some_of(BUGS))
def test_a_planted_bug_is_found(bug: str) -> None:
    planting = BUGS[bug]
    with ExitStack() as stack:
        stack.enter_context(planted(planting.module, planting.old, planting.new))
        if planting.more is not None:
            stack.enter_context(planted(*planting.more))
        # Some are found by the ledger itself before the checker looks.
        with pytest.raises(Exception, match=planting.said):
            explore(planting.focus, planting.store, [planting.likely, *_SEQUENCES], shorter=False)
