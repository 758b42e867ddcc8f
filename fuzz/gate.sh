#!/usr/bin/env bash
# gate.sh [SECONDS]   each target for ten seconds, or as many as given, from the corpora that are committed. Fails where
# one crashes, or runs blind because it was built without instrumentation.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"

seconds=${1:-10} passed=0 failed=0
export FOUND=found/gate
mkdir -p $FOUND
cargo build --release --quiet
for file in targets/*.rs; do
    target=$(basename --suffix=.rs "$file")
    log=$FOUND/$target.log
    # Each run starts from what is committed.
    rm -rf "${FOUND:?}/$target"
    status=0
    ./run.sh "$target" "$seconds" 2>"$log" || status=$?
    if ! grep --text --quiet 'Loaded 1 modules' "$log"; then
        printf 'fuzz %s: not instrumented: .cargo/config.toml beside this script says how it is built\n' "$target"
        status=1
    fi
    if ((status == 0)); then
        passed=$((passed + 1))
        printf 'fuzz %-9s %s\n' "$target" "$(grep --text --only-matching 'Done .* runs' "$log")"
    else
        failed=$((failed + 1))
        printf 'fuzz %-9s FAILED; fuzz/run.sh %s FILE repeats it, all is in fuzz/%s\n' "$target" "$target" "$log"
        grep --text --extended-regexp --after-context=3 'panicked|ERROR|Test unit written' "$log" || tail -n 20 "$log"
    fi
done
verdict=ok
((failed == 0)) || verdict=FAILED
printf 'test result: %s. %d passed; %d failed\n' "$verdict" "$passed" "$failed"
((failed == 0))
