#!/bin/bash
# Takes away what mesh-up.sh put there, and exactly that: markers, rules, routes, and the qdiscs that it added itself. Safe to run
# twice. Refuses while RDMA is in use; --force skips that question.
# Written by fabric-plan; a change here is overwritten.

# ---- the plan of this node: spark4 ----

COOKIE_PREFIX=fab91a40 ROUTE_PROTOCOL=214
FUNCTION_DEV=(enp1s0f0np0 enp1s0f1np1 enP2p1s0f0np0 enP2p1s0f1np1)


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


# Seconds for one call that may hang in the driver; for one that only reads, less.
CALL_LIMIT=${FABRIC_PLAN_CALL_LIMIT:-40}
READ_LIMIT=$((CALL_LIMIT < 10 ? CALL_LIMIT : 10))

# bounded SECONDS COMMAND...: run it, its words in SAID; 124 where it did not return. A call that hangs in the kernel cannot be
# killed, so it is not waited for either: it is left behind, without the lock.
bounded() {
    local limit=$1 fd line status=124
    shift
    SAID=
    exec {fd}< <(timeout -k 1 "$limit" "$@" 2>&1 9>&-; printf '\nstatus %s\n' "$?")
    while IFS= read -r -t $((limit + 3)) -u "$fd" line; do
        if [[ $line =~ ^status\ ([0-9]+)$ ]]; then
            status=${BASH_REMATCH[1]}
            break
        fi
        [[ -n $line ]] && SAID+=${SAID:+$'\n'}$line
    done
    exec {fd}<&-
    ((status == 137)) && status=124
    ((status == 124)) && SAID="no answer within $limit s"
    return "$status"
}


# ---- RDMA: who uses it ------------------------------------------------------------------------------------------------

# The process numbers of our own markers: their contexts are no traffic.
marker_pids() {
    local pid
    systemctl show --property=MainPID --value 'fabric-plan-marker@*.service' 2>/dev/null | while read -r pid; do
        [[ $pid =~ ^[1-9][0-9]*$ ]] && printf '%s\n' "$pid"
    done
}

# rdma_in_use: true, with the reason in IN_USE, unless it is certain that nobody uses RDMA here. The kernel's own GSI and SMI
# queue pairs do not count; a queue pair of any other kernel user does (NFS and NVMe over RDMA have no process either).
rdma_in_use() {
    local line pids=()
    IN_USE=
    # Without a device there is nothing to use, and the tool may not even get an answer.
    compgen -G "$ROOT/sys/class/infiniband/*" >/dev/null || return 1
    if ! bounded "$READ_LIMIT" rdma resource show qp; then
        IN_USE="queue pairs cannot be read: ${SAID//$'\n'/ }"
        return 0
    fi
    while IFS= read -r line; do
        [[ $line =~ [^[:space:]] ]] || continue
        if [[ $line =~ (^| )type\ (GSI|SMI)( |$) && $line =~ (^| )comm\ \[?ib_core\]?( |$) && ! $line =~ (^| )pid\  ]]; then
            continue
        fi
        IN_USE="queue pair: $line"
        return 0
    done <<<"$SAID"
    if ! bounded "$READ_LIMIT" rdma resource show ctx; then
        IN_USE="contexts cannot be read: ${SAID//$'\n'/ }"
        return 0
    fi
    mapfile -t pids < <(marker_pids)
    while IFS= read -r line; do
        [[ $line =~ [^[:space:]] ]] || continue
        if [[ $line =~ (^| )pid\ ([0-9]+)( |$) ]] && [[ " ${pids[*]:-} " == *" ${BASH_REMATCH[2]} "* ]]; then
            continue
        fi
        IN_USE="context: $line"
        return 0
    done <<<"$SAID"
    return 1
}


# ifindex DEV: the number of that device now. A device that the driver made anew has a new one under the old name.
ifindex() { cat "$ROOT/sys/class/net/$1/ifindex" 2>/dev/null; }


# ingress_qdisc DEV: clsact or ingress, whichever is there, by what QDISCS says; nothing where neither is.
ingress_qdisc() {
    local kind dev
    while read -r _ kind _ _ dev _; do
        if [[ $dev == "$1" && ($kind == clsact || $kind == ingress) ]]; then
            printf '%s\n' "$kind"
            return
        fi
    done <<<"$QDISCS"
}

read_qdiscs() { QDISCS=$(tc qdisc show 2>&1) || problem "qdiscs cannot be read: ${QDISCS//$'\n'/ }"; }

LIVE_DEV=() LIVE_PREF=() LIVE_HANDLE=() LIVE_PROTOCOL=() LIVE_KIND=() LIVE_CHAIN=() LIVE_COOKIE=() LIVE_FLAGS=() LIVE_TO=() LIVE_DST=() LIVE_SRC=() LIVE_REWRITE=()

# add_key OFFSET VALUE MASK: put what one pedit word sets into KEYS, byte by byte of the Ethernet header; a mask bit of 1 keeps.
add_key() {
    local at
    for at in 0 2 4 6; do
        [[ ${3:at:2} == 00 ]] && KEYS[$1 + at / 2]=${2:at:2}
    done
}

