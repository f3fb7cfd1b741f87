/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#undef ibv_query_port

static int calls;
static int objects_made;
static int objects_alive;

static int number_of(const char *variable)
{
	const char *text = getenv(variable);

	return text != NULL ? atoi(text) : 0;
}

static unsigned long long effective_capabilities(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};

	if (syscall(SYS_capget, &header, data) != 0)
		abort();
	return (unsigned long long)data[1].effective << 32 | data[0].effective;
}

/* Whether `variable`, a list as "3,5", names `number`. */
static bool lists(const char *variable, int number)
{
	for (const char *text = getenv(variable); text != NULL; text = strchr(text, ',')) {
		text += *text == ',';
		if (atoi(text) == number)
			return true;
	}
	return false;
}

int standin_call(const char *name, const char *fields, ...)
{
	char line[4096];
	char detail[2048];
	va_list arguments;
	const int call = ++calls;
	const int error = lists("STANDIN_FAIL_AT", call) ? number_of("STANDIN_ERRNO") : 0;
	int length;
	int file;

	va_start(arguments, fields);
	vsnprintf(detail, sizeof(detail), fields, arguments);
	va_end(arguments);
	length = snprintf(line, sizeof(line), "{\"call\": \"%s\", \"number\": %d, \"failed\": %s, \"capabilities\": %llu%s%s}\n",
			  name, call, error != 0 ? "true" : "false", effective_capabilities(),
			  detail[0] != '\0' ? ", " : "", detail);
	file = open(getenv("STANDIN_RECORD"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	if (file < 0 || write(file, line, (size_t)length) != length)
		abort();
	close(file);
	if (call == number_of("STANDIN_SIGNAL_AT"))
		kill(getpid(), number_of("STANDIN_SIGNAL"));
	return error;
}

int standin_born(void)
{
	objects_alive++;
	return ++objects_made;
}

void standin_died(void)
{
	objects_alive--;
}

static int destroy_flow(struct ibv_flow *flow)
{
	struct standin_flow *standin = (struct standin_flow *)flow;
	const int error = standin_call("destroy_flow", "\"id\": %d", standin->id);

	if (error != 0)
		return error;
	standin->matcher->users--;
	standin->action->users--;
	standin_died();
	free(standin);
	return 0;
}

static int destroy_flow_action(struct ibv_flow_action *action)
{
	struct standin_action *standin = (struct standin_action *)action;
	const int error = standin_call("destroy_flow_action", "\"id\": %d", standin->id);

	if (error != 0)
		return error;
	if (standin->users != 0)
		return EBUSY;
	standin_died();
	free(standin);
	return 0;
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attributes, size_t size)
{
	const struct standin_device *device = (const struct standin_device *)context->device;
	const int error = standin_call("query_port", "\"port\": %d", port);

	if (error != 0)
		return error;
	memset(attributes, 0, size);
	attributes->state = IBV_PORT_ACTIVE;
	attributes->link_layer = device->is_ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
	return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attributes)
{
	(void)context;
	(void)port;
	(void)attributes;
	return EOPNOTSUPP; /* of the old ABI, which an extended context never reaches */
}

struct ibv_device **ibv_get_device_list(int *count)
{
	const char *text = getenv("STANDIN_DEVICES");
	const int error = standin_call("get_device_list", "%s", "");
	struct ibv_device **list;
	char *copy;
	char *rest = NULL;

	if (error != 0) {
		errno = error;
		return NULL;
	}
	list = calloc(33, sizeof(*list));
	copy = strdup(text != NULL ? text : "");
	*count = 0;
	for (char *word = strtok_r(copy, " ", &rest); word != NULL && *count < 32; word = strtok_r(NULL, " ", &rest)) {
		struct standin_device *device = calloc(1, sizeof(*device));
		char driver[16];
		char link[16];

		if (sscanf(word, "%63[^:]:%15[^:]:%15s", device->name, driver, link) != 3)
			abort();
		device->is_mlx5 = strcmp(driver, "mlx5") == 0;
		device->is_ethernet = strcmp(link, "ethernet") == 0;
		list[(*count)++] = &device->device;
	}
	free(copy);
	return list;
}

/* The true library keeps a device alive while a context is open on it: so does the copy in ibv_open_device(). */
void ibv_free_device_list(struct ibv_device **list)
{
	(void)standin_call("free_device_list", "%s", "");
	for (struct ibv_device **device = list; *device != NULL; device++)
		free(*device);
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return ((struct standin_device *)device)->name;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	const int error = standin_call("open_device", "\"device\": \"%s\"", ibv_get_device_name(device));
	const char *events = getenv("STANDIN_EVENTS");
	struct verbs_context *verbs;
	struct standin_device *copy;

	if (error != 0) {
		errno = error;
		return NULL;
	}
	verbs = calloc(1, sizeof(*verbs));
	copy = malloc(sizeof(*copy));
	memcpy(copy, device, sizeof(*copy));
	verbs->sz = sizeof(*verbs);
	verbs->query_port = query_port;
	verbs->ibv_destroy_flow = destroy_flow;
	verbs->destroy_flow_action = destroy_flow_action;
	verbs->context.device = &copy->device;
	verbs->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	verbs->context.async_fd = events != NULL ? open(events, O_RDWR | O_CLOEXEC) : eventfd(0, EFD_CLOEXEC);
	if (verbs->context.async_fd < 0)
		abort();
	return &verbs->context;
}

int ibv_close_device(struct ibv_context *context)
{
	struct verbs_context *verbs = verbs_get_ctx(context);
	const int error = standin_call("close_device", "\"alive\": %d", objects_alive);

	if (error != 0) {
		errno = error;
		return -1;
	}
	close(context->async_fd);
	free(context->device);
	free(verbs);
	return 0;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	const int error = standin_call("get_async_event", "%s", "");
	int type;

	if (error != 0) {
		errno = error;
		return -1;
	}
	if (read(context->async_fd, &type, sizeof(type)) != sizeof(type))
		return -1;
	memset(event, 0, sizeof(*event));
	event->event_type = (enum ibv_event_type)type;
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	(void)standin_call("ack_async_event", "\"type\": %d", (int)event->event_type);
}
