"""A schema registry over HTTP for tests: the endpoints that payloads use, faults on request, and what was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


class HttpRegistry:
    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.serialized: dict[int, str] = {}
        self.asked: list[str] = []
        # Answered, one after the other, before anything else is: status codes, or "drop" for a closed connection.
        self.faults: list[int | str] = []
        self.authorization: str | None = None
        self.url = ""

    def add(self, subject: str, text: str, kind: str = "AVRO", references: list[dict[str, Any]] | None = None) -> int:
        entry = {"schema": text, "schemaType": kind, "references": references or []}
        number = next((known for known, had in self.schemas.items() if had == entry), len(self.schemas) + 1)
        self.schemas[number] = entry
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, target: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        split = urlsplit(target)
        path = [unquote(part) for part in split.path.split("/")[1:]]
        match method, path:
            case "GET", ["schemas", "ids", number]:
                return self._by_id(int(number), parse_qs(split.query).get("format", [""])[0])
            case "GET", ["subjects", subject, "versions", version]:
                return self._by_version(subject, version)
            case "POST", ["subjects", subject, "versions"]:
                return 200, {"id": self.add(subject, *_entry(body))}
            case "POST", ["subjects", subject]:
                return self._look_up(subject, body)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _by_id(self, number: int, form: str) -> tuple[int, dict[str, Any]]:
        if number not in self.schemas:
            return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
        entry = dict(self.schemas[number])
        if form == "serialized" and number in self.serialized:
            entry["schema"] = self.serialized[number]
        return 200, {key: value for key, value in entry.items() if value and value != "AVRO"}

    def _by_version(self, subject: str, version: str) -> tuple[int, dict[str, Any]]:
        if subject not in self.subjects:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        numbers = self.subjects[subject]
        place = len(numbers) if version == "latest" else int(version)
        if not 1 <= place <= len(numbers):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        number = numbers[place - 1]
        return 200, {"subject": subject, "version": place, "id": number, **self._by_id(number, "")[1]}

    def _look_up(self, subject: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        text, kind, references = _entry(body)
        entry = {"schema": text, "schemaType": kind, "references": references}
        for number in self.subjects.get(subject, []):
            if self.schemas[number] == entry:
                return 200, {"id": number, "subject": subject}
        return 404, {"error_code": 40403, "message": "Schema not found"}


def _entry(body: dict[str, Any]) -> tuple[str, str, list[dict[str, Any]]]:
    return body["schema"], body.get("schemaType", "AVRO"), body.get("references", [])


@contextmanager
def serve() -> Iterator[HttpRegistry]:
    registry = HttpRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._handle()

        def do_POST(self) -> None:
            self._handle()

        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            registry.asked.append(f"{self.command} {self.path}")
            fault = registry.faults.pop(0) if registry.faults else None
            if fault == "drop":
                self.close_connection = True
                return
            if fault is not None:
                status, answer = int(fault), {"error_code": int(fault) * 100 + 1, "message": "a fault"}
            elif registry.authorization is not None and self.headers.get("Authorization") != registry.authorization:
                status, answer = 401, {"error_code": 401, "message": "Unauthorized"}
            else:
                status, answer = registry.answer(self.command, self.path, json.loads(body) if body else {})
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    registry.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
