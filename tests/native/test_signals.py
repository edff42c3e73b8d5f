"""Signal handlers run while native code computes, and what they raise comes out."""

from __future__ import annotations

import pytest

from subprocess_case import run

# A timer calls `act` once, from a handler in the midst of a native call and at no other time:
# the engine that this thread holds refuses every use.
IN_NATIVE_CODE = """
n_calls = 0
inside = False  # the next alarm may come while the handler runs

def is_busy():
    return "DecodeError" in [raised(engine.check) for engine in list(_core._engines)]

def on_alarm(signum, frame):
    global n_calls, inside
    if inside or n_calls:
        return
    inside = True
    try:
        if is_busy():
            n_calls += 1
            act()
    finally:
        inside = False

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    while True:  # the handler of SIGINT runs between two bytecodes
        pass

signal.signal(signal.SIGALRM, on_alarm)

def watched(call):
    global n_calls
    n_calls = 0
    signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
    try:
        for _ in range(20):  # a fast machine may end a call before the handler's turn
            result = call()
            if n_calls:
                break
        return result
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)

"""

# Each call lasts longer than the 50 ms after which a handler has its turn.
CALLS = """
embedder = Embedder(n_threads=1)
sequence = embedder._engine.tokenize([(PATCHES, *GRID[1:])])
calls = {
    "text": lambda: embedder.encode_query(TEXT),
    "batches": lambda: embedder.encode_query([TEXT] * 4),
    "picture": lambda: embedder.encode_patches(PATCHES, GRID),
    "vision": lambda: embedder._engine.encode_vision(sequence.pictures),
}
"""
# Nodes of the language model alone, and of the vision tower alone.
TEXT_AND_VISION = """
calls = {name: calls[name] for name in ("text", "vision")}
wanted = {name: call() for name, call in calls.items()}
"""


def case(rest: str, *words: str) -> list[str]:
    return run(IN_NATIVE_CODE + CALLS + rest, *words)


def both(rest: str) -> list[str]:
    return case(TEXT_AND_VISION + rest)


@pytest.mark.parametrize("call", ["text", "batches", "picture", "vision"])
def test_ctrl_c_in_a_call(call: str) -> None:
    """Guards the abort callbacks: llama.cpp's own, and for "vision" that of patch 0006."""
    lines = case(
        """
call = calls[words[0]]
wanted = call()
act = interrupt
print(raised(lambda: watched(call)), n_calls)
print(np.array_equal(call(), wanted))
""",
        call,
    )
    assert lines == ["KeyboardInterrupt 1", "True"]


def test_ctrl_c_is_no_failed_item() -> None:
    lines = case(
        """
act = interrupt
print(raised(lambda: watched(lambda: embedder.encode_query([TEXT] * 4, on_error="nan"))))
print(np.isfinite(embedder.encode_query(["a", "b"])).all())
"""
    )
    assert lines == ["KeyboardInterrupt", "True"]


def test_what_a_handler_raises_comes_out() -> None:
    lines = both(
        """
class Timeout(Exception):
    pass

def stop(*_):
    raise Timeout("too slow")

def act():
    signal.raise_signal(signal.SIGTERM)
    while True:
        pass

signal.signal(signal.SIGTERM, stop)
for name, call in calls.items():
    try:
        watched(call)
    except Timeout as error:
        print(error, n_calls)
act = sys.exit
for name, call in calls.items():
    print(raised(lambda: watched(call)), n_calls)
    print(np.array_equal(call(), wanted[name]))
"""
    )
    assert lines == ["too slow 1"] * 2 + ["SystemExit 1", "True"] * 2


def test_a_handler_that_raises_nothing() -> None:
    lines = both(
        """
act = lambda: None
for name, call in calls.items():
    print(np.array_equal(watched(call), wanted[name]), n_calls)
"""
    )
    assert lines == ["True 1"] * 2


def test_a_handler_that_uses_the_engine() -> None:
    lines = both(
        """
uses = [
    lambda: embedder.encode_query("a"),
    lambda: embedder.encode_query(["a"], on_error="nan"),
    lambda: embedder.encode_images(tiny.picture(4, 4)),
    lambda: embedder._engine.tokenize([("a", False)]),
    lambda: embedder._engine.encode_vision(sequence.pictures),
]
act = lambda: print(*(raised(use) for use in uses))
for name, call in calls.items():
    print(np.array_equal(watched(call), wanted[name]))
print(*(raised(use) for use in uses))
"""
    )
    busy = " ".join(["DecodeError"] * 5)
    assert lines == [busy, "True"] * 2 + [busy.replace("DecodeError", "nothing")]


def test_a_handler_that_uses_another_engine() -> None:
    lines = both(
        """
other = Embedder(n_threads=1)
vector = other.encode_query("a")
act = lambda: print(np.array_equal(other.encode_query("a"), vector))
for name, call in calls.items():
    print(np.array_equal(watched(call), wanted[name]))
"""
    )
    assert lines == ["True"] * 4


@pytest.mark.parametrize("call", ["text", "vision"])
def test_a_handler_that_closes_the_engine(call: str) -> None:
    lines = case(
        """
call = calls[words[0]]
wanted = call()
act = embedder.close
print(np.array_equal(watched(call), wanted), n_calls)
print(raised(lambda: embedder.encode_query("a")), raised(embedder.close))
""",
        call,
    )
    assert lines == ["True 1", "InputError nothing"]


