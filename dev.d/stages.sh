# The stages of `./dev test`, in order, and what each runs. A stage NAME is a function stage_NAME.

stages=(format build lints style units simulation fuzzers tests models scenarios offload dialect minute small race kernels fuzz packaging once)
# What may run beside which stages behind it: any other one awaits its end. The optimised build is for minutes one crate on one
# processor, and cargo keeps it apart from what is built for tests, as it does what is fuzzed; tests and virtual machines wait for most
# of their time.
declare -A beside=([build]="lints style units simulation" [fuzzers]="tests models" [kernels]="fuzz")
# The process groups of those that run so.
declare -A running=()

stage_format() { cargo fmt --all --check; }
stage_lints() { cargo clippy --workspace --all-targets --quiet -- -D warnings; }
stage_style() { cargo run --quiet --package xtask -- tidy; }
# The programs that later stages start, optimised: scenarios and faults count time.
stage_build() { cargo programs --quiet; }
# --show-output: a test that skips itself says so on its output, which would stay hidden otherwise.
stage_units() {
    cargo test --workspace --quiet --no-fail-fast --lib --bins -- --show-output &&
        cargo test --workspace --quiet --doc
}
# Rings, time, netlink and backends by seeds: crates/server/src/simulation. Of the whole workspace, as the unit tests were built:
# alone the package would have other features of its dependencies, and be compiled once more.
stage_simulation() {
    SIMULATION_SEEDS=10000 cargo test --workspace --lib --quiet simulation -- --show-output
}

