/* SPDX-License-Identifier: Apache-2.0 */
#include "marker.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* The first failure is the one to report: a later one, of the clean-up, mostly follows from it. */
static int first_of(int earlier, int later)
{
	return earlier != EXIT_DONE ? earlier : later;
}

static int say_ready(const struct config *config)
{
	const size_t rules = config->destination_count + (config->source_port != 0 ? 1 : 0);
	char state[128];

	(void)snprintf(state, sizeof(state), "READY=1\nSTATUS=Holding %zu rule%s on %s", rules, rules == 1 ? "" : "s",
		       config->device);
	report(SEVERITY_INFO, 0, NULL, "holding %zu rule%s", rules, rules == 1 ? "" : "s");
	return notify(state);
}

static int hold(struct ibv_context *context, bool *device_gone)
{
	while (!stop_requested()) {
		bool event_pending = false;
		const int result = wait_for_stop_or_event(context->async_fd, &event_pending);

		if (result != EXIT_DONE)
			return result;
		if (event_pending && device_is_gone(context)) {
			*device_gone = true;
			report(SEVERITY_ERROR, 0, "start the marker again once the device is back",
			       "the device went away, and its rules with it");
			return EXIT_DEVICE_GONE;
		}
	}
	return EXIT_DONE;
}

/* From the open device on, everything is undone here, whatever happened in between. */
static int mark(const struct config *config, struct ibv_context *context)
{
	struct rule_set set = {0};
	bool device_gone = false;
	int result = install_rules(&set, context, config, stop_requested);

	if (result == EXIT_DONE)
		result = drop_all_privileges();
	if (result == EXIT_DONE && !stop_requested())
		result = say_ready(config);
	if (result == EXIT_DONE)
		result = hold(context, &device_gone);
	if (result == EXIT_DONE)
		/* A manager that cannot be told any more is no reason to keep rules. */
		(void)notify("STOPPING=1");
	return first_of(result, remove_rules(&set, device_gone));
}

static int own_and_mark(const struct config *config)
{
	struct ibv_context *context = NULL;
	int lock = -1;
	int result = require_net_raw();

	if (result == EXIT_DONE)
		result = take_ownership(config->state_dir, config->device, &lock);
	if (result != EXIT_DONE)
		return result;
	result = keep_only_net_raw();
	if (result == EXIT_DONE && !stop_requested())
		result = open_device(config->device, &context);
	if (context != NULL && result == EXIT_DONE) {
		result = mark(config, context);
		result = first_of(result, close_device(context));
	}
	(void)close(lock);
	return result;
}

static int check(const struct config *config)
{
	struct ibv_context *context = NULL;
	int result = open_device(config->device, &context);

	if (result == EXIT_DONE)
		result = close_device(context);
	if (result == EXIT_DONE)
		report(SEVERITY_INFO, 0, NULL, "arguments and device are right; nothing was installed");
	return result;
}

int main(int argc, char *argv[])
{
	struct config config = {0};
	int result;

	(void)umask(077);
	parse_arguments(argc, argv, &config);
	result = setup_signals(!config.managed);
	if (result == EXIT_DONE)
		result = forbid_new_privileges();
	if (result == EXIT_DONE)
		result = config.check ? check(&config) : own_and_mark(&config);
	return result;
}
