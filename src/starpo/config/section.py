"""What all sections of the parameters have in common."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Section(BaseModel):
    """Base of all sections: immutable, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


#: vLLM samples up to temperature 2.
Temperature = Annotated[float, Field(gt=0, le=2)]


#: null drops the arguments that a lower configuration layer gave.
Arguments = Annotated[dict[str, Any], BeforeValidator(lambda value: {} if value is None else value)]
