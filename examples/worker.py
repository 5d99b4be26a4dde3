#!/usr/bin/env python3
"""A complete Tidemill worker over HTTP that needs only Python's standard library.

It claims runs from a server, carries each out with a command, and keeps the promises of `tidemill work --server` as
far as a script can: what it asks for twice is done once, and what it no longer holds it does not finish. Only when
this process itself is killed with SIGKILL does its command live on; `tidemill work` has a supervisor for that.

    worker.py --server http://127.0.0.1:7171 -- ./build.sh

The run is given to the command as JSON on its standard input, and as TIDEMILL_RUN_ID, TIDEMILL_PROJECT, TIDEMILL_ENV,
TIDEMILL_ATTEMPT, TIDEMILL_EPOCH, TIDEMILL_RUN_KIND, TIDEMILL_GIT_SHA and TIDEMILL_GIT_REF. Its output becomes events,
its exit code the result: 0 is success. The token, where the server asks for one, is TIDEMILL_TOKEN, or in the file that
TIDEMILL_TOKEN=@file names; it needs the role worker.
"""

import argparse
import http.client
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid

LINE_CHARACTERS_MAX = 2000  # an event holds 8 KB
BATCH_MAX = 200
TAIL_LINES = 20


class Refused(Exception):
    """The server refused the request."""


class Stale(Refused):
    """This worker no longer holds the run; the call changed nothing."""


class Stopped(Exception):
    """The worker received SIGTERM while it waited for a response."""


def log(text):
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


class Server:
    """A server client that retries transient failures.

    Asking again is safe: a claim carries its request id, an event its key, and a finish recognises itself.
    """

    def __init__(self, address, token, stop):
        self.address = address.rstrip("/")
        self.token = token
        self.stop = stop

    def once(self, method, path, body, longest, token=None):
        request = urllib.request.Request(self.address + path, method=method)
        request.add_header("content-type", "application/json")
        token = self.read_token() if token is None else token
        if token:
            request.add_header("authorization", "Bearer " + token)
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(request, data, timeout=longest) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def read_token(self):
        """Returns the token. A file is read for each request: a local server has a new token after each start."""
        if not self.token.startswith("@"):
            return self.token
        try:
            with open(self.token[1:], encoding="utf-8") as file:
                return file.read().strip()
        except FileNotFoundError:
            return ""

    def ask(self, method, path, body=None, *, patience, longest=10.0, while_stopping=True):
        """Sends a request and retries it for `patience` seconds."""
        until, wait = time.monotonic() + patience, 0.2
        while True:
            token = self.read_token()
            try:
                return self.once(method, path, body, longest, token)
            except urllib.error.HTTPError as error:
                problem = self.problem(error)
                if error.code == 401 and self.read_token() != token:
                    continue  # The server was restarted after the token was read.
                if error.code == 409 and problem.get("code") == "stale":
                    raise Stale(problem["message"]) from None
                if error.code not in (429, 502, 503, 504):
                    raise Refused(f"{error.code}: {problem.get('message', '')}") from None
                trouble = f"{error.code} {problem.get('message', '')}"
            except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
                trouble = str(error)
            log(f"the server does not answer: {trouble}")
            if self.stop.is_set() and not while_stopping:
                raise Stopped
            if time.monotonic() + wait > until:
                raise TimeoutError(trouble)
            time.sleep(wait)
            wait = min(wait * 2, 2.0)

    @staticmethod
    def problem(error):
        try:
            return json.loads(error.read())
        except (OSError, ValueError, http.client.HTTPException):
            return {}


