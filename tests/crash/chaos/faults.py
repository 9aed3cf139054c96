"""The table of faults: each is made for real, lasts a while, and is healed."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from tests.fixtures.relays import PATIENCE
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from tests.crash.chaos.stage import Stage
    from tests.crash.chaos.watch import Watch


@dataclass(frozen=True)
class Scene:
    """What a fault may touch: the stage, the topics of this round, its dice, and the watch."""

    stage: Stage
    topics: Sequence[str]
    draw: Random
    watch: Watch

    def last(self, shortest: float, longest: float) -> None:
        """Let the fault last for so many seconds."""
        self.stage.pause(self.draw.uniform(shortest, longest))


@dataclass(frozen=True)
class Fault:
    """`strike` makes the fault, lets it last and heals it."""

    name: str
    strike: Callable[[Scene], None]


# Relays


def kill_relay(scene: Scene) -> None:
    victim = scene.draw.choice(scene.stage.relays)
    # Halted first: what it had in flight is looked at before another relay can take it over.
    scene.stage.halt(victim)
    scene.watch.note(victim.name)
    scene.stage.kill(victim)


def kill_every_relay(scene: Scene) -> None:
    victims = list(scene.stage.relays)
    for victim in victims:
        victim.process.kill()
    for victim in victims:
        scene.stage.kill(victim)
    scene.watch.note()
    scene.stage.keep_relays(2, scene.draw)


def freeze_relay(scene: Scene) -> None:
    """For longer than its lease: until others have buried it."""
    victim = scene.draw.choice(scene.stage.relays)
    with scene.watch.follow(victim.name):
        victim.process.send(signal.SIGSTOP)
        try:
            wait_until(
                lambda: victim.name not in scene.stage.outbox.relay_names(),
                "others declare the frozen relay dead",
                PATIENCE,
            )
            scene.last(0, 2)
        finally:
            victim.process.send(signal.SIGCONT)


# PostgreSQL


def end_sessions(scene: Scene) -> None:
    with scene.watch.follow():
        for _ in range(15):
            sessions = scene.stage.outbox.query(
                "select pid from pg_stat_activity where datname = current_database() "
                "and application_name like 'outbox-bridge/%%' order by pid"
            )
            if sessions:
                scene.stage.outbox.query(
                    "select pg_terminate_backend(%s)", scene.draw.choice(sessions)[0]
                )
            scene.last(0.05, 0.3)


def restart_postgres(mode: Literal["fast", "immediate"]) -> Callable[[Scene], None]:
    def strike(scene: Scene) -> None:
        with scene.watch.follow():
            scene.stage.postgres.restart(mode)

    return strike


def lose_postgres_network(scene: Scene) -> None:
    """A black hole; what was held back arrives late, or the connections are reset."""
    proxy = scene.stage.database_proxy
    with scene.watch.follow():
        proxy.black_hole()
        try:
            scene.last(2, 5)
        finally:
            if scene.draw.random() < 0.5:
                proxy.cut()
            proxy.pass_on()


def slow_postgres_network(scene: Scene) -> None:
    with scene.watch.follow():
        scene.stage.database_proxy.delay(scene.draw.uniform(10, 60))
        try:
            scene.last(3, 5)
        finally:
            scene.stage.database_proxy.pass_on()


# Kafka


def kill_nodes(count: int) -> Callable[[Scene], None]:
    def strike(scene: Scene) -> None:
        local = scene.stage.kafka.local
        with scene.watch.follow():
            for node in scene.draw.sample(range(len(local.nodes)), count):
                local.kill(node)
            try:
                scene.last(3, 5)
            finally:
                local.recover()

    return strike


def restart_nodes_in_turn(scene: Scene) -> None:
    local = scene.stage.kafka.local
    with scene.watch.follow():
        for node in range(len(local.nodes)):
            local.restart(node)
            for topic in scene.topics:
                wait_until(lambda topic=topic: scene.stage.in_sync(topic), "in sync", PATIENCE)  # type: ignore[misc] # bound per turn


def freeze_nodes(count: int) -> Callable[[Scene], None]:
    def strike(scene: Scene) -> None:
        local = scene.stage.kafka.local
        nodes = scene.draw.sample(range(len(local.nodes)), count)
        with scene.watch.follow():
            for node in nodes:
                local.suspend(node)
            try:
                scene.last(4, 7)
            finally:
                for node in nodes:
                    local.resume(node)

    return strike


def lower_in_sync_replicas(scene: Scene) -> None:
    """Two of a topic's three replicas are left where it demands three; the others go on."""
    stage, topic = scene.stage, scene.draw.choice(scene.topics)
    local = stage.kafka.local
    with scene.watch.follow():
        set_min_in_sync(scene, topic, "3")
        local.kill(scene.draw.randrange(len(local.nodes)))
        try:
            scene.last(4, 6)
        finally:
            local.recover()
            set_min_in_sync(scene, topic, "2")


def set_min_in_sync(scene: Scene, topic: str, replicas: str) -> None:
    entry = ConfigEntry(
        "min.insync.replicas", replicas, incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    for future in scene.stage.admin.incremental_alter_configs([resource]).values():
        future.result(30)


def lose_kafka_network(nodes: int) -> Callable[[Scene], None]:
    def strike(scene: Scene) -> None:
        proxies = scene.draw.sample(scene.stage.kafka.proxies, nodes)
        is_cut = scene.draw.random() < 0.5
        with scene.watch.follow():
            for proxy in proxies:
                proxy.black_hole()
            try:
                scene.last(3, 6)
            finally:
                for proxy in proxies:
                    if is_cut:
                        proxy.cut()
                    proxy.pass_on()

    return strike


def slow_kafka_network(scene: Scene) -> None:
    with scene.watch.follow():
        for proxy in scene.stage.kafka.proxies:
            proxy.delay(scene.draw.uniform(50, 200))
        try:
            scene.last(3, 5)
        finally:
            for proxy in scene.stage.kafka.proxies:
                proxy.pass_on()


def cut_kafka_connections(scene: Scene) -> None:
    with scene.watch.follow():
        for _ in range(10):
            scene.draw.choice(scene.stage.kafka.proxies).cut()
            scene.last(0.05, 0.5)


FAULTS = (
    Fault("relay killed", kill_relay),
    Fault("every relay killed", kill_every_relay),
    Fault("relay frozen", freeze_relay),
    Fault("database sessions ended", end_sessions),
    Fault("PostgreSQL restarted, fast", restart_postgres("fast")),
    Fault("PostgreSQL restarted, immediate", restart_postgres("immediate")),
    Fault("PostgreSQL black hole", lose_postgres_network),
    Fault("PostgreSQL latency", slow_postgres_network),
    Fault("one Kafka node killed", kill_nodes(1)),
    Fault("two Kafka nodes killed", kill_nodes(2)),
    Fault("all Kafka nodes killed", kill_nodes(3)),
    Fault("Kafka rolling restart", restart_nodes_in_turn),
    Fault("one Kafka node frozen", freeze_nodes(1)),
    Fault("all Kafka nodes frozen", freeze_nodes(3)),
    Fault("in-sync replicas below minimum", lower_in_sync_replicas),
    Fault("Kafka black hole, one node", lose_kafka_network(1)),
    Fault("Kafka black hole, all nodes", lose_kafka_network(3)),
    Fault("Kafka latency", slow_kafka_network),
    Fault("Kafka connections cut", cut_kafka_connections),
)
BY_NAME = {fault.name: fault for fault in FAULTS}
