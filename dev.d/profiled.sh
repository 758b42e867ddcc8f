# The program as `./dev deb` packs it and `./dev bench` measures it: compiled for what it does most
# (https://doc.rust-lang.org/rustc/profile-guided-optimization.html). `build_profiled` leaves it in $profiled_program.
#
#   build that counts ── serves what a server serves ── counts ── build that reads them
#
# Tests and their ceilings hold the program as `cargo build --release` makes it.

profiled=target/profiled
# shellcheck disable=SC2034 # the jobs use it
profiled_program=$profiled/guided/release/millrace

# After `cargo programs`, whose lab and floodgate it needs. Where nothing has changed it takes seconds.
build_profiled() {
    local sum counts
    say "building the program that counts what runs (target/profiled; the first time takes minutes)"
    compile_with "-Cprofile-generate=$PWD/$profiled/stray" counting || fail "FAILED at step \"counting build\""
    sum=$(sha256sum "$profiled/counting/release/millrace" | cut -c 1-12)
    # Its name tells cargo when there are other counts.
    counts=$PWD/$profiled/$sum.profdata
    [[ -s $counts ]] || count_what_runs "$counts"
    say "building the program by these counts"
    compile_with "-Cprofile-use=$counts" guided || fail "FAILED at step \"guided build\""
    counts_have_effect
}

# compile_with FLAG FOLDER: the same packages both times, or functions have other names in the counts than in the program.
# Thin: with counts it is worth something to see into other crates at the end (REFUSED 858 instructions without it, 813 with it).
compile_with() {
    CARGO_ENCODED_RUSTFLAGS=$1 CARGO_PROFILE_RELEASE_LTO=thin \
        cargo build --release --quiet --package millrace --bin millrace --example stages --target-dir "$profiled/$2"
}

# count_what_runs COUNTS: each stage of the pipeline alone; then, as root, a minute of the soak: REFUSED, hits, forwarding over rings
# and sockets, with faults, so that what is rare is known to be rare.
count_what_runs() {
    local folder=$profiled/raw merge scene
    merge=$(profile_tool) || fail "llvm-profdata of this compiler is not here: rustup component add llvm-tools; or do without \
counts: cargo programs, then packaging/build-deb millrace, MILLRACE=target/release/millrace ./dev bench"
    rm -rf "$folder"
    mkdir -p "$folder"
    say "counting: the stages of the pipeline"
    # Not those behind a million rules: making these takes so much more than the queries that only it would be optimised. Nor
    # whole workers, which need root: the lab below serves by them.
    for scene in $(sed -e 's/[ #].*//' -e '/fixes$/d' -e '/^loop-/d' bench/counts.txt); do
        LLVM_PROFILE_FILE=$folder/$scene-%m.profraw "$profiled/counting/release/examples/stages" "$scene" 100000 ||
            fail "FAILED at step \"counting\", scene $scene"
    done
    if ((EUID == 0)); then
        say "counting: a minute of service in the lab"
        # It is slower than what the soak holds to its times: what counts is that it served.
        LLVM_PROFILE_FILE=$PWD/$folder/served-%m.profraw SUBJECT=$profiled/counting/release/millrace \
            target/release/lab soak --seconds 60 --seed 1 --rate 20000 >"$profiled/soak.log" 2>&1 || :
    fi
    # A container may have root and no right to a network of its own.
    compgen -G "$folder/served-*.profraw" >/dev/null ||
        say "nothing was served over AF_XDP (that needs root and a lab, $profiled/soak.log): the loop around the rings is compiled as \
in any release"
    "$merge" merge --sparse --output="$folder/merged" "$folder"/*.profraw || fail "FAILED at step \"counting\", merging"
    # There at once and whole, or not at all; those of earlier programs are of no use.
    rm -f "$profiled"/*.profdata
    mv "$folder/merged" "$1"
    # Stray counts are those of what cargo runs while it builds.
    rm -rf "$folder" "$profiled/stray"
}

# profile_tool: where rustup puts the tool that fits its compiler; brought if need be.
profile_tool() {
    local tool
    tool=$(rustc --print sysroot)/lib/rustlib/$(rustc --version --verbose | sed -n 's/^host: //p')/bin/llvm-profdata
    [[ -x $tool ]] || rustup component add llvm-tools >&2
    [[ -x $tool ]] && echo "$tool"
}

# A compiler that finds none of its functions in the counts says nothing of it: the instructions of a REFUSED do.
counts_have_effect() {
    local ceiling counted
    command -v valgrind >/dev/null || return 0
    ceiling=$(awk '$1 == "refused" { print $2 }' bench/counts.txt)
    counted=$(valgrind --tool=callgrind --toggle-collect='*measured*' --callgrind-out-file=/dev/null \
        "$profiled/guided/release/examples/stages" refused 2000 2>&1 | sed -n 's/.*Collected : //p')
    counted=$((counted / 2000))
    ((counted * 100 < ceiling * 95)) ||
        fail "the counts have no effect: a REFUSED takes $counted instructions, $ceiling without them"
    say "a REFUSED takes $counted instructions of the pipeline; $ceiling without the counts"
}
