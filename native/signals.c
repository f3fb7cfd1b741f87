/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stop signal may come at any moment, also between two rules. It is kept pending and asked for where stopping is
 * safe, so that no handler ever runs beside the code that keeps the list of what exists.
 */
#include "marker.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

static int descriptor = -1;

int setup_signals(bool end_with_parent)
{
	sigset_t stop_signals;

	(void)sigemptyset(&stop_signals);
	(void)sigaddset(&stop_signals, SIGTERM);
	(void)sigaddset(&stop_signals, SIGINT);
	(void)sigaddset(&stop_signals, SIGHUP);
	/* A log that nobody reads any more must not leave rules without their owner. */
	if (signal(SIGPIPE, SIG_IGN) == SIG_ERR || sigprocmask(SIG_BLOCK, &stop_signals, NULL) != 0) {
		report(SEVERITY_ERROR, errno, NULL, "cannot set up signals");
		return EXIT_SYSTEM;
	}
	descriptor = signalfd(-1, &stop_signals, SFD_NONBLOCK | SFD_CLOEXEC);
	if (descriptor < 0) {
		report(SEVERITY_ERROR, errno, NULL, "cannot open a signal descriptor");
		return EXIT_SYSTEM;
	}
	if (end_with_parent && prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0) != 0) {
		report(SEVERITY_ERROR, errno, NULL, "cannot tie the lifetime to the parent process");
		return EXIT_SYSTEM;
	}
	return EXIT_DONE;
}

/* The signal stays pending: once true, this stays true. */
bool stop_requested(void)
{
	struct pollfd poll_entry = {.fd = descriptor, .events = POLLIN};

	return poll(&poll_entry, 1, 0) == 1;
}

int wait_for_stop_or_event(int event_descriptor, bool *event_pending)
{
	struct pollfd poll_entries[] = {
		{.fd = descriptor, .events = POLLIN},
		{.fd = event_descriptor, .events = POLLIN},
	};

	/* EINTR comes from a debugger or a stopped job alone: the signals that matter are blocked. */
	while (poll(poll_entries, 2, -1) < 0)
		if (errno != EINTR) {
			report(SEVERITY_ERROR, errno, NULL, "cannot wait for signals");
			return EXIT_SYSTEM;
		}
	*event_pending = poll_entries[1].revents != 0;
	return EXIT_DONE;
}
