"""The limits on time: checked where they are given, kept whatever happens."""

from __future__ import annotations

import math

import pytest

from mintlify_async import ConfigurationError, Timeouts


@pytest.mark.parametrize("settings", [{"connect": 0}, {"idle": -1}, {"total": True}, {"request": math.nan}])
def test_timeouts_check_their_numbers(settings):
    """A limit of nothing would end every call."""
    with pytest.raises(ConfigurationError) as caught:
        Timeouts(**settings)
    assert caught.value.field == next(iter(settings))
