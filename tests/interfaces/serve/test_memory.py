"""A server keeps one arena of glibc's allocator, so that threads that take turns do not each keep what was freed."""

import os
import platform
import subprocess
import sys

import pytest

from larvatus.interfaces.cli.main import run
from larvatus.interfaces.serve.listening import USER_VARIABLES, keep_little_memory
from tests.patience import WATCHDOG_S

ARENAS = """
import ctypes, sys, threading
from larvatus.interfaces.serve.listening import keep_little_memory

if sys.argv[1] == "little":
    assert keep_little_memory()
library = ctypes.CDLL(None)
library.malloc.restype = library.fopen.restype = ctypes.c_void_p
library.malloc.argtypes = [ctypes.c_size_t]
meet = threading.Barrier(6)

def take():
    meet.wait()
    library.malloc(500_000)
    meet.wait()

threads = [threading.Thread(target=take) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
library.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
library.fclose.argtypes = [ctypes.c_void_p]
stream = library.fopen(sys.argv[2].encode(), b"w")
library.malloc_info(0, stream)
library.fclose(stream)
"""


def arenas(settings, path):
    environment = {name: value for name, value in os.environ.items() if name not in USER_VARIABLES}
    subprocess.run([sys.executable, "-c", ARENAS, settings, str(path)], check=True, timeout=WATCHDOG_S, env=environment)
    return path.read_text(encoding="utf-8").count("<heap nr=")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is not glibc's")
def test_threads_of_a_server_share_one_arena(tmp_path):
    assert arenas("as it is", tmp_path / "before.xml") > 1
    assert arenas("little", tmp_path / "after.xml") == 1


@pytest.mark.parametrize("command", ["serve", "studio"])
def test_both_commands_ask_for_it_before_they_load_a_model(command, monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr("larvatus.interfaces.cli.commands.serve.keep_little_memory", lambda: asked.append(command))
    with pytest.raises(SystemExit, match="5"):  # no such directory
        run([command, str(tmp_path / "none"), "--port", "0"])
    assert asked == [command]


def test_what_the_user_set_is_left_as_it_is(monkeypatch):
    monkeypatch.setenv("MALLOC_ARENA_MAX", "16")
    monkeypatch.setattr("ctypes.CDLL", lambda name: pytest.fail("the allocator was asked"))
    assert not keep_little_memory()


def test_another_allocator_is_left_alone(monkeypatch):
    for name in USER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    assert not keep_little_memory()
