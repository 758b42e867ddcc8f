#!/bin/sh
# The file system as the service's unit leaves it, in a mount namespace that this process has to itself; then the words that
# follow. The last of them is the path of the daemon's control socket: its folder stands for those that the unit gives the
# service to write in (RuntimeDirectory, StateDirectory, LogsDirectory).
#   sandbox.sh UMASK COMMAND... FOLDER/control
set -eu
umask "$1"
shift
for control; do :; done
folder=${control%/*}

# Where / is no mount point (in a chroot) what is mounted here would be seen by everybody.
mount --make-rprivate / 2>/dev/null || {
    echo "sandbox.sh: / is no mount point, so the file system stays as it is" >&2
    exec "$@"
}

# A mount of its own stays as it is when those around it become read-only: the folder, and ReadWritePaths=.
links=/sys/fs/bpf/millrace
mount --bind "$folder" "$folder"
mount --bind "$links" "$links"
# ProtectProc=invisible: "processes owned by other users are hidden from /proc/".
mount -t proc -o hidepid=2 proc /proc
# ProtectKernelTunables: kernel variables in /proc/sys/ and /sys/ are read-only, and /sys/fs/bpf with them.
mount --bind /proc/sys /proc/sys
# ProtectSystem=strict: "the entire file system hierarchy is mounted read-only, except for the API file system subtrees /dev/,
# /proc/ and /sys/".
for place in $(cut -d ' ' -f 5 /proc/self/mountinfo); do
    case $place in
    "$folder" | "$links" | /proc | /dev | /dev/*) ;;
    # One that another mount hides is no mount point by its name.
    *) mount -o remount,bind,ro "$place" 2>/dev/null || : ;;
    esac
done
exec "$@"
