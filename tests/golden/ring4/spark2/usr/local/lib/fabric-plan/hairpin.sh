#!/bin/bash
# Brings the hairpin queues of this node's functions to their planned size and number. Both are values that the driver reads when
# it starts, so a function whose values are not in effect is reloaded: one at a time, and never while RDMA is in use.
# Names of functions as arguments limit it to these.
# Written by fabric-plan; a change here is overwritten.

# ---- the plan of this node: spark2 ----

FUNCTION_PCI=() FUNCTION_DEV=() FUNCTION_RDMA=()
FUNCTION_PCI+=(0000:01:00.0) FUNCTION_DEV+=(enp1s0f0np0) FUNCTION_RDMA+=(rocep1s0f0)
FUNCTION_PCI+=(0000:01:00.1) FUNCTION_DEV+=(enp1s0f1np1) FUNCTION_RDMA+=(rocep1s0f1)
FUNCTION_PCI+=(0002:01:00.0) FUNCTION_DEV+=(enP2p1s0f0np0) FUNCTION_RDMA+=(roceP2p1s0f0)
FUNCTION_PCI+=(0002:01:00.1) FUNCTION_DEV+=(enP2p1s0f1np1) FUNCTION_RDMA+=(roceP2p1s0f1)
QUEUE_SIZE=8192 NUM_QUEUES=4


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


# Seconds: for a function to come (back), and for the whole run, which the boot waits for.
FUNCTION_WAIT=${FABRIC_PLAN_WAIT:-20}
RUN_LIMIT=${FABRIC_PLAN_RUN_LIMIT:-150}

# appear DEV PCI DEADLINE: wait until the function is there under its name and devlink knows it.
appear() {
    until ifindex "$1" >/dev/null && reload_count "$2" >/dev/null; do
        ((SECONDS >= $3)) && return 1
        sleep 0.2
    done
}

write_note() {
    printf '%s %s %s %s %s\n' "$(boot_id)" "$2" "$QUEUE_SIZE" "$NUM_QUEUES" "$3" | replace_file "$RUN/hairpin/$1" ||
        problem "cannot write $RUN/hairpin/$1"
}

# in_effect I: whether both planned values are proven to be what the driver works with.
in_effect() { [[ $(values_in_effect "${FUNCTION_PCI[$1]}" "${FUNCTION_DEV[$1]}") == "$QUEUE_SIZE $NUM_QUEUES" ]]; }

# set_values I: set what differs; what is set is pending until the reload, so the reload count of now is noted first.
set_values() {
    local i=$1 pci=${FUNCTION_PCI[$1]} name want have count
    count=$(reload_count "$pci") || {
        problem "${FUNCTION_DEV[i]}: devlink does not tell its reloads, so no value can be proven"
        return 1
    }
    PENDING=
    for name in hairpin_num_queues hairpin_queue_size; do
        want=$QUEUE_SIZE
        [[ $name == hairpin_num_queues ]] && want=$NUM_QUEUES
        have=$(hairpin_param "$pci" "$name") || {
            problem "${FUNCTION_DEV[i]}: the driver does not know $name (Linux 6.4 or newer does)"
            return 1
        }
        [[ $have == "$want" ]] && continue
        PENDING=yes
        write_note "$pci" "$count" -
        bounded "$CALL_LIMIT" devlink dev param set "pci/$pci" name "$name" value "$want" cmode driverinit || {
            problem "${FUNCTION_DEV[i]}: $name $want refused: ${SAID//$'\n'/ }"
            return 1
        }
        say "${FUNCTION_DEV[i]}: set $name $want (was $have)"
    done
    # Set by somebody else, or before a run that was cut: pending as far as anybody can tell.
    if [[ -z $PENDING ]] && ! in_effect "$i" && ! { read_note "$pci" && [[ $NOTE_COUNT == "$count" ]]; }; then
        write_note "$pci" "$count" -
    fi
    return 0
}

