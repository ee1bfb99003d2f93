"""Pages of other sites try to use the server: sites_test.py PORT OPEN_PORT LOG. Prints TAP.

Chromium takes every name that ends in .test for this machine. The server at PORT has the name lan.test; its log is LOG.
The server at OPEN_PORT accepts any name. Another server here has the pages of a hostile site, http://evil.test."""

import os
import sys
import threading
import time
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from selenium import webdriver

PORT, OPEN_PORT, LOG = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
LAN = f"http://lan.test:{PORT}"
# Requests that would change something or cost something: method, path.
HOSTILE = [("POST", "/flush_cache"), ("POST", "/start_profile"), ("POST", "/v1/files?purpose=batch"), ("POST", "/call/stats"),
           ("POST", "/abort_request"), ("POST", "/v1/chat/completions"), ("POST", "/v1/completions"),
           ("GET", "/flush_cache"), ("GET", "/health_generate")]


class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>a page</title>")

    def log_message(self, *_):
        pass


evil = ThreadingHTTPServer(("127.0.0.1", 0), Page)
threading.Thread(target=evil.serve_forever, daemon=True).start()
EVIL = f"http://evil.test:{evil.server_address[1]}"

options = webdriver.ChromeOptions()
for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--host-resolver-rules=MAP *.test 127.0.0.1"):
    options.add_argument(flag)
options.binary_location = os.environ.get("CHROMIUM", "/usr/bin/chromium")
browser = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))


def fetch(method, url, mode):
    """Requests an URL from the page that is open. Returns the status, "opaque" for a response that the page can't read,
    or "blocked"."""
    return browser.execute_async_script("""
        const [method, url, mode, done] = arguments;
        fetch(url, {method, mode, body: method === "POST" ? "{}" : undefined, headers: {"Content-Type": "text/plain"}})
            .then((r) => done(r.type === "opaque" ? "opaque" : r.status)).catch(() => done("blocked"));""", method, url, mode)


def logged(path, status, n):
    """Waits until the access log has n lines with this path and status."""
    for _ in range(600):
        with open(LOG, encoding="utf-8") as log:
            found = sum(f'"{path}" {status} ' in line for line in log)
        if found >= n:
            return
        time.sleep(0.05)
    raise AssertionError(f"{path}: {found} lines with the status {status}, expected {n}")


def test_requests_of_a_hostile_page_are_refused():
    browser.get(EVIL)
    for method, path in HOSTILE:
        if method == "POST":
            assert fetch(method, LAN + path, "no-cors") == "opaque", path
        assert fetch(method, LAN + path, "cors") == "blocked", path
    for path in {path.partition("?")[0] for method, path in HOSTILE}:
        n = sum(1 + (method == "POST") for method, other in HOSTILE if other.partition("?")[0] == path)
        logged(path, 403, n)


def test_a_hostile_form_is_refused():
    browser.get(EVIL)
    browser.execute_script("""
        const form = document.createElement("form");
        form.method = "POST"; form.action = arguments[0]; document.body.append(form); form.submit();""", LAN + "/stop_profile")
    logged("/stop_profile", 403, 1)


def test_a_name_that_points_to_this_machine_is_refused():
    """The page and its requests have the same origin, http://evil.test:PORT, so no browser stops them."""
    browser.get(f"http://evil.test:{PORT}/")
    assert "does not have the name evil.test" in browser.page_source, browser.page_source
    for method, path in HOSTILE:
        assert fetch(method, path, "same-origin") == 421, path


def test_any_name_works_if_the_server_allows_it():
    browser.get(f"http://evil.test:{OPEN_PORT}/")
    assert fetch("POST", "/flush_cache", "same-origin") in (200, 415)
    assert fetch("GET", "/v1/models", "same-origin") == 200


def test_the_servers_own_page_works():
    for name in ("lan.test", "localhost", "127.0.0.1"):
        browser.get(f"http://{name}:{PORT}/")
        assert fetch("GET", "/v1/models", "cors") == 200, name
        answer = browser.execute_async_script("""
            const done = arguments[0];
            fetch("/v1/completions", {method: "POST", headers: {"Content-Type": "application/json"},
                                      body: JSON.stringify({prompt: "1 + 1 =", max_tokens: 4})})
                .then((r) => done(r.status)).catch((e) => done(String(e)));""")
        assert answer == 200, (name, answer)


def main():
    failed, tests = False, [name for name in globals() if name.startswith("test_")]
    for number, name in enumerate(tests, 1):
        try:
            globals()[name]()
            print(f"ok {number} - {name}", flush=True)
        except Exception:  # any failure of a test is reported, and the next one runs
            failed = True
            print(f"not ok {number} - {name}", flush=True)
            print("".join("# " + line + "\n" for line in traceback.format_exc().splitlines()), end="", flush=True)
    print(f"1..{len(tests)}")
    browser.quit()
    return failed


sys.exit(main())
