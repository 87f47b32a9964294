"""What all sections of the parameters have in common."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_serializer,
)
from pydantic_core import InitErrorDetails, PydanticCustomError


class Section(BaseModel):
    """Base of all sections: immutable; unknown keys, numbers that are not finite and truth values in the place of
    numbers are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), allow_inf_nan=False)

    UNWRITTEN: ClassVar[frozenset[str]] = frozenset()
    """Fields left out of what is stored while they have their default: added later, they must not change the names
    and records of what was made before there were any."""

    @field_validator("*", mode="wrap")
    @classmethod
    def _no_number_becomes_another(cls, value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        """Pydantic takes true for 1, and its dump to JSON makes null of what is not finite in a free dict."""
        accepted = validate(value)
        if faults := list(_faults(value, accepted, ())):
            raise ValidationError.from_exception_data(cls.__name__, faults)
        return accepted

    @model_serializer(mode="wrap")
    def _without_unwritten_defaults(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        stored: dict[str, Any] = dump(self)
        fields = type(self).model_fields
        return {
            key: value
            for key, value in stored.items()
            if key not in self.UNWRITTEN or getattr(self, key) != fields[key].default
        }


def _faults(value: Any, accepted: Any, key: tuple[str | int, ...]) -> Iterator[InitErrorDetails]:
    """What is wrong in ``value``, given under ``key``, although it was ``accepted``."""
    if isinstance(value, bool):
        if not isinstance(accepted, bool):
            wanted = PydanticCustomError(
                "truth_value", "true and false are no numbers; write the number itself"
            )
            yield InitErrorDetails(type=wanted, loc=key, input=value)
    elif isinstance(accepted, float) and not math.isfinite(accepted):
        yield InitErrorDetails(type="finite_number", loc=key, input=value)
    elif isinstance(value, dict) and isinstance(accepted, dict):
        for name in accepted:
            if name in value:
                yield from _faults(value[name], accepted[name], (*key, str(name)))
    elif isinstance(value, list | tuple) and isinstance(accepted, list | tuple):
        for number, (one, other) in enumerate(zip(value, accepted, strict=True)):
            yield from _faults(one, other, (*key, number))


#: A seed stands before other numbers in a ``numpy.random.SeedSequence`` (``starpo.seeds``), which strings them together
#: in words of 32 bits: a larger one would take two, and the second could be read as what comes after another seed.
Seed = Annotated[int, Field(ge=0, lt=2**32)]


#: vLLM samples up to temperature 2 and takes 0.01 for anything below it, which the learner would not know of.
Temperature = Annotated[float, Field(ge=0.01, le=2)]


#: null drops the arguments that a lower configuration layer gave.
Arguments = Annotated[dict[str, Any], BeforeValidator(lambda value: {} if value is None else value)]
