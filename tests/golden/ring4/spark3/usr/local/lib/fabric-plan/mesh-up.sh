#!/bin/bash
# Brings this node's part of the hardware forwarding into its planned state and touches nothing that is right already: rules,
# routes, markers, and the environment that follows from them. Safe to run again at any time.
# Written by fabric-plan; a change here is overwritten.

# ---- the plan of this node: spark3 ----

COOKIE_PREFIX=fab91a40 ROUTE_PROTOCOL=214

# Fabric functions whose configuration is ours. An empty address: no cable.
FUNCTION_DEV=() FUNCTION_ADDRESS=() FUNCTION_PCI=()
FUNCTION_DEV+=(enp1s0f0np0) FUNCTION_ADDRESS+=(10.10.4.10/24) FUNCTION_PCI+=(0000:01:00.0)
FUNCTION_DEV+=(enp1s0f1np1) FUNCTION_ADDRESS+=(10.10.2.11/24) FUNCTION_PCI+=(0000:01:00.1)
FUNCTION_DEV+=(enP2p1s0f0np0) FUNCTION_ADDRESS+=(10.10.5.10/24) FUNCTION_PCI+=(0002:01:00.0)
FUNCTION_DEV+=(enP2p1s0f1np1) FUNCTION_ADDRESS+=(10.10.3.11/24) FUNCTION_PCI+=(0002:01:00.1)

# Rules: what to tell tc, and what tc must then show.
RULE_DEV=() RULE_PREF=() RULE_HANDLE=() RULE_PROTOCOL=() RULE_COOKIE=() RULE_TO=() RULE_DST=() RULE_SRC=() RULE_REWRITE=() RULE_TEXT=() RULE_WORDS=()
RULE_DEV+=(enp1s0f0np0) RULE_PREF+=(881) RULE_HANDLE+=(0x1) RULE_PROTOCOL+=(0x88b5)
RULE_COOKIE+=(fab91a403a05703b233c1a098bc579d7) RULE_TO+=(enp1s0f1np1)
RULE_DST+=(4c:bb:47:03:00:01) RULE_SRC+=(4c:bb:47:04:00:02) RULE_REWRITE+=('type 0800 dst 4c:bb:47:02:00:01')
RULE_TEXT+=('spark4 to spark2')
RULE_WORDS+=('protocol 0x88b5 pref 881 handle 0x1 flower skip_sw src_mac 4c:bb:47:04:00:02 dst_mac 4c:bb:47:03:00:01 action pedit ex munge eth type set 0x0800 munge eth dst set 4c:bb:47:02:00:01 pipe action mirred egress redirect dev enp1s0f1np1 cookie fab91a403a05703b233c1a098bc579d7')
RULE_DEV+=(enp1s0f1np1) RULE_PREF+=(881) RULE_HANDLE+=(0x1) RULE_PROTOCOL+=(0x88b5)
RULE_COOKIE+=(fab91a400bc02596878f39deea2d5fcf) RULE_TO+=(enp1s0f0np0)
RULE_DST+=(4c:bb:47:03:00:02) RULE_SRC+=(4c:bb:47:02:00:01) RULE_REWRITE+=('type 0800 dst 4c:bb:47:04:00:02')
RULE_TEXT+=('spark2 to spark4')
RULE_WORDS+=('protocol 0x88b5 pref 881 handle 0x1 flower skip_sw src_mac 4c:bb:47:02:00:01 dst_mac 4c:bb:47:03:00:02 action pedit ex munge eth type set 0x0800 munge eth dst set 4c:bb:47:04:00:02 pipe action mirred egress redirect dev enp1s0f0np0 cookie fab91a400bc02596878f39deea2d5fcf')

# Routes, which NetworkManager keeps; a missing one is added.
ROUTE_TO=() ROUTE_VIA=() ROUTE_DEV=() ROUTE_SRC=()
ROUTE_TO+=(10.10.0.0/24) ROUTE_VIA+=(10.10.2.10) ROUTE_DEV+=(enp1s0f1np1) ROUTE_SRC+=('')
ROUTE_TO+=(10.10.6.0/24) ROUTE_VIA+=(10.10.4.11) ROUTE_DEV+=(enp1s0f0np0) ROUTE_SRC+=('')
ROUTE_TO+=(10.10.1.0/24) ROUTE_VIA+=(10.10.3.10) ROUTE_DEV+=(enP2p1s0f1np1) ROUTE_SRC+=('')
ROUTE_TO+=(10.10.7.0/24) ROUTE_VIA+=(10.10.5.11) ROUTE_DEV+=(enP2p1s0f0np0) ROUTE_SRC+=('')
ROUTE_TO+=(10.10.0.10/32) ROUTE_VIA+=(10.10.2.10) ROUTE_DEV+=(enp1s0f1np1) ROUTE_SRC+=(10.10.2.11)
ROUTE_TO+=(10.10.7.11/32) ROUTE_VIA+=(10.10.5.11) ROUTE_DEV+=(enP2p1s0f0np0) ROUTE_SRC+=(10.10.5.10)