# The scenarios have stages of their own, with the optimised program.
stage_tests() { cargo test --workspace --quiet --no-fail-fast --test '*' --exclude testnet -- --show-output; }
# Interleavings: packages of their own, for loom's dependencies are built for nothing else.
stage_models() {
    local model
    for model in model/*/; do
        (cd "$model" && cargo test --quiet) || return 1
    done
}
stage_scenarios() { target/release/lab scenarios; }
stage_offload() { target/release/lab scenarios --door xdp --offload; }
# A minute of what stage soak does for longer; always the same faults, so that what fails is the change.
stage_minute() { target/release/lab soak --seconds 60 --seed 1; }
# One restart by hand-over and a flood of forged sources, small: what they count, not how fast.
stage_small() { target/release/lab soak restarts --small && target/release/lab soak flood --small; }
# dnsperf's published test: six times 12,018 queries through a race of four resolvers, none lost; less than a minute.
stage_race() { target/release/lab soak race; }
# F40 in small, by hand: `./dev test soak`; SOAK_SECONDS=60 is shorter, SOAK_SEED repeats one.
stage_soak() {
    cargo programs --quiet &&
        target/release/lab soak --seconds "${SOAK_SECONDS:-1200}" ${SOAK_SEED:+--seed "$SOAK_SEED"}
}
stage_dialect() { SUBJECT=dnsdist target/release/lab scenarios; }
# What stage fuzz runs: built for longer than run. Tests beside it count time: they come first.
stage_fuzzers() { (cd fuzz && nice -n 19 cargo build --release --quiet); }
stage_fuzz() { fuzz/gate.sh; }
stage_kernels() { tests/kernels/run; }
stage_packaging() { tests/packaging/run target/release/millrace; }
stage_once() { ./dev run --once; }

# run_stages NAME...: runs them all, whatever fails, and closes with the sums and what failed.
run_stages() {
    local name logs=target/dev culprits=() passed=0 failed=0 skipped=0
    mkdir -p "$logs"
    for name in "$@"; do
        declare -F "stage_$name" >/dev/null || fail "no stage \"$name\": ${stages[*]}"
        rm -f "$logs/$name.result"
    done
    for name in "$@"; do
        await_those_before "$name"
        if [[ -n ${beside[$name]:-} ]]; then
            start_beside "$name"
        else
            run_stage "$name" "$logs"
            add_up "$name"
        fi
    done
    await_those_before end
    for name in "${culprits[@]}"; do
        say "what failed in $name; all of it is in $logs/$name.log"
        what_failed "$logs/$name.log"
    done
    printf '\n'
    for name in "$@"; do
        sed -n 2p "$logs/$name.result"
    done
    printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
    ((failed == 0))
}

# start_beside NAME: in a process group of its own, which ends with this shell: Ctrl-C would not reach it.
start_beside() {
    set -m
    run_stage "$1" "$logs" &
    set +m
    running[$1]=$!
    trap end_those_beside EXIT
}

end_those_beside() {
    local group
    for group in "${running[@]}"; do
        kill -- "-$group" 2>/dev/null || :
    done
}

# await_those_before NAME: the stages that run and may not run beside this one.
await_those_before() {
    local name
    for name in "${!running[@]}"; do
        [[ " ${beside[$name]} " != *" $1 "* ]] || continue
        wait "${running[$name]}" || :
        unset "running[$name]"
        add_up "$name"
    done
}

# add_up NAME: the counts of a stage that has ended.
add_up() {
    local stage_passed stage_failed stage_skipped
    read -r stage_passed stage_failed stage_skipped <"$logs/$1.result" || fail "stage $1 has told nothing of its end"
    passed=$((passed + stage_passed)) failed=$((failed + stage_failed)) skipped=$((skipped + stage_skipped))
    ((stage_failed == 0)) || culprits+=("$1")
}

# watch LOG: what a stage prints, into its log; a terminal shows it as well. Elsewhere thousands of lines about what passed
# would hide the few about what did not.
watch() { if [[ -t 1 ]]; then tee "$1"; else cat >"$1"; fi; }

# what_failed LOG: the tests' own account of it, else the lines that say so, else how the stage ended.
what_failed() {
    awk '/^failures:$/ { on = 1 } on { print } /^test result:/ { on = 0 }' "$1" | grep . ||
        grep --extended-regexp --after-context=6 'FAILED|^failed:|^error|skipped, and tests/SKIPS' "$1" ||
        tail -n 60 "$1"
}

# run_stage NAME LOGS: leaves its counts and the line about it in NAME.result beside its log.
run_stage() {
    local start=$EPOCHREALTIME status=0 seconds log=$2/$1.log stage_passed stage_failed stage_skipped
    say "$1"
    # A subshell, so that no stage can change what the next one finds.
    (
        set -o pipefail
        "stage_$1" 2>&1 | watch "$log"
    ) || status=1
    seconds=$(((${EPOCHREALTIME/./} - ${start/./}) / 1000000))
    skips_are_listed "$log" >>"$log" 2>&1 || status=1
    count_log "$log" "$status"
    printf '%d %d %d\n%-10s %-6s %5d s   %d passed, %d failed, %d skipped\n' "$stage_passed" "$stage_failed" "$stage_skipped" \
        "$1" "$( ((status == 0)) && echo ok || echo FAILED)" "$seconds" "$stage_passed" "$stage_failed" "$stage_skipped" \
        >"$2/$1.result"
}

# count_log LOG STATUS: adds up cargo's "test result:" lines, the scenarios' last line, "SKIP:" lines. A
# stage without tests of its own counts as one; one that failed otherwise than by a test too.
count_log() {
    read -r stage_passed stage_failed stage_skipped < <(awk -v status="$2" '
        /^test result:/ { passed += $4; failed += $6; found = 1 }
        /^packaging: / { passed += $2; found = 1 }
        /^scenarios: / {
            for (i = 2; i < NF; i++) {
                if ($(i + 1) ~ /^passed/) passed += $i
                if ($(i + 1) ~ /^failed/) failed += $i
            }
            found = 1
        }
        /^SKIP: / { skipped++ }
        END {
            if (status != 0 && failed == 0) failed = 1
            if (!found && status == 0) passed = 1
            print passed + 0, failed + 0, skipped + 0
        }' "$1")
}

# As root nothing is skipped but what tests/SKIPS lists with its reason.
skips_are_listed() {
    ((EUID == 0)) || return 0
    local line text known unlisted=0
    while IFS= read -r line; do
        known=0
        while IFS= read -r text; do
            if [[ -n $text && $text != \#* && $line == *"${text%% | *}"* ]]; then
                known=1
            fi
        done <tests/SKIPS
        if ((known == 0)); then
            complain "skipped, and tests/SKIPS does not list it: $line"
            unlisted=1
        fi
    done < <(grep '^SKIP: ' "$1")
    ((unlisted == 0))
}
