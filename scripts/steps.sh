# For scripts that source this file: `step NAME` begins a step and ends the one before. At the end a table of all steps with their seconds is
# printed, and left in target/times.tsv: seconds, kind (step, program, test), name. A script that another one calls adds its steps to the
# caller's table. scripts/seconds.py adds the programs, and the tests that take more than 5 s.

if [ -z "${HOTROW_TIMES:-}" ]; then
    mkdir -p "${CARGO_TARGET_DIR:-target}"
    HOTROW_TIMES=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)/times.tsv
    export HOTROW_TIMES
    : >"$HOTROW_TIMES"
    times_are_mine=1
fi

step() {
    step_ends
    step_name=$* step_began=$SECONDS
    printf '\n== %s (after %d s)\n' "$step_name" "$SECONDS" >&2
}

step_ends() { # STATUS
    [ -n "${step_name:-}" ] || return 0
    local outcome=
    [ "${1:-0}" -eq 0 ] || outcome=" FAILED"
    printf '%d\tstep\t%s%s\n' $((SECONDS - step_began)) "$step_name" "$outcome" >>"$HOTROW_TIMES"
    step_name=
}

ends() { # STATUS
    step_ends "$1"
    [ -n "${times_are_mine:-}" ] || return 0
    {
        printf '\nseconds  step\n'
        awk -F'\t' '
            $2 == "step" { printf "%7d  %s\n%s", $1, $3, within; within = "" }
            $2 == "program" { within = within sprintf("%7d    of it %s\n", $1, $3) }
            $2 == "test" { long[++n] = sprintf("%7.1f  %s", $1, $3) }
            END {
                if (n) print "\nseconds  tests that took more than 5, beside another one"
                for (i = 1; i <= n; i++) print long[i]
            }' "$HOTROW_TIMES"
        printf '\n%7d  together: %s\n' "$SECONDS" "$HOTROW_TIMES"
    } >&2
}
trap 'ends $?' EXIT