# RDMA devices with a marker.
MARKER=(rocep1s0f1 roceP2p1s0f0)

# RoCE size caps in bytes a peer: what the load on the queues allows, with a full queue and with a smaller one.
QUEUE_SIZE=8192 DEFAULT_QUEUE=1024 LOAD_BOUND=786432
FULL_QUEUE=8192 CAP_FULL_QUEUE=262144 CAP_SMALL_QUEUE=81920
# RoCEnante's environment as planned, without the sizes, which follow from what is in effect.
ENVIRONMENT='DSV41_ROCE_RING=1
SGLANG_ROCE_ALLREDUCE=1
B12X_ROCE_HCA=rocep1s0f0,rocep1s0f1,roceP2p1s0f0,roceP2p1s0f1
B12X_ROCE_PEER_HCA_MAPS=1=0/2,2=0/3,3=1/3;0=1/3,2=0/2,3=0/3;0=1/2,1=1/3,3=0/2;0=0/2,1=1/2,2=1/3
B12X_ROCE_TWO_WAVE_THRESHOLD_BYTES=0'


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


# ifindex DEV: the number of that device now. A device that the driver made anew has a new one under the old name.
ifindex() { cat "$ROOT/sys/class/net/$1/ifindex" 2>/dev/null; }


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


# ---- hairpin values: what is in effect --------------------------------------------------------------------------------

boot_id() { cat "$ROOT/proc/sys/kernel/random/boot_id" 2>/dev/null; }

# Every question to the driver has a limit: one that comes behind a reload that hangs is not answered either.
devlink() {
    local status
    bounded "$READ_LIMIT" devlink "$@"
    status=$?
    printf '%s\n' "$SAID"
    return "$status"
}

# reload_count PCI: how often the driver has been reloaded on this function since its probe; fails where it cannot be read or where
# the last reload failed.
reload_count() {
    local text line section=''
    text=$(devlink -s dev show "pci/$1" 2>/dev/null) || return 1
    [[ $text == *reload_failed\ true* ]] && return 1
    while IFS= read -r line; do
        case $line in
            *remote_reload:*) section=remote ;;
            *reload:*) section=own ;;
            *driver_reinit:*) [[ $section == own ]] && section=count ;;
            *unspecified*)
                if [[ $section == count && $line =~ unspecified\ ([0-9]+) ]]; then
                    printf '%s\n' "${BASH_REMATCH[1]}"
                    return 0
                fi
                ;;
        esac
    done <<<"$text"
    return 1
}

# hairpin_param PCI NAME: the value that devlink shows, which may be one that only the next reload brings into effect.
hairpin_param() {
    local text
    text=$(devlink dev param show "pci/$1" name "$2" 2>/dev/null) || return 1
    [[ $text =~ cmode\ driverinit\ value\ ([0-9]+) ]] || return 1
    printf '%s\n' "${BASH_REMATCH[1]}"
}

