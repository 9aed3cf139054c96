"""The shop: three services, a payment API and two relays, and everything that goes wrong there.

`outbox-bridge demo --scenario shop`. Each service is a process with a database of its own:

    customers ─▶ order service ─▶ shop's outbox ─▶ relay ─▶ topic orders
        ─▶ payment service ─▶ payment API, and its own outbox ─▶ relay ─▶ topic payments
        ─▶ notification service
"""

from __future__ import annotations
