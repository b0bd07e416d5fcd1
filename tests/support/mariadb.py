"""A real MariaDB for tests: a server of its own in a temporary folder, on a free port of loopback."""

from pathlib import Path

from tests.support.postgres import ServerProcess, find_program


def mariadb_programs() -> tuple[Path, Path] | None:
    """The server and the program that makes its folder; None: not installed (Debian: mariadb-server)."""
    server = find_program("mariadbd", "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin")
    install = find_program("mariadb-install-db", "/usr/bin", "/usr/local/bin")
    return (server, install) if server and install else None


class MariaDb(ServerProcess):
    """MariaDB with one database ``shop`` and a user ``loom`` who has every right."""

    def __init__(self, programs: tuple[Path, Path]) -> None:
        super().__init__("mariadb")
        self._server, self._install = programs

    @property
    def url(self) -> str:
        """For the user who has every right."""
        return f"mysql+pymysql://loom@127.0.0.1:{self.port}/shop"

    def __enter__(self) -> "MariaDb":
        data = f"--datadir={self.folder / 'data'}"
        self.run(
            [str(self._install), "--no-defaults", data, "--skip-test-db", "--auth-root-authentication-method=normal"]
        )
        first = self.folder / "first.sql"
        first.write_text(
            "CREATE DATABASE shop CHARACTER SET utf8mb4;\n"
            "CREATE USER 'loom'@'127.0.0.1';\nGRANT ALL ON *.* TO 'loom'@'127.0.0.1' WITH GRANT OPTION;\n"
        )
        first.chmod(0o644)
        options = [f"--socket={self.folder / 's'}", f"--port={self.port}", "--bind-address=127.0.0.1"]
        options += [f"--pid-file={self.folder / 'pid'}", f"--init-file={first}", "--skip-name-resolve"]
        options += ["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=16M", "--skip-log-bin"]
        self.spawn([str(self._server), "--no-defaults", data, *options])
        return self
