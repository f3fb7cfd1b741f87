#!/bin/bash
# Finishes or undoes a commit that was cut: what docs/reference/state.md calls the journal. Does nothing where there is none.
# Without an argument it brings the files of a commit into place and no more. --boot, for the unit, also tells those who have read
# the old files already.
# Written by fabric-plan; a change here is overwritten.


# ---- nothing below is data; the same on every node ------------------------------------------------------------------------

set -u
umask 022
export LC_ALL=C
PATH=$PATH:/usr/sbin:/sbin

# Every path starts here, so that tests can run the script in a directory of their own. Empty on a node.
ROOT=${FABRIC_PLAN_ROOT:-}
RUN=$ROOT/run/fabric-plan
NAME=${0##*/}
PROBLEMS=()

say() { printf '%s: %s\n' "$NAME" "$*"; }
warn() { printf '%s: %s\n' "$NAME" "$*" >&2; }

# What is wrong is said at once and counted: one fault never keeps the rest from being put right.
problem() {
    PROBLEMS+=("$*")
    warn "error: $*"
}

die() {
    warn "error: $*"
    exit 1
}

finish() {
    if ((${#PROBLEMS[@]})); then
        warn "${#PROBLEMS[@]} left wrong, see above"
        exit 1
    fi
    exit 0
}

# take_lock NAME: one run at a time, whoever started it: a unit, the dispatcher or a person. The lock goes with the process.
take_lock() {
    mkdir -p "$RUN" || die "cannot make $RUN"
    exec 9>>"$RUN/$1" || die "cannot open $RUN/$1"
    flock -w "${FABRIC_PLAN_LOCK_WAIT:-150}" 9 || die "somebody has held $RUN/$1 for too long; see: fuser -v $RUN/$1"
}


# replace_file PATH < CONTENT: in one step, and only where the content differs.
replace_file() {
    local path=$1 text
    text=$(cat)
    if [[ -f $path && $(<"$path") == "$text" ]]; then
        return 0
    fi
    mkdir -p "${path%/*}" && printf '%s\n' "$text" >"$path.new" && mv -f "$path.new" "$path"
}


STATE=$ROOT/var/lib/fabric-plan
STAGE=$STATE/stage      # a commit that has not reached its commit point
JOURNAL=$STATE/journal  # a commit that has
CHANGED=()

digest() { sha256sum <"$1" 2>/dev/null | cut -d ' ' -f 1; }

sync_path() { sync "$@" 2>/dev/null || sync; }

# good_path PATH: absolute, without a step back: the list is ours, but what it names is overwritten.
good_path() { [[ $1 == /* && $1 != */../* && $1 != */.. && $1 != */ && $1 != *//* ]]; }

# entry_done MODE DIGEST PATH: whether the file system already is as this line of a list says.
entry_done() {
    local path=$ROOT$3
    case $1 in
        -) [[ ! -e $path && ! -L $path ]] ;;
        link) [[ -L $path && $(readlink "$path") == "$2" ]] ;;
        *) [[ -f $path && ! -L $path && $(digest "$path") == "$2" && $(stat -c %a "$path") == "${1#0}" ]] ;;
    esac
}

# list_whole DIR: whether every line of DIR/list can be carried out: its file is there and unharmed, or has arrived already.
list_whole() {
    local mode sum path n=0
    # A list that does not end with a whole line was cut.
    [[ -s $1/list && -z $(tail -c 1 "$1/list") ]] || return 1
    while IFS=$'\t' read -r mode sum path; do
        n=$((n + 1))
        good_path "$path" || return 1
        case $mode in
            -) ;;
            link) [[ -n $sum ]] || return 1 ;;
            0[0-7][0-7][0-7]) entry_done "$mode" "$sum" "$path" || [[ $(digest "$1/files/$n") == "$sum" ]] || return 1 ;;
            *) return 1 ;;
        esac
    done <"$1/list"
}

