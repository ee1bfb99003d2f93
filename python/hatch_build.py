"""Builds the C library and the program with make and adds them to the wheel. Adds the C sources to the sdist.

In a clone the C sources are in the folder above this one, in an sdist in the folder `engine`. Environment variables
that packaging/wheel.sh sets:

UNMASK_BUILD     build folder of make, relative to the sources or absolute (default: build)
UNMASK_PROGRAM   program to pack in place of the one that make builds
UNMASK_LICENCES  folder with the licences of the libraries that are inside of the program and the wheel
"""

import os
import pathlib
import re
import subprocess
import sys
import sysconfig

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = HERE / "engine" if (HERE / "engine").is_dir() else HERE.parent
# The files that the C build reads, and those that the wheel packs beside the program.
ENGINE_PARTS = ["Makefile", "LICENSE", "include", "src", "tools/deps.sh", "models"]


def header_version():
    """Returns the version that include/unmask.h states."""
    header = (SOURCES / "include" / "unmask.h").read_text(encoding="utf-8")
    return ".".join(re.findall(r"^#define UM_VERSION_\w+ (\d+)$", header, re.MULTILINE))


def declarations():
    """Returns the declarations of include/unmask.h without preprocessor lines."""
    command = [os.environ.get("CC", "cc"), "-E", "-P", "-DUM_BARE_DECLARATIONS", str(SOURCES / "include" / "unmask.h")]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout


def write_declarations(path):
    """Writes the module that describes the library to cffi. It depends on no version of Python."""
    import cffi

    ffi = cffi.FFI()
    ffi.cdef(declarations())
    ffi.set_source("unmask._declarations", None)
    ffi.emit_python_code(str(path))
    with open(path, "a", encoding="utf-8") as module:
        module.write(f"version = {header_version()!r}\n")


def make(build, *targets):
    """Runs make in the folder of the sources."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    }
    # Standard output of a build backend belongs to its frontend.
    subprocess.run(
        ["make", "-s", "-C", str(SOURCES), f"BUILD={build}", *targets], check=True, env=environment, stdout=sys.stderr
    )


def engine_files():
    """Returns what the wheel takes from the C build: {file or folder: place in the wheel}."""
    folder = os.environ.get("UNMASK_BUILD") or "build"  # make names its targets by this text
    program = os.environ.get("UNMASK_PROGRAM")
    library = f"libunmask.so.{header_version()}"
    make(folder, f"{folder}/{library}", *([] if program else [f"{folder}/unmask"]))
    build = SOURCES / folder
    module = build / "python" / "_declarations.py"
    module.parent.mkdir(parents=True, exist_ok=True)
    write_declarations(module)
    files = {
        str(module): "unmask/_declarations.py",
        str(build / library): "unmask/libunmask.so",
        program or str(build / "unmask"): "unmask/bin/unmask",
        str(SOURCES / "models"): "unmask/share/unmask/models",
    }
    if os.environ.get("UNMASK_LICENCES"):
        files[os.environ["UNMASK_LICENCES"]] = "unmask/share/unmask/licences"
    plugin = build / "libunmask-cuda.so"
    if plugin.exists():
        files[str(plugin)] = "unmask/libunmask-cuda.so"
    return files


def platform_tag():
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # hatchling is not needed to call the functions above
    pass
else:

    class EngineHook(BuildHookInterface):
        def initialize(self, version, build_data):
            if self.target_name == "sdist":
                if SOURCES != HERE / "engine":
                    build_data["force_include"].update({str(SOURCES / part): f"engine/{part}" for part in ENGINE_PARTS})
                return
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform_tag()}"
            if version != "editable":
                build_data["force_include"].update(engine_files())
                return
            raise NotImplementedError("editable installations are not supported; use UNMASK_LIBRARY (docs/python.md)")
