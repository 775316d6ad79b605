"""What gpu-check writes, anew after every stage and section: a report in JSON, tables, and an archive of the logs."""

import datetime, glob, io, json, os, platform, tarfile, threading, time

# Failures that the report names, and bytes that it keeps of each log and of all.
FAILURES, LOG, LOGS = 60, 384 << 10, 12 << 20
# Seconds from a file's writing to the next within a stage.
PAUSE = 10


class Report:
    """All results so far."""

    def __init__(self, machine, out):
        self.machine, self.out, self.start = machine, os.path.abspath(out), time.monotonic()
        self.found, self.stages, self.rows = [], [], None
        # Held again by what a signal runs in the thread that holds it.
        self.lock, self.written = threading.RLock(), 0
        os.makedirs(self.out, exist_ok=True)

    def path(self, name):
        return os.path.join(self.out, name)

    def content(self):
        simulated = self.machine.simulated
        rows = self.rows.table() if self.rows else []
        if simulated:
            kept = ("name", "unit", "ours_error", "peer_error")
            rows = [{key: row[key] for key in row if key in kept} for row in rows]
        failures = [{"stage": stage["stage"], **failure} for stage in self.stages for failure in stage["failures"]]
        stages = [{key: value for key, value in stage.items() if key != "failures"} for stage in self.stages]
        return {
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), "simulated": simulated,
            "system": platform.platform(), "cores": self.machine.cores, "found": self.found, "stages": stages,
            "failed": len(failures), "failures": failures[:FAILURES],
            "peer": self.rows.about if self.rows else None,
            "goals": self.rows.goals() if self.rows and not simulated else [], "rows": rows,
            "seconds": round(time.monotonic() - self.start, 1),
        }

    def tables(self):
        """Stages, failures and rows for people."""
        content = self.content()
        lines = [f"# gpu-check, {content['date']}", "", *(f"    {line}" for line in self.found), ""]
        if content["simulated"]:
            lines += ["Simulated: no speed here means anything.", ""]
        lines += ["| stage | result | s | |", "| --- | --- | --- | --- |"]
        lines += [f"| {s['stage']} | {s['result']} | {s['seconds']} | {s['note'][:300]} |" for s in self.stages]
        if content["failures"]:
            lines += ["", f"{content['failed']} failures, in their order:", ""]
            lines += [f"- {f['stage']}: {f['name']}: {f['message']}" for f in content["failures"]]
        if self.rows and not content["simulated"]:
            lines += ["", self.rows.text()]
        return "\n".join(lines) + "\n"

    def write(self, logs=True):
        """Writes all files; each appears whole."""
        with self.lock:
            self.written = time.monotonic()
            replace(self.path("gpu-check.json"), json.dumps(self.content(), indent=1).encode())
            replace(self.path("gpu-check.md"), self.tables().encode())
            if logs:
                replace(self.path("logs.tar.gz"), archive(self.machine.work))

    def changed(self):
        """Writes all but the logs, if that was not done just now."""
        with self.lock:
            if time.monotonic() > self.written + PAUSE:
                self.write(logs=False)


def replace(path, data):
    with open(path + ".new", "wb") as file:
        file.write(data)
    os.replace(path + ".new", path)


def archive(folder):
    """The logs of a folder, of long ones the beginning and the end."""
    buffer, total = io.BytesIO(), 0
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path in sorted(glob.glob(os.path.join(folder, "*.log"))):
            with open(path, "rb") as file:
                data = file.read(LOG // 4)
                rest = os.path.getsize(path) - len(data)
                if rest > LOG:
                    file.seek(-3 * LOG // 4, os.SEEK_END)
                    data += b"\n[...]\n"
                data += file.read(LOG)
            total += len(data)
            if total > LOGS:
                break
            info = tarfile.TarInfo(os.path.basename(path))
            info.size, info.mtime = len(data), int(time.time())
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()