reload_function() {
    local i=$1 pci=${FUNCTION_PCI[$1]} dev=${FUNCTION_DEV[$1]} count deadline
    local device=$ROOT/sys/class/infiniband/${FUNCTION_RDMA[$1]} had_device=
    # Early at boot the RDMA driver may not be there yet; then no device is waited for.
    [[ -e $device ]] && had_device=yes
    # Asked again right before each reload: an engine may have started since the last one.
    if rdma_in_use; then
        problem "$dev: not reloaded, RDMA is in use ($IN_USE); the values stay pending"
        return 1
    fi
    say "$dev: reloading the driver"
    if ! bounded "$CALL_LIMIT" devlink dev reload "pci/$pci" action driver_reinit; then
        problem "$dev: the reload failed: ${SAID//$'\n'/ }"
        return 1
    fi
    RELOADED=yes
    bounded 20 udevadm settle --timeout=15 || warn "$dev: udev did not settle: ${SAID//$'\n'/ }"
    if ! appear "$dev" "$pci" $((SECONDS + FUNCTION_WAIT)); then
        problem "$dev: did not come back within $FUNCTION_WAIT s of its reload"
        return 1
    fi
    deadline=$((SECONDS + FUNCTION_WAIT))
    until [[ -z $had_device || -e $device ]]; do
        if ((SECONDS >= deadline)); then
            problem "$dev: its RDMA device ${FUNCTION_RDMA[i]} did not come back within $FUNCTION_WAIT s of the reload"
            return 1
        fi
        sleep 0.2
    done
    read_note "$pci" || NOTE_COUNT=
    count=$(reload_count "$pci") || count=
    if [[ -z $count || -z $NOTE_COUNT ]] || ((count <= NOTE_COUNT)); then
        problem "$dev: devlink counts no reload that was good, so the values are not proven to be in effect"
        return 1
    fi
    write_note "$pci" "$NOTE_COUNT" "$(ifindex "$dev")"
    say "$dev: $NUM_QUEUES queues of $QUEUE_SIZE entries are in effect"
}

# order: the indexes of the functions, that which carries a default route last.
order() {
    local i defaults first=() last=()
    defaults=$(ip -4 route show default 2>/dev/null)
    for i in "${!FUNCTION_DEV[@]}"; do
        if [[ " ${defaults//$'\n'/ } " == *" dev ${FUNCTION_DEV[i]} "* ]]; then
            last+=("$i")
        else
            first+=("$i")
        fi
    done
    printf '%s\n' ${first[@]+"${first[@]}"} ${last[@]+"${last[@]}"}
}

for name in "$@"; do
    [[ " ${FUNCTION_DEV[*]:-} " == *" $name "* ]] || die "$name is no function of this node's plan"
done
take_lock lock
RELOADED=
# One wait for all of them: a driver that is not there must not cost the boot a wait for each function.
BEGUN=$SECONDS
ORDER=()
mapfile -t ORDER < <(order)
for index in ${ORDER[@]+"${ORDER[@]}"}; do
    [[ -n $index ]] || continue
    (($# == 0)) || [[ " $* " == *" ${FUNCTION_DEV[index]} "* ]] || continue
    if ((SECONDS - BEGUN >= RUN_LIMIT)); then
        problem "${FUNCTION_DEV[index]}: not looked at, $RUN_LIMIT s are over"
        continue
    fi
    if ! appear "${FUNCTION_DEV[index]}" "${FUNCTION_PCI[index]}" $((BEGUN + FUNCTION_WAIT)); then
        problem "${FUNCTION_DEV[index]} (${FUNCTION_PCI[index]}): not there after $FUNCTION_WAIT s"
        continue
    fi
    set_values "$index" || continue
    in_effect "$index" || reload_function "$index"
done
# A reload took away the function's own rules, and made those dead that lead to it.
if [[ -n $RELOADED ]] && systemctl is-active --quiet fabric-plan-mesh.service; then
    systemctl --no-block reload fabric-plan-mesh.service || problem "fabric-plan-mesh.service cannot be reloaded: run mesh-up.sh"
fi
finish
