"""Listings of more objects than a store gives at once: 1,000, but 5,000 in Azure."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.storage.conftest import STORES, Placed


@pytest.mark.broad(keep=1)
@pytest.mark.parametrize("place", [each for each in STORES if each != "azure"], indirect=True)
def test_more_objects_than_a_page(place: Placed) -> None:
    store = place.store
    names = [f"log/{number:05}" for number in range(1100)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: store.put(name, b""), names))
    assert [each.path for each in store.list("log")] == names
    assert [each.path for each in store.list("log", "log/01050")] == names[1051:]
    store.delete(names[1:])
    assert [each.path for each in store.list("")] == names[:1]
