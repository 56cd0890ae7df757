"""One worker: its task is a JSON document on the command line; it ends when its standard input does."""

from __future__ import annotations

import sys

from msgspec.json import decode

from tests.chaos.workers.base import Task, Worker


def make(task: Task) -> Worker:
    match task.role, task.client:
        case "sender", "aiokafka":
            from tests.chaos.workers.sender_aiokafka import AioSender

            return AioSender(task)
        case "sender", "kafka-python":
            from tests.chaos.workers.sender_kafka_python import PythonSender

            return PythonSender(task)
        case "sender", _:
            from tests.chaos.workers.sender import Sender

            return Sender(task)
        case "reader", _:
            from tests.chaos.workers.reader import Reader

            return Reader(task)
        case "mixer", "aiokafka":
            from tests.chaos.workers.mixer_aiokafka import AioMixer

            return AioMixer(task)
        case "mixer", _:
            from tests.chaos.workers.mixer import Mixer

            return Mixer(task)
        case "copier", _:
            from tests.chaos.workers.copier import Copier

            return Copier(task)
        case "member", _:
            from tests.chaos.workers.member import Member

            return Member(task)
        case "keeper", _:
            from tests.chaos.workers.keeper import Keeper, TransactionalKeeper

            return TransactionalKeeper(task) if task.transactional_id else Keeper(task)
        case "banker", _:
            from tests.chaos.workers.banker import Banker

            return Banker(task)
        case "auditor", _:
            from tests.chaos.workers.banker import Auditor

            return Auditor(task)
        case _:
            raise ValueError(f"no worker is a {task.role}")


make(decode(sys.argv[1], type=Task)).run()
