"""The way to Kafka as librdkafka's properties say it, for aiokafka."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from bridge.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

_PLAIN = {
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
}
_TLS = frozenset(
    {
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
    }
)
_MECHANISMS = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI"})


def aiokafka_security(properties: Mapping[str, str | int | float | bool]) -> dict[str, Any]:
    """Return aiokafka's options for the same security; properties of a producer are left out.

    Raises ConfigurationError for what aiokafka cannot do, or files that cannot be read.
    """
    texts = {name: str(value) for name, value in properties.items()}
    protocol = texts.get("security.protocol", "plaintext").upper()
    options: dict[str, Any] = {"security_protocol": protocol}
    for name, option in _PLAIN.items():
        if name in texts:
            options[option] = texts[name]
    mechanism = options.get("sasl_mechanism", "PLAIN").upper()
    if "SASL" in protocol and mechanism not in _MECHANISMS:
        raise ConfigurationError(
            f"kafka.sasl.mechanism {mechanism} is not one that this command can use; it can use "
            f"{', '.join(sorted(_MECHANISMS))}. Build a Consumer of your own with kafka={{…}}"
        )
    if "sasl_mechanism" in options:
        options["sasl_mechanism"] = mechanism
    unknown = sorted(
        name
        for name in texts
        if name.startswith(("ssl.", "sasl.")) and name not in _TLS and name not in _PLAIN
    )
    if unknown:
        raise ConfigurationError(
            f"kafka.{unknown[0]} cannot be used by this command; build a Consumer of your own with "
            "kafka={…}"
        )
    if "SSL" in protocol:
        options["ssl_context"] = _context(texts)
    return options


def _context(texts: Mapping[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=texts.get("ssl.ca.location"))
        if "ssl.certificate.location" in texts:
            context.load_cert_chain(
                texts["ssl.certificate.location"],
                texts.get("ssl.key.location"),
                texts.get("ssl.key.password"),
            )
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"the certificates for Kafka cannot be read: {error}; see kafka.ssl.ca.location, "
            "ssl.certificate.location and ssl.key.location"
        ) from error
    if texts.get("ssl.endpoint.identification.algorithm", "https").lower() in {"", "none"}:
        context.check_hostname = False
    return context
