#!/bin/sh
# Measures a model server's simulator that generates 20 tokens, 8 generations at once, alone and
# behind the proxy, which learns how many it takes, for docs/proxy.md:
#
#	loadtest/figures/tokens.sh [LOAD...]
#
# Loads are multiples of what the simulator can do of open arrivals: the highest rate, in steps of a
# tenth, of which 95 % have the first token within 1 s. That is less than a closed loop of 8 gets:
# each prefill holds up the tokens of all, and in a closed loop 8 share one. The simulator keeps the
# tokens of a completion and sends them together, so the first comes with the last. It takes make
# build, curl and, in the PATH, python3 and xpyd-sim (PyPI). A line is a load of 20 seconds.
set -eu
cd "$(dirname "$0")/../.."
[ $# != 0 ] || set -- 0.5 1 2
dir=$(mktemp -d)
xpyd-sim serve --host 127.0.0.1 --port 18200 --prefill-delay-ms 50 --kv-transfer-delay-ms 0 --decode-delay-per-token-ms 20 \
	--max-num-seqs 8 --scheduling --eos-min-ratio 1 >/dev/null 2>&1 &
started=$!
bin/spillway proxy --upstream http://127.0.0.1:18200 --slo 1s --listen 127.0.0.1:18201 --admin-listen 127.0.0.1:18202 --log-level error &
started="$started $!"
finish() {
	trap '' INT TERM # the end is not interrupted
	kill $started 2>/dev/null || true
	wait
	rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
sleep 5
cat >"$dir/load.py" <<'END'
import asyncio, random, sys, time
SECONDS, SLO = 20, 1.0
body = b'{"model":"x","prompt":"hello there","max_tokens":20,"stream":true}'
ask = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

async def generate(port, results):
    begin = time.monotonic()
    status, first, whole = 0, None, False
    try:
        r, w = await asyncio.open_connection("127.0.0.1", port)
        w.write(ask)
        async with asyncio.timeout(60):
            status = int((await r.readline()).split()[1])
            async for line in r:
                if first is None and line.startswith(b"data:"):
                    first = time.monotonic() - begin
                whole = whole or line.startswith(b"data: [DONE]")
        w.close()
    except (OSError, TimeoutError, IndexError, ValueError):
        pass
    results.append((status, first, whole, time.monotonic() - begin))

async def best(port):  # of a closed loop of 8
    results, end = [], time.monotonic() + 8
    async def loop():
        while time.monotonic() < end:
            await generate(port, results)
    await asyncio.gather(*(loop() for _ in range(8)))
    return len(results) / 8

async def load(port, rate):
    random.seed(1)
    results, tasks, at = [], [], time.monotonic()
    end = at + SECONDS
    while at < end:
        at += random.expovariate(rate)
        await asyncio.sleep(max(0, at - time.monotonic()))
        tasks.append(asyncio.create_task(generate(port, results)))
    await asyncio.gather(*tasks)
    await asyncio.sleep(2)
    served = sorted(f for s, f, whole, _ in results if s == 200 and whole and f is not None)
    refused = sum(s == 503 for s, *_ in results)
    good = sum(f <= SLO for f in served)
    p99 = served[min(len(served) - 1, int(len(served) * 0.99))] if served else float("nan")
    p50 = served[len(served) // 2] if served else float("nan")
    return good / len(results), f"{good / SECONDS:.1f} good a second, first token p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, {len(results)} asked, {refused} refused"

async def main():
    most = await best(18200)
    print(f"a closed loop of 8: {most:.1f} a second", flush=True)
    share = 0
    while share < 0.95:
        most *= 0.9
        share, line = await load(18200, most)
        print(f"{most:.1f} a second, alone: {line}", flush=True)
    for multiple in map(float, sys.argv[1:]):
        for name, port in ("alone", 18200), ("learned", 18201):
            _, line = await load(port, most * multiple)
            print(f"{multiple} x, {name}: {line}", flush=True)

asyncio.run(main())
END
python3 "$dir/load.py" "$@"
curl -s http://127.0.0.1:18202/strategy | tr ',' '\n' | grep -E '"(workers|limit|why)"'
