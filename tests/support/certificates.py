"""Self-signed certificates."""

import subprocess
from pathlib import Path


def certified(folder: Path, host: str) -> Path:
    """The folder, with key.pem and certificate.pem of the host in it."""
    command = [
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-subj", "/CN=test", "-addext", f"subjectAltName=DNS:{host}", "-days", "2"),
        *("-keyout", "key.pem", "-out", "certificate.pem"),
    ]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder
