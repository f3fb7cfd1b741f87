/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fabric-plan-marker: tags RoCE v2 packets at the sender, so that relays forward them in hardware.
 *
 * One process owns the RDMA-TX rules of one RDMA device and holds them for as long as it lives. Nothing here
 * allocates memory of its own: every list is bounded and lives on the stack of main().
 */
#ifndef FABRIC_PLAN_MARKER_H
#define FABRIC_PLAN_MARKER_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* strerrorname_np(); every file includes this one first */
#endif

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef MARKER_VERSION
#define MARKER_VERSION "0.1.0"
#endif

#define MARKER_NAME "fabric-plan-marker"
#define MARKER_STATE_DIR "/run/fabric-plan-marker"

/* What the process returns; docs/marker.md and --help list the same. The numbers are those of sysexits.h. */
enum marker_exit {
	EXIT_DONE = 0,          /* stopped by a signal with all rules removed, or --check passed */
	EXIT_USAGE = 64,        /* the command line is wrong; nothing was touched */
	EXIT_NO_DEVICE = 69,    /* no such RDMA device here, or it cannot carry such rules */
	EXIT_LEFT_BEHIND = 70,  /* a rule could not be removed; the kernel removes it with the process */
	EXIT_SYSTEM = 71,       /* the operating system refused a call that always works */
	EXIT_STATE_DIR = 73,    /* the state directory or its lock file is missing, unsafe or unwritable */
	EXIT_DEVICE_GONE = 74,  /* the device went away while its rules were held */
	EXIT_OWNED = 75,        /* another marker holds this device */
	EXIT_REFUSED = 76,      /* the driver or the firmware refused a rule */
	EXIT_NO_PERMISSION = 77 /* CAP_NET_RAW is missing, or the device file cannot be opened */
};

/* Tag of a packet that still has to cross k relays: 0x88b4 + k. */
#define TAG_FIRST 0x88b5
#define TAG_LAST 0x88b8
#define TAG_LAST_EXPERIMENTAL 0x88b6 /* beyond it the numbers are registered to others */
#define TAG_COUNT (TAG_LAST - TAG_FIRST + 1)

#define MAX_DESTINATIONS 64
#define MAX_RULES (MAX_DESTINATIONS + 1) /* and the one of the source port */

/* The range that RoCE v2 senders draw UDP source ports from. */
#define SOURCE_PORT_FIRST 0xc000
#define SOURCE_PORT_LAST 0xffff

struct destination {
	struct in_addr address;
	uint16_t tag;
};

struct config {
	const char *device;
	const char *state_dir;
	struct destination destinations[MAX_DESTINATIONS];
	size_t destination_count;
	uint16_t source_port; /* 0: no source-port rule */
	uint16_t source_port_tag;
	bool managed;
	bool check;
};

/* args.c: fills `config`; ends the process for --help, --version and every mistake. */
void parse_arguments(int argc, char *const argv[], struct config *config);

/* report.c */
enum severity { SEVERITY_ERROR = 3, SEVERITY_WARNING = 4, SEVERITY_INFO = 6 };

/* Sets where messages come from; `managed` puts the severity in front of each line, as the journal reads it. */
void report_setup(const char *device, bool managed);
/* One message with an optional hint (NULL: none); `error` is an errno value, or 0. */
void report(enum severity severity, int error, const char *hint, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* owner.c: `*lock` is the descriptor that holds the device's lock until it is closed. */
int take_ownership(const char *state_dir, const char *device, int *lock);

/* privilege.c */
int forbid_new_privileges(void);
int require_net_raw(void);
int keep_only_net_raw(void);
int drop_all_privileges(void);

/* device.c */
int open_device(const char *name, struct ibv_context **context);
int close_device(struct ibv_context *context);
/* Reads one pending event; true when it says that the device is no longer there. */
bool device_is_gone(struct ibv_context *context);

/* rules.c: everything created, in order of creation, so that removal is the way back. */
enum rule_object_kind { OBJECT_MATCHER, OBJECT_ACTION, OBJECT_FLOW };

struct rule_object {
	enum rule_object_kind kind;
	union {
		struct mlx5dv_flow_matcher *matcher;
		struct ibv_flow_action *action;
		struct ibv_flow *flow;
	} as;
};

struct rule_set {
	struct rule_object objects[2 + TAG_COUNT + MAX_RULES];
	size_t object_count;
	struct ibv_flow_action *action_of_tag[TAG_COUNT]; /* borrowed from `objects` */
};

/* Stops early, with EXIT_DONE, when `stop()` turns true between two steps. Removes nothing itself. */
int install_rules(struct rule_set *set, struct ibv_context *context, const struct config *config, bool (*stop)(void));
/* Removes everything, the last created first. With `device_gone` failures are expected and not reported. */
int remove_rules(struct rule_set *set, bool device_gone);

/* notify.c: tells the service manager, where there is one (NOTIFY_SOCKET). */
int notify(const char *state);

/* signals.c: SIGTERM, SIGINT and SIGHUP become a descriptor that can be asked at any time. */
int setup_signals(bool end_with_parent);
bool stop_requested(void);
int wait_for_stop_or_event(int event_descriptor, bool *event_pending);

#endif
