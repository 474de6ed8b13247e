"""What surrounds a CUDA graph, with a stand-in for it: copies, settings, shared memory, and what happens when it fails."""

import contextlib
from weakref import WeakSet

import pytest
import torch

from eigenscape.curvature.engines.replay import Replayed
from eigenscape.curvature.precision import products_in


class Machine:
    """A GPU of one function: a graph is captured by running it, and a replay runs it again into the same results."""

    def __init__(self, patch):
        self.captured, self.replays, self.pools, self.mode, self.wrong = [], 0, [], 0, 0.0
        machine = self

        class Graph:
            def pool(self):
                return id(self)

            def replay(self):
                machine.replays += 1
                function, argument, results = machine.captured[-1]
                for kept, fresh in zip(results, function(argument)):
                    kept.copy_(fresh + machine.wrong)

        @contextlib.contextmanager
        def graph(graph, pool=None):
            machine.pools.append(pool)
            yield

        def set_mode(mode):
            machine.mode = mode

        patch.setattr(torch.cuda, "CUDAGraph", Graph)
        patch.setattr(torch.cuda, "graph", graph)
        patch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
        patch.setattr(torch.cuda, "synchronize", lambda device=None: None)
        patch.setattr(torch.cuda, "get_sync_debug_mode", lambda: machine.mode)
        patch.setattr(torch.cuda, "set_sync_debug_mode", set_mode)

    def watched(self, function):
        """The function, with a note of each run that a graph may repeat."""

        def run(argument):
            results = function(argument)
            self.captured.append((function, argument, results))
            return results

        return run


@pytest.fixture
def machine(monkeypatch):
    return Machine(monkeypatch)


def double(v):
    return (2 * v,)


def test_results_are_copies_that_the_next_replay_leaves_alone(machine):
    replayed = Replayed(machine.watched(double), WeakSet())
    assert replayed(torch.ones(3))[0].tolist() == [2, 2, 2]
    first = replayed(torch.full((3,), 5.0))[0]
    second = replayed(torch.full((3,), 7.0))[0]
    assert (first.tolist(), second.tolist()) == ([10, 10, 10], [14, 14, 14])
    assert machine.replays == 3  # one of them to compare
    assert len(machine.pools) == 1
    assert not replayed.note


def test_another_precision_is_another_graph_in_the_same_memory(machine):
    replayed = Replayed(machine.watched(double), WeakSet())
    replayed(torch.ones(3))
    with products_in("high"):
        replayed(torch.ones(3))
    assert len(replayed.captures) == 2
    assert machine.pools == [None, id(next(iter(replayed.captures.values())).graph)]


def test_memory_is_shared_only_with_graphs_that_live(machine):
    graphs = WeakSet()
    Replayed(machine.watched(double), graphs)(torch.ones(3))
    Replayed(machine.watched(double), graphs)(torch.ones(3))  # the first is gone by now
    assert machine.pools == [None, None]


def test_an_operation_that_waits_for_the_device_is_never_captured(machine):
    def waiting(v):
        if machine.mode == "error":
            raise RuntimeError("called a synchronizing CUDA operation\nand more")
        return (2 * v,)

    replayed = Replayed(waiting, WeakSet())
    for _ in range(2):
        assert replayed(torch.ones(3))[0].tolist() == [2, 2, 2]
    assert replayed.note == "not captured: called a synchronizing CUDA operation"
    assert machine.pools == []
    assert machine.mode == 0


def test_a_graph_that_gives_something_else_is_not_used(machine):
    machine.wrong = 1.0
    replayed = Replayed(machine.watched(double), WeakSet())
    for _ in range(2):
        assert replayed(torch.ones(3))[0].tolist() == [2, 2, 2]
    assert replayed.note == "not captured: its replay differs"