@pytest.mark.parametrize("level", ["WARNING", "DEBUG"])
def test_ctrl_c_while_loading(level: str) -> None:
    """The n-th handler raises, for each n until a load has fewer: none may be swallowed."""
    lines = run(
        IN_NATIVE_CODE
        + """
import logging
logging.getLogger("jmm").addHandler(logging.NullHandler())
set_log_level(words[0])
n_threads_before = n_tasks()
n_busy = 0

def on_alarm(signum, frame):
    global left, n_busy, inside
    if inside:
        return
    inside = True
    n_busy += is_busy()
    inside = False
    left -= 1
    if left == 0:
        raise KeyboardInterrupt

signal.signal(signal.SIGALRM, on_alarm)
for n in range(1, 200):
    left = n
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        embedder = Embedder(n_threads=2)
        end = "loaded"
    except KeyboardInterrupt:
        end = "interrupted"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if (end == "interrupted") != (left <= 0):
        print(n, left, end)
    if end == "loaded":
        break
print(end, n_busy > 0)
print(np.isfinite(embedder.encode_query("a")).all())
embedder.close()
del embedder
gc.collect()
print(n_tasks() - n_threads_before)
""",
        level,
    )
    assert lines == ["loaded True", "True", "0"]


@pytest.mark.parametrize(
    "call", ["Embedder(n_threads=1)", "VisionEncoder(demo.paths()[1], n_threads=1)"]
)
def test_an_exception_in_each_function_of_loading(call: str) -> None:
    """Once in every Python function that a load enters, those of the library's C callers too."""
    lines = run(
        """
entered = {raised.__code__}  # it catches what the others raise

def interrupt(frame, event, arg):
    if frame.f_code not in entered and frame.f_code.co_name != "_remove":  # of WeakSet
        entered.add(frame.f_code)
        raise KeyboardInterrupt

ends = []
while ends[-1:] != ["nothing"]:
    sys.settrace(interrupt)
    ends.append(raised(lambda: eval(words[0])))
    sys.settrace(None)
    gc.collect()
print(set(ends[:-1]), len(ends) > 30)
""",
        call,
    )
    assert lines == ["{'KeyboardInterrupt'} True"]


LOG_HANDLER = """
import logging
seen = []
in_emit = False

class Handler(logging.Handler):
    def emit(self, record):
        global in_emit
        if not in_emit and record.name == "jmm.native":
            in_emit = True
            try:
                act()
            finally:
                in_emit = False

wanted = Embedder(n_threads=1).encode_query("a")
picture = tiny.picture(4, 4)
logging.getLogger("jmm").addHandler(Handler())
set_log_level("DEBUG")
"""


def test_a_log_handler_that_uses_the_engine() -> None:
    """Also while it is closed, which holds the lock too."""
    lines = run(
        IN_NATIVE_CODE
        + LOG_HANDLER
        + """
embedder = None

def act():
    if embedder is not None:
        seen.append(raised(lambda: embedder.encode_query("a")))

embedder = Embedder(n_threads=1)
print(np.array_equal(embedder.encode_query("a"), wanted))
embedder.encode_images(picture)
print(len(seen) > 0, *set(seen))
seen.clear()
embedder.close()
print(len(seen) > 0, *set(seen))
"""
    )
    assert lines == ["True", "True DecodeError", "True DecodeError"]


@pytest.mark.parametrize(
    ("statement", "outcome"),
    [
        ("interrupt()", "KeyboardInterrupt"),
        ("sys.exit(7)", "SystemExit"),
        ("raise KeyError", "nothing"),
    ],
)
def test_what_a_log_handler_raises(statement: str, outcome: str) -> None:
    """An application's exceptions do not stop a call; those that end the program do."""
    lines = run(
        IN_NATIVE_CODE
        + LOG_HANDLER
        + f"""
def act():
    seen.append(1)
    {statement}

print(raised(lambda: Embedder(n_threads=1)), len(seen) > 0)
act = lambda: None
embedder = Embedder(n_threads=1)

def act():
    seen.append(1)
    {statement}

seen.clear()
print(raised(lambda: embedder.encode_query("a")), len(seen) > 0)
act = lambda: None
print(np.array_equal(embedder.encode_query("a"), wanted))
"""
    )
    assert lines == [f"{outcome} True", f"{outcome} True", "True"]


@pytest.mark.parametrize(
    "call",
    [
        "embedder.encode_query('a')",
        "embedder._engine.tokenize([('a', False), (tiny.patches(picture), 4, 4)])",
        "embedder._engine.encode_vision(sequence.pictures)",
        "(embedder.encode_query('a'), embedder.close())",
    ],
)
def test_ctrl_c_in_a_log_handler_stays_in_its_call(call: str) -> None:
    """At any line, the last ones of freeing too: the call raises it, and no later one."""
    lines = run(
        IN_NATIVE_CODE
        + LOG_HANDLER
        + f"""
once = False

def act():
    global left
    left -= 1
    if left == 0 or left < 0 and not once:
        raise KeyboardInterrupt

def attempt(n):
    global left
    left = sys.maxsize
    embedder = Embedder(n_threads=1)
    sequence = embedder._kinds.place_pictures(embedder._reader(picture)).sequence
    left = n
    outcome = raised(lambda: {call})
    reached, left = left <= 0, sys.maxsize
    if outcome != ("KeyboardInterrupt" if reached else "nothing"):
        print(once, n, outcome)
    if raised(embedder._engine.check) == "nothing":
        embedder.encode_query("a")
    embedder.close()
    Embedder(n_threads=1).close()
    return reached

for once in (True, False):
    n = 1
    while attempt(n):
        n += 1 if n < 3 else 61
    print(n > 1)
"""
    )
    assert lines == ["True", "True"]
