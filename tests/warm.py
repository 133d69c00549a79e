"""Python processes that start from a warm interpreter, without the seconds that each would take to import torch.

A server imports torch and all commands once, and forks for each process. The process is a child of the caller (the
server forks twice, and the caller is the subreaper meanwhile), so `Popen` and `run` are those of `subprocess`, with
pipes, signals and exit codes as usual. They start `python -m module`, `python -c code` and `python script`; anything
else starts the ordinary way.

    done = warm.run([sys.executable, "-m", "larvatus", "recipes"], capture_output=True, text=True)

What differs from a fresh process: modules are imported already, all processes of one server share a hash seed, and
`os.fsync` does not wait.
Tests of imports, of start-up or of memory start the ordinary way.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import ctypes
import fcntl
import gc
import inspect
import json
import os
import runpy
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import types
from importlib import import_module
from pathlib import Path
from typing import Any

LIBRARIES = ("torch", "torch._dynamo", "pyarrow.parquet", "tokenizers", "typer", "rich", "safetensors.torch")
LIBRARIES += ("sentencex", "regex", "msgspec", "zstandard", "fsspec")
OF_TESTS = ("pytest", "hypothesis", "transformers", "sklearn.metrics")
NESTED = "LARVATUS_WARM_NESTED"
"""In the environment of a process: it gets a server of its own, for the processes that it starts with `Popen` of this
module; "all": whatever starts them, as torchrun does."""
HANDLE = "LARVATUS_WARM_HANDLE"
"""In the environment of such a process: its id, and the descriptor by which it reaches that server."""
FULL_END = "LARVATUS_WARM_FULL_END"
"""In the environment of a process, from its start or by its end: it ends as Python does, modules torn down, where the
streams' last words count."""
NAME = b"warm python"
"""As the system lists the server among the processes."""
COLLECTED = 20_000, 10, 10
"""Objects after which garbage is collected: after 700, as Python has it, it takes 7% of the time of the tests."""
PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 15, 36
SERVE = "serve"
"""Kind of request for which a server forks another one, whose socket is the standard input."""
LONGEST, MOST_KEPT, ABOVE = 1_000_000, 4, 500
"""Bytes of a message; descriptors that a process may keep; the number above which they are meanwhile."""


class Server:
    """The caller's side of `serve`: starts the server when it is first needed, and requests processes from it.

    With `preload` "larvatus" the server imports all commands, with "tests" what tests import but nothing of larvatus,
    with "libraries" only torch and what else larvatus needs.
    """

    def __init__(self, preload: str = "larvatus") -> None:
        self._preload = preload
        self._socket: socket.socket | None = None
        self._pid: int | None = None
        self._lock = threading.Lock()

    def can_start(self, environment: dict[str, str]) -> bool:
        """Whether the modules that the server has imported are those that the process would import."""
        same = _larvatus_on(environment.get("PYTHONPATH", "")) == _larvatus_on(os.environ.get("PYTHONPATH", ""))
        return sys.platform == "linux" and (same or self._preload != "larvatus")

    def connect(self) -> socket.socket:
        if self._socket is None:
            owner, _, handle = os.environ.get(HANDLE, "").partition(" ")
            if self._preload == "larvatus" and owner == str(os.getpid()):
                self._socket = socket.socket(fileno=int(handle))
                return self._socket
            self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._pid = self._start_server(theirs)
            atexit.register(self.close)
        return self._socket

    def _start_server(self, theirs: socket.socket) -> int:
        """A process that serves at this end; that with larvatus is forked from that with the libraries."""
        folder = Path(__file__).parents[1]
        if self._preload == "larvatus":
            job = {"kind": SERVE, "folder": str(folder), "environment": {**os.environ}}
            with open(os.devnull, "r+b") as nothing:
                return BarePopen.server.start(job, [theirs.fileno(), nothing.fileno(), 2])
        command = [sys.executable, str(Path(__file__)), str(theirs.fileno()), self._preload]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], cwd=folder, **quiet)
        process.returncode = 0  # `close` waits for it
        return process.pid

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = None
            atexit.unregister(self.close)

    def start(self, job: dict[str, Any], handles: list[int]) -> int:
        """The process's id; it is a child of this process."""
        with self._lock:
            connection = self.connect()
            _prctl(PR_SET_CHILD_SUBREAPER, 1)
            try:
                message = json.dumps({**job, "parent": os.getpid()}).encode()
                assert len(message) < LONGEST
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * LONGEST)
                sent = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", handles))]
                connection.sendmsg([message], sent)
                answer = connection.recv(LONGEST)
            finally:
                _prctl(PR_SET_CHILD_SUBREAPER, 0)
        assert answer, "the server of warm processes ended"
        pid = json.loads(answer)
        assert isinstance(pid, int), pid
        return pid


