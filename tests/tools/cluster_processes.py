"""What deploy/cluster/compose.yml runs, as processes: for a machine without an engine.

    python -m tests.tools.cluster_processes

As root, on Debian: PostgreSQL refuses to run as root, and gets another user here as it does there.
Each service but Grafana and Milvus runs with the command, the environment and the health check of
the compose file, in a network of its own, where every replica has an address and a name server
knows all of them, as the engine's does. Only addresses and paths are others.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from tests.tools.compose_processes import (
    ROOT,
    WITHIN,
    build_image,
    clean_environment,
    exec_form,
    get,
    healthy,
    place,
    post,
    process,
    read_compose,
    read_dockerfile,
    report,
)
from tests.tools.postgresql import DATABASE_USER, SERVER_USER, program
from tests.tools.programs import require_program

COMPOSE_FILE = ROOT / "deploy/cluster/compose.yml"
PROXY, REPLICAS = "10.77.0.2", ("10.77.0.11", "10.77.0.12")
OTHERS = "10.77.0.3"
NAME_SERVER = "10.77.0.53"
NAMESPACES = ("unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc")
SECONDS = 60.0
RIVERS = "Rivers carry water and stones to the sea. They flood in spring. " * 5
STARS = "Stars are hot balls of gas. Telescopes see them at night. " * 5


def main() -> None:
    """Run everything, or say what failed and exit with 1."""
    if os.geteuid() != 0:
        raise SystemExit("run it as root: it makes a network, and PostgreSQL gets another user")
    if WITHIN not in os.environ:
        for name in ("haproxy", "dnsmasq", "redis-server", "prometheus"):
            require_program(name)
        with tempfile.TemporaryDirectory() as folder:
            image = build_image(Path(folder), "cpu-cluster")
            Path(folder).chmod(0o755)
            ended = subprocess.run(
                [*NAMESPACES, sys.executable, "-m", "tests.tools.cluster_processes", str(image)],
                env=os.environ | {WITHIN: "1"},
                cwd=ROOT,
            )
        raise SystemExit(ended.returncode)
    with tempfile.TemporaryDirectory() as name, ExitStack() as running:
        folder = Path(name)
        folder.chmod(0o755)
        try:
            isolate(folder, running)
            walk(Path(sys.argv[1]), folder, running)
        except SystemExit:
            for log in sorted(folder.glob("*.log")):
                print(f"{log.name}:", log.read_text()[-2000:], sep="\n", file=sys.stderr)
            raise


def isolate(folder: Path, running: ExitStack) -> None:
    """Give this process a network with an address for each replica, and a name server."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in (PROXY, OTHERS, NAME_SERVER, *REPLICAS):
        subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
    names = [f"{OTHERS} postgres redis prometheus", f"{PROXY} proxy"]
    replicas = [f"{address} longmatch" for address in REPLICAS]
    mount(folder / "hosts", ["127.0.0.1 localhost", *names, replicas[0]], Path("/etc/hosts"))
    mount(folder / "resolv.conf", [f"nameserver {NAME_SERVER}"], Path("/etc/resolv.conf"))
    records = folder / "records"
    records.write_text("\n".join([*names, *replicas, ""]))
    command = ["dnsmasq", "--keep-in-foreground", "--no-hosts", "--no-resolv", "--user=root"]
    command += [f"--listen-address={NAME_SERVER}", "--bind-interfaces", f"--addn-hosts={records}"]
    running.enter_context(process("dnsmasq", command, {}, folder))


def mount(file: Path, lines: list[str], over: Path) -> None:
    """Write a file and let this process see it at another place."""
    file.write_text("\n".join([*lines, ""]))
    subprocess.run(["mount", "--bind", str(file), str(over.resolve())], check=True)


def walk(image: Path, folder: Path, running: ExitStack) -> None:
    """Start every service, walk its health check, use it, and lose a replica and the database."""
    services = read_compose(COMPOSE_FILE)["services"]
    running.enter_context(
        process("redis", place(services["redis"], folder / "redis"), services["redis"], folder)
    )
    database = running.enter_context(postgres(services["postgres"], folder))
    replicas = [
        running.enter_context(replica(number, image, services["longmatch"], folder))
        for number in range(len(REPLICAS))
    ]
    check = exec_form(dict(read_dockerfile())["HEALTHCHECK"])
    for address in REPLICAS:
        probe = " ".join(check[1:]).replace("127.0.0.1", address).removeprefix("-c ")
        healthy(f"replica {address}", [str(image / "bin/python"), "-c", probe])
    running.enter_context(proxy(services["proxy"], folder))
    prometheus = ["prometheus", *place(services["prometheus"], folder / "prometheus")]
    running.enter_context(process("prometheus", prometheus, services["prometheus"], folder))
    use_it()
    scraped()
    lose_a_replica(replicas[0])
    lose_the_database(database)
    grace = float(services["longmatch"]["stop_grace_period"].removesuffix("s"))
    replicas[1].terminate()
    report("a replica stops in its time", replicas[1].wait(grace) == 0)
    print("not run: grafana, and the profile milvus", flush=True)


