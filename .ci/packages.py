"""Checks what is inside the packages of a folder: .ci/packages.py DIST.

Reads files only. `.ci/package-test` installs and runs them.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
import zlib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
# Names of a machine: of Rust's targets, and of Debian.
MACHINES = (("x86_64", "amd64"), ("aarch64", "arm64"))
# Below the prefix of a package.
INSTALLED = (
    "bin/slowlight",
    "lib/systemd/system/slowlight-node.service",
    "lib/systemd/system/slowlight-pep.service",
    "lib/systemd/system/slowlight-recv.service",
    "lib/systemd/system/slowlight-send@.service",
    "lib/sysusers.d/slowlight.conf",
    "share/bash-completion/completions/slowlight",
    "share/doc/slowlight/LICENSE-APACHE",
    "share/doc/slowlight/LICENSE-MIT",
    "share/doc/slowlight/NOTICES",
    "share/doc/slowlight/CHANGELOG.md.gz",
    "share/doc/slowlight/copyright",
    "share/man/man1/slowlight.1.gz",
    "share/man/man1/slowlight-compare.1.gz",
    "share/man/man1/slowlight-send.1.gz",
)


class WrongError(Exception):
    """A package is not what it should be."""


def require(is_right: bool, error: str) -> None:
    """Raises an error unless a condition holds."""
    if not is_right:
        raise WrongError(error)


def program_of(package: Path) -> bytes:
    """Checks the files of an archive or of a package of Debian; returns its program."""
    if package.suffix == ".deb":
        fields = subprocess.run(
            ["dpkg-deb", "--field", package, "Version"], capture_output=True, text=True, check=True
        )
        require(fields.stdout.strip() == VERSION, f"its version is {fields.stdout.strip()}")
        prefix = "./usr"
        data = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], capture_output=True).stdout
    else:
        prefix = package.name.removesuffix(".tar.gz")
        data = package.read_bytes()
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = {member.name: member for member in archive}
        missing = [name for name in INSTALLED if f"{prefix}/{name}" not in members]
        require(not missing, f"lacks {', '.join(missing)}")
        for name, member in members.items():
            require((member.uid, member.gid) == (0, 0), f"{name} does not belong to root")
            require(member.mode & 0o022 == 0, f"others may write to {name}")
        file = archive.extractfile(f"{prefix}/bin/slowlight")
        require(file is not None, "its program is no file")
        return file.read() if file else b""


def dependencies(program: bytes) -> set[tuple[str, str]]:
    """Checks that a program is static; returns the crates that `cargo auditable` recorded."""
    headers = readelf("--program-headers", program)
    require("INTERP" not in headers, "its program needs a dynamic loader")
    section = re.search(
        r"\.dep-v0 +PROGBITS +\w+ (\w+) (\w+)", readelf("--section-headers", program)
    )
    if section is None:
        raise WrongError("its program has no list of dependencies")
    offset, size = (int(number, 16) for number in section.groups())
    found = json.loads(zlib.decompress(program[offset : offset + size]))["packages"]
    return {(it["name"], it["version"]) for it in found if it.get("kind", "runtime") == "runtime"}


def readelf(option: str, program: bytes) -> str:
    with tempfile.NamedTemporaryFile() as file:
        file.write(program)
        file.flush()
        command = ["readelf", "--wide", option, file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def image(package: Path) -> None:
    """Checks the digests of an OCI image, from its index to its layers."""
    with tarfile.open(package) as archive:
        contents = {
            member.name.removeprefix("./"): file.read()
            for member in archive
            if (file := archive.extractfile(member))
        }

    def blob(descriptor: dict[str, Any]) -> bytes:
        method, digest = descriptor["digest"].split(":")
        data = contents[f"blobs/{method}/{digest}"]
        require(hashlib.sha256(data).hexdigest() == digest, f"blob {digest} has another digest")
        return data

    for descriptor in json.loads(contents["index.json"])["manifests"]:
        manifest = json.loads(blob(descriptor))
        architecture = json.loads(blob(manifest["config"]))["architecture"]
        require(f"oci-{architecture}." in package.name, f"it is for {architecture}")
        for layer in manifest["layers"]:
            blob(layer)


def wheel(package: Path) -> None:
    """Checks that a wheel has the library and the program."""
    with zipfile.ZipFile(package) as archive:
        names = archive.namelist()
        require("slowlight/_native.abi3.so" in names, "lacks the library")
        program = f"slowlight-{VERSION}.data/scripts/slowlight"
        require(program in names, "lacks the program")
        dependencies(archive.read(program))


def sbom(package: Path, contained: dict[str, set[tuple[str, str]]]) -> None:
    """Checks that a list of dependencies names all that the programs contain."""
    listed = json.loads(package.read_text())
    require(listed["bomFormat"] == "CycloneDX", "it is not CycloneDX")
    components = {(it["name"], it["version"]) for it in listed["components"]}
    components.add((listed["metadata"]["component"]["name"], VERSION))
    # Other machines have other dependencies.
    names = next(it for it in MACHINES if any(name in package.name for name in it))
    for name, crates in contained.items():
        if not any(it in name for it in names):
            continue
        missing = sorted(" ".join(crate) for crate in crates - components)
        require(not missing, f"lacks crates of {name}: {', '.join(missing)}")


def sums(file: Path) -> None:
    """Checks that the sums are those of all files."""
    lines = (line.split("  ", 1) for line in file.read_text().splitlines())
    listed = {name: digest for digest, name in lines}
    others = {path.name for path in file.parent.iterdir()} - {file.name}
    require(listed.keys() == others, f"names {sorted(listed)}, and the files are {sorted(others)}")
    for name, digest in listed.items():
        actual = hashlib.sha256((file.parent / name).read_bytes()).hexdigest()
        require(actual == digest, f"{name} has the sum {actual}")


def check(package: Path, contained: dict[str, set[tuple[str, str]]]) -> None:
    """Checks a package, and adds the crates of its program."""
    if package.name.endswith((".tar.gz", ".deb")):
        contained[package.name] = dependencies(program_of(package))
    elif package.name.endswith(".tar"):
        image(package)
    elif package.suffix == ".whl":
        wheel(package)
    elif package.name.endswith(".cdx.json"):
        sbom(package, contained)
    elif package.name == "SHA256SUMS":
        sums(package)
    else:
        raise WrongError("it is no package; remove it")


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: .ci/packages.py DIST", file=sys.stderr)
        return 2
    # A list of dependencies is compared with the programs, which come before it.
    packages = sorted(Path(sys.argv[1]).iterdir(), key=lambda path: path.suffix == ".json")
    contained: dict[str, set[tuple[str, str]]] = {}
    failed = 0
    for package in packages:
        try:
            check(package, contained)
            print(f"{package.name}: ok")
        except (WrongError, KeyError, OSError, ValueError, tarfile.TarError) as error:
            failed += 1
            print(f"{package.name}: {type(error).__name__}: {error}")
    print(f"{len(packages) - failed} passed, {failed} failed")
    return 1 if failed or not packages else 0


if __name__ == "__main__":
    sys.exit(main())
