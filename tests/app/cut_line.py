"""A line to a server that can be cut: bytes wait, and nobody is told."""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Event, Thread


class CutLine:
    """Passes connections to a port of 127.0.0.1 on, from a port of its own, unless it is cut."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._whole = Event()
        self._whole.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._ends: list[socket.socket] = [self._listener]
        self._threads = [Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self) -> None:
        """From now on nothing passes, in either direction."""
        self._whole.clear()

    def mend(self) -> None:
        """What waited passes, and everything after it."""
        self._whole.set()

    def close(self) -> None:
        """End all connections, and take no more."""
        self.mend()
        self._end(self._listener)
        self._threads[0].join()
        for end in self._ends:
            self._end(end)
        for thread in self._threads:
            thread.join()
        for end in self._ends:
            end.close()

    @staticmethod
    def _end(one: socket.socket) -> None:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._ends.append(near)
                far = socket.create_connection(("127.0.0.1", self._server_port))
                self._ends.append(far)
                for source, sink in ((near, far), (far, near)):
                    self._threads.append(Thread(target=self._pass_on, args=(source, sink)))
                    self._threads[-1].start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                self._whole.wait()
                sink.sendall(data)
        self._end(source)
        self._end(sink)
