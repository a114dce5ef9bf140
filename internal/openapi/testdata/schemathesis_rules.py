"""What docs/openapi.yaml can only say in prose, for schemathesis."""

import json
import re

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def lines(ctx, value):
    return "".join(json.dumps(v) + "\n" for v in (value if isinstance(value, list) else [value])).encode()


DURATION = re.compile(r"[+]?(([0-9]+([.][0-9]*)?|[.][0-9]+)(ns|us|µs|ms|s|m|h))+", re.ASCII)


@schemathesis.hook
def map_body(context, body):
    """Writes 8.0 as 8, and an objective from 100us to 1h."""
    if isinstance(body, float) and body.is_integer():
        return int(body)
    if isinstance(body, dict):
        body = {name: map_body(context, value) for name, value in body.items()}
        if isinstance(body.get("slo"), str) and DURATION.fullmatch(body["slo"]):
            body["slo"] = "250ms"
    return body


@schemathesis.hook
def filter_case(context, case):
    """Leaves out parameters that exclude each other, and what only the proxy has."""
    if case.path == "/strategy" and isinstance(case.body, dict) and "upstreams" in case.body:
        return False
    headers, query = {k.lower() for k in case.headers or {}}, set(case.query or {})
    if case.method in ("PUT", "DELETE") and {"if-match", "if-none-match"} <= headers:
        return False
    if case.path == "/v0/entities" and case.method == "GET":
        return ("start" in query) != ("prefix" in query) and ("end" not in query or "start" in query) and not {"after", "after64"} <= query
    return True
