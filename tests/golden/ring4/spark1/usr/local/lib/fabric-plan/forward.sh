#!/bin/bash
# Lets TCP cross this node from one fabric function to the other where Docker's FORWARD policy would drop it. Nothing else is let
# through. `forward.sh stop` takes it away again. Safe to run twice.
# Written by fabric-plan; a change here is overwritten.

# ---- the plan of this node: spark1 ----

FROM=() TO=()
FROM+=(enp1s0f0np0) TO+=(enp1s0f1np1)
FROM+=(enp1s0f1np1) TO+=(enp1s0f0np0)
FROM+=(enP2p1s0f0np0) TO+=(enP2p1s0f1np1)
FROM+=(enP2p1s0f1np1) TO+=(enP2p1s0f0np0)


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


CHAIN=DOCKER-USER

# rule VERB I: the one rule of pair I, with the words that make it ours.
rule() { iptables -w 10 "$1" "$CHAIN" -i "${FROM[$2]}" -o "${TO[$2]}" -m comment --comment fabric-plan -j ACCEPT 2>&1; }

have_chain() { iptables -w 10 -n -L "$CHAIN" >/dev/null 2>&1; }

# Docker 29 can write nftables itself; it then has tables of its own and adds no chain for others.
docker_uses_nftables() { command -v nft >/dev/null && nft list table ip docker-bridges >/dev/null 2>&1; }

# Without Docker's chain there is no place that is ours to write to. What would drop the packets all the same is the policy of
# FORWARD: Docker sets it with iptables, and leaves it when it changes to nftables.
without_chain() {
    local i policy
    policy=$(iptables -w 10 -S FORWARD 2>/dev/null)
    if [[ $policy != '-P FORWARD DROP'* ]]; then
        say "no chain $CHAIN and no DROP policy: nothing has to be let through"
        return
    fi
    if docker_uses_nftables; then
        warn 'Docker writes nftables here, but the policy of iptables FORWARD is still DROP, so no packet crosses this node.'
        warn 'Set it back (iptables -P FORWARD ACCEPT, or a reboot), or accept the fabric alone:'
    else
        warn "the policy of iptables FORWARD is DROP and there is no chain $CHAIN: some other firewall set it. Accept the fabric there:"
    fi
    for i in "${!FROM[@]}"; do
        warn "  iptables -I FORWARD -i ${FROM[i]} -o ${TO[i]} -j ACCEPT"
    done
}

start() {
    local i error
    if ! command -v iptables >/dev/null; then
        say 'no iptables here, so nothing of it drops packets'
        return 0
    fi
    if ! have_chain; then
        without_chain
        return 0
    fi
    for i in "${!FROM[@]}"; do
        rule -C "$i" >/dev/null && continue
        if error=$(rule -I "$i"); then
            say "${FROM[i]} to ${TO[i]}: accepted"
        else
            problem "${FROM[i]} to ${TO[i]}: iptables refused: ${error//$'\n'/ }"
        fi
    done
}

stop() {
    local i error
    { command -v iptables >/dev/null && have_chain; } || return 0
    for i in "${!FROM[@]}"; do
        while rule -C "$i" >/dev/null; do
            if error=$(rule -D "$i"); then
                say "${FROM[i]} to ${TO[i]}: no longer accepted"
            else
                problem "${FROM[i]} to ${TO[i]}: iptables would not remove it: ${error//$'\n'/ }"
                break
            fi
        done
    done
}

case ${1:-start} in
    start)
        take_lock forward.lock
        start
        ;;
    stop)
        take_lock forward.lock
        stop
        ;;
    *) die "unknown argument $1 (start or stop)" ;;
esac
finish
