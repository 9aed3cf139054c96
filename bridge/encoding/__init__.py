"""How a row becomes a Kafka record."""
