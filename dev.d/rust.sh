# Brings a Rust compiler that is new enough. `use_rust` leaves cargo in the path.

# "1.95" of rust-version = "1.95"
rust_wanted() { sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml; }

use_rust() {
    local wanted
    wanted=$(rust_wanted)
    if rust_is_new_enough "$wanted"; then
        return
    fi
    # What rustup installed goes before a distribution's older one.
    export PATH=${CARGO_HOME:-${HOME:?}/.cargo}/bin:$PATH
    if rust_is_new_enough "$wanted"; then
        return
    fi
    say "Rust $wanted or newer is needed, $(rust_found) is here"
    command -v rustup >/dev/null || install_rustup
    say "installing Rust $wanted by rustup"
    rustup toolchain install "$wanted" --profile minimal --component rustfmt --component clippy --no-self-update ||
        fail "rustup could not install Rust $wanted from ${RUSTUP_DIST_SERVER:-https://static.rust-lang.org}"
    export RUSTUP_TOOLCHAIN=$wanted
    hash -r
    rust_is_new_enough "$wanted" || fail "rustup installed Rust $wanted, yet rustc is $(rust_found)"
}

# Its version, or "none".
rust_found() {
    local version
    version=$(rustc --version 2>/dev/null | cut -d' ' -f2)
    echo "${version:-none}"
}

rust_is_new_enough() {
    local found
    found=$(rust_found)
    [[ $found != none ]] && command -v cargo >/dev/null &&
        [[ $(printf '%s\n%s\n' "$1" "$found" | sort --version-sort | head -n 1) == "$1" ]]
}

# Debian 13 and Ubuntu 24.04 have a package. Debian 12 has none: the program that https://sh.rustup.rs
# would fetch, from the same place, its checksum compared.
install_rustup() {
    # A distribution's rustc would have to go for its rustup: then better beside it, in the home folder.
    if [[ $(apt-cache policy rustup 2>/dev/null) == *"Candidate: "[0-9]* ]] && ! is_installed rustc; then
        install_packages rustup
    else
        command -v curl >/dev/null || install_packages curl
        fetch_rustup
    fi
}

fetch_rustup() {
    local place folder
    place=${RUSTUP_UPDATE_ROOT:-https://static.rust-lang.org/rustup}/dist/$(uname -m)-unknown-linux-gnu
    folder=$(mktemp -d)
    say "no package rustup for this system: fetching $place/rustup-init"
    fetch "$place/rustup-init" "$folder/rustup-init"
    fetch "$place/rustup-init.sha256" "$folder/sum"
    [[ $(cut -d' ' -f1 "$folder/sum") == "$(sha256sum "$folder/rustup-init" | cut -d' ' -f1)" ]] ||
        fail "rustup-init from $place has not the checksum that stands beside it"
    chmod 755 "$folder/rustup-init"
    "$folder/rustup-init" -y --quiet --no-modify-path --profile minimal --default-toolchain none
    rm -r "$folder"
}

# fetch URL FILE
fetch() {
    curl --fail --silent --show-error --location --proto '=https' --output "$2" "$1" ||
        fail "could not fetch $1; install Rust $(rust_wanted) yourself (https://rustup.rs) and come back"
}
