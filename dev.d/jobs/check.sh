# check               format, lints, unit tests, style: under two minutes once built
. dev.d/packages.sh
. dev.d/rust.sh
. dev.d/stages.sh

install_packages "${packages_build[@]}" "${packages_lab[@]}" "${packages_test[@]}"
use_rust
run_stages format lints style units