# live_hairpin PCI FIELD: the smallest FIELD (num_packets, num_channels) of the hairpins that the driver holds now.
live_hairpin() {
    local file line least=
    for file in "$ROOT/sys/kernel/debug/mlx5/$1"/{,*/,*/*/}tc/hairpin_table_dump; do
        [[ -r $file ]] || continue
        while IFS= read -r line; do
            if [[ $line =~ (^| )$2\ ([0-9]+) ]] && { [[ -z $least ]] || ((BASH_REMATCH[2] < least)); }; then
                least=${BASH_REMATCH[2]}
            fi
        done <"$file"
    done
    [[ -n $least ]] && printf '%s\n' "$least"
}

# read_note PCI: what hairpin.sh noted when it last set values in this boot, as NOTE_{COUNT,SIZE,QUEUES,IFINDEX}.
read_note() {
    local boot
    NOTE_COUNT='' NOTE_SIZE='' NOTE_QUEUES='' NOTE_IFINDEX=''
    [[ -r $RUN/hairpin/$1 ]] || return 1
    read -r boot NOTE_COUNT NOTE_SIZE NOTE_QUEUES NOTE_IFINDEX <"$RUN/hairpin/$1"
    [[ $boot == "$(boot_id)" && $NOTE_COUNT =~ ^[0-9]+$ ]]
}

# values_in_effect PCI DEV: "SIZE QUEUES" that the driver is proven to work with; nothing where that is not proven. The parameters
# alone prove nothing: they read the new value from the moment it is set.
values_in_effect() {
    local size queues count
    if size=$(live_hairpin "$1" num_packets) && queues=$(live_hairpin "$1" num_channels); then
        printf '%s %s\n' "$size" "$queues"
        return 0
    fi
    read_note "$1" || return 1
    count=$(reload_count "$1") || return 1
    # A function that was probed again counts from zero and has another number.
    ((count > NOTE_COUNT)) && [[ -n $NOTE_IFINDEX && $NOTE_IFINDEX == "$(ifindex "$2")" ]] || return 1
    [[ $(hairpin_param "$1" hairpin_queue_size) == "$NOTE_SIZE" && $(hairpin_param "$1" hairpin_num_queues) == "$NOTE_QUEUES" ]] || return 1
    printf '%s %s\n' "$NOTE_SIZE" "$NOTE_QUEUES"
}


# ---- waiting ----------------------------------------------------------------------------------------------------------

# still_late I: what function I still lacks, in words, by what LINKS and ADDRESSES say; nothing where it is ready. Lines are found by
# the number of the device: ip appends a peer to a name with an @, which a name may hold too.
still_late() {
    local number found flags address='' state='the function itself'
    number=$(ifindex "${FUNCTION_DEV[$1]}")
    while [[ -n $number ]] && read -r found _ flags _; do
        if [[ $found == "$number:" ]]; then
            state=carrier
            [[ $flags == *[\<,]LOWER_UP[,\>]* ]] && state=
            break
        fi
    done <<<"$LINKS"
    if [[ $state != 'the function itself' ]]; then
        while read -r found _ _ address _; do
            [[ $found == "$number:" && $address == "${FUNCTION_ADDRESS[$1]}" ]] && break
        done <<<"$ADDRESSES"
        [[ $address == "${FUNCTION_ADDRESS[$1]}" ]] || state="its address ${FUNCTION_ADDRESS[$1]}"
    fi
    printf '%s' "$state"
}

# Rules need the function and routes its address. Carrier is waited for as well, but its absence is no fault of this node: with
# ignore-carrier the address stays, and everything is in place when the neighbour comes back.
wait_for_functions() {
    local deadline=$((SECONDS + ${FABRIC_PLAN_WAIT:-60})) i what late
    while :; do
        late=()
        LINKS=$(ip -o link show 2>/dev/null)
        ADDRESSES=$(ip -o -4 addr show 2>/dev/null)
        for i in "${!FUNCTION_DEV[@]}"; do
            [[ -n ${FUNCTION_ADDRESS[i]} ]] || continue
            what=$(still_late "$i")
            [[ -n $what ]] && late+=("${FUNCTION_DEV[i]}: $what")
        done
        ((${#late[@]} == 0)) && return
        ((SECONDS >= deadline)) && break
        sleep 0.2
    done
    for what in "${late[@]}"; do
        if [[ $what == *': carrier' ]]; then
            warn "waited ${FABRIC_PLAN_WAIT:-60} s for $what: is the cable in and the neighbour up?"
        else
            problem "waited ${FABRIC_PLAN_WAIT:-60} s for $what"
        fi
    done
}

# ---- the qdisc that rules hang on ---------------------------------------------------------------------------------------


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


# The clsact qdiscs that we add are noted, with the number of the device: a device made anew carries none of ours.
write_qdisc_notes() {
    local dev
    for dev in "${!QDISC_NOTE[@]}"; do
        printf '%s %s\n' "$dev" "${QDISC_NOTE[$dev]}"
    done | sort | replace_file "$RUN/qdiscs" || problem "cannot write $RUN/qdiscs"
}

declare -A QDISC_NOTE=()

add_qdiscs() {
    local dev index error seen=' '
    if [[ -r $RUN/qdiscs ]]; then
        while read -r dev index; do
            [[ -n $index ]] && QDISC_NOTE[$dev]=$index
        done <"$RUN/qdiscs"
    fi
    read_qdiscs
    for dev in ${RULE_DEV[@]+"${RULE_DEV[@]}"}; do
        [[ $seen == *" $dev "* ]] && continue
        seen+="$dev "
        index=$(ifindex "$dev") || continue
        [[ -n $(ingress_qdisc "$dev") ]] && continue
        # Noted before it is added: a run that dies in between leaves a note without a qdisc, which does no harm.
        QDISC_NOTE[$dev]=$index
        write_qdisc_notes
        if error=$(tc qdisc add dev "$dev" clsact 2>&1); then
            say "$dev: added clsact"
        else
            unset "QDISC_NOTE[$dev]"
            write_qdisc_notes
            problem "$dev: the kernel refused clsact: ${error//$'\n'/ }"
        fi
    done
}

# ---- rules --------------------------------------------------------------------------------------------------------------

declare -A NOTED=()      # "dev pref handle" -> "cookie redirect ifindex", as it was when the rule went in
RULE_ERROR=()            # what the kernel said when a rule was refused

read_rule_notes() {
    local dev pref handle rest
    NOTED=()
    [[ -r $RUN/rules ]] || return 0
    while read -r dev pref handle rest; do
        [[ -n $rest ]] || continue
        NOTED["$dev $pref $handle"]=$rest
    done <"$RUN/rules"
}

write_rule_notes() {
    local key
    for key in "${!NOTED[@]}"; do
        printf '%s %s\n' "$key" "${NOTED[$key]}"
    done | sort | replace_file "$RUN/rules"
}

rule_name() {
    printf '%s pref %s handle %s (%s)' "${RULE_DEV[$1]}" "${RULE_PREF[$1]}" "${RULE_HANDLE[$1]}" "${RULE_TEXT[$1]}"
}

# live_rule I: the live filter that stands where rule I belongs, in FOUND; fails where there is none.
live_rule() {
    local n
    for n in "${!LIVE_DEV[@]}"; do
        if [[ ${LIVE_DEV[n]} == "${RULE_DEV[$1]}" && ${LIVE_PREF[n]} == "${RULE_PREF[$1]}" && ${LIVE_HANDLE[n]} == "${RULE_HANDLE[$1]}" ]]; then
            FOUND=$n
            return 0
        fi
    done
    return 1
}

# rule_fault I N: why the live filter N is not rule I, in FAULT; empty where it is, down to where its redirect really leads.
rule_fault() {
    local i=$1 n=$2
    if [[ ${LIVE_PROTOCOL[n]} != "${RULE_PROTOCOL[i]}" ]]; then
        FAULT="matches ${LIVE_PROTOCOL[n]}, not ${RULE_PROTOCOL[i]}"
    elif [[ ${LIVE_COOKIE[n]} != "${RULE_COOKIE[i]}" ]]; then
        FAULT="is another rule of ours"
    elif [[ ${LIVE_FLAGS[n]} != *' skip_sw '* ]]; then
        FAULT="may fall back to software (no skip_sw)"
    elif [[ ${LIVE_FLAGS[n]} != *' in_hw '* ]]; then
        FAULT="is not in hardware"
    elif [[ ${LIVE_TO[n]} != "${RULE_TO[i]}" ]]; then
        FAULT="sends to ${LIVE_TO[n]:-nowhere}, not ${RULE_TO[i]}"
    elif [[ ${LIVE_DST[n]} != "${RULE_DST[i]}" || ${LIVE_SRC[n]} != "${RULE_SRC[i]}" ]]; then
        FAULT="matches frames to ${LIVE_DST[n]:-anybody} from ${LIVE_SRC[n]:-anybody}"
    elif [[ -n ${LIVE_REWRITE[n]} && ${LIVE_REWRITE[n]} != "${RULE_REWRITE[i]}" ]]; then
        FAULT="rewrites to ${LIVE_REWRITE[n]}, not ${RULE_REWRITE[i]}"
    elif [[ ${NOTED["${RULE_DEV[i]} ${RULE_PREF[i]} ${RULE_HANDLE[i]}"]:-} != "${RULE_COOKIE[i]} ${RULE_TO[i]} $(ifindex "${RULE_TO[i]}")" ]]; then
        FAULT="leads to a ${RULE_TO[i]} that is not known to be the present one"
    else
        FAULT=
    fi
}

# put_rule I VERB: add or replace; a replace that the kernel refuses becomes a delete and an add.
put_rule() {
    local i=$1 verb=$2 dev=${RULE_DEV[$1]} words index
    read -ra words <<<"${RULE_WORDS[i]}"
    index=$(ifindex "${RULE_TO[i]}") || {
        RULE_ERROR[i]="the function ${RULE_TO[i]} that it sends to is not there"
        return 1
    }
    if ! RULE_ERROR[i]=$(tc filter "$verb" dev "$dev" ingress "${words[@]}" 2>&1); then
        [[ $verb == replace ]] || return 1
        warn "$(rule_name "$i"): replace refused (${RULE_ERROR[i]//$'\n'/ }), deleting and adding"
        delete_filter "$FOUND" || return 1
        RULE_ERROR[i]=$(tc filter add dev "$dev" ingress "${words[@]}" 2>&1) || return 1
    fi
    RULE_ERROR[i]=
    NOTED["$dev ${RULE_PREF[i]} ${RULE_HANDLE[i]}"]="${RULE_COOKIE[i]} ${RULE_TO[i]} $index"
    write_rule_notes || problem "cannot write $RUN/rules"
}

is_planned() {
    local i
    for i in "${!RULE_DEV[@]}"; do
        if [[ ${LIVE_DEV[$1]} == "${RULE_DEV[i]}" && ${LIVE_PREF[$1]} == "${RULE_PREF[i]}" && ${LIVE_HANDLE[$1]} == "${RULE_HANDLE[i]}" &&
            ${LIVE_PROTOCOL[$1]} == "${RULE_PROTOCOL[i]}" ]]; then
            return 0
        fi
    done
    return 1
}

# remove_stale_rules: true where anything was removed, so that what was read before is no longer so.
remove_stale_rules() {
    local n removed=
    for n in "${!LIVE_DEV[@]}"; do
        [[ ${LIVE_COOKIE[n]} == "$COOKIE_PREFIX"* ]] || continue
        is_planned "$n" && continue
        if delete_filter "$n"; then
            say "${LIVE_DEV[n]} pref ${LIVE_PREF[n]} handle ${LIVE_HANDLE[n]}: removed, no longer planned"
            unset "NOTED[${LIVE_DEV[n]} ${LIVE_PREF[n]} ${LIVE_HANDLE[n]}]"
            removed=yes
        else
            problem "${LIVE_DEV[n]} pref ${LIVE_PREF[n]} handle ${LIVE_HANDLE[n]}: no longer planned, and the kernel would not remove it: $DELETE_ERROR"
        fi
    done
    [[ -n $removed ]] || return 1
    write_rule_notes || problem "cannot write $RUN/rules"
}

# fix_rules: one pass over the plan. REFUSED counts what the kernel would not take, PLACED what it did.
fix_rules() {
    local i verb
    REFUSED=0 PLACED=0
    for i in "${!RULE_DEV[@]}"; do
        verb=add FOUND=
        if live_rule "$i"; then
            [[ ${LIVE_COOKIE[FOUND]} == "$COOKIE_PREFIX"* ]] || continue
            [[ ${LIVE_PROTOCOL[FOUND]} == "${RULE_PROTOCOL[i]}" ]] || continue # was stale and would not go
            rule_fault "$i" "$FOUND"
            [[ -z $FAULT ]] && continue
            # Taken once and still not in hardware: asking the same again would only interrupt traffic once more.
            [[ ${RULE_PUT[i]:-} == yes ]] && continue
            verb=replace
            say "$(rule_name "$i"): $FAULT, replacing"
        fi
        if put_rule "$i" "$verb"; then
            RULE_PUT[i]=yes PLACED=$((PLACED + 1))
            [[ $verb == add ]] && say "$(rule_name "$i"): added"
        else
            REFUSED=$((REFUSED + 1))
        fi
    done
}

# Two rules that change places stand in each other's way, so what was refused is tried again as long as others got through.
converge_rules() {
    local i n error
    RULE_PUT=()
    read_rule_notes
    read_qdiscs
    read_filters
    remove_stale_rules && read_filters
    for _ in 1 2 3; do
        fix_rules
        ((REFUSED || PLACED)) || break
        read_filters
        ((REFUSED && PLACED)) || break
    done
    for i in "${!RULE_DEV[@]}"; do
        error=${RULE_ERROR[i]:-}
        error=${error//$'\n'/ }
        if ! live_rule "$i"; then
            problem "$(rule_name "$i"): not in hardware: ${error:-it is missing}"
        elif [[ ${LIVE_COOKIE[FOUND]} != "$COOKIE_PREFIX"* ]]; then
            problem "$(rule_name "$i"): a filter that is not ours stands there; remove it with: tc filter del dev ${RULE_DEV[i]} ingress pref ${RULE_PREF[i]}"
        else
            rule_fault "$i" "$FOUND"
            [[ -n $FAULT ]] && problem "$(rule_name "$i"): $FAULT${error:+: $error}"
        fi
    done
    for n in "${!LIVE_DEV[@]}"; do
        [[ ${LIVE_COOKIE[n]} == "$COOKIE_PREFIX"* ]] ||
            warn "${LIVE_DEV[n]} pref ${LIVE_PREF[n]}${LIVE_HANDLE[n]:+ handle ${LIVE_HANDLE[n]}}: not ours, left alone (${LIVE_PROTOCOL[n]} ${LIVE_KIND[n]})"
    done
}

# ---- routes ---------------------------------------------------------------------------------------------------------------

# route_matches I: whether the route that was parsed last is route I; a source that is not printed is the kernel's own choice.
route_matches() {
    [[ $R_TO == "${ROUTE_TO[$1]%/32}" && $R_VIA == "${ROUTE_VIA[$1]}" && $R_DEV == "${ROUTE_DEV[$1]}" ]] &&
        [[ -z $R_SRC || -z ${ROUTE_SRC[$1]} || $R_SRC == "${ROUTE_SRC[$1]}" ]]
}

# first_route TO: of several routes to one target the one that the kernel takes: they are listed by metric.
first_route() {
    local line
    while IFS= read -r line; do
        if [[ ${line%% *} == "$1" ]]; then
            printf '%s\n' "$line"
            return
        fi
    done <<<"$ROUTES"
}

converge_routes() {
    local i line best error source
    read_routes
    while IFS= read -r line; do
        own_route "$line" || continue
        for i in "${!ROUTE_TO[@]}"; do
            route_matches "$i" && continue 2
        done
        delete_route
    done <<<"$ROUTES"
    read_routes
    for i in "${!ROUTE_TO[@]}"; do
        best=$(first_route "${ROUTE_TO[i]%/32}")
        parse_route "$best"
        route_matches "$i" && continue
        source=()
        [[ -n ${ROUTE_SRC[i]} ]] && source=(src "${ROUTE_SRC[i]}")
        if error=$(ip -4 route add "${ROUTE_TO[i]}" via "${ROUTE_VIA[i]}" dev "${ROUTE_DEV[i]}" ${source[@]+"${source[@]}"} proto "$ROUTE_PROTOCOL" 2>&1); then
            say "route ${ROUTE_TO[i]} via ${ROUTE_VIA[i]} dev ${ROUTE_DEV[i]}: added${best:+ before: $best}"
        else
            problem "route ${ROUTE_TO[i]} via ${ROUTE_VIA[i]} dev ${ROUTE_DEV[i]}: ${error//$'\n'/ }${best:+; in its place stands: $best}"
        fi
    done
}

# ---- markers --------------------------------------------------------------------------------------------------------------

converge_markers() {
    local device unit rest error
    while read -r unit rest; do
        [[ $unit == fabric-plan-marker@*.service ]] || continue
        device=${unit#*@}
        [[ " ${MARKER[*]:-} " == *" ${device%.service} "* ]] && continue
        error=$(systemctl --no-block stop "$unit" 2>&1) || problem "$unit: cannot be stopped: $error"
        say "$unit: stopped, no longer planned"
    done < <(systemctl list-units --plain --no-legend --state=active,activating 'fabric-plan-marker@*.service' 2>/dev/null)
    for device in ${MARKER[@]+"${MARKER[@]}"}; do
        unit=fabric-plan-marker@$device.service
        systemctl is-active --quiet "$unit" && continue
        # Not waited for: markers are ordered after the unit that this script may be running in.
        if error=$(systemctl --no-block start "$unit" 2>&1); then
            say "$unit: started"
        else
            problem "$unit: cannot be started: ${error//$'\n'/ }"
        fi
    done
}


# ---- the environment that follows --------------------------------------------------------------------------------------------

declare -A GID_INDEX=()  # "DEV GID" -> where the RoCE v2 GID of that function stands in the table of its RDMA device

# One pass for all functions and no process for an entry: a table has 256 places on this card, and more on others.
read_gids() {
    local file gid dev type attributes n
    GID_INDEX=()
    for file in "$ROOT"/sys/class/infiniband/*/ports/1/gids/*; do
        gid='' dev='' type=''
        { read -r gid <"$file"; } 2>/dev/null
        # Only those of IPv4 addresses. Empty places read as zeros, and their attributes as errors.
        [[ $gid == 0000:0000:0000:0000:0000:ffff:* ]] || continue
        attributes=${file%/gids/*}/gid_attrs
        n=${file##*/}
        { read -r dev <"$attributes/ndevs/$n"; } 2>/dev/null
        { read -r type <"$attributes/types/$n"; } 2>/dev/null
        [[ $type == 'RoCE v2' ]] && GID_INDEX["$dev $gid"]=${GID_INDEX["$dev $gid"]:-$n}
    done
}

