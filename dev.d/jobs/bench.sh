# bench [list|SCENARIO]  measures servers and yardsticks in the lab; results in bench/results
. dev.d/packages.sh
. dev.d/rust.sh
. dev.d/profiled.sh

install_packages "${packages_build[@]}" "${packages_lab[@]}" "${packages_bench[@]}"
use_rust
say "building (cargo programs; the first time takes minutes)"
cargo programs --quiet || fail "FAILED at step \"build\""
if [[ ! ${1:-} =~ ^(list|report|--help)$ ]]; then
    # A slip is told before the long builds.
    target/release/lab bench check "$@" || exit 1
    cargo build --release --quiet --package xsk --examples &&
        make --quiet -C bench/yardsticks || fail "FAILED at step \"yardsticks\""
    # What operators install is measured, unless another program is named.
    if [[ -z ${MILLRACE:-} && " $* " != *" --remote "* ]]; then
        build_profiled
        export MILLRACE=$PWD/$profiled_program
    fi
fi
exec target/release/lab bench "$@"
