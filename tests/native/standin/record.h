/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stand-ins for libibverbs and libmlx5 that record every call as a line of JSON and fail or send a signal on demand.
 *
 *   STANDIN_RECORD     the file that the lines are appended to
 *   STANDIN_DEVICES    what is there, as "NAME:DRIVER:LINK ..." (mlx5 or other; ethernet or infiniband)
 *   STANDIN_FAIL_AT    the numbers of the calls that fail (the first is 1), as "3,5", with errno STANDIN_ERRNO
 *   STANDIN_SIGNAL_AT  the number of the call during which signal STANDIN_SIGNAL arrives
 *   STANDIN_EVENTS     a FIFO from which asynchronous events are read, each an int
 *
 * Like the kernel, they refuse to destroy a matcher or an action that a flow still uses.
 */
#ifndef STANDIN_RECORD_H
#define STANDIN_RECORD_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdbool.h>

struct standin_device {
	struct ibv_device device;
	char name[64];
	bool is_mlx5;
	bool is_ethernet;
};

/* What flows refer to: a matcher or an action. */
struct mlx5dv_flow_matcher {
	struct ibv_context *context;
	int id;
	int users;
};

struct standin_action {
	struct ibv_flow_action action;
	int id;
	int users;
};

struct standin_flow {
	struct ibv_flow flow;
	int id;
	struct mlx5dv_flow_matcher *matcher;
	struct standin_action *action;
};

/* Records one call, `fields` being the rest of its JSON object; returns the errno that it has to fail with, or 0. */
int standin_call(const char *name, const char *fields, ...) __attribute__((format(printf, 2, 3)));
/* A fresh number for an object, and the number of objects that live. */
int standin_born(void);
void standin_died(void);

#endif
