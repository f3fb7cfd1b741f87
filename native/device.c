/* SPDX-License-Identifier: Apache-2.0 */
#include "marker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define FABRIC_PORT 1 /* each function of a ConnectX-7 is an RDMA device with one port */

static const char STACK_HINT[] = "load the driver (modprobe mlx5_ib ib_uverbs) and look at `rdma dev`";

/* Writes the names as "a, b, c"; cut short, never past the end, when there are too many. */
static void list_names(struct ibv_device *const *devices, int count, char *text, size_t size)
{
	size_t used = 0;

	(void)snprintf(text, size, "none");
	for (int i = 0; i < count && used < size; i++) {
		const int written = snprintf(text + used, size - used, "%s%s", i == 0 ? "" : ", ",
					     ibv_get_device_name(devices[i]));

		if (written < 0)
			return;
		used += (size_t)written;
	}
}

static struct ibv_device *find_device(struct ibv_device *const *devices, int count, const char *name)
{
	for (int i = 0; i < count; i++)
		if (strcmp(ibv_get_device_name(devices[i]), name) == 0)
			return devices[i];
	return NULL;
}

static int open_named(struct ibv_device *const *devices, int count, const char *name, struct ibv_context **context)
{
	struct ibv_device *device = find_device(devices, count, name);

	if (device == NULL) {
		char names[512];

		list_names(devices, count, names, sizeof(names));
		report(SEVERITY_ERROR, 0, STACK_HINT, "no such RDMA device; there are: %s", names);
		return EXIT_NO_DEVICE;
	}
	if (!mlx5dv_is_supported(device)) {
		report(SEVERITY_ERROR, 0, "give a function of a ConnectX card", "not a device of the mlx5 driver");
		return EXIT_NO_DEVICE;
	}
	*context = ibv_open_device(device);
	if (*context == NULL) {
		const bool denied = errno == EPERM || errno == EACCES;

		report(SEVERITY_ERROR, errno,
		       denied ? "run it as root, or let the unit use /dev/infiniband" : STACK_HINT,
		       "cannot open the RDMA device");
		return denied ? EXIT_NO_PERMISSION : EXIT_NO_DEVICE;
	}
	return EXIT_DONE;
}

static int require_ethernet(struct ibv_context *context)
{
	struct ibv_port_attr port = {0};
	const int error = ibv_query_port(context, FABRIC_PORT, &port);

	if (error != 0) {
		report(SEVERITY_ERROR, error, STACK_HINT, "cannot read port %d", FABRIC_PORT);
		return EXIT_NO_DEVICE;
	}
	if (port.link_layer != IBV_LINK_LAYER_ETHERNET) {
		report(SEVERITY_ERROR, 0, "set the port to Ethernet (mlxconfig LINK_TYPE_P1=2) and reboot",
		       "port %d is not Ethernet, so its packets have no EtherType", FABRIC_PORT);
		return EXIT_NO_DEVICE;
	}
	return EXIT_DONE;
}

/* Events are read only after poll() saw one, but must never hold up a stop. */
static int make_events_nonblocking(struct ibv_context *context)
{
	const int flags = fcntl(context->async_fd, F_GETFL);

	if (flags >= 0 && fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK) == 0)
		return EXIT_DONE;
	report(SEVERITY_ERROR, errno, NULL, "cannot watch the events of the device");
	return EXIT_SYSTEM;
}

int open_device(const char *name, struct ibv_context **context)
{
	int count = 0;
	struct ibv_device **devices = ibv_get_device_list(&count);
	int result;

	if (devices == NULL) {
		report(SEVERITY_ERROR, errno, STACK_HINT, "cannot list the RDMA devices");
		return EXIT_NO_DEVICE;
	}
	result = open_named(devices, count, name, context);
	ibv_free_device_list(devices);
	if (result != EXIT_DONE)
		return result;
	result = require_ethernet(*context);
	if (result == EXIT_DONE)
		result = make_events_nonblocking(*context);
	if (result != EXIT_DONE)
		(void)close_device(*context);
	return result;
}

int close_device(struct ibv_context *context)
{
	if (ibv_close_device(context) == 0)
		return EXIT_DONE;
	report(SEVERITY_ERROR, errno, "the kernel closes it with the process", "cannot close the RDMA device");
	return EXIT_LEFT_BEHIND;
}

bool device_is_gone(struct ibv_context *context)
{
	struct ibv_async_event event;
	enum ibv_event_type type;

	if (ibv_get_async_event(context, &event) != 0)
		return errno != EAGAIN && errno != EINTR;
	type = event.event_type;
	ibv_ack_async_event(&event);
	return type == IBV_EVENT_DEVICE_FATAL;
}
