# SPDX-License-Identifier: BSD-3-Clause
"""Questions to the daemon that Ceph may leave without an answer for long: each has a thread of its own, and nobody waits for it."""
import queue
import threading
from typing import NamedTuple

from .daemon import DaemonError


class Answer(NamedTuple):
    bdev: str           # by which the clients were asked
    clients: frozenset  # and when each was found to have gone: another time it is another question
    fenced: list        # those that have been blocklisted, by address
    error: str          # why it is not known; or None


NO_ANSWER = Answer("", frozenset(), [], None)


class Questions:
    """To be used by one thread, except for what is said otherwise."""

    def __init__(self, ask, wake):
        """ask(bdev, clients, until_us): returns those that were fenced, on any thread. wake: called on a thread of its own when there is an answer."""
        self.ask, self.wake = ask, wake
        self.under_way = set()      # bdevs
        self.answers = queue.SimpleQueue()

    def begin(self, bdev, clients, until_us):
        """Once at a time for each bdev: the caller looks at `under_way`. clients: and when each was found to have gone."""
        self.under_way.add(bdev)
        threading.Thread(target=self.run, args=(bdev, clients, until_us), daemon=True).start()

    def run(self, bdev, clients, until_us):
        """On a thread of its own."""
        fenced, error = [], None
        try:
            fenced = self.ask(bdev, sorted(clients), until_us)
        except DaemonError as e:
            error = str(e)
        except Exception as e:      # pylint: disable=broad-except
            error = f"{type(e).__name__}: {e}"
        self.answers.put(Answer(bdev, frozenset(clients.items()), fenced, error))
        self.wake()

    def take(self):
        """The answers that have come since the last time."""
        found = []
        while not self.answers.empty():
            found.append(self.answers.get())
            self.under_way.discard(found[-1].bdev)
        return found
