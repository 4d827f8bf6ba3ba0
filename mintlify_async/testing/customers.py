"""The local service's customers, with their projects, domains, keys and credits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import Factory, define, field

from ..argument_checks import check_field
from ..errors import ConfigurationError


def _check_text(value: object, name: str) -> None:
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{name} must be a text that is not empty", field=name)


_text = check_field(_check_text)


def _key(prefix: str, kind: str) -> Any:
    """Return a field for a key that contains the project's name. Keys of ``acme`` do not contain it."""

    def default(customer: Customer) -> str:
        name = "" if customer.project_id == "acme" else f"{customer.project_id}_"
        return f"{prefix}{name}{kind}_0123456789abcdef"

    return field(default=Factory(default, takes_self=True), kw_only=True, repr=False, validator=_text)


def _default_domain(customer: Customer) -> str:
    return f"{customer.project_id}-docs"


@define(eq=False)
class Customer:
    """One customer of the service. A key gives access only to the customer's own project and domain.

    ::

        beta = Customer("beta")
        service.customers.append(beta)
        session.with_options(assistant_key=beta.assistant_key, domain=beta.domain)

    Args:
        project_id: The project.
        domain: The domain of the documentation.
        admin_key: A key for jobs. The keys of each customer are the same in every service.
        assistant_key: A key for the assistant.
        read_only_key: An admin key that can only read jobs. Every other operation gets a 403.
        expired_key: An expired key. Every operation gets a 401.
        credits: The number of jobs, follow-ups and questions that the customer can pay for. Later requests
            get a 402. None means no limit. Can be set.

    Raises:
        ConfigurationError: A name or a key is not text.
    """

    project_id: str = field(default="acme", validator=_text)
    domain: str = field(default=Factory(_default_domain, takes_self=True), kw_only=True, validator=_text)
    admin_key: str = _key("mint_test_", "admin")
    assistant_key: str = _key("mint_dsc_test_", "assistant")
    read_only_key: str = _key("mint_test_", "read_only")
    expired_key: str = _key("mint_test_", "expired")
    credits: int | None = field(default=None, kw_only=True)

    def owns(self, key: str) -> bool:
        """Return whether *key* is a valid key of this customer."""
        return key in (self.admin_key, self.assistant_key, self.read_only_key)

    def missing(self, params: Mapping[str, str]) -> str | None:
        """Return ``project`` or ``domain`` if that part of the path is not this customer's, else None."""
        own = {"project": self.project_id, "domain": self.domain}
        return next((name for name, value in own.items() if params.get(name, value) != value), None)
