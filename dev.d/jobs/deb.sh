# deb                 builds the Debian packages, millrace and floodgate, in target/deb
. dev.d/packages.sh
. dev.d/rust.sh
. dev.d/profiled.sh

install_packages "${packages_build[@]}" iproute2 ethtool dpkg-dev
use_rust
say "building (cargo programs; the first time takes minutes)"
cargo programs --quiet || fail "FAILED at step \"build\""
build_profiled
packaging/build-deb millrace "$profiled_program"
packaging/build-deb floodgate
