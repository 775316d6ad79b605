"""The part of check-dashboard that is Python: see there."""

import json
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

from browser import Browser, wait

BUILT, WORK, PICTURES, PROFILE, TURNS = *sys.argv[1:5], int(sys.argv[5])
LAUNCH, TRAIN = f"{BUILT}/torchrs-launch", f"{BUILT}/examples/train"


class Job:
    """A launcher, with its page."""

    running = []

    def __init__(self, options, program):
        self.error = open(f"{WORK}/stderr", "w+")
        self.process = subprocess.Popen([LAUNCH, "--no-build", "--dashboard", *options, *program], cwd=WORK,
                                        stdout=subprocess.DEVNULL, stderr=self.error)
        Job.running.append(self)
        found = wait("the page is served", lambda: re.search(r"http://(\S+)/\?token=(\S+)\n", self.said()), 60)
        self.url, self.place, self.token = found.group(0).strip(), found.group(1), found.group(2)

    def said(self):
        return open(f"{WORK}/stderr").read()

    def get(self, path, token=True):
        headers = {"Authorization": f"Bearer {self.token}"} if token else {}
        with urllib.request.urlopen(urllib.request.Request(f"http://{self.place}{path}", headers=headers), timeout=30) as a:
            return a.read().decode()

    def snapshot(self):
        return json.loads(self.get("/snapshot.json"))

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def text(browser, place):
    return browser.run(f"document.getElementById('{place}').textContent")


def passes(what, is_so, why=""):
    what = what if is_so else f"{what} {why}"
    print(f"{'ok' if is_so else 'FAILED'}  {what}", flush=True)
    if not is_so:
        sys.exit(1)


def wide(browser):
    """Whether something sticks out at the side."""
    return browser.run("document.documentElement.scrollWidth > innerWidth")


