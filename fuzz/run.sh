#!/usr/bin/env bash
# run.sh TARGET SECONDS [OPTION]...   fuzzes one target from its corpus; the options are libFuzzer's.
# run.sh TARGET FILE [OPTION]...      puts one input to it, a crash for example.
# TARGET is a file in targets/ without its ".rs". New inputs go to the folder $FOUND (found)/TARGET, crashes beside it.
set -euo pipefail
[[ ! -f ${2:-} ]] || set -- "$1" "$(readlink -f "$2")" "${@:3}"
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"

if (($# < 2)) || [[ ! -f targets/$1.rs ]]; then
    sed -n '2,4s/^# //p' run.sh >&2
    printf 'targets: %s\n' "$(basename --suffix=.rs --multiple targets/*.rs | paste --serial --delimiters=' ')" >&2
    exit 2
fi
target=$1 what=$2 found=${FOUND:-found}
shift 2
cargo build --release --quiet --bin "$target"
program=target/x86_64-unknown-linux-gnu/release/$target
if [[ -f $what ]]; then
    exec "$program" "$@" "$what"
fi
mkdir -p "$found/$target"
# Standard output belongs to what configurations print.
exec "$program" "$found/$target" "corpus/$target" -max_total_time="$what" -max_len=4096 -len_control=0 \
    -timeout=10 -close_fd_mask=1 -artifact_prefix="$found/$target-" "$@"
