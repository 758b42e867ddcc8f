# test [STAGE]...     everything, as CI runs it; or only the stages named
. dev.d/packages.sh
. dev.d/rust.sh
. dev.d/stages.sh

install_packages "${packages_build[@]}" "${packages_lab[@]}" "${packages_test[@]}"
use_rust
if (($# == 0)); then
    set -- "${stages[@]}"
fi
run_stages "$@"
