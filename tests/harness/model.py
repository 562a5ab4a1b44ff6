"""What answers a real agent in place of its model: one call of a tool, if any, and then that it is done."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DONE = "it is all done"


class _Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _request(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, data: str, kind: str = "text/event-stream") -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data.encode())

    def log_message(self, *_: object) -> None: ...


@contextmanager
def _served(model: type[_Model]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def openai(tool: str = "", arguments: dict[str, Any] | None = None) -> Iterator[str]:
    """The address of one that speaks OpenAI's protocol of responses."""

    class Model(_Model):
        def do_POST(self) -> None:
            called = any(item.get("type") == "function_call_output" for item in self._request()["input"])
            says = {"type": "output_text", "text": DONE}
            item = {"type": "message", "id": "m", "role": "assistant", "content": [says]}
            if tool and not called:
                item = {"type": "function_call", "id": "f", "call_id": "c", "name": tool}
                item["arguments"] = json.dumps(arguments)
            usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
            self._stream(
                {"type": "response.created", "response": {"id": "r"}},
                {"type": "response.output_item.done", "output_index": 0, "item": item},
                {"type": "response.completed", "response": {"id": "r", "usage": usage}},
            )

        def _stream(self, *events: dict[str, Any]) -> None:
            self._answer(
                "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
            )

    with _served(Model) as address:
        yield f"{address}/v1"


@contextmanager
def gemini(may_answer: threading.Event | None = None) -> Iterator[str]:
    """The address of one that speaks Gemini's protocol, and answers once it may."""

    class Model(_Model):
        def do_POST(self) -> None:
            self._request()
            if may_answer is not None:
                may_answer.wait()
            content = {"role": "model", "parts": [{"text": DONE}]}
            usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
            answer = {"candidates": [{"index": 0, "content": content, "finishReason": "STOP"}]}
            data = json.dumps(answer | {"usageMetadata": usage})
            if "streamGenerateContent" in self.path:
                self._answer(f"data: {data}\n\n")
            else:
                self._answer(data, "application/json")

    with _served(Model) as address:
        yield address
