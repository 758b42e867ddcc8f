# run [--once]        shows it working: lab, backend, queries; --once does not wait for Ctrl-C
. dev.d/packages.sh
. dev.d/rust.sh

install_packages "${packages_build[@]}" "${packages_lab[@]}"
use_rust
say "building (cargo programs; the first time takes minutes)"
cargo programs --quiet || fail "FAILED at step \"build\""
exec target/release/lab run "$@"
