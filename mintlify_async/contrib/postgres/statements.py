"""The SQL of the store: one table, and one statement for each step.

A row with an empty slot is a record. Any other row is a slot of the log *key*. The time is the server's
``clock_timestamp()``, because ``now()`` is the time before the transaction waited for its locks. A date in
the future comes from a server whose clock was ahead. It counts as the present immediately. ``CORRECT`` soon
sets it to the present, because otherwise the row would stay new.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from mintlify_async.argument_checks import check_text
from mintlify_async.errors import ConfigurationError, printable

# Keys are sorted by their bytes, so the keys of a folder are a range. In the sort order of a language, they
# may not be a range.
_SCHEMA: Final = """\
CREATE TABLE IF NOT EXISTS {table} (
    key text COLLATE "C" NOT NULL,
    slot text COLLATE "C" NOT NULL DEFAULT '',
    value bytea NOT NULL,
    version text NOT NULL,
    since double precision NOT NULL,
    ends double precision,
    PRIMARY KEY (key, slot)
);
CREATE INDEX IF NOT EXISTS {index} ON {table} (ends) WHERE ends IS NOT NULL;
"""

_NOW: Final = "WITH t AS MATERIALIZED (SELECT extract(epoch FROM clock_timestamp())::float8 AS now)"
_LIVE: Final = "r.slot = '' AND (r.ends IS NULL OR r.ends > (SELECT now FROM t))"

# $1 keys. Returns at least one row, which has the time.
_READ: Final = f"""{_NOW}
SELECT t.now, r.key, r.value, r.version, least(r.since, t.now), r.since > t.now
FROM t LEFT JOIN {{table}} r ON r.key = ANY($1::text[]) AND {_LIVE}"""

# $1 the first key, $2 the first key after the last.
_KEYS: Final = f"""{_NOW}
SELECT r.key FROM {{table}} r WHERE r.key >= $1 AND r.key < $2 AND {_LIVE} ORDER BY r.key"""

# $1 expected keys, $2 their versions, $3 keys to delete, $4 keys to write, $5 their values, $6 the version,
# $7 seconds to keep, $8 keys that are expected, do not change and are kept for the same time.
_WRITE: Final = f"""{_NOW},
ok AS (SELECT NOT EXISTS (
    SELECT FROM unnest($1::text[], $2::text[]) AS w(key, version)
    LEFT JOIN {{table}} r ON r.key = w.key AND {_LIVE}
    WHERE r.version IS DISTINCT FROM w.version) AS ok),
gone AS (DELETE FROM {{table}} r USING ok WHERE ok.ok AND r.slot = '' AND r.key = ANY($3::text[])),
put AS (INSERT INTO {{table}} AS r (key, value, version, since, ends)
    SELECT p.key, p.value, $6::text, t.now, t.now + $7::float8
    FROM ok, t, unnest($4::text[], $5::bytea[]) AS p(key, value) WHERE ok.ok
    ON CONFLICT (key, slot) DO UPDATE
    SET value = excluded.value, version = excluded.version, since = excluded.since, ends = excluded.ends),
kept AS (UPDATE {{table}} r SET ends = t.now + $7::float8
    FROM ok, t WHERE ok.ok AND r.key = ANY($8::text[]) AND {_LIVE})
SELECT ok.ok OR (cardinality($4::text[]) > 0 AND cardinality($4::text[]) = (
    SELECT count(*) FROM {{table}} r WHERE r.key = ANY($4::text[]) AND r.version = $6::text AND {_LIVE}))
FROM ok"""

# $1 logs, $2 amounts, $3 seconds, $4 slot, $5 block. `c` counts, `b` reads the block, `v` decides whether the
# slot is taken.
_COUNT: Final = f"""{_NOW},
w AS (SELECT * FROM unnest($1::text[], $2::int8[], $3::float8[])
    WITH ORDINALITY AS w(key, amount, seconds, nr)),
c AS (SELECT w.*, count(s.slot) AS used, coalesce(bool_or(s.slot = $4::text), false) AS mine,
        coalesce(max(s.since), 0) AS newest
    FROM w LEFT JOIN {{table}} s
    ON s.key = w.key AND s.slot <> '' AND s.since > (SELECT now FROM t) - w.seconds
    GROUP BY w.key, w.amount, w.seconds, w.nr),
b AS (SELECT coalesce(max(coalesce(r.ends - greatest(r.since, t.now), 'Infinity')), 0) AS wait,
        coalesce(max(r.since), 0) AS since
    FROM t, {{table}} r WHERE r.key = $5::text AND {_LIVE}),
