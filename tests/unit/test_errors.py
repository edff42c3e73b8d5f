"""Each error names a cause, is also a built-in exception, and survives pickling."""

from __future__ import annotations

import copy
import pickle

import pytest

from jmm import errors

BASES = {
    errors.ModelLoadError: (OSError,),
    errors.InputError: (ValueError,),
    errors.ContextOverflowError: (errors.InputError, ValueError),
    errors.DecodeError: (RuntimeError,),
    errors.NonFiniteError: (errors.DecodeError, RuntimeError),
    errors.OutOfMemoryError: (MemoryError,),
    errors.ForkedProcessError: (RuntimeError,),
    errors.MissingExtraError: (ImportError,),
}


def test_no_error_is_left_out() -> None:
    found = {value for value in vars(errors).values() if isinstance(value, type)}
    assert found == {errors.JmmError, *BASES}


@pytest.mark.parametrize("kind", BASES)
def test_is_also_a_built_in(kind: type[errors.JmmError]) -> None:
    for base in (errors.JmmError, *BASES[kind]):
        with pytest.raises(base):
            raise kind("no")


@pytest.mark.parametrize("kind", [errors.JmmError, *BASES])
def test_text_names_the_item(kind: type[errors.JmmError]) -> None:
    error = kind("too long")
    assert (str(error), error.index) == ("too long", None)
    assert str(kind("too long", index=0)) == "item 0: too long"
    error.index = 17
    assert str(error) == "item 17: too long"
    assert error.message == "too long"


@pytest.mark.parametrize("index", [None, 0, 3])
@pytest.mark.parametrize("kind", [errors.JmmError, *BASES])
def test_pickle_and_copy(kind: type[errors.JmmError], index: int | None) -> None:
    error = kind("schlecht: ü", index=index)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is kind
        assert str(again) == str(error)
        assert (again.message, again.index) == ("schlecht: ü", index)
