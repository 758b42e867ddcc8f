# run [--once]        shows it working: lab, backend, queries; --once does not wait for Ctrl-C
. dev.d/packages.sh
. dev.d/rust.sh

install_packages "${packages_build[@]}" "${packages_lab[@]}"
use_rust
say "building (cargo build --release; the first time takes minutes)"
cargo build --release --quiet --package millrace --package testnet || fail "FAILED at step \"build\""
exec target/release/lab run "$@"