class Job:
    """One run with its command."""

    def __init__(self, worker, claim):
        self.worker, self.claim = worker, claim
        self.server, self.options = worker.server, worker.options
        self.run = claim["run_id"]
        self.path = f"/v1/runs/{self.run}"
        self.hold = {"worker": worker.name, "epoch": claim["epoch"]}
        self.why = None  # why the command was stopped: cancelled, lost, timed out or shutdown
        self.told = threading.Lock()
        self.ended = threading.Event()
        self.process = None
        self.lines = 0
        self.tail = []

    def append(self, events):
        body = dict(self.hold, events=events)
        self.server.ask("POST", self.path + "/events", body, patience=self.options.lease)

    def stop(self, why):
        """Stops the command and stores the reason. Lost overrides the others."""
        with self.told:
            if self.why is None or why == "lost":
                self.why = why
                self.signal(signal.SIGKILL if why == "lost" else signal.SIGTERM)

    def signal(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def keep(self):
        """Runs beside the command: sends heartbeats, and stops the command when necessary."""
        began = contact = time.monotonic()
        timeout, kill_at = self.claim.get("timeout_secs"), None
        beat_at = began + self.options.beat
        while not self.ended.wait(0.1):
            now = time.monotonic()
            if timeout is not None and now - began >= timeout:
                self.stop("timed out")
            if self.worker.stop.is_set():
                self.stop("shutdown")
            if self.why is not None and kill_at is None:
                kill_at = now + self.options.grace
            if kill_at is not None and now >= kill_at:
                self.signal(signal.SIGKILL)
            if now < beat_at:
                continue
            try:
                longest = max(1.0, self.options.lease / 6)
                answer = self.server.once("POST", self.path + "/heartbeat", self.hold, longest)
                contact = now
                if answer["cancel_requested"]:
                    self.stop("cancelled")
            except urllib.error.HTTPError as error:
                if error.code == 409:
                    self.stop("lost")
            except (OSError, http.client.HTTPException, ValueError) as error:
                log(f"could not say that run {self.run} lives: {error}")
            # The lease expires soon and could not be renewed: stop the command before another worker can take the run.
            if time.monotonic() - contact >= self.options.lease * 3 / 4:
                self.stop("lost")
            beat_at = time.monotonic() + self.options.beat

    def environment(self):
        """Returns the environment of the command: the run, without server credentials."""
        claim, secrets = self.claim, ("TIDEMILL_SERVER", "TIDEMILL_TOKEN", "TIDEMILL_DATABASE")
        environment = {name: value for name, value in os.environ.items() if name not in secrets}
        environment.update(
            TIDEMILL_RUN_ID=self.run,
            TIDEMILL_PROJECT=claim["project_id"],
            TIDEMILL_ENV=claim["env_id"].split("/", 1)[1],
            TIDEMILL_ATTEMPT=str(claim["attempt"]),
            TIDEMILL_EPOCH=str(claim["epoch"]),
            TIDEMILL_RUN_KIND=claim["kind"],
        )
        for name in ("git_sha", "git_ref"):
            if claim.get(name) is not None:
                environment["TIDEMILL_" + name.upper()] = claim[name]
        return environment

    def start(self):
        self.process = subprocess.Popen(
            self.options.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.environment(),
            start_new_session=True,
        )

        def give():
            try:
                with self.process.stdin as stdin:
                    stdin.write(json.dumps(self.claim).encode() + b"\n")
            except BrokenPipeError:
                pass  # the command does not read it

        threading.Thread(target=give, daemon=True).start()

    def events(self, line):
        """Converts a line to events, each with its own key; long lines are split."""
        text = line.decode("utf-8", "replace").rstrip("\n").replace("\0", "")
        parts = [text[at : at + LINE_CHARACTERS_MAX] for at in range(0, len(text), LINE_CHARACTERS_MAX)] or [""]
        self.tail = (self.tail + [text[:1000]])[-TAIL_LINES:]
        for number, part in enumerate(parts):
            self.lines += 1
            payload = {"stream": "output"}
            if len(parts) > 1:
                payload["part"] = "last" if number == len(parts) - 1 else "piece"
            yield {"level": "info", "message": part, "payload": payload, "key": f"line-{self.lines}"}

    def follow(self):
        """Sends the output of the command as events until its end, in batches, about once a second."""
        lines = queue.Queue(maxsize=2000)

        def read():
            for line in self.process.stdout:
                lines.put(line)
            lines.put(None)

        threading.Thread(target=read, daemon=True).start()
        more = True
        while more:
            batch, line = [], lines.get()
            until = time.monotonic() + 0.5
            while True:
                if line is None:
                    more = False
                    break
                batch.extend(self.events(line))
                if len(batch) >= BATCH_MAX:
                    break
                try:
                    line = lines.get(timeout=max(0.0, until - time.monotonic()))
                except queue.Empty:
                    break
            if batch and self.why != "lost":
                try:
                    self.append(batch)
                except Stale:
                    self.stop("lost")
                except (Refused, TimeoutError) as error:
                    log(f"events of run {self.run} were not written: {error}")

    def metadata(self, code):
        metadata = {"signal": -code} if code < 0 else {"exit_code": code}
        if self.why == "timed out":
            metadata["error"] = f"the run took longer than {self.claim['timeout_secs']} s"
        elif self.why != "cancelled" and code != 0:
            metadata["error"] = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        if "error" in metadata:
            metadata["output_tail"] = self.tail
        return metadata

    def carry_out(self):
        log(f"claimed run {self.run}")
        event = {"level": "info", "message": "Command started", "key": "started"}
        event["payload"] = {"worker": self.worker.name}
        try:
            self.append([event])  # the first event starts the run
        except (Refused, TimeoutError) as error:
            log(f"run {self.run} was not begun: {error}")
            return
        try:
            self.start()
        except OSError as error:
            self.finish("failed", {"error": f"the command could not be started: {error}"})
            return
        keeper = threading.Thread(target=self.keep, daemon=True)
        keeper.start()
        self.follow()
        code = self.process.wait()
        self.ended.set()
        keeper.join()
        self.signal(signal.SIGKILL)  # remaining child processes
        if self.why == "lost":
            log(f"run {self.run} belongs to others by now; its command was stopped, and nothing more is written")
        elif self.why == "shutdown" and code != 0:
            log(f"run {self.run} was interrupted; another worker carries its request on when its lease is over")
        elif self.why == "cancelled":
            self.finish("cancelled", self.metadata(code))
        elif self.why == "timed out" or code != 0:
            self.finish("failed", self.metadata(code))
        else:
            self.finish("success", self.metadata(code))

    def finish(self, status, metadata):
        """Reports the end until the server answers, so that an outage does not cause the work to be repeated."""
        body = dict(self.hold, status=status, metadata=metadata)
        try:
            self.server.ask("POST", self.path + "/finish", body, patience=86_400)
            log(f"run {self.run} ended: {status}")
        except Stale:
            log(f"run {self.run} belongs to others by now; its end ({status}) changed nothing")
        except (Refused, TimeoutError) as error:
            log(f"the end of run {self.run} ({status}) was not recorded: {error}")


class Worker:
    """Claims runs, one at a time, and executes them."""

    def __init__(self, options):
        self.options, self.name = options, options.name
        self.stop = threading.Event()
        self.server = Server(options.server, os.environ.get("TIDEMILL_TOKEN", ""), self.stop)
        self.offer = {"labels": options.label}
        if options.project:
            self.offer["projects"] = options.project

    def claim(self, request_id):
        wait = 0 if self.options.once or self.options.drain else self.options.wait
        ask = dict(self.offer, worker=self.name, request_id=request_id, lease_secs=self.options.lease, wait_secs=wait)
        answer = self.server.ask(
            "POST", "/v1/claims", ask, patience=float("inf"), longest=wait + 10.0, while_stopping=False
        )
        return answer["runs"]

    def is_drained(self):
        ask = self.server.ask
        return ask("POST", "/v1/claims/left", self.offer, patience=30, while_stopping=False)["left"] == 0

    def work(self):
        # Checks the address and the token before the first claim.
        self.server.ask("GET", "/v1/info", patience=30)
        log(f"worker {self.name} waits for runs")
        request_id = None
        while not self.stop.is_set():
            # Keep the request id until a claim returns runs: a retry returns runs whose first response was lost.
            request_id = request_id or str(uuid.uuid4())
            runs = self.claim(request_id)
            if runs:
                request_id = None
                for claim in runs:
                    Job(self, claim).carry_out()
            if self.options.once or (not runs and self.options.drain and self.is_drained()):
                break
            if not runs and self.options.drain:
                self.stop.wait(0.5)
        log(f"worker {self.name} ends")


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    address = os.environ.get("TIDEMILL_SERVER", "http://127.0.0.1:7171")
    parser.add_argument("--server", default=address, metavar="URL")
    parser.add_argument("--name", default=f"{socket.gethostname()}-{os.getpid()}", help="under which to claim")
    parser.add_argument("--label", action="append", default=[], help="something that this worker offers")
    parser.add_argument("--project", action="append", default=[], help="work only for this project")
    parser.add_argument("--once", action="store_true", help="carry out one run at most, then end")
    parser.add_argument("--drain", action="store_true", help="end when nothing is left")
    parser.add_argument("--wait", type=int, default=20, help="seconds for which the server holds a claim back")
    parser.add_argument("--beat", type=float, default=5.0, help="seconds between two signs of life")
    parser.add_argument("--lease", type=int, default=60, help="seconds of silence after which a run is lost")
    parser.add_argument("--grace", type=float, default=20.0, help="seconds that the command has to end")
    parser.add_argument("command", nargs="+", help="the command, after --")
    return parser.parse_args()


def main():
    worker = Worker(options())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.stop.set())
    try:
        worker.work()
    except Stopped:
        pass
    except (Refused, TimeoutError) as error:
        log(f"the server cannot be used: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
