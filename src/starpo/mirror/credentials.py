"""Who writes to MLflow's server: ``conf/local/credentials.yml``, or MLflow's own environment variables."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from omegaconf import OmegaConf
from omegaconf.resolvers import oc
from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from starpo.errors import UserError
from starpo.redaction import keep_secret

FILE = Path("conf/local/credentials.yml")
"""Below the project; git ignores its folder."""
_SECTION = "mlflow"
_USER, _PASSWORD, _TOKEN = "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"


class Credentials(BaseModel):
    """Section ``mlflow`` of the file: user name and password, or a token."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    username: str | None = None
    """Of a server with basic authentication, or of a database."""
    password: SecretStr | None = None
    """Belongs to ``username``."""
    token: SecretStr | None = None
    """Of a server that asks for a bearer token; instead of the two."""


def read_credentials(root: Path) -> Credentials:
    """The project's credentials for MLflow, empty where there are none.

    Raises:
        UserError: the file cannot be read, or has other keys. The message quotes no value.
    """
    file = root / FILE
    if not file.exists():
        return Credentials()
    # Kedro takes it away once it has read credentials of its own.
    OmegaConf.register_new_resolver("oc.env", oc.env, replace=True)
    try:
        raw = OmegaConf.to_container(OmegaConf.load(file), resolve=True)
    except Exception as error:
        raise UserError(
            f"{file}: not readable as YAML ({type(error).__name__}); "
            "write mlflow: {username: …, password: …} or mlflow: {token: …}"
        ) from None
    section = raw.get(_SECTION) if isinstance(raw, dict) else None
    try:
        return Credentials.model_validate(section or {})
    except ValidationError as error:
        keys = ", ".join(
            sorted({".".join(map(str, each["loc"])) or "the section" for each in error.errors()})
        )
        raise UserError(
            f"{file}: {keys} under mlflow: is unknown or no text; use username with password, or token"
        ) from None


def password_in(uri: str) -> bool:
    """Whether an address carries a password of its own."""
    return bool(_split(uri)[2])


def signed_in(root: Path, uri: str) -> str:
    """The address to give MLflow, whose environment variables then hold what a server asks for.

    What is set in the environment is taken before the file, and the file before what the address holds. A server's
    address loses user name and password, which MLflow would print with it; a database's gets them.
    """
    credentials = read_credentials(root)
    bare, user, password = _split(uri)
    user = credentials.username or user
    password = credentials.password.get_secret_value() if credentials.password else password
    token = credentials.token.get_secret_value() if credentials.token else ""
    for secret in (password, token):
        keep_secret(secret, user)
    if not uri.startswith(("http://", "https://")):
        return _with(bare, user, password) if password else uri
    present = {_USER, _PASSWORD, _TOKEN} & set(os.environ)
    if not present:
        said = {_USER: user, _PASSWORD: password} if password else {_TOKEN: token}
        os.environ.update({name: value for name, value in said.items() if value})
    return bare


def _split(uri: str) -> tuple[str, str, str]:
    """The address without its user, the user and the password, decoded and empty where it has none."""
    parts = urlsplit(uri)
    signs, at, host = parts.netloc.rpartition("@")
    user, _, password = signs.partition(":")
    bare = _at(uri, host) if at else uri
    return bare, unquote(user), unquote(password)


def _with(uri: str, user: str, password: str) -> str:
    host = urlsplit(uri).netloc
    return _at(uri, f"{quote(user, safe='')}:{quote(password, safe='')}@{host}") if host else uri


def _at(uri: str, place: str) -> str:
    """The address with another ``user:password@host:port``."""
    scheme, _, *rest = urlsplit(uri)
    return urlunsplit((scheme, place, *rest))
