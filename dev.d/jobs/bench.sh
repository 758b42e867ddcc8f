# bench [list|SCENARIO]  measures servers and yardsticks in the lab; results in bench/results
. dev.d/packages.sh
. dev.d/rust.sh

install_packages "${packages_build[@]}" "${packages_lab[@]}" "${packages_bench[@]}"
use_rust
say "building (cargo build --release; the first time takes minutes)"
cargo build --release --quiet --package millrace --package floodgate --package testnet &&
    cargo build --release --quiet --package xsk --examples &&
    make --quiet -C bench/yardsticks || fail "FAILED at step \"build\""
exec target/release/lab bench "$@"
