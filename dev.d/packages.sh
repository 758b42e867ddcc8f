# Installs Debian packages that are missing, and starts none of the services in them.
# Names are those of Debian 12, Debian 13 and Ubuntu 24.04 (there in main and universe).

# To compile: the kernel program by clang, libbpf, LuaJIT and aws-lc by gcc and make.
# shellcheck disable=SC2034 # the lists are used by the jobs
packages_build=(ca-certificates gcc libc6-dev make pkg-config clang libbpf-dev libelf-dev zlib1g-dev linux-libc-dev)
# shellcheck disable=SC2034
# To see it work: namespaces, a real DNS server as backend, a client.
packages_lab=(iproute2 ethtool knot knot-dnsutils)
# shellcheck disable=SC2034
# To test: the list of files, the server whose language we speak, what counts instructions, other readers of zone files, servers to
# compare and to transfer zones with, who validates answers and reads captures, other kernels in a VM, what the package meets.
packages_test=(git dnsdist valgrind bind9 bind9-utils bind9-dnsutils nsd tcpdump qemu-system-x86 cpio xz-utils curl systemd apparmor dpkg-dev)
# Two packages have one; where initramfs-tools has brought its own, the other would remove it.
command -v busybox >/dev/null || packages_test+=(busybox-static)
# Somebody else's program is loaded with it. Ubuntu has it in a package for each kernel.
if grep -q '^ID=debian' /etc/os-release 2>/dev/null; then
    packages_test+=(bpftool)
fi
# shellcheck disable=SC2034
# To compare: other servers, what signs zones, another closed loop, taskset.
packages_bench=(dnsdist nsd knot-dnssecutils dnsperf util-linux)

# What an installation that has not ended was to install, for the run after one that was killed. It outlives a boot, as do the
# services that would start then.
packages_begun=/var/lib/millrace-dev.begun
policy=/usr/sbin/policy-rc.d
policy_mark='# put here by millrace ./dev for the time of one installation'

# install_packages NAME...
install_packages() {
    local missing=() name
    if ((EUID == 0)); then
        # One at a time; the lock goes with the shell. What a killed run left is put right first.
        exec {packages_lock}>/run/millrace-dev.lock
        if ! flock --nonblock "$packages_lock"; then
            say "another ./dev installs packages: waiting for it"
            flock "$packages_lock"
        fi
        allow_service_starts
        disable_begun
    fi
    for name in "$@"; do
        is_installed "$name" || missing+=("$name")
    done
    if ((${#missing[@]} > 0)); then
        command -v apt-get >/dev/null || fail "these packages are needed, and there is no apt-get: ${missing[*]}"
        ((EUID == 0)) || fail "these packages are missing; as root: apt-get install ${missing[*]}"
        install_missing "${missing[@]}"
    fi
    if ((EUID == 0)); then
        exec {packages_lock}>&-
    fi
}

install_missing() {
    say "installing $* (by apt-get; services in them are not started)"
    forbid_service_starts
    echo "$*" >>"$packages_begun"
    if [[ -n $(dpkg --audit) ]]; then
        # A killed installation leaves packages unpacked and not configured, and apt-get refuses to go on.
        say "an earlier installation was interrupted: dpkg --configure -a"
        DEBIAN_FRONTEND=noninteractive dpkg --configure -a
    fi
    apt_install "$@" || fail "apt-get could not install $*: what it says is above. It needs a network or a mirror, and on Ubuntu \
the component universe; those that are there already are not fetched again"
    allow_service_starts
    disable_begun
}

# Those that an installation has brought, be it one that was killed and has completed by itself. What is not there yet is missing
# still: it is installed and disabled next.
disable_begun() {
    local name names=() installed=()
    [[ -e $packages_begun ]] || return 0
    read -r -d '' -a names <"$packages_begun" || :
    for name in "${names[@]}"; do
        if is_installed "$name"; then
            installed+=("$name")
        fi
    done
    keep_disabled "${installed[@]}"
    rm "$packages_begun"
}

is_installed() { [[ $(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

apt_install() {
    local options=(-y -q --no-install-recommends --no-remove -o DPkg::Lock::Timeout=300)
    if [[ -z $(find /var/lib/apt/lists -name '*_Packages*' -print -quit 2>/dev/null) ]]; then
        apt-get update -q || return
    fi
    # Lists that are old name files that are gone: fetch them anew and try once more.
    DEBIAN_FRONTEND=noninteractive apt-get install "${options[@]}" "$@" ||
        { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install "${options[@]}" "$@"; }
}

# invoke-rc.d and deb-systemd-invoke ask policy-rc.d; 101 is "no".
forbid_service_starts() {
    if [[ -e $policy ]] && ! grep -qF "$policy_mark" "$policy"; then
        [[ -e $policy.before-millrace ]] || mv "$policy" "$policy.before-millrace"
    fi
    printf '#!/bin/sh\n%s\nexit 101\n' "$policy_mark" >"$policy"
    chmod 755 "$policy"
    trap allow_service_starts EXIT
}

# Nothing but our own file is removed.
allow_service_starts() {
    if [[ -e $policy ]] && grep -qF "$policy_mark" "$policy"; then
        rm "$policy"
    fi
    if [[ -e $policy.before-millrace ]]; then
        mv "$policy.before-millrace" "$policy"
    fi
    trap - EXIT
}

# With systemd a package's service would start at the next boot: those installed just now do not.
keep_disabled() {
    [[ -d ${packages_systemd:-/run/systemd/system} ]] || return 0
    local name
    for name in knot dnsdist nsd bind9; do
        if [[ " $* " == *" $name "* ]]; then
            systemctl disable --quiet "${name/bind9/named}.service"
        fi
    done
}
