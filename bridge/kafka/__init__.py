"""Kafka: the producer, and what its errors mean."""
