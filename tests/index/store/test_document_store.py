import sqlite3

import index.store.rows
import index.store.schema


def test_no_statement_reads_a_whole_table() -> None:
    connection = sqlite3.connect(":memory:")
    connection.executescript(index.store.schema.SCHEMA)
    statements = [
        value
        for value in vars(index.store.rows).values()
        if isinstance(value, str) and " FROM " in value.replace("\n", " ") and "?" in value
    ]
    assert len(statements) >= 8
    for statement in statements:
        marks = connection.execute(
            "EXPLAIN QUERY PLAN " + statement,
            ["[]"] * (1 if "?1" in statement else statement.count("?")),
        )
        scans = [row[3] for row in marks if row[3].startswith("SCAN")]
        assert all("json_each" in scan for scan in scans), statement
    connection.close()
