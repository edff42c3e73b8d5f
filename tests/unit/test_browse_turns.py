"""The queue before the model."""

from __future__ import annotations

import threading

import pytest

from jmm.browse.turns import AbandonedError, BusyError, Turns

TIMEOUT_S = 60


def wanted() -> bool:
    return True


def test_one_at_a_time_and_few_wait() -> None:
    turns = Turns(4)
    inside, most, done, refused = 0, 0, [], []
    all_asked = threading.Barrier(7)
    go_on = threading.Event()

    def work(number: int) -> None:
        nonlocal inside, most
        all_asked.wait(TIMEOUT_S)
        try:
            with turns.place(), turns.turn(wanted):
                inside += 1
                most = max(most, inside)
                go_on.wait(TIMEOUT_S)
                inside -= 1
                done.append(number)
        except BusyError:
            refused.append(number)
            if len(refused) == 3:
                go_on.set()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert (len(done), len(refused), most) == (4, 3, 1)


def test_places_are_given_back_whatever_happens() -> None:
    turns = Turns(1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), turns.place(), turns.turn(wanted):
            raise ZeroDivisionError
        with pytest.raises(AbandonedError), turns.place(), turns.turn(lambda: False):
            pytest.fail("nobody wants it")
    with turns.place(), turns.turn(wanted):
        pass


def test_closed() -> None:
    turns = Turns(2)
    waiting = threading.Event()
    told: list[str] = []

    def work() -> None:
        waiting.set()
        try:
            with turns.turn(wanted):
                told.append("taken")
        except BusyError as error:
            told.append(str(error))

    with turns.turn(wanted):
        thread = threading.Thread(target=work)
        thread.start()
        assert waiting.wait(TIMEOUT_S)
        turns.close()
    thread.join(TIMEOUT_S)
    assert told == ["the page is being closed"]
    with pytest.raises(BusyError, match="being closed"), turns.turn(wanted):
        pytest.fail("it is closed")


def test_the_one_whose_turn_it_is_can_be_waited_for() -> None:
    turns, begun, may_end = Turns(2), threading.Event(), threading.Event()
    ended = []

    def work() -> None:
        with turns.place(), turns.turn(lambda: True):
            begun.set()
            may_end.wait(TIMEOUT_S)
            ended.append("work")

    worker = threading.Thread(target=work)
    worker.start()
    assert begun.wait(TIMEOUT_S)
    threading.Timer(0.1, may_end.set).start()
    turns.close()
    turns.wait()
    assert ended == ["work"]
    worker.join(TIMEOUT_S)
    with pytest.raises(BusyError, match="closed"), turns.place(), turns.turn(lambda: True):
        pass