def live_run(browser):
    job = Job(["--nproc", "2", "--max-restarts", "2", "--run-id", "digits"], [TRAIN, "--epochs", "100000"])
    # Without the token.
    browser.open(f"http://{job.place}/")
    refused = browser.run("document.body.textContent")
    passes("without the token the page is refused", "needs the job's token" in refused and "digits" not in refused)
    browser.complaints = [c for c in browser.complaints if "401" not in c]
    # With it.
    browser.open(job.url)
    passes("the token leaves the address", browser.run("location.search") == "")
    browser.until("the job runs", "document.getElementById('state').textContent == 'running'")
    browser.until("charts are drawn", "document.querySelectorAll('.chart path').length >= 3")
    for name in ["loss", "lr", "val_accuracy", "samples/s", "steps/s"]:
        browser.until(f"the page has {name}", f"document.getElementById('tiles').textContent.includes('{name}')")
    browser.until("time is shared out", "document.getElementById('shares').textContent.includes('compute')")
    browser.until("a checkpoint is told of", "document.getElementById('events').textContent.includes('checkpoint of step')")
    browser.until("output is shown", "document.getElementById('log').textContent.includes('train_loss')")
    passes("a live run: state, charts, numbers, time, checkpoint, output", True)
    victim = job.snapshot()["ranks"][1]["pid"]
    os.kill(victim, signal.SIGKILL)
    begun = time.monotonic()
    browser.until("the death is shown", f"document.getElementById('events').textContent.includes('rank 1 (pid {victim}) killed by SIGKILL')"
                  f" || document.getElementById('events').textContent.includes('rank 1 (pid {victim}) was killed')")
    seconds = time.monotonic() - begun
    browser.until("the restart is shown", "document.getElementById('events').textContent.includes('2 workers started again')")
    browser.until("it runs again", "document.getElementById('state').textContent == 'running'")
    browser.until("1 of 2", "document.getElementById('facts').textContent.includes('1 of 2 restarts')")
    step = "Number(document.querySelector('#tiles b')?.textContent ?? 0)"
    before = browser.run(step)
    browser.until("steps go on", f"{step} > {before}")
    passes(f"a kill is shown within {seconds:.1f} s (of at most 3), then the restart, and steps go on", seconds < 3)
    # Hidden parts of its output are chosen by a click.
    browser.run("document.querySelector('#rows tr:nth-child(2)').click()")
    browser.until("rank 1 is chosen", "document.getElementById('log-title').textContent == 'Output of rank 1'")
    browser.until("charts have points", "[...document.querySelectorAll('.chart path')].every(p => p.getAttribute('d').split('L').length > 8)")
    browser.run("document.querySelector('#rows tr').click()")
    time.sleep(2.5)
    passes("nothing sticks out at 1280 px", not wide(browser))
    browser.picture(f"{PICTURES}/page.png", whole=True)
    browser.dark(True)
    browser.picture(f"{PICTURES}/dark.png", whole=True)
    browser.dark(False)
    for width in [390, 320]:
        browser.size(width, 844, phone=True)
        time.sleep(1.2)
        passes(f"nothing sticks out at a phone's {width} px", not wide(browser))
        browser.picture(f"{PICTURES}/phone-{width}.png", whole=True)
    browser.size(1280, 900)
    metrics = job.get("/metrics")
    try:
        from prometheus_client.parser import text_string_to_metric_families
        families = list(text_string_to_metric_families(metrics))
        undescribed = [f.name for f in families if f.type == "unknown" or not f.documentation]
        passes(f"Prometheus' parser reads /metrics: {len(families)} metrics, "
               f"{sum(len(f.samples) for f in families)} samples", len(families) >= 20 and not undescribed)
    except ImportError:
        print("--  no prometheus_client: /metrics is not parsed")
    shown = subprocess.run([f"{BUILT}/torchrs", "top", "digits", "--once"], capture_output=True, text=True, check=True).stdout
    passes("torchrs top shows the same", all(part in shown for part in ["1 of 2 restarts", "loss", "2 workers started again"]))
    # The button, with its question.
    browser.run("document.getElementById('save').click()")
    passes("a button asks first", browser.run("document.getElementById('sure').open"))
    browser.run("document.getElementById('sure-no').click()")
    passes("and may be taken back", not browser.run("document.getElementById('sure').open") and job.process.poll() is None)
    browser.run("document.getElementById('save').click(); document.getElementById('sure-yes').click()")
    browser.until("the end is shown", "document.getElementById('state').textContent == 'done'")
    passes("Save and stop: the job saves, ends with 0, and the page says so", job.process.wait(30) == 0)
    time.sleep(1)
    passes("no complaint of script, console, network or security policy", not browser.complaints, browser.complaints)


