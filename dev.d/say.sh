# How the jobs speak.

# A line that says what happens now.
say() { printf '== %s\n' "$*"; }

# A line about what went wrong, on standard error.
complain() { printf 'dev: %s\n' "$*" >&2; }

# Ends the job with a line about what went wrong.
fail() {
    complain "$*"
    exit 1
}
