# deb                 builds the Debian package in target/deb
. dev.d/packages.sh
. dev.d/rust.sh

install_packages "${packages_build[@]}" dpkg-dev
use_rust
say "building (cargo build --release; the first time takes minutes)"
cargo build --release --quiet --package millrace || fail "FAILED at step \"build\""
exec packaging/build-deb
