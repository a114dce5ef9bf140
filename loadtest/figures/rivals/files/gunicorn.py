import time


def app(environ, start_response):
    time.sleep(0.02)
    start_response("200 OK", [("Content-Length", "5")])
    return [b"done\n"]
