"""The machine that bench/gpu.py runs on: its libraries, its description, and its monitoring during the parts."""
import ctypes, fcntl, glob, os, platform, socket, struct, subprocess, sys

import parts

HERE = os.path.dirname(os.path.abspath(__file__))


def package_folders():
    return sys.path + glob.glob(os.path.join(sys.prefix, "lib*/python3*/*-packages"))


def warm(*names):
    """Reads libraries of half a gigabyte in the background, so that they are in memory when they are opened."""
    places = ["/usr/local/cuda*/lib64", "/usr/lib/x86_64-linux-gnu"] + [os.path.join(p, "nvidia/*/lib") for p in package_folders()] + \
        [os.path.join(p, "torch/lib") for p in package_folders()]
    files = [path for name in names for place in places for path in glob.glob(os.path.join(place, name))]
    if files:
        parts.start_beside(["cat", *files], stdout=subprocess.DEVNULL)


def raise_loopback():
    """mpirun's processes speak through lo, which bare containers and machines leave down. What there is to say of it, or None."""
    SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            request = struct.pack("16sh14x", b"lo", 0)
            flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))[1]
            if flags & IFF_UP:
                return None
            fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))
            return "it was down, and is up now"
    except OSError as error:
        return f"it is down, and mpirun may fail: {error}"


def watch_clocks(path):
    """nvidia-smi's clocks, power and reasons for less, twice a second, into a file beside the results."""
    fields = "timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu,memory.used,clocks_event_reasons.active"
    try:
        with open(path, "w") as file:
            return parts.start_beside(["nvidia-smi", "--query-gpu=" + fields, "--format=csv", "-lms", "500"], stdout=file)
    except OSError:
        return None


def library(name, function):
    """Version and place of a library that is opened at run time. Gives the loader its folder where it knows none."""
    packages = [os.path.join(p, "nvidia/*/lib") for p in package_folders()]
    elsewhere = [f for folder in ["/usr/local/cuda*/lib64"] + packages for f in glob.glob(os.path.join(folder, name))]
    for path in [name] + elsewhere:
        try:
            handle = ctypes.CDLL(path)
        except OSError as error:
            why = str(error)
            continue
        if path != name:
            known = os.environ.get("LD_LIBRARY_PATH")
            os.environ["LD_LIBRARY_PATH"] = os.path.dirname(path) + (":" + known if known else "")
        if function == "cublasLtGetVersion":
            handle.cublasLtGetVersion.restype = ctypes.c_size_t
            version = handle.cublasLtGetVersion()
        else:
            number = ctypes.c_int()
            getattr(handle, function)(ctypes.byref(number))
            version = number.value
        return {"version": version, "path": next((l.split()[-1] for l in open("/proc/self/maps") if name in l), path)}
    return {"version": None, "why": why}


def command_line(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def describe_machine():
    cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())
    release = dict(l.rstrip().split("=", 1) for l in open("/etc/os-release") if "=" in l)
    return {"processor": cpu, "cores": len(os.sched_getaffinity(0)),
            "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "system": release.get("PRETTY_NAME", "").strip('"'), "kernel": platform.release()}


def describe_gpus():
    fields = ["name", "driver_version", "memory.total", "compute_cap", "power.limit", "clocks.max.sm"]
    text = command_line(["nvidia-smi", "--query-gpu=" + ",".join(fields), "--format=csv,noheader"])
    return [dict(zip(fields, map(str.strip, line.split(",")))) for line in text.splitlines()]


def commit_of(folder):
    path = os.path.join(folder, "commit")
    if os.path.exists(path):
        return open(path).read().strip()
    commit = command_line(["git", "-C", HERE, "rev-parse", "HEAD"])
    changed = command_line(["git", "-C", HERE, "status", "--porcelain", "--untracked-files=no"])
    return (commit or "unknown") + (" with changes" if changed else "")