# filter_done: the rewrites of the filter just read, in the words of the plan: "type TTTT dst aa:bb:..".
filter_done() {
    local n=$((${#LIVE_DEV[@]} - 1)) i mac=''
    ((n >= 0 && ${#KEYS[@]})) || return 0
    for i in 0 1 2 3 4 5; do
        mac+=${mac:+:}${KEYS[i]:-..}
    done
    LIVE_REWRITE[n]="type ${KEYS[12]:-..}${KEYS[13]:-..} dst $mac"
    KEYS=()
}

# read_filters: every ingress filter of every function, ours or not, into the LIVE arrays.
read_filters() {
    local dev text n
    LIVE_DEV=() LIVE_PREF=() LIVE_HANDLE=() LIVE_PROTOCOL=() LIVE_KIND=() LIVE_CHAIN=() LIVE_COOKIE=() LIVE_FLAGS=() LIVE_TO=() LIVE_DST=() LIVE_SRC=() LIVE_REWRITE=()
    for dev in ${FUNCTION_DEV[@]+"${FUNCTION_DEV[@]}"}; do
        [[ -n $(ingress_qdisc "$dev") ]] || continue
        if ! text=$(tc filter show dev "$dev" ingress 2>&1); then
            problem "$dev: its filters cannot be read: ${text//$'\n'/ }"
            continue
        fi
        parse_filters "$dev" <<<"$text"
    done
}

parse_filters() {
    local dev=$1 line n=-1 protocol handle at
    local -a KEYS=()
    while IFS= read -r line; do
        if [[ $line =~ ^filter\ (.*\ )?protocol\ ([^ ]+)\ pref\ ([0-9]+)\ ([^ ]+)(.*)$ ]]; then
            filter_done
            protocol=${BASH_REMATCH[2]}
            [[ $protocol =~ ^\[([0-9]+)\]$ ]] && printf -v protocol '0x%04x' "${BASH_REMATCH[1]}"
            [[ $line =~ ^filter\ (.*\ )?protocol\ ([^ ]+)\ pref\ ([0-9]+)\ ([^ ]+)(.*)$ ]]
            handle=${BASH_REMATCH[5]}
            # Each preference begins with a line that names no filter; it counts only where no filter follows.
            if ((n >= 0)) && [[ -z ${LIVE_HANDLE[n]} && ${LIVE_PREF[n]} == "${BASH_REMATCH[3]}" ]]; then
                :
            else
                n=${#LIVE_DEV[@]}
            fi
            LIVE_DEV[n]=$dev LIVE_PREF[n]=${BASH_REMATCH[3]} LIVE_PROTOCOL[n]=$protocol LIVE_KIND[n]=${BASH_REMATCH[4]}
            LIVE_HANDLE[n]='' LIVE_CHAIN[n]=0 LIVE_COOKIE[n]='' LIVE_FLAGS[n]=' ' LIVE_TO[n]='' LIVE_DST[n]='' LIVE_SRC[n]='' LIVE_REWRITE[n]=''
            [[ $handle =~ chain\ ([0-9]+) ]] && LIVE_CHAIN[n]=${BASH_REMATCH[1]}
            [[ $handle =~ (handle|fh)\ ([^ ]+) ]] && LIVE_HANDLE[n]=${BASH_REMATCH[2]}
        elif ((n < 0)); then
            continue
        elif [[ $line =~ ^\ \ dst_mac\ ([0-9a-f:/]+) ]]; then
            LIVE_DST[n]=${BASH_REMATCH[1]}
        elif [[ $line =~ ^\ \ src_mac\ ([0-9a-f:/]+) ]]; then
            LIVE_SRC[n]=${BASH_REMATCH[1]}
        elif [[ $line =~ ^\ \ (skip_sw|in_hw|not_in_hw)( |$) ]]; then
            LIVE_FLAGS[n]+="${BASH_REMATCH[1]} "
        elif [[ $line =~ key\ \#[0-9]+\ +at\ eth\+([0-9]+):\ val\ ([0-9a-f]{8})\ mask\ ([0-9a-f]{8}) ]]; then
            add_key "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "${BASH_REMATCH[3]}"
        elif [[ $line =~ \(Egress\ Redirect\ to\ device\ ([^ ]+)\) ]]; then
            LIVE_TO[n]=${BASH_REMATCH[1]}
        elif [[ $line =~ ^[[:space:]]+cookie\ ([0-9a-f]+) ]]; then
            LIVE_COOKIE[n]=${BASH_REMATCH[1]}
        fi
    done
    filter_done
}

# delete_filter N: remove one live filter and no other; why not, in DELETE_ERROR.
delete_filter() {
    DELETE_ERROR=$(tc filter del dev "${LIVE_DEV[$1]}" ingress protocol "${LIVE_PROTOCOL[$1]}" pref "${LIVE_PREF[$1]}" \
        chain "${LIVE_CHAIN[$1]}" handle "${LIVE_HANDLE[$1]}" "${LIVE_KIND[$1]}" 2>&1)
}

# parse_route LINE: its parts as R_TO, R_VIA, R_DEV, R_SRC, R_PROTO and R_METRIC. Word by word, since a device may be called `src`.
parse_route() {
    local words i=1
    read -ra words <<<"$1"
    R_TO=${words[0]:-} R_VIA='' R_DEV='' R_SRC='' R_PROTO='' R_METRIC=''
    while ((i < ${#words[@]})); do
        case ${words[i]} in
            via) R_VIA=${words[i + 1]:-} ;;
            dev) R_DEV=${words[i + 1]:-} ;;
            src) R_SRC=${words[i + 1]:-} ;;
            proto) R_PROTO=${words[i + 1]:-} ;;
            metric) R_METRIC=${words[i + 1]:-} ;;
            scope | table | mtu | advmss) ;;
            *) i=$((i - 1)) ;; # a word without a value
        esac
        i=$((i + 2))
    done
}

# own_route LINE: whether this route carries our protocol number and leaves by one of our functions; its parts as above.
own_route() {
    parse_route "$1"
    [[ $R_PROTO == "$ROUTE_PROTOCOL" && " ${FUNCTION_DEV[*]:-} " == *" $R_DEV "* ]]
}

read_routes() { ROUTES=$(ip -4 route show 2>&1) || problem "routes cannot be read: ${ROUTES//$'\n'/ }"; }

# delete_route: remove the route that was parsed last.
delete_route() {
    local error
    error=$(ip -4 route del "$R_TO" via "$R_VIA" dev "$R_DEV" ${R_SRC:+src "$R_SRC"} ${R_METRIC:+metric "$R_METRIC"} proto "$ROUTE_PROTOCOL" 2>&1) || {
        problem "route $R_TO via $R_VIA dev $R_DEV: cannot be removed: ${error//$'\n'/ }"
        return 1
    }
    say "route $R_TO via $R_VIA dev $R_DEV: removed"
}


stop_markers() {
    local unit rest error
    while read -r unit rest; do
        [[ $unit == fabric-plan-marker@*.service ]] || continue
        if error=$(systemctl stop "$unit" 2>&1); then
            say "$unit: stopped"
        else
            problem "$unit: cannot be stopped: ${error//$'\n'/ }"
        fi
    done < <(systemctl list-units --plain --no-legend --state=active,activating 'fabric-plan-marker@*.service' 2>/dev/null)
}

remove_rules() {
    local n
    read_qdiscs
    read_filters
    for n in "${!LIVE_DEV[@]}"; do
        [[ ${LIVE_COOKIE[n]} == "$COOKIE_PREFIX"* ]] || continue
        if delete_filter "$n"; then
            say "${LIVE_DEV[n]} pref ${LIVE_PREF[n]} handle ${LIVE_HANDLE[n]}: removed (${LIVE_SRC[n]:-any sender} to ${LIVE_DST[n]}, out of ${LIVE_TO[n]:-nowhere}, ${LIVE_REWRITE[n]})"
        else
            problem "${LIVE_DEV[n]} pref ${LIVE_PREF[n]} handle ${LIVE_HANDLE[n]}: cannot be removed: $DELETE_ERROR"
        fi
    done
}

# The clsact qdiscs that mesh-up.sh added: device and its number then, for a device made anew carries none of ours.
noted_qdisc() { [[ -r $RUN/qdiscs ]] && grep -qxF "$1 $2" "$RUN/qdiscs"; }

# Ours by the note, and empty in both directions: somebody may have hung filters of their own on it since.
remove_qdiscs() {
    local dev index error
    for dev in "${FUNCTION_DEV[@]}"; do
        index=$(ifindex "$dev") || continue
        noted_qdisc "$dev" "$index" || continue
        [[ $(ingress_qdisc "$dev") == clsact ]] || continue
        if [[ -n $(tc filter show dev "$dev" ingress 2>&1)$(tc filter show dev "$dev" egress 2>&1) ]]; then
            warn "$dev: clsact stays, other filters hang on it"
            continue
        fi
        if error=$(tc qdisc del dev "$dev" clsact 2>&1); then
            say "$dev: removed clsact"
        else
            problem "$dev: clsact cannot be removed: ${error//$'\n'/ }"
        fi
    done
}

remove_routes() {
    local line
    read_routes
    while IFS= read -r line; do
        own_route "$line" && delete_route
    done <<<"$ROUTES"
}

case ${1:-} in
    '')
        if rdma_in_use; then
            die "RDMA is in use on this node ($IN_USE); stop its users first, or use --force"
        fi
        ;;
    --force) ;;
    *) die "unknown argument $1 (only --force is known)" ;;
esac
take_lock lock
stop_markers
remove_rules
remove_qdiscs
remove_routes
rm -f "$RUN/rules" "$RUN/qdiscs" "$RUN/rocenante.env"
finish