def many(browser, ranks):
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(65536, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
        job = Job(["--nproc", str(ranks), "--max-restarts", "1", "--grace", "2"], ["sh", "-c", "sleep 1000"])
    except TimeoutError:
        print(f"--  {ranks} ranks: this machine does not start them: {open(f'{WORK}/stderr').read().strip()}")
        return
    browser.open(job.url)
    browser.until("all are there", f"document.querySelectorAll('.cell').length == {ranks}", 120)
    passes(f"{ranks} ranks are shown", browser.run("document.querySelectorAll('#rows tr').length") == 64)
    os.kill(job.snapshot()["ranks"][-1]["pid"], signal.SIGKILL)
    browser.until("the dead one is marked", f"document.getElementById('rank-{ranks - 1}').classList.contains('failed')"
                  " || document.getElementById('facts').textContent.includes('1 of 1')")
    browser.until("they start again", "document.getElementById('facts').textContent.includes('1 of 1 restarts')", 120)
    browser.run("document.getElementById('grid').focus()")
    # The stream's messages.
    request = urllib.request.Request(f"http://{job.place}/events", headers={"Authorization": f"Bearer {job.token}"})
    sizes, until = [], time.monotonic() + 8
    with urllib.request.urlopen(request, timeout=30) as stream:
        for line in stream:
            if line.startswith(b"data:"):
                sizes.append(len(line))
            if time.monotonic() > until:
                break
    browser.picture(f"{PICTURES}/ranks-{ranks}.png")
    browser.size(390, 844, phone=True)
    time.sleep(1)
    sticks = wide(browser)
    browser.size(1280, 900)
    passes(f"{ranks} ranks: messages of {max(sizes)} bytes at most, nothing sticks out at 390 px", max(sizes) < 60_000 and not sticks)
    passes(f"{ranks} ranks: no complaint", not browser.complaints, browser.complaints)
    job.end()


def processor_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def watcher(address, token):
    """Takes the page's stream, as a browser does."""
    def watch():
        request = urllib.request.Request(f"http://{address}/events", headers={"Authorization": f"Bearer {token}"})
        try:
            with urllib.request.urlopen(request, timeout=60) as stream:
                for _ in stream:
                    pass
        except OSError:
            pass
    threading.Thread(target=watch, daemon=True).start()


def cost():
    """A step on the digits without a board, with one, and with a page that is looked at as by a browser, in turns."""
    steps, epochs = 44 * 20, 20
    arms = ["neither board nor page", "a board, no page", "a page, watched"]

    def run(arm):
        page = ["--dashboard"] if arm == 2 else []
        program = ["env", "-u", "TORCHRS_BOARD_FD", TRAIN] if arm == 0 else [TRAIN]
        command = [LAUNCH, "--no-build", *page, "--nproc", "2", *program, "--epochs", str(epochs)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        process = subprocess.Popen(command, cwd=WORK, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if page:
            address, token = re.search(r"http://(\S+)/\?token=(\S+)", process.stderr.readline()).groups()
            watcher(address, token)
        out = process.communicate()[0]
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        samples = float(re.search(r"final: .*samples_per_s=(\d+)", out).group(1))
        processor = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / steps
        return 1438 * epochs / samples / steps * 1e3, processor * 1e3

    run(0)
    turns = []
    for turn in range(TURNS):
        order = [(turn + arm) % 3 for arm in range(3)]
        times = {arm: run(arm) for arm in order}
        turns.append([times[arm] for arm in range(3)])
    middle = statistics.median
    print(f"    {TURNS} turns of {steps} steps each, two workers, profile {PROFILE}; medians")
    for arm, name in enumerate(arms):
        print("    {:<24} {:.3f} ms a step, {:.3f} ms of processors".format(name, *(middle(t[arm][i] for t in turns) for i in (0, 1))))
    for arm in (1, 2):
        for i, what in enumerate(["time", "processors"]):
            ratios = sorted(100 * (t[arm][i] / t[0][i] - 1) for t in turns)
            quarter = len(ratios) // 4
            print(f"    {arms[arm]} against neither, {what}: median {middle(ratios):+.2f}%, "
                  f"half of the turns {ratios[quarter]:+.1f} to {ratios[-1 - quarter]:+.1f}%")
    # What the supervisor itself takes, which the noise of a machine does not hide.
    job = Job(["--nproc", "2"], [TRAIN, "--epochs", "100000"])
    watcher(job.place, job.token)
    wait("it trains", lambda: job.snapshot()["speed"]["step"] > 50, 60)
    supervisor = job.snapshot()["job"]["pid"]
    before, first, begun = processor_seconds(supervisor), job.snapshot()["speed"]["step"], time.monotonic()
    time.sleep(20)
    seconds, last = time.monotonic() - begun, job.snapshot()["speed"]["step"]
    taken = processor_seconds(supervisor) - before
    share = 100 * taken / (2 * seconds)
    passes(f"the supervisor with a watched page takes {taken:.2f} s of processors in {seconds:.0f} s and {last - first} steps: "
           f"{share:.2f}% of two cores, {1e6 * taken / (last - first):.0f} us a step; below 1%", share < 1)
    job.end()


browser = Browser()
try:
    print(browser.version)
    live_run(browser)
    many(browser, 64)
    many(browser, 1000)
    browser.close()
    cost()
finally:
    browser.close()
    for job in Job.running:
        job.end()
print("check-dashboard: passed")