# carry_out DIR [PATTERN]: bring every path of DIR/list, or those that match, into its state. Each step replaces in one go and can be
# repeated.
carry_out() {
    local mode sum path target fresh n=0
    while IFS=$'\t' read -r mode sum path; do
        n=$((n + 1))
        # shellcheck disable=SC2053  # a pattern
        [[ $path == ${2:-*} ]] || continue
        entry_done "$mode" "$sum" "$path" && continue
        target=$ROOT$path
        fresh=${target%/*}/.${target##*/}.fabric-plan-new
        if [[ $mode == - ]]; then
            rm -f "$target" || return 1
        else
            mkdir -p "${target%/*}" || return 1
            rm -f "$fresh"
            if [[ $mode == link ]]; then
                ln -s "$sum" "$fresh" || return 1
            else
                (umask 077 && cp "$1/files/$n" "$fresh") && chmod "$mode" "$fresh" && sync_path "$fresh" || return 1
            fi
            mv -fT "$fresh" "$target" || return 1
        fi
        [[ -d ${target%/*} ]] && sync_path "${target%/*}"
        CHANGED+=("$path")
        say "$path: $([[ $mode == - ]] && echo removed || echo written)"
    done <"$1/list"
}

# close_journal WORD: the generation learns how its commit ended, and the journal goes in one rename.
close_journal() {
    local generation=$1 word=$2
    if [[ -n $generation && -d $STATE/generations/$generation ]]; then
        printf '%s\n' "$word" | replace_file "$STATE/generations/$generation/result" || return 1
        sync_path "$STATE/generations/$generation"
    fi
    if [[ $word == committed ]]; then
        printf '%s\n' "$generation" | replace_file "$STATE/current" || return 1
    fi
    sync_path "$STATE"
    rm -rf "$STATE/done" && mv -T "$JOURNAL" "$STATE/done" && sync_path "$STATE" && rm -rf "$STATE/done"
}

# go_with_the_rest: a commit that removed everything leaves nothing to finish.
go_with_the_rest() {
    local list=$STATE/generations/${GENERATION:-0}/after/list own
    [[ -f $list ]] && ! grep -q '/recover\.sh$' "$list" || return 0
    own=$ROOT/etc/systemd/system
    rm -f "$own/sysinit.target.wants/fabric-plan-recover.service" "$own/fabric-plan-recover.service" "$ROOT/usr/local/lib/fabric-plan/recover.sh"
    say 'removed with the rest'
    CHANGED+=("${own#"$ROOT"}/fabric-plan-recover.service")
}

# settle_boot: this boot may have read the old files already: systemd its units, netplan's generator its definitions.
settle_boot() {
    local path tool netplan='' sysctl='' units=()
    for path in "${CHANGED[@]}"; do
        case $path in
            /etc/netplan/*) netplan=yes ;;
            /etc/sysctl.d/*) sysctl=yes ;;
            /etc/systemd/system/*.wants/*) [[ -L $ROOT$path ]] && units+=("${path##*/}") ;;
        esac
    done
    if [[ -n $netplan ]]; then
        for tool in "$ROOT"/usr/libexec/netplan/generate "$ROOT"/usr/lib/netplan/generate netplan; do
            command -v "$tool" >/dev/null || continue
            # The generator itself needs no Python; the command does.
            [[ $tool == netplan ]] && tool='netplan generate'
            # shellcheck disable=SC2086  # one word or two
            $tool || problem "$tool failed"
            break
        done
    fi
    systemctl daemon-reload || problem 'systemd would not read its units again'
    if [[ -n $sysctl ]]; then
        systemctl --no-block restart systemd-sysctl.service || problem 'systemd-sysctl.service cannot be restarted'
    fi
    # Units that the old files did not enable. Their own order holds; nothing waits here, inside the same boot. After the boot it is
    # not for a repair to start anything.
    if ((${#units[@]})) && [[ $(systemctl is-system-running 2>/dev/null) == @(initializing|starting) ]]; then
        systemctl --no-block start "${units[@]}" || problem "cannot start ${units[*]}"
    fi
}

case ${1:-} in
    '' | --boot) ;;
    *) die "unknown argument $1 (only --boot is known)" ;;
esac
# The lock of commits, not that of the mesh scripts: a file that is replaced under a running script is not the one it runs from.
take_lock commit.lock

if [[ -d $JOURNAL ]]; then
    GENERATION=$(cat "$JOURNAL/generation" 2>/dev/null)
    [[ $GENERATION =~ ^[0-9]+$ ]] || GENERATION=
    if list_whole "$JOURNAL"; then
        say "finishing the commit of generation ${GENERATION:-unknown}"
        carry_out "$JOURNAL" || die "the commit of generation ${GENERATION:-unknown} cannot be finished; its journal stays in $JOURNAL"
        close_journal "$GENERATION" committed || die "the journal $JOURNAL cannot be closed"
        go_with_the_rest
    elif [[ -n $GENERATION ]] && list_whole "$STATE/generations/$GENERATION/before"; then
        warn "the journal of generation $GENERATION is damaged: undoing its commit"
        carry_out "$STATE/generations/$GENERATION/before" || die "the commit of generation $GENERATION cannot be undone; see $STATE"
        close_journal "$GENERATION" undone || die "the journal $JOURNAL cannot be closed"
    else
        die "the journal $JOURNAL is damaged and no copy of the files before it is whole; apply again, or restore by hand"
    fi
fi
# Cut before the commit point: no file of the system was touched but this script, its unit and its link, which stand before there is
# a commit.
if [[ -e $STAGE ]]; then
    GENERATION=$(cat "$STAGE/generation" 2>/dev/null)
    if [[ $GENERATION =~ ^[0-9]+$ ]] && list_whole "$STATE/generations/$GENERATION/before"; then
        carry_out "$STATE/generations/$GENERATION/before" '*/@(recover.sh|fabric-plan-recover.service)' || problem 'an older recover.sh cannot be restored'
    fi
    rm -rf "$STAGE" && say 'dropped a commit that had not begun'
fi
rm -rf "$STATE/done"
if [[ ${1:-} == --boot ]] && ((${#CHANGED[@]})); then
    settle_boot
fi
finish