# gid_index DEV ADDRESS: that place, in INDEX; fails where the address has none.
gid_index() {
    local dev=$1 gid
    local IFS=.
    # shellcheck disable=SC2086  # split at the dots
    set -- ${2%/*}
    printf -v gid '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' "$@"
    INDEX=${GID_INDEX["$dev $gid"]:-}
    [[ -n $INDEX ]]
}

# uniform_gid: the one index that all functions share; fails where they differ or one has none.
uniform_gid() {
    local i common=
    read_gids
    for i in "${!FUNCTION_DEV[@]}"; do
        [[ -n ${FUNCTION_ADDRESS[i]} ]] || continue
        gid_index "${FUNCTION_DEV[i]}" "${FUNCTION_ADDRESS[i]}" || return 1
        [[ ${common:=$INDEX} == "$INDEX" ]] || return 1
    done
    [[ -n $common ]] && printf '%s\n' "$common"
}

# smallest_queue: entries of the smallest hairpin queue in effect; 0 where that is proven for not every function.
smallest_queue() {
    local i size least=
    for i in "${!FUNCTION_DEV[@]}"; do
        [[ -n ${FUNCTION_ADDRESS[i]} ]] || continue
        size=$(values_in_effect "${FUNCTION_PCI[i]}" "${FUNCTION_DEV[i]}") || size=0
        size=${size% *}
        if [[ -z $least ]] || ((size < least)); then
            least=$size
        fi
    done
    printf '%s\n' "${least:-0}"
}

write_environment() {
    local queue cap bound gid name
    queue=$(smallest_queue)
    cap=$CAP_FULL_QUEUE
    ((queue < FULL_QUEUE)) && cap=$CAP_SMALL_QUEUE
    # What the load allows was planned for a queue of QUEUE_SIZE. One that is not proven is taken as the driver's default.
    bound=$((LOAD_BOUND * (queue ? queue : DEFAULT_QUEUE) / QUEUE_SIZE))
    ((cap > bound)) && cap=$bound
    gid=$(uniform_gid) || gid=
    {
        if ((${#PROBLEMS[@]})); then
            printf '# mesh-up.sh could not put everything in place: the collectives stay on NCCL until it does.\n'
            printf 'DSV41_ROCE_RING=0\nSGLANG_ROCE_ALLREDUCE=0\n'
        else
            printf '%s\n' "$ENVIRONMENT"
            if ((queue)); then
                printf '# The smallest hairpin queue in effect holds %s entries.\n' "$queue"
            else
                printf '# No hairpin queue size is proven to be in effect, so the small cap holds.\n'
            fi
            for name in SGLANG_ROCE_MAX_SIZE DSV41_ROCE_GATHER; do
                printf '%s=%s\n' "$name" "$cap"
            done
        fi
        if [[ -n $gid ]]; then
            printf '# Found by address; the same on every function of this node.\nNCCL_IB_GID_INDEX=%s\n' "$gid"
        else
            printf '# NCCL_IB_GID_INDEX stays unset: the functions of this node do not share one index.\n'
        fi
    } | replace_file "$RUN/rocenante.env" || problem "cannot write $RUN/rocenante.env"
}


take_lock lock
wait_for_functions
add_qdiscs
converge_rules
converge_routes
converge_markers
write_environment
finish
