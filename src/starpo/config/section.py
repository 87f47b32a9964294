"""What all sections of the parameters have in common."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)


class Section(BaseModel):
    """Base of all sections: immutable; unknown keys and numbers that are not finite are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), allow_inf_nan=False)

    UNWRITTEN: ClassVar[frozenset[str]] = frozenset()
    """Fields left out of what is stored while they have their default: added later, they must not change the names
    and records of what was made before there were any."""

    @model_serializer(mode="wrap")
    def _without_unwritten_defaults(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        stored: dict[str, Any] = dump(self)
        fields = type(self).model_fields
        return {
            key: value
            for key, value in stored.items()
            if key not in self.UNWRITTEN or getattr(self, key) != fields[key].default
        }


#: vLLM samples up to temperature 2.
Temperature = Annotated[float, Field(gt=0, le=2)]


#: null drops the arguments that a lower configuration layer gave.
Arguments = Annotated[dict[str, Any], BeforeValidator(lambda value: {} if value is None else value)]