@contextmanager
def postgres(service: dict[str, Any], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the database as the image would: initialised with its user, then the command."""
    data = folder / "postgres"
    data.mkdir()
    shutil.chown(data, SERVER_USER)
    password = folder / "password"
    password.write_text(service["environment"]["POSTGRES_PASSWORD"])
    initdb = [program("initdb"), "-D", str(data), "-U", DATABASE_USER, "-E", "UTF8"]
    initdb += ["-A", "scram-sha-256", f"--pwfile={password}"]
    subprocess.run(initdb, check=True, user=SERVER_USER, cwd="/", stdout=subprocess.DEVNULL)
    with (data / "pg_hba.conf").open("a") as rules:
        rules.write("host all all all scram-sha-256\n")
    name, *options = service["command"]
    command = ["setpriv", f"--reuid={SERVER_USER}", "--clear-groups", program(name), *options]
    command += ["-D", str(data), "-c", f"listen_addresses={OTHERS}"]
    command += ["-c", f"unix_socket_directories={data}"]
    with process("postgres", command, {}, folder) as server:
        check = [program(service["healthcheck"]["test"][1]), *service["healthcheck"]["test"][2:]]
        healthy("postgres", [*check, "--host", "postgres"], expect="accepting")
        with_password = clean_environment() | {"PGPASSWORD": password.read_text()}
        create = [program("createdb"), "-h", "postgres", "-U", DATABASE_USER]
        subprocess.run(
            [*create, service["environment"]["POSTGRES_DB"]], check=True, env=with_password
        )
        yield server


@contextmanager
def replica(
    number: int, image: Path, service: dict[str, Any], folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run one replica at its address with a data directory of its own."""
    command = [*json.loads(dict(read_dockerfile())["CMD"])]
    data = str(folder / f"data-{number}")
    changed = {"/data": data, "0.0.0.0": REPLICAS[number]}
    path = f"{image / 'bin'}:{os.environ['PATH']}"
    environment = service["environment"] | {"PATH": path}
    command = [changed.get(part, part) for part in command]
    with process(f"longmatch-{number}", command, {"environment": environment}, folder) as running:
        yield running


@contextmanager
def proxy(service: dict[str, Any], folder: Path) -> Iterator[None]:
    """Run the proxy, at its address alone: the replicas have the same port here."""
    command = place(
        {"volumes": service["volumes"], "command": service["command"]}, folder / "proxy"
    )
    file = Path(command[-1])
    file.write_text(file.read_text().replace("bind :8000", f"bind {PROXY}:8000"))
    with process("proxy", command, {}, folder):
        wait_for("the proxy finds the replicas", lambda: through("/livez") == 200)
        yield


def use_it() -> None:
    """Write through the proxy, and read from every replica at once."""
    for number, text in enumerate((RIVERS, STARS)):
        document = {"documents": [{"id": f"d{number}", "text": text}]}
        report("POST /index by the proxy", post("/index", document, PROXY)["indexed"] == 1)
        found = [post("/match", {"text": text}, one)["matches"][0]["id"] for one in REPLICAS]
        report("every replica finds it at once", found == [f"d{number}"] * len(REPLICAS))
    report("the proxy does not show metrics", through("/metrics") == 404)


def scraped() -> None:
    """See that Prometheus has found and scraped every replica."""
    query = f"http://{OTHERS}:9090/api/v1/query?query=longmatch_index_documents==2"
    wait_for(
        "Prometheus has scraped every replica",
        lambda: len(get(query)["data"]["result"]) == len(REPLICAS),
    )


def lose_a_replica(lost: subprocess.Popen[bytes]) -> None:
    """Kill one; the proxy sends requests to the other."""
    lost.kill()
    wait_for("the proxy leaves out a lost replica", answers_always)
    found = post("/match", {"text": STARS}, PROXY)["matches"][0]["id"]
    report("the other replica answers", found == "d1")


def lose_the_database(database: subprocess.Popen[bytes]) -> None:
    """Stop PostgreSQL for a moment: the service says so, and comes back by itself."""
    database.send_signal(signal.SIGSTOP)
    for child in children(database.pid):
        os.kill(child, signal.SIGSTOP)
    wait_for("without PostgreSQL no replica is ready", lambda: through("/readyz") == 503)
    for child in [*children(database.pid), database.pid]:
        os.kill(child, signal.SIGCONT)
    wait_for("with it again, one is", lambda: through("/readyz") == 200)
    found = post("/match", {"text": RIVERS}, PROXY)["matches"][0]["id"]
    report("nothing is lost", found == "d0")


def children(parent: int) -> list[int]:
    """Return the processes that a process has begun."""
    return [int(one) for one in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def answers_always() -> bool:
    """Whether ten requests in turn are answered."""
    return all(through("/readyz") == 200 for _ in range(10))


def through(path: str) -> int:
    """Return the status of a request to the proxy; 0 while nothing answers."""
    try:
        get(f"http://{PROXY}:8000{path}", parse=False)
    except HTTPError as error:
        return error.code
    except OSError:
        return 0
    return 200


def wait_for(what: str, holds: Any) -> None:
    """Report something as soon as it holds, or as failed."""
    deadline = time.monotonic() + SECONDS
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.5)
    report(what, bool(holds()))


if __name__ == "__main__":
    main()
