#!/usr/bin/env bash
# gate.sh [SECONDS]   each target for ten seconds, or as many as given, from the corpora that are committed. Fails where
# one crashes, or runs blind because it was built without instrumentation.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"

seconds=${1:-10} passed=0 failed=0
export FOUND=found/gate
mkdir -p $FOUND
cargo build --release --quiet

# attempt TARGET: its run, into its log; whether it found nothing.
attempt() {
    local log=$FOUND/$1.log
    # Each run starts from what is committed.
    rm -rf "${FOUND:?}/$1"
    ./run.sh "$1" "$seconds" 2>"$log" || return 1
    grep --text --quiet 'Loaded 1 modules' "$log" && return
    printf 'not instrumented: .cargo/config.toml beside this script says how it is built\n' >>"$log"
    return 1
}

# tell TARGET: what came of its run; whether it found nothing.
tell() {
    local log=$FOUND/$1.log
    if [[ -e $FOUND/$1.good ]]; then
        printf 'fuzz %-9s %s\n' "$1" "$(grep --text --only-matching 'Done .* runs' "$log")"
        return
    fi
    printf 'fuzz %-9s FAILED; fuzz/run.sh %s FILE repeats it, all is in fuzz/%s\n' "$1" "$1" "$log"
    grep --text --extended-regexp --after-context=3 'panicked|ERROR|Test unit written|not instrumented' "$log" ||
        tail -n 20 "$log"
    return 1
}

targets=()
for file in targets/*.rs; do
    targets+=("$(basename --suffix=.rs "$file")")
done
rm -f "$FOUND"/*.good
# As many at once as there are processors.
running=0
for target in "${targets[@]}"; do
    if ((running == $(nproc))); then
        wait -n || :
        running=$((running - 1))
    fi
    { attempt "$target" && : >"$FOUND/$target.good"; } &
    running=$((running + 1))
done
wait
for target in "${targets[@]}"; do
    if tell "$target"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
verdict=ok
((failed == 0)) || verdict=FAILED
printf 'test result: %s. %d passed; %d failed\n' "$verdict" "$passed" "$failed"
((failed == 0))