SERVER = Server()


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    server = SERVER

    def _execute_child(self, *arguments: Any) -> None:
        asked = inspect.signature(super()._execute_child).bind(*arguments).arguments  # type: ignore[misc]
        words = [os.fsdecode(word) for word in asked["args"]] if not isinstance(asked["args"], (str, bytes)) else []
        how = _how(words)
        environment = {**(os.environ if asked["env"] is None else asked["env"])}
        kept, group = [*asked["pass_fds"]], asked["process_group"]
        plain = asked["preexec_fn"] or asked["shell"] or asked["executable"] or len(kept) > MOST_KEPT
        if how is None or plain or group > 0 or not self.server.can_start(environment):
            super()._execute_child(*arguments)  # type: ignore[misc]
            return
        job = {
            **how,
            "folder": os.fsdecode(asked["cwd"] or os.getcwd()),
            "environment": environment,
            "session": asked["start_new_session"],
            "group": group == 0,
            "kept": kept,
        }
        given = [asked["p2cread"], asked["c2pwrite"], asked["errwrite"]]
        self.pid = self.server.start(job, [*(number if own == -1 else own for number, own in enumerate(given)), *kept])
        self._child_created = True
        pipes = [asked[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")]
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


class BarePopen(Popen):
    """Nothing of larvatus is imported yet: for tests of what it imports, and of what is not installed."""

    server = Server(preload="libraries")


def _run_by(popen: type[Popen]) -> Any:
    made = types.FunctionType(subprocess.run.__code__, {**vars(subprocess), "Popen": popen}, "run")
    made.__kwdefaults__ = subprocess.run.__kwdefaults__
    return made


run, run_bare = _run_by(Popen), _run_by(BarePopen)
"""As `subprocess.run`."""


def _how(words: list[str]) -> dict[str, Any] | None:
    """What Python is to run; None where it is not Python, or has options that a fork cannot have."""
    if not words or words[0] != sys.executable:
        return None
    rest, unbuffered = words[1:], False
    if rest[:1] == ["-u"]:
        rest, unbuffered = rest[1:], True
    if len(rest) > 1 and rest[0] in ("-m", "-c"):
        return {"kind": rest[0], "what": rest[1], "words": rest[2:], "unbuffered": unbuffered}
    if rest and not rest[0].startswith("-"):
        return {"kind": "script", "what": rest[0], "words": rest[1:], "unbuffered": unbuffered}
    return None


def _larvatus_on(path: str) -> str | None:
    """The folder from which a process with that PYTHONPATH imports the package; None: it has none to import."""
    folders = (os.path.realpath(folder) for folder in [*path.split(os.pathsep), *sys.path] if folder)
    return next((folder for folder in folders if os.path.isdir(os.path.join(folder, "larvatus"))), None)


def _prctl(option: int, value: int | bytes) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


# — The server —


def serve(connection: socket.socket, preload: str) -> dict[str, Any] | None:
    """Fork for each request; returns the request in the child, and None when the caller is gone."""
    _prctl(PR_SET_NAME, NAME)
    loaded = False
    while True:
        fresh = array.array("i")
        message, given, _, _ = connection.recvmsg(LONGEST, socket.CMSG_LEN((3 + MOST_KEPT) * fresh.itemsize))
        if not message:
            return None
        for _, _, data in given:
            fresh.frombytes(data)
        try:
            if not loaded:
                _load(preload)
                loaded = True
            job = json.loads(message)
            pid = _fork_twice(connection, list(fresh), job)
        except Exception as fault:
            for handle in fresh:
                os.close(handle)  # else whoever reads the other end waits for ever
            connection.send(json.dumps(repr(fault)).encode())
            continue
        if pid == 0:
            _prctl(PR_SET_NAME, b"python")
            while os.getppid() != job["parent"]:
                time.sleep(0.0002)
            return dict(job)
        for handle in fresh:
            os.close(handle)
        connection.send(json.dumps(pid).encode())


def _load(preload: str) -> None:
    level = os.environ.get("TORCH_CPP_LOG_LEVEL")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # as `larvatus` sets it before torch is imported
    for name in (*LIBRARIES, *(OF_TESTS if preload == "tests" else ())):
        import_module(name)
    if preload == "larvatus":
        from larvatus.interfaces.cli.command_list import COMMANDS

        for command in COMMANDS.values():
            import_module(command.module)
        import_later_modules()
    if level is None:
        del os.environ["TORCH_CPP_LOG_LEVEL"]
    sys.modules["torch"].set_num_threads(1)
    wait_for_no_disk()
    gc.collect()
    gc.set_threshold(*COLLECTED)
    gc.freeze()  # a child does not look through, and so copy, all that was imported


def import_later_modules() -> None:
    """What a forked process would else import when it first reads options, an array of Arrow, or runs a model."""
    for name in ("torch._dynamo", "typer._adapters"):
        with contextlib.suppress(ImportError):
            import_module(name)
    sys.modules["pyarrow"].array([0])  # imports pandas, where it is installed


def wait_for_no_disk() -> None:
    """Have `os.fsync` of files and folders return at once: tests end processes, not the system, so nothing is lost.

    What is called in which order, `tests/core/test_files.py` records.
    """
    force = os.fsync

    def fsync(handle: int) -> None:
        mode = os.fstat(handle).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            force(handle)

    os.fsync = fsync


def _fork_twice(connection: socket.socket, handles: list[int], job: dict[str, Any]) -> int:
    """The grandchild's id; 0 in the grandchild."""
    reading, writing = os.pipe()
    between = os.fork()
    if between == 0:
        if os.fork():
            os._exit(0)
        if job.get("session"):
            os.setsid()
        elif job.get("group"):
            os.setpgid(0, 0)
        os.write(writing, str(os.getpid()).encode())
        os.close(reading)
        os.close(writing)
        connection.close()
        above = [fcntl.fcntl(handle, fcntl.F_DUPFD, ABOVE) for handle in handles]  # of none of the numbers they get
        for handle in handles:
            os.close(handle)
        for number, handle in zip((0, 1, 2, *job.get("kept", ())), above, strict=True):
            os.dup2(handle, number)
            os.close(handle)
        return 0
    os.close(writing)
    with open(reading, "rb") as answer:
        pid = int(answer.read())
    os.waitpid(between, 0)
    return pid


def _take_over(job: dict[str, Any]) -> None:
    """Folder, environment and import path of a request."""
    os.chdir(job["folder"])
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(job["environment"])
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [*paths, *(path for path in sys.path if path not in before)]


def become(job: dict[str, Any]) -> None:
    """Be the Python process of a request, up to its first line."""
    _take_over(job)
    sys.argv = ["-c" if job["kind"] == "-c" else job["what"], *job["words"]]
    sys.orig_argv = [sys.executable, *([] if job["kind"] == "script" else [job["kind"]]), job["what"], *job["words"]]
    unbuffered = job["unbuffered"] or bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    for number, name in ((1, "stdout"), (2, "stderr")):
        errors = "strict" if name == "stdout" else "backslashreplace"
        stream = open(number, "w", encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
        stream.reconfigure(line_buffering=name == "stderr" or stream.isatty(), write_through=unbuffered)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.environ.pop(HANDLE, None)
    nested = os.environ.pop(NESTED, "")
    if nested:
        _nest()
    if nested == "all":
        from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

        subprocess.Popen = subprocess_handler.Popen = Popen  # type: ignore[misc, attr-defined]


def serve_from(job: dict[str, Any]) -> dict[str, Any] | None:
    """Be a server in which larvatus is imported, too; returns a request in the child, as `serve` does."""
    _take_over(job)
    connection = socket.socket(fileno=os.dup(0))
    os.dup2(1, 0)
    return serve(connection, "larvatus")


def _nest() -> None:
    """Fork a server for the processes that this one starts; it ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)
        job = serve(theirs, "larvatus")
        if job is None:
            os._exit(0)
        become(job)
        go(job)
    theirs.close()
    os.environ[HANDLE] = f"{os.getpid()} {ours.detach()}"


def go(job: dict[str, Any]) -> None:
    """Run what the request says, to the end of the process; modules are not torn down, which would take half a second.

    An exception ends the process as usual, and so does output that cannot be flushed.
    """
    full_end = os.environ.pop(FULL_END, None)
    try:
        _run_main(job)
        sys.exit()
    except SystemExit as ended:
        if full_end or FULL_END in os.environ or (ended.code is not None and not isinstance(ended.code, int)):
            raise
        code = ended.code or 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code & 0xFF)


def _run_main(job: dict[str, Any]) -> None:
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    if job["kind"] == "-m":
        sys.path.insert(0, os.getcwd())
        runpy._run_module_as_main(job["what"])  # type: ignore[attr-defined]
    elif job["kind"] == "-c":
        sys.path.insert(0, "")
        exec(compile(job["what"], "<string>", "exec"), main.__dict__)
    else:
        sys.path.insert(0, str(Path(job["what"]).resolve().parent))
        main.__file__ = job["what"]
        exec(compile(Path(job["what"]).read_bytes(), job["what"], "exec"), main.__dict__)


if __name__ == "__main__":
    sys.path.pop(0)  # this folder
    request = serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
    if request is not None and request["kind"] == SERVE:
        request = serve_from(request)
    if request is not None:
        become(request)
        go(request)
