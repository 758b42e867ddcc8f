# deb                 builds the Debian packages, millrace and floodgate, in target/deb
. dev.d/packages.sh
. dev.d/rust.sh

install_packages "${packages_build[@]}" dpkg-dev
use_rust
say "building (cargo build --release; the first time takes minutes)"
cargo build --release --quiet --package millrace --package floodgate || fail "FAILED at step \"build\""
packaging/build-deb millrace
packaging/build-deb floodgate
