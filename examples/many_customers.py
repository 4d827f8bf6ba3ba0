"""One program that asks many customers' documentation, each with its own domain, site URL and key.

Put each customer's key into CUSTOMER_KEY_<NAME>, such as CUSTOMER_KEY_ACME, and change the list below; then
python many_customers.py How do I log in?
"""

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress

from attrs import frozen

from mintlify_async import Answer, MintlifyError, MintlifySession, StreamError, answer_markdown

log = logging.getLogger("many_customers")


@frozen
class Customer:
    name: str
    domain: str
    site: str


CUSTOMERS = [  # your database
    Customer("acme", "acme-docs", "https://docs.acme.com"),
    Customer("globex", "globex-docs", "https://help.globex.com"),
]


async def ask(session: MintlifySession, customer: Customer, question: str, user: str) -> Answer:
    """Ask a customer's documentation. All customers share connections, retries and settings."""
    theirs = session.with_options(
        assistant_key=os.environ.get(f"CUSTOMER_KEY_{customer.name.upper()}"),  # None means no key
        domain=customer.domain,
        site=customer.site,
        fp=f"{customer.name}-{user}",  # users of two customers may have the same number
    )
    return await theirs.ask(question)


async def report(session: MintlifySession, customer: Customer, question: str) -> bool:
    """Print a customer's answer. An error for one customer does not affect the others."""
    try:
        answer = await ask(session, customer, question, user="1")
        if answer.aborted:
            raise StreamError("the service ended it early")
    except MintlifyError:
        log.exception("no answer for %s", customer.name)
        return False
    print(f"# {customer.name}\n\n{answer_markdown(answer)}\n", flush=True)
    return True


async def main(question: str) -> int:
    async with MintlifySession() as session, asyncio.TaskGroup() as tasks:
        reports = [tasks.create_task(report(session, customer, question)) for customer in CUSTOMERS]
    return 0 if all(task.result() for task in reports) else 1


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # exits like Ctrl-C
    with suppress(KeyboardInterrupt):
        sys.exit(asyncio.run(main(" ".join(sys.argv[1:]))))
