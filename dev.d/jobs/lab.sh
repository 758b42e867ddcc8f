# lab up|down|shell   the network namespaces alone; `shell client|server|backend` looks around in them, `metrics WORD` shows rows
. dev.d/packages.sh
. dev.d/rust.sh

install_packages "${packages_build[@]}" "${packages_lab[@]}"
use_rust
cargo build --quiet --package testnet
exec target/debug/lab "$@"
