"""PostgreSQL: connections, migrations, statements."""