v AS (SELECT coalesce(bool_and(mine), false) AS has, b.wait, greatest(max(newest), b.since) AS newest,
        $4::text IS NOT NULL AND b.wait = 0 AND coalesce(bool_and(used < amount), true)
        AND NOT coalesce(bool_and(mine), false) AS takes
    FROM b LEFT JOIN c ON true GROUP BY b.wait, b.since)"""
_PUT: Final = """,
put AS (INSERT INTO {table} (key, slot, value, version, since, ends)
    SELECT c.key, $4::text, '', '', t.now, t.now + max(c.seconds)
    FROM c, v, t WHERE v.takes GROUP BY c.key, t.now
    ON CONFLICT (key, slot) DO UPDATE SET since = excluded.since, ends = excluded.ends)"""
_USAGE: Final = """
SELECT v.has OR v.takes, v.wait, v.newest > t.now, c.used + v.takes::int,
    CASE WHEN c.used + v.takes::int < c.amount THEN 0 ELSE coalesce((
        SELECT least(s.since, t.now) FROM {table} s
        WHERE s.key = c.key AND s.slot <> '' AND s.since > t.now - c.seconds
        ORDER BY s.since LIMIT 1 OFFSET c.used + v.takes::int - c.amount), t.now) + c.seconds - t.now END
FROM t, v LEFT JOIN c ON true ORDER BY c.nr"""

# $1 logs, $2 slot.
_REFUND: Final = "DELETE FROM {table} WHERE key = ANY($1::text[]) AND slot = $2::text AND slot <> ''"

# $1 keys of records and logs. Skips locked rows, because the transaction that locked them writes a current
# date.
_CORRECT: Final = f"""{_NOW},
ahead AS MATERIALIZED (SELECT r.key, r.slot FROM t, {{table}} r
    WHERE r.key = ANY($1::text[]) AND r.since > t.now FOR UPDATE OF r SKIP LOCKED)
UPDATE {{table}} r SET since = t.now, ends = t.now + (r.ends - r.since)
FROM t, ahead WHERE r.key = ahead.key AND r.slot = ahead.slot AND r.since > t.now"""

_CLEAN: Final = f"""{_NOW},
old AS MATERIALIZED (SELECT r.key, r.slot FROM t, {{table}} r
    WHERE r.ends <= t.now ORDER BY r.ends LIMIT 1000 FOR UPDATE OF r SKIP LOCKED)
DELETE FROM {{table}} r USING old WHERE r.key = old.key AND r.slot = old.slot"""

# $1 numbers of locks, $2 seconds. If a transaction waits for its client in the middle of a statement, it
# counts as active, so no limit of the server ends it. Such a client was stopped, or cannot be reached.
_END_STOPPED: Final = """\
SELECT pg_terminate_backend(l.pid)
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid AND a.datid = l.database
WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
    AND ((l.classid::int8 << 32) | l.objid::int8) # '{table}'::regclass::oid::int8 = ANY($1::int8[])
    AND a.datname = current_database() AND a.usename = current_user
    AND a.state = 'active' AND a.wait_event = 'ClientRead'
    AND a.state_change < clock_timestamp() - make_interval(secs => $2)"""

_NAME: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,57}")
"""A name may have 63 characters, and the index's name is five characters longer than the table's."""


class Statements:
    """The statements of one table.

    Args:
        table: The name of the table. The name of the schema and a dot may come first.

    Raises:
        ConfigurationError: *table* is not such a name.
    """

    def __init__(self, table: str) -> None:
        if not _NAME.fullmatch(check_text(table, "table")):
            raise ConfigurationError(
                "table must be a name of ASCII letters, digits and _, at most 58 characters, perhaps with a "
                f"schema and a dot before it; got {printable(table, 80)!r}",
                field="table",
            )
        *schema, name = table.split(".")
        # In quotation marks, because a name may be a keyword of SQL, and its case counts.
        self.table = ".".join(f'"{part}"' for part in [*schema, name])
        self.schema = _SCHEMA.format(table=self.table, index=f'"{name}_ends"')
        self.read = _READ.format(table=self.table)
        self.keys = _KEYS.format(table=self.table)
        self.write = _WRITE.format(table=self.table)
        self.take = (_COUNT + _PUT + _USAGE).format(table=self.table)
        self.look = (_COUNT + _USAGE).format(table=self.table)
        self.refund = _REFUND.format(table=self.table)
        self.correct = _CORRECT.format(table=self.table)
        self.clean = _CLEAN.format(table=self.table)
        self.end_stopped = _END_STOPPED.format(table=self.table)

    def locks(self, numbers: Iterable[int]) -> list[str]:
        """Return the statements that lock *numbers* until the end of the transaction.

        All tables of a database share the numbers of locks. So each number is combined with the table's own
        number, which does not depend on how the table's name is written.
        """
        return [
            f"SELECT pg_advisory_xact_lock('{n}'::int8 # '{self.table}'::regclass::oid::int8)"
            for n in numbers
        ]

    def setup_lock(self) -> str:
        """Return the statement for a lock on making the table, which has no number yet."""
        return f"SELECT pg_advisory_xact_lock('{_number(self.table)}'::int8)"


def lock_numbers(keys: Iterable[str]) -> list[int]:
    """Return the locks of *keys* in a fixed order, so that two steps never wait for each other."""
    return sorted({_number(key) for key in keys})


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)
