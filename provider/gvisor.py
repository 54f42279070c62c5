"""
What is different where the runtime is gVisor's `runsc`, which puts a kernel of its own, the sentry, between a command
and the host's.
"""

GVISOR = "runsc"
"""The name under which an engine has to offer it."""

ARGUMENTS = ("--oci-seccomp", "--network=none")
"""
What the engine has to start it with. Without the first it ignores the seccomp profile. By the second its own network
stack has loopback and nothing else: the 2024 release takes every network namespace for the host's where that has
/proc/sys/net/core/rmem_default, as new kernels do (6.18 measured), and then does not start at all.
"""

OWN_THREADS = 160
"""What the sentry and its file server need of the host's pids, beside two for each process or thread of a command."""

CHANGES = {
    "gained": "a second kernel: a command's system calls end in gVisor's, which makes few of its own to the host's",
    "slower": "a cold request takes about 2 times as long, a warm one 4, file calls 5, starting a process 11",
    "not there": (
        "an open network (refused); recycling (each command gets a fresh container); a count of denied writes;"
        " a provider without root, which cannot see which folder is mounted (refused); a limit of inodes in /tmp;"
        " FIFOs and sockets' names in the workspace for the host to see"
    ),
    "different": (
        "past its memory a sandbox ends as a whole, with what it had not yet written;"
        " processor time that is told is gVisor's own count, too high; what is EINVAL by the filter elsewhere is ENOSYS"
    ),
}
"""For `sandbox doctor` and its reader."""
