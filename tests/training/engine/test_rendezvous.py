"""Ranks that can never meet are refused at once; those that wait say for whom, and where."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from larvatus.core.errors import UsageError
from larvatus.training.engine import launch as launching
from larvatus.training.engine import ranks
from larvatus.training.engine.launch import Launch, check_address, describe_wait, launch
from tests.patience import WATCHDOG_S

NOWHERE = "203.0.113.7"
"""Of the addresses that no machine has (RFC 5737)."""


@pytest.fixture
def silent_service() -> Iterator[int]:
    """The port of a program that takes connections and never says a word."""
    with socket.create_server(("", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("", 0)) as server:
        return int(server.getsockname()[1])


def rank(number: int, port: int, address: str = "127.0.0.1") -> Launch:
    return Launch(rank=number, count=2, address=address, port=port, by="torchrun")


@pytest.mark.parametrize("number", [0, 1])
def test_an_address_that_cannot_be_resolved_is_refused(number: int, free_port: int) -> None:
    with pytest.raises(UsageError, match=r"MASTER_ADDR=no-such-host\.invalid cannot be resolved .*machine of rank 0"):
        check_address(rank(number, free_port, "no-such-host.invalid"), {})
    with pytest.raises(UsageError, match="cannot be resolved"):
        check_address(rank(number, free_port, "x" * 100), {})


def test_rank_0_refuses_an_address_of_no_interface_and_others_do_not(free_port: int) -> None:
    with pytest.raises(UsageError, match=f"MASTER_ADDR={NOWHERE} is no address of this machine"):
        check_address(rank(0, free_port, NOWHERE), {})
    check_address(rank(1, free_port, NOWHERE), {})


def test_rank_0_refuses_a_port_that_is_taken(silent_service: int, free_port: int) -> None:
    with pytest.raises(UsageError, match=f"MASTER_PORT={silent_service} is taken by another program"):
        check_address(rank(0, silent_service), {})
    check_address(rank(0, free_port), {})
    check_address(rank(1, silent_service), {})  # it cannot know whether rank 0 listens there
    check_address(rank(0, silent_service), {"TORCHELASTIC_USE_AGENT_STORE": "True"})  # torchrun itself does


def test_port_0_is_no_meeting_place() -> None:
    with pytest.raises(UsageError, match="MASTER_PORT=0"):
        check_address(rank(1, 0), {})


def test_in_a_pod_names_and_service_addresses_may_come_later(free_port: int) -> None:
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    check_address(rank(1, free_port, "no-such-host.invalid"), pod)
    check_address(rank(0, free_port, NOWHERE), pod)


@pytest.mark.parametrize(
    ("name", "value"), [("RANK", "first"), ("RANK", "2"), ("RANK", "-1"), ("WORLD_SIZE", "two"), ("MASTER_PORT", "ssh")]
)
def test_numbers_that_are_none_or_out_of_range_are_refused(name: str, value: str) -> None:
    environment = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", name: value}
    with pytest.raises(UsageError, match=f"^{name}="):
        launch(environment)


def test_ranks_refuse_before_they_wait(silent_service: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": silent_service}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(ranks, "_met", lambda launched: pytest.fail("it waits for rank 1"))
    with pytest.raises(UsageError, match="is taken by another program"), ranks.ranks("cpu"):
        pass


def test_a_rank_that_waits_says_for_whom(
    silent_service: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another service listens where rank 0 should: nothing tells that to rank 1, so it waits, aloud."""
    said, launched = threading.Event(), rank(1, silent_service)

    def waits(*_: object, **__: object) -> Iterator[object]:
        assert said.wait(WATCHDOG_S), "it waits without a word"
        raise RuntimeError("nobody answered")

    def words(launched: Launch, limit_s: float) -> str:
        said.set()
        return describe_wait(launched, limit_s)

    monkeypatch.setattr(launching, "FIRST_WORD_S", 0.01)
    monkeypatch.setattr(launching, "describe_wait", words)
    monkeypatch.setattr(ranks, "rendezvous", waits)
    with pytest.raises(UsageError, match="did not meet"):
        ranks._met(launched)
    where = f"127.0.0.1:{silent_service} (MASTER_ADDR, MASTER_PORT)"
    assert f"larvatus: rank 1 of 2 waits for rank 0 at {where}" in capsys.readouterr().err
    assert not [thread for thread in threading.enumerate() if thread.name == "rendezvous"]


def test_rank_0_says_which_ranks_it_waits_for() -> None:
    launched = Launch(rank=0, count=4, address="gpu07", port=20017)
    assert describe_wait(launched, 600).startswith("rank 0 of 4 waits for ranks 1 to 3 at gpu07:20017")
